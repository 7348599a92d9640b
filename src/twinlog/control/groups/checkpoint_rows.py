"""Checkpoint records: MirrorMaker 2's key and value, and headers that MirrorMaker 2's clients
ignore.

Names and offsets are reused: a re-created topic has a record at the same offset. So a header has
the topic IDs, which are not reused. And a checkpoint does not show that the group's offset was set:
the sync may have been disabled, the group active, or the process may have died before it. So
another header notes that. If no sync is configured, the headers are not needed, and the records are
equal to MirrorMaker 2's byte for byte.

Which checkpoints to write (`is_due`) is MirrorMaker 2's decision, with exact translation:

- A checkpoint is written if it is the first of its group and partition, if the group went back on
  the source, or if its target offset advanced.
- In addition, it is written if the target offset is now exact and has changed (the target topic was
  created again, or MirrorMaker 2 wrote an offset before it), or if only the upstream offset
  advanced.
- It is never written merely because the copy seems shorter than before: a limited offset does not
  go back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from twinlog.errors import CorruptData
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.wire.mm2_records import Checkpoint
from twinlog.wire.rows import Record

IDS: Final = "twinlog.ids"
"""The two topic IDs, 16 bytes each: of the copied topic, and of its copy."""
ID_BYTES: Final = 16
SEEN_TO: Final = "twinlog.seen-to"
"""Header of a checkpoint whose offset the group on the target already has."""


def is_due(last: Checkpoint | None, now: Checkpoint, *, is_exact: bool) -> bool:
    """Return whether a checkpoint must be written, compared with the last one of its group and
    partition.
    """
    if last is None:
        return True
    if now.upstream_offset < last.upstream_offset:
        return True
    if now.downstream_offset < last.downstream_offset:
        return is_exact
    return now != last


class CopyIds(NamedTuple):
    """The two topics of a checkpoint, in whichever direction it translates."""

    original: TopicId
    copy: TopicId


class CheckpointRow(NamedTuple):
    checkpoint: Checkpoint
    ids: CopyIds | None
    """None if MirrorMaker 2 or an earlier release wrote it, or if no sync was configured."""
    is_applied: bool = False

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
        """Yield the valid checkpoints of a log; others are ignored, as in Java's clients."""
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
        if self.is_applied:
            headers.append((SEEN_TO, b""))
        checkpoint = self.checkpoint
        return Record(0, now_ms, checkpoint.key(), checkpoint.value(), tuple(headers))

    def is_written(self, last: CheckpointRow | None) -> bool:
        """Return True if the newest row of its group and partition already has the same values and
        IDs.
        """
        return last is not None and (last.checkpoint, last.ids) == (self.checkpoint, self.ids)

    def is_due(self, last: CheckpointRow | None, *, is_exact: bool) -> bool:
        """Return True if it adds something to the newest row of its group and partition."""
        if last is None:
            return True
        if None not in (last.ids, self.ids) and last.ids != self.ids:
            return True
        if last.checkpoint == self.checkpoint:
            return self.is_applied and not last.is_applied and last.ids is not None
        return is_due(last.checkpoint, self.checkpoint, is_exact=is_exact)


Newest: TypeAlias = Mapping[tuple[str, TopicPartition], CheckpointRow]
"""The newest checkpoint of each group and partition of the target."""
