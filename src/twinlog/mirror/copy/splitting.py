"""Batches that the target refuses as too large, though they are within `max.message.bytes`.

A broker whose topic has a `compression.type` of its own recompresses what comes with another
codec, and measures the batch once more behind that. How large it will be nobody knows before. So
such a batch is cut into smaller ones and sent again, and what comes behind is cut before it is
sent. Ordinals stay, and with them sequences and the offset map; only a record that is refused by
itself is too large.

A refusal appends nothing, and what was on its way behind the batch is refused for its sequence. So
all of it waits until everything is answered, and goes out again in its order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from twinlog.errors import CorruptData, PartitionError
from twinlog.mirror.copy.intake import OutBatch
from twinlog.model import sequence_of
from twinlog.wire.error_codes import (
    MESSAGE_TOO_LARGE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    RECORD_LIST_TOO_LARGE,
)
from twinlog.wire.record_batch import read_header, rewrite_header
from twinlog.wire.records import decode_rows, encode_sized

TOO_LARGE: Final = frozenset({MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE})
NO_LIMIT: Final = (1 << 31) - 1


@dataclass(slots=True)
class Splitter:
    """What one copy knows of sizes that its target refuses."""

    producer_id: int
    most_bytes: int = NO_LIMIT
    """Batches of several records that are larger are cut before they are sent."""
    refused: list[OutBatch] = field(default_factory=list)
    """To be sent again when nothing is in flight any more."""
    reason: PartitionError | None = None
    """Of the first of them, for the case that it cannot be cut."""

    def keeps(self, batch: OutBatch, error: int, reason: PartitionError) -> bool:
        """Whether a batch that was answered so is to be sent again; then it is kept here."""
        if self.refused:
            keeps = error in TOO_LARGE or error == OUT_OF_ORDER_SEQUENCE_NUMBER
        else:
            keeps = error in TOO_LARGE and batch.count > 1
            self.reason = reason
        if keeps:
            self.refused.append(batch)
        return keeps

    def cut(self) -> tuple[list[OutBatch], PartitionError | None]:
        """What was refused, in smaller batches, and what is wrong where that cannot be."""
        refused, self.refused = self.refused, []
        first, *behind = refused
        self.most_bytes = min(self.most_bytes, len(first.data) // 2)
        parts = self.parts(first)
        reason = self.reason if len(parts) == 1 else None
        for batch in behind:
            parts += self.parts(batch)
        for batch in parts:
            batch.sent = 0  # each was surely refused: a repeat of it would be another lane's
        return parts, reason

    def parts(self, batch: OutBatch) -> list[OutBatch]:
        """The same records in batches that are not larger than what was refused."""
        if len(batch.data) <= self.most_bytes or batch.count == 1:
            return [batch]
        try:
            header, rows = read_header(batch.data), decode_rows(batch.data)
        except CorruptData:
            return [batch]  # a broker that takes it apart says so itself
        out: list[OutBatch] = []
        done = 0
        half = len(rows) // 2  # ours may be smaller than the source's, and is not smaller there
        sized = (
            encoded
            for some in (rows.slice(0, half), rows.slice(half, len(rows)))
            for encoded in encode_sized(
                some, codec=header.codec, limit_bytes=self.most_bytes, alone_bytes=NO_LIMIT
            )
        )
        for encoded in sized:
            count = len(encoded.rows)
            view = memoryview(encoded.data)
            ordinal = batch.ordinal + done
            rewrite_header(
                view,
                producer_id=self.producer_id,
                producer_epoch=0,
                base_sequence=sequence_of(ordinal),
            )
            runs = tuple(run for run in batch.runs if ordinal <= run.ordinal < ordinal + count)
            has_last = bool(batch.runs) and batch.runs[-1] in runs
            done += count
            out.append(
                OutBatch(
                    ordinal=ordinal,
                    count=count,
                    data=view,
                    upstream=batch.upstream_at(done - count),
                    upstream_next=batch.upstream_at(done - 1) + 1,
                    runs=runs,
                    fingerprint=batch.fingerprint if has_last else None,
                    max_timestamp=encoded.most_timestamp,
                    oldest_timestamp=encoded.least_timestamp,
                    leader_epoch=batch.leader_epoch,
                    offsets=batch.offsets and batch.offsets[done - count : done],
                )
            )
        out[-1].upstream_next = batch.upstream_next
        return out
