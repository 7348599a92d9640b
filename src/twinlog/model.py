"""The few values that every layer uses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self


class TopicPartition(NamedTuple):
    """One partition of a topic. It is a tuple because it is used as a key everywhere."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LeaseCopied(NamedTuple):
    """The records of one partition that the lanes of one lease have copied."""

    topic: str
    partition: int
    first: int
    """The source offset at which the lease began, or -1 if unknown."""
    next: int
    """The source offset that follows them."""
    records: int
    bytes: int


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """One directed replication between two clusters, by their names in the configuration file.

    Topic names on the target may have another alias in place of `source` (`source.cluster.alias`).
    """

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"

    @classmethod
    def of(cls, name: str) -> Self:
        """Return the flow with this name, as rows of the state topic have it: `A->B`."""
        source, _, target = name.partition("->")
        return cls(source, target)

    @property
    def reverse(self) -> Self:
        """The flow from this flow's target to its source."""
        return type(self)(self.target, self.source)


OWN_GROUPS: Final = "__twinlog-"
"""Prefix of the groups in which Twinlog keeps its own numbers as offsets."""


def is_own_group(group: str) -> bool:
    """Return True if the group's offsets are not a consumer's positions in this cluster's logs.

    They are numbers of micro-batches (`cluster.groups.commit_mark`) or offsets of the other cluster
    (`control.failback.replay`). So no filter selects such a group, and its offsets are never
    translated, synced or reset.
    """
    return group.startswith(OWN_GROUPS)


class Isolation(StrEnum):
    """Whether a reader sees records of open and aborted transactions, by `isolation.level`."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"

    @property
    def number(self) -> int:
        """The number in requests."""
        return int(self is Isolation.READ_COMMITTED)


class StartKind(StrEnum):
    """Kinds of start positions."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    OFFSET = "offset"


class StartAt(NamedTuple):
    """Where a partition begins that was never copied."""

    kind: StartKind = StartKind.EARLIEST
    value: int = -1
    """Milliseconds since 1970, or the upstream offset."""


EARLIEST = StartAt()


class TopicId(str):
    """A Kafka topic ID (KIP-516) as 32 hex digits. The zero ID means that the broker has none."""

    __slots__ = ()

    @property
    def raw(self) -> bytes:
        return bytes.fromhex(self)


NO_TOPIC_ID = TopicId("0" * 32)


def text_as(kind: Any, value: Any) -> Any:
    """Return a TopicId or another kind of text from text, as msgspec's `dec_hook`."""
    if type(value) is not str:
        raise TypeError(f"{type(value).__name__} in place of text")
    return kind(value)


SEQUENCE_MODULUS = 1 << 31
"""Producer sequences wrap here (KIP-98): from 2^31-1 to 0."""


def sequence_of(ordinal: int) -> int:
    """Return the producer sequence of an ordinal."""
    return ordinal % SEQUENCE_MODULUS


def sequences_ahead(sequence: int, expected: int) -> int:
    """Return by how many sequences one is after (+) or before (-) the expected one, across the
    wrap.

    Half of all sequences are after and half before, as in serial number arithmetic (RFC 1982).
    """
    half = SEQUENCE_MODULUS // 2
    return (sequence - expected + half) % SEQUENCE_MODULUS - half
