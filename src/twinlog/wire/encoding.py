"""Encodes records as batches of magic 2, as a producer sends them to a broker.

The bytes of a record's key, value and headers are copied unchanged. Only its length and its two
deltas depend on the batch, so only these are encoded again (`kernels`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from twinlog.errors import PartitionError
from twinlog.wire.compression import compress
from twinlog.wire.record import Record
from twinlog.wire.record_batch import (
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    Codec,
    rewrite_header,
)
from twinlog.wire.rows import Rows, rows_of

_UNEVENNESS = 1.1
"""Surplus of parts, because parts of equal size compress differently. A part that is still too
large is split again.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A batch without producer and CRC, which `record_batch.rewrite_header` sets."""

    data: bytearray
    rows: Rows
    least_timestamp: int
    most_timestamp: int


def encode_rows(rows: Rows, *, codec: Codec) -> Encoded:
    """Encode the records as one dense batch. Their offsets become 0, 1, ..."""
    if not rows:
        raise ValueError("a batch needs at least one record")
    size, least, most = rows.measure()
    if codec is Codec.NONE:
        batch = bytearray(HEADER_BYTES + size)
        rows.write(batch, HEADER_BYTES)
    else:
        raw = bytearray(size)
        rows.write(raw, 0)
        payload = compress(codec, raw)
        batch = bytearray(HEADER_BYTES + len(payload))
        batch[HEADER_BYTES:] = payload
    write_header(
        batch, codec=codec, count=len(rows), base_timestamp=rows.first_timestamp(), most=most
    )
    return Encoded(data=batch, rows=rows, least_timestamp=least, most_timestamp=most)


def write_header(
    batch: bytearray, *, codec: Codec, count: int, base_timestamp: int, most: int
) -> None:
    """Write the header of a dense batch before its payload. `most` is the greatest timestamp."""
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LENGTH_PREFIX_BYTES,
        -1,  # leader epoch: set by the broker
        2,
        0,  # CRC
        codec,
        count - 1,
        base_timestamp,
        most,
        -1,
        -1,
        -1,
        count,
    )


def encode_batch(
    records: Sequence[Record],
    *,
    codec: Codec,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    is_transactional: bool = False,
) -> bytearray:
    """Encode the records as one dense batch with the offsets base_offset, base_offset + 1, ..."""
    batch = encode_rows(rows_of(records), codec=codec).data
    rewrite_header(
        memoryview(batch),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    batch[0:8] = base_offset.to_bytes(8, "big")
    return batch


def encode_sized(
    rows: Rows, *, codec: Codec, limit_bytes: int, alone_bytes: int | None = None
) -> list[Encoded]:
    """Encode the records in order, in as many batches as needed.

    A batch has at most `limit_bytes`, or at most `alone_bytes` if it contains a single record. A
    record that fits only without compression is encoded uncompressed, which every topic accepts.
    Raises PartitionError (RECORD_TOO_LARGE) if a record fits in no batch.
    """
    if not rows:
        return []
    batch = encode_rows(rows, codec=codec)
    size = len(batch.data)
    if size <= limit_bytes:
        return [batch]
    if len(rows) == 1:
        most_bytes = limit_bytes if alone_bytes is None else alone_bytes
        return [batch] if size <= most_bytes else [_encode_alone(rows, codec, most_bytes)]
    parts = max(2, math.ceil(size / limit_bytes * _UNEVENNESS)) if limit_bytes > 0 else 2
    return [
        sized
        for part in _split(rows, parts)
        for sized in encode_sized(
            part, codec=codec, limit_bytes=limit_bytes, alone_bytes=alone_bytes
        )
    ]


def _encode_alone(rows: Rows, codec: Codec, limit_bytes: int) -> Encoded:
    batch = encode_rows(rows, codec=Codec.NONE)
    if len(batch.data) <= limit_bytes:
        return batch
    compressed = "" if codec is Codec.NONE else f" (also with {codec.name.lower()})"
    error = PartitionError(
        f"the record at offset {rows.offset(0)} makes a batch of {len(batch.data)} bytes"
        f"{compressed}, but the target topic accepts at most {limit_bytes}: "
        "raise max.message.bytes of the target topic",
        code="RECORD_TOO_LARGE",
    )
    error.poison = rows.offset(0), rows.offset(0) + 1
    raise error


def _split(rows: Rows, parts: int) -> list[Rows]:
    """Split into at least two non-empty runs of about equal size before compression."""
    sizes = rows.sizes()
    share = sum(sizes) / parts
    runs: list[Rows] = []
    begin = filled = 0
    for index, size in enumerate(sizes):
        if index > begin and filled + size > share:
            runs.append(rows.slice(begin, index))
            begin, filled = index, 0
        filled += size
    runs.append(rows.slice(begin, len(rows)))
    if len(runs) == 1:  # rounding: the last record alone should have been the second run
        return [rows.slice(0, len(rows) - 1), rows.slice(len(rows) - 1, len(rows))]
    return runs
