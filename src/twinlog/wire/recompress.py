"""Gives a batch another codec without looking at its records: only the payload is packed again.

Records hold no trace of the codec, so header and records stay as they are. That is several times
cheaper than decoding and encoding them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from twinlog.wire.compression import compress, decompress
from twinlog.wire.record_batch import (
    ATTRIBUTES_POSITION,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    Codec,
)

_LENGTH: Final = struct.Struct(">i")
_LENGTH_POSITION: Final = 8
_OTHER_BITS: Final = 0xFF & ~0x07


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompression:
    """Which codec batches get, and whether also those that have one already."""

    codec: Codec
    every: bool = False

    def of(self, header: BatchHeader, batch: memoryview, limit_bytes: int) -> memoryview:
        """The batch as it is to be sent; the same one where it may stay.

        Its CRC is left to `rewrite_header`. A batch that would outgrow `limit_bytes` stays.
        """
        if header.codec is self.codec or (header.codec is not Codec.NONE and not self.every):
            return batch
        payload = compress(self.codec, decompress(header.codec, batch[HEADER_BYTES:]))
        if HEADER_BYTES + len(payload) > limit_bytes:
            return batch
        out = bytearray(HEADER_BYTES + len(payload))
        out[:HEADER_BYTES] = batch[:HEADER_BYTES]
        out[HEADER_BYTES:] = payload
        _LENGTH.pack_into(out, _LENGTH_POSITION, len(out) - LENGTH_PREFIX_BYTES)
        out[ATTRIBUTES_POSITION + 1] = out[ATTRIBUTES_POSITION + 1] & _OTHER_BITS | self.codec
        return memoryview(out)
