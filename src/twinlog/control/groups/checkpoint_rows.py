"""Checkpoints as they lie in their topic: MirrorMaker 2's key and value, and, in headers that its
readers do not read, what a process must know of those that others wrote.

Names and offsets come again: a re-created topic has a record at the same offset. Ids do not. And
that a checkpoint was written does not say that the group was set: the sync may have been off, the
group active, or the process dead before it. Where no sync sets groups nothing of this is needed,
and the records are MirrorMaker 2's byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from twinlog.errors import CorruptData
from twinlog.mirror.map.checkpoints import is_due
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.wire.mm2_records import Checkpoint
from twinlog.wire.record import Record

IDS: Final = "twinlog.ids"
"""The two topic ids, 16 bytes each: of the topic that was copied, and of its copy."""
ID_BYTES: Final = 16
SEEN_TO: Final = "twinlog.seen-to"
"""The group on the target has what it should of this commit."""


class CopyIds(NamedTuple):
    """The two topics that a checkpoint is about, whichever way it translates."""

    original: TopicId
    copy: TopicId


class CheckpointRow(NamedTuple):
    """One record."""

    checkpoint: Checkpoint
    ids: CopyIds | None
    """None: MirrorMaker 2 or an earlier release wrote it, or no sync was on."""
    is_seen_to: bool = False

    @property
    def key(self) -> tuple[str, TopicPartition]:
        return self.checkpoint.group, self.checkpoint.topic_partition

    @classmethod
    def decode(cls, record: Record) -> CheckpointRow:
        """Raises CorruptData."""
        headers = dict(record.headers)
        ids = headers.get(IDS) or b""
        original, copy = TopicId(ids[:ID_BYTES].hex()), TopicId(ids[ID_BYTES:].hex())
        return cls(
            Checkpoint.decode(record.key, record.value),
            CopyIds(original, copy) if len(ids) == 2 * ID_BYTES else None,
            SEEN_TO in headers,
        )

    @classmethod
    def all_in(cls, records: Iterable[Record]) -> Iterator[CheckpointRow]:
        """Those of a log that can be read; as Java's readers, ours pass over the others."""
        for record in records:
            with suppress(CorruptData):
                yield cls.decode(record)

    def is_of(self, original: TopicId, copy: TopicId) -> bool:
        """Return False only if the row is known to be about another pair of topics."""
        known = () if self.ids is None else (*self.ids, original, copy)
        return NO_TOPIC_ID in known or self.ids in (None, CopyIds(original, copy))

    def record(self, now_ms: int) -> Record:
        headers: list[tuple[str, bytes | None]] = []
        if self.ids is not None:
            headers.append((IDS, self.ids.original.raw + self.ids.copy.raw))
        if self.is_seen_to:
            headers.append((SEEN_TO, b""))
        one = self.checkpoint
        return Record(0, now_ms, one.key(), one.value(), tuple(headers))

    def is_said(self, last: CheckpointRow | None) -> bool:
        """Whether the newest of its group and partition names the same offsets and topics."""
        return last is not None and (last.checkpoint, last.ids) == (self.checkpoint, self.ids)

    def is_due(self, last: CheckpointRow | None, *, is_exact: bool) -> bool:
        """Whether it says something that the newest of its group and partition does not."""
        if last is None:
            return True
        if None not in (last.ids, self.ids) and last.ids != self.ids:
            return True
        if last.checkpoint == self.checkpoint:
            return self.is_seen_to and not last.is_seen_to and last.ids is not None
        return is_due(last.checkpoint, self.checkpoint, is_exact=is_exact)


Newest: TypeAlias = Mapping[tuple[str, TopicPartition], CheckpointRow]
"""The newest checkpoint of each group and partition of the target."""
