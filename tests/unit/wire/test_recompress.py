"""A batch gets another codec. Only its payload is compressed again, and its records are the
same.
"""

from __future__ import annotations

import pytest

from twinlog.wire.compression import Recompression
from twinlog.wire.record_batch import Codec, read_header, rewrite_header, verify_crc
from twinlog.wire.records import Record, decode_batch, encode_batch

RECORDS = [
    Record(
        offset=n,
        timestamp=1_700_000_000_000 + n,
        key=None if n % 3 else b"k%d" % n,
        value=None if n % 5 == 4 else b"value " * 40,
        headers=(("h", b"%d" % n),) if n % 2 else (),
    )
    for n in range(50)
]
LIMIT = 1 << 20


def recompressed(codec: Codec, wanted: Recompression, limit: int = LIMIT) -> memoryview:
    batch = memoryview(encode_batch(RECORDS, codec=codec))
    return wanted.of(read_header(batch), batch, limit)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("wanted", Codec)
def test_every_codec_becomes_every_other(codec: Codec, wanted: Codec) -> None:
    out = recompressed(codec, Recompression(codec=wanted, every=True))
    rewrite_header(out, producer_id=7, producer_epoch=0, base_sequence=0)
    header = read_header(out)
    verify_crc(out, 0, header)
    assert header.codec is wanted
    assert (header.count, header.is_dense, header.length) == (len(RECORDS), True, len(out))
    assert decode_batch(out) == RECORDS


def test_compressed_batches_are_changed_only_on_request() -> None:
    gzip = Recompression(codec=Codec.GZIP)
    assert read_header(recompressed(Codec.NONE, gzip)).codec is Codec.GZIP
    assert read_header(recompressed(Codec.LZ4, gzip)).codec is Codec.LZ4


def test_a_batch_that_would_exceed_the_limit_is_unchanged() -> None:
    plain = Recompression(codec=Codec.NONE, every=True)
    assert read_header(recompressed(Codec.GZIP, plain, 1000)).codec is Codec.GZIP
