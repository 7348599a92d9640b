"""Joins small batches into larger ones, and splits batches that the target rejects as too large.

**Joining**

If configured (`batch.size` of the target's producer), contiguous small batches are joined.

**Problem.** A Produce request contains one batch per partition. A producer that does not linger
writes batches of one record, so each record would cost the target one request, and a partition with
`PIPELINE` requests in flight would copy 16 records per round trip.

    source    [0] [1] [2]  .  [4] [5]          batches of one record; offset 3 is a marker
    intake    [0   1   2]     [4   5]          joined by a kernel (`wire.joining`)
    here      [0   1   2       4   5]          joined across the gap
    ordinal    0   1   2       3   4
    runs      (0, upstream 0)  (3, upstream 4)

Batches that pass unchanged, without a gap between them, are joined by the intake. This module joins
the results across gaps, after which a run of the offset map begins (records whose offsets are
contiguous on both sides). Records are copied as bytes.

**Invariant.** Joined records keep their ordinals (number of records that the flow wrote before,
`mirror.start_point`), so sequences and offset map stay valid. A run may begin in the middle of a
joined batch, as in a batch that was re-encoded because of holes. The runs of all parts must be
durable in the map before the joined batch is sent, and the map row has the fingerprint of the last
run.

**Another lane may join differently**, because the joins depend on where a Fetch response began.
That is harmless while the target remembers the producer ID. Sequences count records, so the broker
rejects a batch that begins or ends elsewhere than the batch in its log. Then the log is checked
again. For the same reason a joined batch counts as old as soon as its oldest record is old
(`OutBatch.oldest_timestamp`): another lane may send that record alone.

**Not joined** are

- batches of more than FEW_RECORDS records, because from about ten records per batch on, joining
  costs more than it saves;
- batches of another codec or another source leader epoch, because a batch has one of each;
- batches across the wrap of sequences (2^31), which Redpanda rejects;
- any batches if the target topic may reject single records, or has rejected a batch for its size,
  because one record must not cause others to be rejected;
- batches around skipped or aborted records, and records that are distributed by key.

**Splitting**

A target may reject a batch as too large although it fits `max.message.bytes`: a broker whose topic
has its own `compression.type` recompresses batches with another codec and then checks the size
again. That size cannot be predicted. So a rejected batch is split and sent again, and later batches
are split before they are sent. Ordinals do not change, nor do sequences and the offset map. Only a
record that is rejected as the only one of its batch is reported as too large.

A rejected batch is not appended, and the batches that were in flight after it are rejected for
their sequence. So all these batches wait until nothing is in flight, and are then sent again in
order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from twinlog.errors import CorruptData, PartitionError
from twinlog.mirror.copy.intake import OutBatch
from twinlog.model import SEQUENCE_MODULUS, sequence_of
from twinlog.wire.error_codes import (
    MESSAGE_TOO_LARGE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    RECORD_LIST_TOO_LARGE,
)
from twinlog.wire.joining import FEW_RECORDS, join_run
from twinlog.wire.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    Codec,
    read_header,
    rewrite_header,
)
from twinlog.wire.records import decode_rows, encode_sized

_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_EPOCH_POSITION: Final = 12


def join_small(
    batches: Iterable[OutBatch], *, target_bytes: int, limit_bytes: int, producer_id: int
) -> list[OutBatch]:
    """Return the batches after joining small ones. A joined batch has at most `target_bytes`, and
    never more than `limit_bytes`. Records and their order stay the same.
    """
    most = min(target_bytes, limit_bytes)
    out: list[OutBatch] = []
    group: list[OutBatch] = []
    size = 0
    for batch in batches:
        size += len(batch.data)
        if not group or size > most or not _go_together(group, batch):
            out += _joined(group, limit_bytes, producer_id)
            group, size = [], len(batch.data)
        group.append(batch)
    out += _joined(group, limit_bytes, producer_id)
    return out


def _go_together(group: list[OutBatch], batch: OutBatch) -> bool:
    first = group[0]
    return (
        first.count <= FEW_RECORDS
        and batch.count <= FEW_RECORDS
        and batch.leader_epoch == first.leader_epoch
        and _codec(batch) == _codec(first) <= max(Codec)
        and sequence_of(first.ordinal) + batch.next_ordinal - first.ordinal <= SEQUENCE_MODULUS
    )


def _codec(batch: OutBatch) -> int:
    return batch.data[ATTRIBUTES_POSITION + 1] & CODEC_MASK


def _joined(group: list[OutBatch], limit_bytes: int, producer_id: int) -> list[OutBatch]:
    if len(group) < 2:
        return group
    first, last = group[0], group[-1]
    # the kernel expects contiguous batches of one epoch, so base offset and leader epoch are
    # replaced; the CRCs, which this process computed, cover neither field
    answer, count = bytearray(), 0
    for batch in group:
        at = len(answer)
        answer += batch.data
        _OFFSET.pack_into(answer, at, count)
        _EPOCH.pack_into(answer, at + _EPOCH_POSITION, -1)
        count += batch.count
    view = memoryview(answer)
    run = join_run(
        view,
        0,
        read_header(view),
        end=count,
        most_bytes=limit_bytes,
        most_records=count,
        codec=Codec(_codec(first)),
    )
    if run is None or run.batches != len(group):
        return group  # the joined batch is too large, or a batch does not match its header
    encoded = run.data
    rewrite_header(
        memoryview(encoded), producer_id=producer_id, base_sequence=sequence_of(first.ordinal)
    )
    marks = [batch.fingerprint for batch in group if batch.fingerprint is not None]
    joined = OutBatch(
        ordinal=first.ordinal,
        count=count,
        data=memoryview(encoded),
        upstream=first.upstream,
        upstream_next=last.upstream_next,
        runs=tuple(run for batch in group for run in batch.runs),
        # a map row has only the fingerprint of its last run
        fingerprint=marks[-1] if marks else None,
        max_timestamp=max(batch.max_timestamp for batch in group),
        oldest_timestamp=min(batch.oldest_timestamp for batch in group),
        leader_epoch=last.leader_epoch,
    )
    return [joined]


TOO_LARGE: Final = frozenset({MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE})
NO_LIMIT: Final = (1 << 31) - 1


@dataclass(slots=True)
class Splitter:
    """Splits the batches of one copy after the target rejected one as too large."""

    producer_id: int
    most_bytes: int = NO_LIMIT
    """Batches larger than this are split before they are sent, except batches of one record."""
    refused: list[OutBatch] = field(default_factory=list)
    """Rejected batches, which are sent again when nothing is in flight."""
    reason: PartitionError | None = None
    """The error of the first rejected batch, to be reported if the batch cannot be split."""

    def keeps(self, batch: OutBatch, error: int, reason: PartitionError) -> bool:
        """Store a rejected batch if it can be sent again. Return True if it was stored. `error`:
        Kafka's error code. `reason`: the error to report if the batch cannot be split.
        """
        if self.refused:
            keeps = error in TOO_LARGE or error == OUT_OF_ORDER_SEQUENCE_NUMBER
        else:
            keeps = error in TOO_LARGE and batch.count > 1
            self.reason = reason
        if keeps:
            self.refused.append(batch)
        return keeps

    def cut(self) -> tuple[list[OutBatch], PartitionError | None]:
        """Return (batches, error). `batches`: the parts of all rejected batches. `error`: the
        reason of the first rejection if that batch cannot be split, else None.
        """
        refused, self.refused = self.refused, []
        first, *later = refused
        self.most_bytes = min(self.most_bytes, len(first.data) // 2)
        parts = self.parts(first)
        reason = self.reason if len(parts) == 1 else None
        for batch in later:
            parts += self.parts(batch)
        for batch in parts:
            batch.sent = 0  # not appended, so a repeat in the response is another lane's
        return parts, reason

    def parts(self, batch: OutBatch) -> list[OutBatch]:
        """Return the parts of a batch, each of at most `most_bytes` or of one record. Return the
        batch itself if it is small enough or cannot be decoded.
        """
        if len(batch.data) <= self.most_bytes or batch.count == 1:
            return [batch]
        try:
            header, rows = read_header(batch.data), decode_rows(batch.data)
        except CorruptData:
            return [batch]  # sent whole: the broker also decodes it, and reports the error
        out: list[OutBatch] = []
        done = 0
        # halved in any case: the local encoding may fit although the target's encoding does not
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
