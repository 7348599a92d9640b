"""Checkpoint records: MirrorMaker 2's key and value, and headers that MirrorMaker 2's clients
ignore.

A re-created topic has the same name, and records at the same offsets. So one header contains the
topic IDs, which are never reused. A checkpoint alone does not show that the group's offset was set.
The sync may be disabled, the group may be active, or the process may have died before the sync. So
a second header marks checkpoints whose offset the group already has. If no sync is configured,
checkpoints of mirrored topics have no headers, so they are equal to MirrorMaker 2's byte for byte.

`is_due` decides which checkpoints are written. Its rules are MirrorMaker 2's, extended by exact
translation:

- A checkpoint is written if it is the first of its group and partition. It is also written if the
  group went back on the source, or if the target offset advanced.
- In addition to MirrorMaker 2's rules, it is written if its target offset is lower than that of the
  last checkpoint, but exact. Then the target topic was re-created, or MirrorMaker 2 wrote the last
  checkpoint. It is also written if only the upstream offset advanced.
- It is not written if its target offset is lower than that of the last checkpoint and inexact,
  because the copy may only seem shorter than before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from twinlog.errors import CorruptData
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.wire.mm2_records import Checkpoint
from twinlog.wire.records import Record

TOPIC_IDS_HEADER: Final = "twinlog.ids"
"""Header with two topic IDs of 16 bytes each: the original topic's ID, then the copy's."""
ID_BYTES: Final = 16
APPLIED_HEADER: Final = "twinlog.seen-to"
"""Empty header of a checkpoint whose offset the group on the target already has."""


class CopyIds(NamedTuple):
    """IDs of a checkpoint's two topics: the original and its copy, whichever is on the target."""

    original: TopicId
    copy: TopicId


class CheckpointRow(NamedTuple):
    checkpoint: Checkpoint
    ids: CopyIds | None
    """None if MirrorMaker 2 or an earlier release wrote the row, or if no sync was configured."""
    is_applied: bool = False

    @property
    def key(self) -> tuple[str, TopicPartition]:
        return self.checkpoint.group, self.checkpoint.topic_partition

    @classmethod
    def decode(cls, record: Record) -> CheckpointRow:
        """Decode a record of a checkpoints topic. Raises CorruptData."""
        headers = dict(record.headers)
        ids = headers.get(TOPIC_IDS_HEADER) or b""
        original, copy = TopicId(ids[:ID_BYTES].hex()), TopicId(ids[ID_BYTES:].hex())
        return cls(
            Checkpoint.decode(record.key, record.value),
            CopyIds(original, copy) if len(ids) == 2 * ID_BYTES else None,
            APPLIED_HEADER in headers,
        )

    @classmethod
    def decode_all(cls, records: Iterable[Record]) -> Iterator[CheckpointRow]:
        """Yield the valid checkpoints among these records. Like Java's clients, ignore the rest."""
        for record in records:
            with suppress(CorruptData):
                yield cls.decode(record)

    def is_of(self, original: TopicId, copy: TopicId) -> bool:
        """Return True unless the row is known to be about another pair of topics."""
        known = () if self.ids is None else (*self.ids, original, copy)
        return NO_TOPIC_ID in known or self.ids in (None, CopyIds(original, copy))

    def record(self, now_ms: int) -> Record:
        headers: list[tuple[str, bytes | None]] = []
        if self.ids is not None:
            headers.append((TOPIC_IDS_HEADER, self.ids.original.raw + self.ids.copy.raw))
        if self.is_applied:
            headers.append((APPLIED_HEADER, b""))
        checkpoint = self.checkpoint
        return Record(0, now_ms, checkpoint.key(), checkpoint.value(), tuple(headers))

    def is_written(self, last: CheckpointRow | None) -> bool:
        """Return True if `last`, the newest row of group and partition, has the same values and
        IDs.
        """
        return last is not None and (last.checkpoint, last.ids) == (self.checkpoint, self.ids)

    def is_due(self, last: CheckpointRow | None, *, is_exact: bool) -> bool:
        """Return True if this row must be written. `last`: the newest row of group and
        partition.
        """
        if last is None:
            return True
        if None not in (last.ids, self.ids) and last.ids != self.ids:
            return True
        if last.checkpoint == self.checkpoint:
            return self.is_applied and not last.is_applied and last.ids is not None
        before, now = last.checkpoint, self.checkpoint
        went_back = now.upstream_offset < before.upstream_offset
        return went_back or is_exact or now.downstream_offset >= before.downstream_offset


Newest: TypeAlias = Mapping[tuple[str, TopicPartition], CheckpointRow]
"""The newest checkpoint of each group and partition of the target."""
