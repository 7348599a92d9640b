"""Small batches become larger ones: the same records, ordinals and runs, within every limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.mirror.copy.intake import Intake, OutBatch
from twinlog.mirror.copy.joining import FEW_RECORDS, join_small
from twinlog.model import SEQUENCE_MODULUS, sequence_of
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


def taken(batches: list[bytearray], ordinal: int = ORDINAL) -> list[OutBatch]:
    intake = Intake(
        position=0,
        ordinal=ordinal,
        k=100,
        last_run=None,
        producer_id=9,
        read_committed=True,
        limit_bytes=1 << 20,
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
"""(offsets left out before it, records, codec) of each batch."""


@given(LOGS, st.integers(0, 2000), st.integers(100, 2000))
def test_records_ordinals_and_runs_stay(
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


def test_single_records_become_batches_of_the_size_asked_for() -> None:
    plain = taken([one(n, 1) for n in range(100)])
    out = joined(plain, 2000)
    assert 3 < len(out) < 10
    assert sum(batch.count for batch in out) == 100
    assert all(len(batch.data) <= 2000 for batch in out)


def test_the_last_run_brings_its_fingerprint() -> None:
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
def test_what_stays_apart(batches: list[bytearray]) -> None:
    plain = taken(batches)
    assert joined(plain, 800) == plain


def test_no_batch_spans_the_wrap_of_sequences() -> None:
    plain = taken([one(n, 1) for n in range(4)], SEQUENCE_MODULUS - 2)
    assert [batch.count for batch in joined(plain)] == [2, 2]
