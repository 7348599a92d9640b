"""Small batches are joined to larger ones, within every limit. Records, ordinals (counts of this
flow's records) and runs of the offset map are unchanged.
"""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kernel_fuzz import use
from twinlog.errors import CorruptData
from twinlog.mirror.copy.batch_sizes import join_small
from twinlog.mirror.copy.intake import Intake, OutBatch
from twinlog.model import SEQUENCE_MODULUS, Isolation, sequence_of
from twinlog.wire.compression import Recompression
from twinlog.wire.joining import FEW_RECORDS
from twinlog.wire.kernels.chosen import CHOSEN
from twinlog.wire.kernels.shapes import Kernels
from twinlog.wire.kernels.twin import TWIN
from twinlog.wire.record_batch import Codec, read_header, verify_crc
from twinlog.wire.records import Record, decode_batch, encode_batch

NOW = 1_700_000_000_000
FOREVER = (1 << 63) - 1
ORDINAL = 7


def one(base: int, count: int, *, codec: Codec = Codec.NONE, size: int = 10) -> bytearray:
    records = [
        Record(
            offset=base + n,
            timestamp=NOW + base + n,
            key=b"k%d" % (base + n),
            value=b"v" * size,
            headers=(),
        )
        for n in range(count)
    ]
    return encode_batch(records, codec=codec, base_offset=base)


def taken(
    batches: list[bytearray],
    ordinal: int = ORDINAL,
    *,
    join_bytes: int = 0,
    recompression: Recompression | None = None,
) -> list[OutBatch]:
    intake = Intake(
        position=0,
        ordinal=ordinal,
        k=100,
        last_run=None,
        producer_id=9,
        isolation=Isolation.READ_COMMITTED,
        limit_bytes=1 << 20,
        join_bytes=join_bytes,
        recompression=recompression,
    )
    return intake.take(memoryview(bytearray(b"".join(batches))), (), FOREVER)


def joined(batches: list[OutBatch], target: int = 1 << 20, limit: int = 1 << 20) -> list[OutBatch]:
    return join_small(batches, target_bytes=target, limit_bytes=limit, producer_id=9)


def records(batches: list[OutBatch]) -> list[tuple[object, ...]]:
    return [(r.timestamp, r.key, r.value) for batch in batches for r in decode_batch(batch.data)]


LOGS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 12), st.sampled_from([Codec.NONE, Codec.GZIP])),
    min_size=1,
    max_size=20,
)
"""Each batch as (number of missing offsets before it, records, codec)."""


BOTH = pytest.mark.parametrize("kernels", [CHOSEN.kernels, TWIN], ids=["compiled", "twin"])


@BOTH
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4], ids=["none", "lz4"])
def test_single_records_are_joined_by_the_intake(kernels: Kernels, codec: Codec) -> None:
    raw = [one(n, 1, codec=codec) for n in range(100)]
    with use(kernels):
        (out,) = taken(raw, join_bytes=1 << 16)
    plain = taken(raw)
    assert records([out]) == records(plain)
    assert (out.ordinal, out.count, out.upstream, out.upstream_next) == (ORDINAL, 100, 0, 100)
    assert (out.runs, out.fingerprint) == (plain[0].runs, plain[0].fingerprint)
    assert (out.oldest_timestamp, out.max_timestamp) == (
        plain[0].max_timestamp,
        plain[-1].max_timestamp,
    )
    header = read_header(out.data)
    verify_crc(out.data, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 0, ORDINAL)
    assert header.codec is codec


@BOTH
@given(log=LOGS, most=st.integers(0, 3000))
def test_batches_joined_by_the_intake_have_the_same_records(
    kernels: Kernels, log: list[tuple[int, int, Codec]], most: int
) -> None:
    raw, at = [], 0
    for gap, count, codec in log:
        at += gap
        raw.append(one(at, count, codec=codec))
        at += count
    plain = taken(raw)
    with use(kernels):
        out = taken(raw, join_bytes=most)
    assert records(out) == records(plain)
    assert [run for b in out for run in b.runs] == [run for b in plain for run in b.runs]
    assert [b.fingerprint for b in out if b.runs] == [b.fingerprint for b in plain if b.runs]
    assert [b.ordinal for b in out] == [
        ORDINAL + sum(b.count for b in out[:n]) for n in range(len(out))
    ]
    assert (out[0].upstream, out[-1].upstream_next) == (log[0][0], at)
    lengths = {len(one) for one in raw}
    assert all(len(batch.data) <= most or len(batch.data) in lengths for batch in out)


@BOTH
def test_joined_batches_end_before_batches_that_are_sent_alone(kernels: Kernels) -> None:
    def changed(batch: bytearray, at: int, value: int, *, crc: bool = True) -> bytearray:
        batch[at] = value
        if crc:
            struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
        return batch

    stamped = changed(one(2, 1), 22, 0x08)
    led_again = changed(one(2, 1), 15, 7)
    for third in (stamped, led_again, one(2, FEW_RECORDS + 1), one(2, 1, codec=Codec.GZIP)):
        with use(kernels):
            out = taken([one(0, 1), one(1, 1), third], join_bytes=1 << 16)
        assert [batch.upstream for batch in out] == [0, 2]
    damaged = changed(one(2, 1), 70, 0xEE, crc=False)
    with use(kernels):
        (good,) = taken([one(0, 1), one(1, 1), damaged], join_bytes=1 << 16)
        assert good.upstream_next == 2
        with pytest.raises(CorruptData, match="CRC"):
            taken([damaged], join_bytes=1 << 16)


@BOTH
def test_no_batch_joined_by_the_intake_spans_the_wrap_of_sequences(kernels: Kernels) -> None:
    with use(kernels):
        out = taken([one(n, 1) for n in range(5)], SEQUENCE_MODULUS - 3, join_bytes=1 << 16)
    assert [batch.count for batch in out] == [3, 2]


@BOTH
def test_joined_batches_get_the_configured_codec(kernels: Kernels) -> None:
    wanted = Recompression(codec=Codec.ZSTD)
    with use(kernels):
        (out,) = taken([one(n, 1) for n in range(9)], join_bytes=1 << 16, recompression=wanted)
    assert read_header(out.data).codec is Codec.ZSTD
    assert records([out]) == records(taken([one(n, 1) for n in range(9)]))


@given(LOGS, st.integers(0, 2000), st.integers(100, 2000))
def test_joining_keeps_records_ordinals_and_runs(
    log: list[tuple[int, int, Codec]], target: int, limit: int
) -> None:
    raw, at = [], 0
    for gap, count, codec in log:
        at += gap
        raw.append(one(at, count, codec=codec))
        at += count
    plain = taken(raw)
    before = [(b.ordinal, b.count, bytes(b.data)) for b in plain]
    out = joined(plain, target, limit)
    assert records(out) == records(plain)
    assert [run for b in out for run in b.runs] == [run for b in plain for run in b.runs]
    assert [b.ordinal for b in out] == [
        ORDINAL + sum(b.count for b in out[:n]) for n in range(len(out))
    ]
    assert (out[0].upstream, out[-1].upstream_next) == (0 + log[0][0], at)
    assert before == [(b.ordinal, b.count, bytes(b.data)) for b in plain], "the parts are untouched"
    for batch in out:
        header = read_header(batch.data)
        verify_crc(batch.data, 0, header)
        assert (header.producer_id, header.producer_epoch) == (9, 0)
        assert header.base_sequence == sequence_of(batch.ordinal)
        assert (header.count, header.max_timestamp) == (batch.count, batch.max_timestamp)
        if batch not in plain:
            assert header.length <= limit


def test_single_records_become_batches_of_the_configured_size() -> None:
    plain = taken([one(n, 1) for n in range(100)])
    out = joined(plain, 2000)
    assert 3 < len(out) < 10
    assert sum(batch.count for batch in out) == 100
    assert all(len(batch.data) <= 2000 for batch in out)


def test_joined_batch_has_the_fingerprint_of_its_last_run() -> None:
    plain = taken([one(0, 1), one(5, 1), one(9, 1), one(10, 1)])
    assert [batch.fingerprint is None for batch in plain] == [False, False, False, True]
    (out,) = joined(plain)
    assert len(out.runs) == 3
    assert out.fingerprint == plain[2].fingerprint


@pytest.mark.parametrize(
    "batches",
    [
        [one(0, FEW_RECORDS + 1), one(9, FEW_RECORDS + 1)],
        [one(0, 1), one(1, 1, codec=Codec.GZIP)],
        [one(0, 1, size=400), one(1, 1, size=400)],
    ],
    ids=["many records", "another codec", "too large together"],
)
def test_batches_that_are_not_joined(batches: list[bytearray]) -> None:
    plain = taken(batches)
    assert joined(plain, 800) == plain


def test_no_batch_spans_the_wrap_of_sequences() -> None:
    plain = taken([one(n, 1) for n in range(4)], SEQUENCE_MODULUS - 2)
    assert [batch.count for batch in joined(plain)] == [2, 2]
