"""Values that every layer uses: partitions, flows, start positions, topic IDs, sequences."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self


class TopicPartition(NamedTuple):
    """One partition of a topic. It is a tuple because it is the key of many mappings."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LeaseCopy(NamedTuple):
    """The records of one partition that the lanes of one lease have copied."""

    topic: str
    partition: int
    first: int | None
    """The source offset at which the lease began, or None if unknown."""
    next: int
    """The source offset that follows them."""
    records: int
    bytes: int


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """The replication from one cluster to another, by their aliases in the configuration file.

    Topic names on the target may begin with another alias than `source` (`source.cluster.alias`).
    """

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"

    @classmethod
    def of(cls, name: str) -> Self:
        """Return the flow with a name like `A->B`, as in rows of the state topic."""
        source, _, target = name.partition("->")
        return cls(source, target)

    @property
    def spellings(self) -> tuple[str, str]:
        """`A->B`, and `A:B`, which needs no quotes in a shell and no escape in a URL."""
        return str(self), f"{self.source}:{self.target}"

    @property
    def reverse(self) -> Self:
        """The flow in the opposite direction."""
        return type(self)(self.target, self.source)


OWN_GROUPS: Final = "__twinlog-"
"""Prefix of groups whose offsets are numbers of Twinlog's own."""


def is_own_group(group: str) -> bool:
    """Return True if Twinlog stores numbers of its own as the group's offsets.

    They are numbers of micro-batches (`cluster.groups.commit_mark`), or offsets of the other
    cluster (`control.failback.replay`), and not positions of a consumer. So no filter selects such
    a group, and its offsets are never translated, synced or reset.
    """
    return group.startswith(OWN_GROUPS)


class Isolation(StrEnum):
    """`isolation.level`: whether a reader gets records of open and aborted transactions."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"

    @property
    def number(self) -> int:
        """The isolation level's number in requests."""
        return int(self is Isolation.READ_COMMITTED)


class StartKind(StrEnum):
    """How a start position is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    OFFSET = "offset"


class StartAt(NamedTuple):
    """Where the copy of a partition that was never copied begins."""

    kind: StartKind = StartKind.EARLIEST
    value: int = -1
    """Milliseconds since 1970, or the upstream offset."""


EARLIEST = StartAt()


class TopicId(str):
    """A topic ID (KIP-516) as 32 hex digits. The zero ID means that the broker has none."""

    __slots__ = ()

    @property
    def raw(self) -> bytes:
        return bytes.fromhex(self)


NO_TOPIC_ID = TopicId("0" * 32)


def text_as(kind: Any, value: Any) -> Any:
    """Convert text to a TopicId or another subclass of `str`, as msgspec's `dec_hook`."""
    if type(value) is not str:
        raise TypeError(f"{type(value).__name__} instead of text")
    return kind(value)


SEQUENCE_MODULUS = 1 << 31
"""Number of producer sequences (KIP-98): after 2^31-1 follows 0."""


def sequence_of(ordinal: int) -> int:
    """Return the producer sequence of a record with this ordinal."""
    return ordinal % SEQUENCE_MODULUS


def sequences_ahead(sequence: int, expected: int) -> int:
    """Return how far a sequence is after (+) or before (-) the expected one, also across the wrap.

    Half of all sequences count as after and half as before (serial number arithmetic, RFC 1982).
    """
    half = SEQUENCE_MODULUS // 2
    return (sequence - expected + half) % SEQUENCE_MODULUS - half
