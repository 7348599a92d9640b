"""Joins batches of a few records that follow each other into larger ones, where that is asked for.

A Produce request holds one batch of a partition, so batches of single records cost the target a
request each. Those that pass as they are, without a gap between them, were joined on their way in
(`wire.joining`, by a kernel). Here come those that begin a run of the map. Their records go over as
bytes. From some ten records a batch on, joining costs more than a batch does: such batches are left
as they are.

What is joined keeps its ordinals, so what was said about them in the offset map holds: runs begin
in the middle of a batch, as they do in one that was encoded again for its holes.
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
    """The same records in the same order, in batches of at most `target_bytes` where joined."""
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
    # one behind the other, as a kernel joins them; their CRCs are ours and cover neither field
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
        return group  # together they are too large, or one of them is not what its header says
    encoded = run.data
    rewrite_header(
        memoryview(encoded),
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence_of(first.ordinal),
    )
    marks = [batch.fingerprint for batch in group if batch.fingerprint is not None]
    joined = OutBatch(
        ordinal=first.ordinal,
        count=count,
        data=memoryview(encoded),
        upstream=first.upstream,
        upstream_next=last.upstream_next,
        runs=tuple(run for batch in group for run in batch.runs),
        # of the last run: that is the one that its row keeps
        fingerprint=marks[-1] if marks else None,
        max_timestamp=max(batch.max_timestamp for batch in group),
        oldest_timestamp=min(batch.oldest_timestamp for batch in group),
        leader_epoch=last.leader_epoch,
    )
    return [joined]
