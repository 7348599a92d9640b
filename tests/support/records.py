"""Records and batches for tests: random ones for hypothesis, and damaged ones."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from crc32c import crc32c
from hypothesis import strategies as st

from twinlog.wire.record_batch import CRC, CRC_POSITION, Codec
from twinlog.wire.records import Headers, Record

# most numbers are small, and some are at the limits of their encodings
TIMESTAMPS: Final = st.one_of(
    st.integers(1_700_000_000_000, 1_700_000_100_000),
    st.sampled_from([-1, 0, 63, 64, 8191, 8192, 2**62, 2**63 - 1, -(2**63)]),
    st.integers(-(2**63), 2**63 - 1),
)
SIZES: Final = st.one_of(st.integers(0, 70), st.sampled_from([63, 64, 127, 128, 8191, 8192, 20000]))
BYTES: Final = st.one_of(
    st.binary(max_size=70), SIZES.map(lambda size: b"x" * size), st.sampled_from([b"", b"\x00"])
)
NULLABLE: Final = st.one_of(st.none(), BYTES)
HEADER_KEYS: Final = st.one_of(
    st.sampled_from(["", "trace", "\u00e9\u4e2d\U0001f600"]),
    st.binary(max_size=6).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
)
HEADERS: Final[st.SearchStrategy[Headers]] = st.lists(
    st.tuples(HEADER_KEYS, NULLABLE), max_size=3
).map(tuple)
RECORDS: Final[st.SearchStrategy[list[Record]]] = st.lists(
    st.tuples(TIMESTAMPS, NULLABLE, NULLABLE, HEADERS), min_size=1, max_size=12
).map(lambda rows: [Record(offset, *row) for offset, row in enumerate(rows)])
CODECS: Final = st.sampled_from(list(Codec))

NOW_MS: Final = 1_700_000_000_000

SAMPLE: Final = [
    Record(0, NOW_MS, b"key", b"value"),
    Record(1, NOW_MS + 5, None, b""),
    Record(2, NOW_MS - 7, b"", None),
    Record(3, NOW_MS + 90_000, b"k" * 100, b"v" * 9000),
    Record(4, NOW_MS, b"h", b"v", (("trace", b"1"), ("trace", None), ("", b""), ("\udcff", b"x"))),
]
"""Values with every kind of null, empty and long, duplicate and null headers, and a header key that
is not UTF-8.
"""


def with_bits(batch: bytes | bytearray, bits: int) -> bytearray:
    """Return the batch with more attribute bits set, and a valid CRC."""
    out = bytearray(batch)
    out[22] |= bits
    CRC.pack_into(out, CRC_POSITION, crc32c(out[21:]))
    return out


def flipped(data: bytes, position: int, mask: int) -> bytes:
    """Return `data` with the bits in `mask` of one byte inverted."""
    damaged = bytearray(data)
    damaged[position] ^= mask
    return bytes(damaged)


def prefixes(data: bytes) -> Iterator[bytes]:
    """Yield all proper prefixes of the data. For long data, yield only those near both ends, and
    some in between.
    """
    step = max(1, len(data) // 400)
    for length in range(len(data)):
        if length < 200 or len(data) - length < 200 or length % step == 0:
            yield data[:length]


def message(
    *,
    magic: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    timestamp: int = -1,
    attributes: int = 0,
) -> bytes:
    """Return a message of magic 0 or 1, written field by field as in the old protocol guide."""
    body = struct.pack(">bB", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
