"""Joining of consecutive small batches into one larger batch.

A kernel goes over the batches once, checks each CRC and each record, and writes the payload of the
larger batch. Compressed batches are decompressed before that, and the result is compressed as a
whole.

Which batches are joined depends on where a Fetch response began, so another lane may join the same
records differently. That is harmless: sequence numbers count records, and a broker refuses a batch
whose begin or end differs from the batch that it has; after that, the target is checked.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from typing import Final

from twinlog.errors import CorruptData
from twinlog.wire.compression import compress, decompress
from twinlog.wire.encoding import write_header
from twinlog.wire.kernels import shapes
from twinlog.wire.kernels.chosen import CHOSEN
from twinlog.wire.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_BYTES,
    BatchHeader,
    Codec,
    read_headers,
    verify_crc,
)

FEW_RECORDS: Final = 8
"""The most records of a small batch; a larger one is sent as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedBatch:
    """A batch without producer and CRC, which `record_batch.rewrite_header` sets."""

    data: bytearray
    batches: int
    records: int
    next_offset: int
    behind: int
    """The position of the next batch in the Fetch response."""
    most_timestamp: int
    least_timestamp: int
    """According to the headers of the batches (ms)."""


def join_run(
    records: memoryview,
    at: int,
    first: BatchHeader,
    *,
    end: int,
    most_bytes: int,
    most_records: int,
    codec: Codec,
) -> JoinedBatch | None:
    """Join the batches of a Fetch response from byte `at` on.

    `first` is the header of the first one. Only batches that can be sent unchanged, with the same
    codec and below offset `end`, are joined; `codec` is the codec of the joined batch. Returns None
    if there are fewer than two of them.
    """
    behind: list[int] = []
    begin = at
    if first.codec is not Codec.NONE:
        begin, records = 0, _unpacked(records, at, first, most_bytes, behind)
        if len(behind) < 2:
            return None
    state = array(
        "q", (begin, first.base_offset, end, FEW_RECORDS, most_records, bool(behind), *_NOTHING)
    )
    # the joined batch has fewer headers, so it is hardly ever larger than its parts
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
        most=state[shapes.MOST_TIMESTAMP],
    )
    return JoinedBatch(
        data=out,
        batches=state[shapes.BATCHES],
        records=state[shapes.RECORDS],
        next_offset=state[shapes.NEXT_OFFSET],
        behind=behind[state[shapes.BATCHES] - 1] if behind else state[shapes.AT],
        most_timestamp=state[shapes.MOST_OF_BATCHES],
        least_timestamp=state[shapes.LEAST_OF_BATCHES],
    )


def _unpacked(
    records: memoryview, at: int, first: BatchHeader, most_bytes: int, behind: list[int]
) -> memoryview:
    """Return the batches from `at` on as uncompressed batches, with their CRCs checked.

    The end of each batch in the response is appended to `behind`. Stops at a corrupt batch, which
    is reported when it is read by itself.
    """
    out, offset = bytearray(), first.base_offset
    try:
        for header, position in read_headers(records, at):
            is_one = header.magic == 2 and header.attributes == first.attributes
            if not is_one or header.base_offset != offset or header.count > FEW_RECORDS:
                break
            if behind and len(out) > most_bytes + HEADER_BYTES * len(behind):
                break
            verify_crc(records, position, header)
            stop = position + header.length
            payload = decompress(first.codec, records[position + HEADER_BYTES : stop], most_bytes)
            head = bytearray(records[position : position + HEADER_BYTES])
            _LENGTH.pack_into(head, _LENGTH_POSITION, HEADER_BYTES - 12 + len(payload))
            head[ATTRIBUTES_POSITION + 1] &= 0xFF ^ CODEC_MASK
            out += head
            out += payload
            behind.append(stop)
            offset = header.next_offset
    except CorruptData:
        pass
    return memoryview(out)


_LENGTH: Final = struct.Struct(">i")
_LENGTH_POSITION: Final = 8
_NOTHING: Final = [0] * (shapes.JOIN_NUMBERS - shapes.BATCHES)
