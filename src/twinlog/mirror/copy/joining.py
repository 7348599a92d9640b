"""Joins contiguous small batches into larger ones, if configured (`batch.size` of the target's
producer).

**Problem.** A Produce request contains one batch per partition. A producer that does not linger
writes batches of one record, so each record would cost the target one request, and a partition with
`PIPELINE` requests in flight would copy 16 records per round trip.

    source    [0] [1] [2]  .  [4] [5]          batches of one record; offset 3 is a marker
    intake    [0   1   2]     [4   5]          joined by a kernel (`wire.joining`)
    here      [0   1   2       4   5]          joined across the gap
    ordinal    0   1   2       3   4
    runs      (0, upstream 0)  (3, upstream 4)

Batches that pass unchanged, without a gap between them, are joined by the intake. This module joins
the results across gaps, that is, batches that begin a run of the offset map. Records are copied as
bytes.

**Invariant.** Joined records keep their ordinals, so sequences and offset map stay valid: runs may
begin in the middle of a batch, as they do in a batch that was re-encoded because of holes. The runs
of all parts must be durable before the joined batch is sent, and the row keeps the fingerprint of
the last run.

**Another lane may join differently**, because the joins depend on where a Fetch response began.
That is harmless while the target remembers the producer ID: sequences count records, so the broker
rejects a batch that begins or ends elsewhere than the one that it has, and the log is checked
again. For the same reason a joined batch counts as old as soon as its oldest record is old
(`OutBatch.oldest_timestamp`): another lane may send that record alone.

**Not joined** are

- batches of more than FEW_RECORDS records: from about ten records per batch, joining costs more
  than it saves;
- batches of another codec or another source leader epoch, because a batch has one of each;
- batches across the wrap of sequences (2^31), which Redpanda rejects;
- anything if the target topic may reject single records, or has rejected a batch for its size: one
  record must not cause others to be rejected;
- batches around skipped or aborted records, and records that are distributed by key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from twinlog.mirror.copy.intake import OutBatch
from twinlog.model import SEQUENCE_MODULUS, sequence_of
from twinlog.wire.joining import FEW_RECORDS, join_run
from twinlog.wire.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    Codec,
    read_header,
    rewrite_header,
)

_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_EPOCH_POSITION: Final = 12


def join_small(
    batches: Iterable[OutBatch], *, target_bytes: int, limit_bytes: int, producer_id: int
) -> list[OutBatch]:
    """Return the same records in the same order, with small batches joined up to `target_bytes`."""
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
        return group  # together too large, or a batch does not match its header
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
        # a map row keeps one fingerprint: that of its last run
        fingerprint=marks[-1] if marks else None,
        max_timestamp=max(batch.max_timestamp for batch in group),
        oldest_timestamp=min(batch.oldest_timestamp for batch in group),
        leader_epoch=last.leader_epoch,
    )
    return [joined]
