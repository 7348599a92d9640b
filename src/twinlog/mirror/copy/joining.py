"""Joins contiguous small batches into larger ones, if configured.

A Produce request holds one batch per partition, so batches of single records cost the target one
request each. Batches that pass unchanged, without a gap between them, were already joined by the
intake (`wire.joining`, by a kernel). This module joins batches that begin a run of the offset map.
Records are copied as bytes. From about ten records per batch, joining costs more than it saves, so
such batches are left as they are.

Joined records keep their ordinals, so the offset map stays valid: runs may begin in the middle of a
batch, as they do in a batch that was re-encoded because of holes.
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
    # concatenated, as a kernel joins them; CRCs were computed here and cover neither field
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
        # the fingerprint of the last run, which its map row keeps
        fingerprint=marks[-1] if marks else None,
        max_timestamp=max(batch.max_timestamp for batch in group),
        oldest_timestamp=min(batch.oldest_timestamp for batch in group),
        leader_epoch=last.leader_epoch,
    )
    return [joined]
