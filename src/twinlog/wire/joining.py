"""Joins consecutive small batches into one larger batch.

*Problem.* A producer without `linger.ms` writes batches of one or a few records. A Produce request
can have only one batch per partition, so such a partition would cost the target a request per
record. `batch.size` of the target's producer therefore lets a lane join consecutive batches:

    source   | 100 101 | 102 | 103 104 105 | 106 |        four batches, one leader epoch
    target   | 540 541   542   543 544 545   546 |        one batch, the same records

*Invariant.* The records, their order and their timestamps do not change. So only batches are joined
that could be sent unchanged: magic 2, a record at every offset, CreateTime, no control batch, a
valid CRC, the same codec and the same leader epoch. Each of them begins where the previous one
ends. Joining stops before the first batch that differs. That batch is read by itself later, which
also reports it if it is corrupt.

*Repeats.* A target recognises a repeated batch by its first and last sequence number. Where a Fetch
response begins is a matter of chance, so after a lost response another lane may join the same
records differently. This duplicates no record: sequence numbers count records, so the target
rejects a batch that begins before the next expected sequence and is no exact repeat. The log is
then read again (`SEQUENCE_REFUSED`). All of this relies on a target that remembers the producer ID.
For records that are so old that it may not, a joined batch is as old as its oldest record (ADR 19),
and `least_timestamp` is its bound.

*Cost.* A kernel passes over the batches once. It checks each CRC and each record, and writes the
payload of the larger batch. Compressed batches are decompressed before that, and the result is
compressed as a whole. Joining in Python, which decodes the records, took about 20 us per one-record
batch, and takes 0.2 us in the kernel (ADR 27). From about ten records per batch, joining costs more
than it saves, so batches of more than FEW_RECORDS records are sent unchanged.

Batches with a gap between their offsets, which begin a new run of the offset map, are joined later
(`mirror.copy.batch_sizes`).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final

from twinlog.errors import CorruptData
from twinlog.wire.compression import compress, decompress
from twinlog.wire.kernels import shapes
from twinlog.wire.kernels.chosen import CHOSEN
from twinlog.wire.record_batch import (
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

    `first` is the header of the first batch, and `codec` the codec of the joined one, which has at
    most `most_bytes` and `most_records`. Returns None if fewer than two batches can be joined.
    """
    next_at: list[int] = []
    begin = start
    if first.codec is not Codec.NONE:
        begin, records = 0, _unpack_batches(records, start, first, most_bytes, next_at)
        if len(next_at) < 2:
            return None
    state = array(
        "q", (begin, first.base_offset, end, FEW_RECORDS, most_records, bool(next_at), *_NOTHING)
    )
    # the joined batch has fewer headers, so it is almost never larger than its parts
    out = bytearray(min(most_bytes, HEADER_BYTES + len(records) - begin))
    if len(out) <= HEADER_BYTES:
        return None
    size = CHOSEN.kernels.join(records, state, out, HEADER_BYTES)
    if state[shapes.BATCHES] < 2:
        return None
    del out[HEADER_BYTES + size :]
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
        next_at=next_at[state[shapes.BATCHES] - 1] if next_at else state[shapes.AT],
        most_timestamp=state[shapes.MOST_OF_BATCHES],
        least_timestamp=state[shapes.LEAST_OF_BATCHES],
    )


def _unpack_batches(
    records: memoryview, start: int, first: BatchHeader, most_bytes: int, next_at: list[int]
) -> memoryview:
    """Return the batches from `start` on as uncompressed batches, after checking their CRCs.

    The end position of each batch in the response is appended to `next_at`. Stops at a corrupt
    batch, which is reported when it is read by itself.
    """
    out, offset = bytearray(), first.base_offset
    try:
        for header, position in read_headers(records, start):
            is_one = header.magic == 2 and header.attributes == first.attributes
            if not is_one or header.base_offset != offset or header.count > FEW_RECORDS:
                break
            if next_at and len(out) > most_bytes + HEADER_BYTES * len(next_at):
                break
            verify_crc(records, position, header)
            stop = position + header.length
            payload = decompress(first.codec, records[position + HEADER_BYTES : stop], most_bytes)
            out += with_payload(records[position:stop], Codec.NONE, payload)
            next_at.append(stop)
            offset = header.next_offset
    except CorruptData:
        pass
    return memoryview(out)


_NOTHING: Final = [0] * (shapes.JOIN_NUMBERS - shapes.BATCHES)
