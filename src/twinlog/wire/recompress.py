"""Changes the codec of a batch without decoding its records.

Records do not depend on the codec. So the payload is decompressed and compressed again, and all
header fields but length, codec and CRC are kept. That is several times cheaper than decoding and
encoding the records.
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
    """The codec for batches, and whether it also replaces an existing codec (`every`)."""

    codec: Codec
    every: bool = False

    def of(self, header: BatchHeader, batch: memoryview, limit_bytes: int) -> memoryview:
        """Return the batch with the codec, or the same object if it is not changed.

        A batch that would exceed `limit_bytes` is not changed. The CRC is not set, because
        `rewrite_header` does that.
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
