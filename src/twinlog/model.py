"""Values that every layer uses: partitions, flows, start positions, topic IDs, sequence numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self, TypeVar

T = TypeVar("T")


class TopicPartition(NamedTuple):
    """One partition of a topic. A tuple, because it is the key of many mappings."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LeaseCopy(NamedTuple):
    """The part of one partition that the lanes of a lease (a Spark job) have copied."""

    topic: str
    partition: int
    first: int | None
    """The source offset at which the copy by the lease began, or None if unknown."""
    next: int
    """The source offset up to which (exclusive) the lease has copied."""
    records: int
    bytes: int


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """The replication from one cluster to another, by their aliases in the configuration file.

    Names of remote topics may begin with another alias than `source` (`source.cluster.alias`).
    """

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"

    @classmethod
    def of(cls, name: str) -> Self:
        """Return the flow with a name like `A->B`, which rows of the state topic contain."""
        source, _, target = name.partition("->")
        return cls(source, target)

    @property
    def spellings(self) -> tuple[str, str]:
        """The names `A->B` and `A:B`. In shells and URLs, `A:B` needs no quotes or escapes."""
        return str(self), f"{self.source}:{self.target}"

    @property
    def reverse(self) -> Self:
        """The flow in the opposite direction."""
        return type(self)(self.target, self.source)


OWN_GROUPS: Final = "__twinlog-"
"""Prefix of the IDs of groups in which Twinlog stores its own numbers as offsets."""


def is_own_group(group: str) -> bool:
    """Return True if Twinlog stores numbers of its own as the group's offsets.

    Such offsets are numbers of micro-batches (`cluster.groups.commit_mark`), or offsets of the
    other cluster (`control.failback.replay`), but not a consumer's positions. So no filter selects
    such a group, and its offsets are never translated, synced or reset.
    """
    return group.startswith(OWN_GROUPS)


class Isolation(StrEnum):
    """`isolation.level`. READ_COMMITTED readers get no records of open or aborted transactions."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"

    @property
    def number(self) -> int:
        """The number of the isolation level in Kafka's requests."""
        return int(self is Isolation.READ_COMMITTED)


class StartKind(StrEnum):
    """The kind of a start position."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    OFFSET = "offset"


class StartAt(NamedTuple):
    """The start position of the copy of a partition that was never copied before."""

    kind: StartKind = StartKind.EARLIEST
    value: int = -1
    """Milliseconds since 1970 for TIMESTAMP, the upstream offset for OFFSET, or else -1."""


EARLIEST = StartAt()


class TopicId(str):
    """A topic ID (KIP-516) as 32 hex digits. Zeros if the broker does not support topic IDs."""

    __slots__ = ()

    @property
    def raw(self) -> bytes:
        return bytes.fromhex(self)


NO_TOPIC_ID = TopicId("0" * 32)


def text_as(kind: Any, value: Any) -> Any:
    """Convert text to `kind`, a subclass of `str` such as TopicId. For msgspec's `dec_hook`."""
    if type(value) is not str:
        raise TypeError(f"{type(value).__name__} instead of text")
    return kind(value)


def batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in portions (`itertools.batched` needs Python 3.12)."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


SEQUENCE_MODULUS = 1 << 31
"""Number of different sequence numbers of a producer (KIP-98): 2^31 - 1 is followed by 0."""


def sequence_of(ordinal: int) -> int:
    """Return a record's sequence number. `ordinal`: how many records its producer wrote to the
    partition before.
    """
    return ordinal % SEQUENCE_MODULUS


def sequences_ahead(sequence: int, expected: int) -> int:
    """Return how far a sequence number is after (+) or before (-) the expected one, modulo 2^31.

    Half of all numbers count as after the expected one, and half as before it (serial number
    arithmetic, RFC 1982).
    """
    half = SEQUENCE_MODULUS // 2
    return (sequence - expected + half) % SEQUENCE_MODULUS - half
