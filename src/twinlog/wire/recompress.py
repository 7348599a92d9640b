"""Changes the codec of a batch without decoding its records.

Records do not depend on the codec. So the payload is decompressed and compressed again, and all
header fields but length, codec and CRC are kept. That is several times cheaper than decoding and
encoding the records.
"""

from __future__ import annotations

from dataclasses import dataclass

from twinlog.wire.compression import compress, decompress
from twinlog.wire.record_batch import HEADER_BYTES, BatchHeader, Codec, with_payload


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
        return memoryview(with_payload(batch, self.codec, payload))
