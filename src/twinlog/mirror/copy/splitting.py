"""Splits batches that the target rejects as too large although they fit `max.message.bytes`.

A broker whose topic has its own `compression.type` recompresses batches with another codec and then
checks the size again. That size cannot be predicted. So a rejected batch is split and sent again,
and later batches are split before they are sent. Ordinals do not change, nor do sequences and the
offset map. Only a single record that is rejected alone is too large.

A rejected batch is not appended, and the batches that were in flight after it are rejected for
their sequence. So all of them wait until everything is answered, and are then sent again in order.
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
    """The batch sizes that the target of one copy rejects, and the batches to send again."""

    producer_id: int
    most_bytes: int = NO_LIMIT
    """Larger batches of several records are split before they are sent."""
    refused: list[OutBatch] = field(default_factory=list)
    """Rejected batches, which are sent again when nothing is in flight."""
    reason: PartitionError | None = None
    """The error of the first rejected batch, to be reported if the batch cannot be split."""

    def keeps(self, batch: OutBatch, error: int, reason: PartitionError) -> bool:
        """Keep a rejected batch if it can be sent again. Return whether it was kept."""
        if self.refused:
            keeps = error in TOO_LARGE or error == OUT_OF_ORDER_SEQUENCE_NUMBER
        else:
            keeps = error in TOO_LARGE and batch.count > 1
            self.reason = reason
        if keeps:
            self.refused.append(batch)
        return keeps

    def cut(self) -> tuple[list[OutBatch], PartitionError | None]:
        """Return the rejected batches, split, and an error if the first one cannot be split."""
        refused, self.refused = self.refused, []
        first, *later = refused
        self.most_bytes = min(self.most_bytes, len(first.data) // 2)
        parts = self.parts(first)
        reason = self.reason if len(parts) == 1 else None
        for batch in later:
            parts += self.parts(batch)
        for batch in parts:
            batch.sent = 0  # it was certainly not appended, so a repeat would be of another lane
        return parts, reason

    def parts(self, batch: OutBatch) -> list[OutBatch]:
        """Split a batch to less than the sizes that were rejected."""
        if len(batch.data) <= self.most_bytes or batch.count == 1:
            return [batch]
        try:
            header, rows = read_header(batch.data), decode_rows(batch.data)
        except CorruptData:
            return [batch]  # the broker, which decodes it as well, reports the error
        out: list[OutBatch] = []
        done = 0
        # the local encoding may fit although the target's does not, so the batch is halved anyway
        half = len(rows) // 2
        sized = (
            encoded
            for half_rows in (rows.slice(0, half), rows.slice(half, len(rows)))
            for encoded in encode_sized(
                half_rows, codec=header.codec, limit_bytes=self.most_bytes, alone_bytes=NO_LIMIT
            )
        )
        for encoded in sized:
            count = len(encoded.rows)
            view = memoryview(encoded.data)
            ordinal = batch.ordinal + done
            rewrite_header(view, producer_id=self.producer_id, base_sequence=sequence_of(ordinal))
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
