"""Joins consecutive small batches into one larger batch.

*Problem.* A producer without `linger.ms` writes batches of one or a few records. A Produce request
can have only one batch per partition, so such a partition would cost the target a request per
record. `batch.size` of the target's producer therefore lets a lane join consecutive batches:

    source   | 100 101 | 102 | 103 104 105 | 106 |        four batches, one leader epoch
    target   | 540 541   542   543 544 545   546 |        one batch, the same records

*Invariant.* The records, their order and their timestamps do not change. So a batch is joined only
if it could be sent unchanged: it has magic 2, a record at every offset, CreateTime, a valid CRC,
and is no control batch. All batches have the same codec and the same leader epoch. Each batch
begins where the previous batch ends. Joining stops before the first batch that differs. The caller
then reads that batch by itself, and reports it if it is corrupt.

*Repeats.* A target recognises a repeated batch by its first and last sequence number. Where a Fetch
response begins is a matter of chance, so after a lost response another lane may join the same
records differently. This duplicates no record, because sequence numbers count records: the target
rejects a batch that begins before the next expected sequence and is no exact repeat. The log is
then read again (`SEQUENCE_REFUSED`). All of this relies on a target that remembers the producer ID.
If records are old, the target may have forgotten the ID. To decide this, the age of the oldest
batch counts as the age of the joined batch (ADR 19, `least_timestamp`).

*Cost.* A kernel passes over the batches once. It checks each CRC and each record, and writes the
payload of the larger batch, which is compressed as a whole. The kernel decompresses lz4 itself;
batches of other codecs, and lz4 frames that it does not support, are first decompressed in Python.
Joining in Python, which decodes the records, took about 20 us per one-record batch, and takes 0.2
us in the kernel (ADR 27). From about ten records per batch, joining costs more than it saves, so
batches of more than FEW_RECORDS records are sent unchanged.

Batches with a gap between their offsets are joined later (`mirror.copy.batch_sizes`), because the
second one begins a new run of the offset map (consecutive offsets on both sides).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from twinlog.errors import CorruptData
from twinlog.wire.compression import compress, decompress
from twinlog.wire.kernels import shapes
from twinlog.wire.kernels.chosen import CHOSEN
from twinlog.wire.record_batch import (
    CODEC_MASK,
    HEADER_BYTES,
    BatchHeader,
    Codec,
    read_headers,
    verify_crc,
    with_payload,
)
from twinlog.wire.records import write_header

FEW_RECORDS: Final = 8
"""Maximum records of a small batch. A larger batch is sent unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedBatch:
    """A batch without producer and CRC, which `record_batch.rewrite_header` sets."""

    data: bytearray
    batches: int
    records: int
    next_offset: int
    next_at: int
    """Position of the next batch in the Fetch response."""
    most_timestamp: int
    least_timestamp: int
    """The least `max_timestamp` of the joined batches' headers (ms)."""


def join_run(
    records: memoryview,
    start: int,
    first: BatchHeader,
    *,
    end: int,
    most_bytes: int,
    most_records: int,
    codec: Codec,
) -> JoinedBatch | None:
    """Join the batches of a Fetch response from byte `start` on, up to offset `end`.

    `first` is the header of the first batch. The joined batch gets the codec `codec`, and has at
    most `most_bytes` and `most_records`. Returns None if fewer than two batches can be joined.
    """
    most = most_bytes, most_records
    if first.codec in _KNOWN_TO_THE_KERNEL:
        joined = _join(records, start, first, end, most, codec)
        if joined is not None or first.codec is Codec.NONE:
            return joined
    unpacked, ends = _unpack_batches(records, start, first, most_bytes)
    if len(ends) < 2:
        return None
    return _join(unpacked, 0, first, end, most, codec, ends)


def _join(
    records: memoryview,
    start: int,
    first: BatchHeader,
    end: int,
    most: tuple[int, int],
    codec: Codec,
    ends: Sequence[int] = (),
) -> JoinedBatch | None:
    """Join the batches of a response. If `ends` is given, the batches are already checked and
    decompressed, and `ends` are their end positions in the response.
    """
    most_bytes, most_records = most
    unpacks = first.codec is not Codec.NONE and not ends
    state = array(
        "q",
        (start, first.base_offset, end, FEW_RECORDS, most_records, bool(ends),
         first.codec if unpacks else Codec.NONE, *_NOTHING),
    )  # fmt: skip
    # the joined batch has fewer headers, so it is almost never larger than its parts
    parts_bytes = (len(records) - start) * (_LZ4_RATIO if unpacks else 1)
    size = min(most_bytes, HEADER_BYTES + parts_bytes)
    if size <= HEADER_BYTES:
        return None
    out = bytearray(2 * size - HEADER_BYTES if unpacks else size)
    filled = CHOSEN.kernels.join(records, state, out, HEADER_BYTES)
    if state[shapes.BATCHES] < 2:
        return None
    del out[HEADER_BYTES + filled :]
    if codec is not Codec.NONE:
        out[HEADER_BYTES:] = compress(codec, bytes(out[HEADER_BYTES:]))
        if len(out) > most_bytes:
            return None
    write_header(
        out,
        codec=codec,
        count=state[shapes.RECORDS],
        base_timestamp=state[shapes.FIRST_TIMESTAMP],
        max_timestamp=state[shapes.MOST_TIMESTAMP],
    )
    return JoinedBatch(
        data=out,
        batches=state[shapes.BATCHES],
        records=state[shapes.RECORDS],
        next_offset=state[shapes.NEXT_OFFSET],
        next_at=ends[state[shapes.BATCHES] - 1] if ends else state[shapes.AT],
        most_timestamp=state[shapes.MOST_OF_BATCHES],
        least_timestamp=state[shapes.LEAST_OF_BATCHES],
    )


def _unpack_batches(
    records: memoryview, start: int, first: BatchHeader, most_bytes: int
) -> tuple[memoryview, Sequence[int]]:
    """Check and decompress the batches from `start` on. Return them, and the end position of each
    batch in the response.

    Stops before a corrupt batch, which the caller reports when it reads that batch by itself.
    """
    out, ends, offset = bytearray(), list[int](), first.base_offset
    try:
        for header, position in read_headers(records, start):
            is_small = header.magic == 2 and header.count <= FEW_RECORDS
            if not is_small or header.base_offset != offset:
                break
            if (header.attributes ^ first.attributes) & CODEC_MASK:
                break
            if ends and len(out) > most_bytes + HEADER_BYTES * len(ends):
                break
            verify_crc(records, position, header)
            stop = position + header.length
            payload = decompress(first.codec, records[position + HEADER_BYTES : stop], most_bytes)
            out += with_payload(records[position:stop], Codec.NONE, payload)
            ends.append(stop)
            offset = header.next_offset
    except CorruptData:
        pass
    return memoryview(out), ends


_KNOWN_TO_THE_KERNEL: Final = (Codec.NONE, Codec.LZ4)
_LZ4_RATIO: Final = 255
"""Maximum number of decompressed bytes per byte of lz4 data."""
_NOTHING: Final = [0] * (shapes.JOIN_NUMBERS - shapes.BATCHES)
