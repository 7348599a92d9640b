"""Real Spark jobs answer the ranges of a lane's port, without brokers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from msgspec import structs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.clusters import LENT
from tests.support.data_frames import spark_session
from tests.support.eventually import eventually
from tests.support.range_port import StubPort, range_of, records_of, source_records
from twinlog.config.flow.transforms import OnError
from twinlog.errors import TwinlogError
from twinlog.mirror.copy.ranges import RangeFailure, SourceRange
from twinlog.records.lent import LentRanges
from twinlog.transforms import Transform, mask_json, sql
from twinlog.transforms.application import part_of
from twinlog.transforms.rounds import TASK_BYTES, Rounds
from twinlog.transforms.session import EXCLUDED_RULES, SETTINGS
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record

pytestmark = pytest.mark.xdist_group("spark")

COUNT: Final = 50
"""Number of records in a range. It is larger than an Arrow batch in this session."""
RoundsOf = Callable[..., Rounds]


@pytest.fixture
def spark() -> SparkSession:
    return LENT.lend("spark", spark_session)


@pytest.fixture
def port() -> Iterator[StubPort]:
    made = StubPort()
    yield made
    made.close()


@pytest.fixture
def rounds_of(spark: SparkSession, port: StubPort) -> RoundsOf:
    spark.conf.set(EXCLUDED_RULES, SETTINGS[EXCLUDED_RULES])

    def make(transform: Transform, on_error: OnError = OnError.STOP, **more: float) -> Rounds:
        lent = LentRanges(ports=(port.address,), codec=Codec.LZ4, max_bytes=1 << 20)
        return Rounds(spark=spark, transform=transform, lent=lent, on_error=on_error, **more)  # type: ignore[arg-type]

    return make


def orders(*, number: int, bad: Sequence[int] = ()) -> SourceRange:
    """Return a range of orders. Records at the offsets in `bad` are not JSON."""
    return range_of(
        [
            Record(
                100 + at,
                1_700_000_000_000 + at,
                b"%d" % at,
                b"no json" if 100 + at in bad else json.dumps({"n": at, "card": "4111"}).encode(),
                (("trace", b"x"),),
            )
            for at in range(COUNT)
        ],
        number=number,
        partition=number,
        first=100,
        end=100 + COUNT + 5,
        per=7,
    )


def answer(rounds: Rounds, port: StubPort, *ranges: SourceRange) -> None:
    port.offer(ranges)
    rounds.answer([part_of(one, port.address) for one in ranges])


def masked(record: Record) -> Record:
    return record._replace(value=(record.value or b"").replace(b"4111", b"****"))


@pytest.mark.witness("Spark answers ranges of lanes with the records that a transform returns")
def test_each_range_is_answered_by_its_records(rounds_of: RoundsOf, port: StubPort) -> None:
    query = (
        "SELECT key, replace(CAST(value AS STRING), '4111', '****') AS value, topic, partition,"
        " offset, timestamp, timestampType, headers FROM records"
        " WHERE get_json_object(CAST(value AS STRING), '$.n') % 2 = 0"
    )
    rounds = rounds_of(sql(query))
    ranges = [orders(number=number) for number in range(3)]
    answer(rounds, port, *ranges)
    # these ranges use the same plan again
    answer(rounds, port, orders(number=3), orders(number=4), orders(number=5))
    for one in ranges:
        found = port.answers[one.number]
        assert records_of(found) == [
            masked(record) for record in source_records(one) if record.offset % 2 == 0
        ]
        assert (found.end, found.failure) == (100 + COUNT + 5, None)
    assert len(port.answers) == 6
    # the first range was answered already, so it needs no answer
    answer(rounds, port, ranges[0], orders(number=6))
    assert [*port.answers] == [0, 1, 2, 3, 4, 5, 6]
    (dropped,) = port.later
    assert (dropped.number, dropped.batches) == (0, ())
    answer(rounds_of(lambda rows: rows.where(F.expr("false"))), port, orders(number=7))
    found = port.answers[7]
    assert (found.batches, found.offsets, found.end) == ((), b"", 100 + COUNT + 5)


def plain_udf(function: Callable[[bytes], bytes]) -> Callable[[str], Column]:
    """Return a UDF that is called for each value. With type hints, Spark would infer another
    kind.
    """
    return F.udf(lambda value: function(value), "binary")  # noqa: PLW0108


def picky(rows: DataFrame) -> DataFrame:
    """Return the rows unchanged, but raise an error in Python for records that are not JSON. The
    text of the error has a line that looks like Twinlog's error for a lane that has ended.
    """

    def checked(value: bytes) -> bytes:
        if not value.startswith(b"{"):
            raise ValueError(
                f"{value!r} is not JSON\ntwinlog.errors.ClusterError: x [CHANNEL_LOST]"
            )
        return value

    return rows.withColumn("value", plain_udf(checked)("value"))


@pytest.mark.witness("a record on which a transform fails stops only its partition")
def test_a_failure_ends_one_answer_and_no_other(rounds_of: RoundsOf, port: StubPort) -> None:
    ranges = [orders(number=0), orders(number=1, bad=(131, 140)), orders(number=2, bad=(100,))]
    answer(rounds_of(picky), port, *ranges)
    assert records_of(port.answers[0]) == source_records(ranges[0])
    first, second = port.answers[1], port.answers[2]
    assert records_of(first) == source_records(ranges[1])[:31]
    text = first.failure.text if first.failure else ""
    assert text.startswith("ValueError (test_transform_rounds.py, line ")
    assert text.endswith("in checked)")
    assert (first.end, first.failure) == (131, RangeFailure(offset=131, text=text))
    assert (second.batches, second.end, second.failure) == (
        (),
        100,
        RangeFailure(offset=100, text=text),
    )


def test_a_failure_of_spark_itself_is_described(rounds_of: RoundsOf, port: StubPort) -> None:
    answer(rounds_of(mask_json("$.card")), port, orders(number=0, bad=(131,)))
    assert port.answers[0].failure == RangeFailure(offset=131, text="value is not JSON (mask_json)")


def test_failing_records_are_skipped(rounds_of: RoundsOf, port: StubPort) -> None:
    # if a job takes more than half of the limit, only a part of the range is answered, so the limit
    # is long
    rounds = rounds_of(picky, OnError.SKIP, limit_s=600.0)
    one = orders(number=0, bad=(100, 131, 149))
    answer(rounds, port, one)
    kept = [each for each in source_records(one) if each.offset not in (100, 131, 149)]
    assert records_of(port.answers[0]) == kept
    assert port.answers[0].failure is None
    assert [failure.offset for _, failure in rounds.skipped] == [100, 131, 149]


def test_a_worker_that_dies_is_a_failure_of_the_record(rounds_of: RoundsOf, port: StubPort) -> None:
    def deadly(rows: DataFrame) -> DataFrame:
        def checked(value: bytes) -> bytes:
            import os

            if not value.startswith(b"{"):
                os._exit(1)
            return value

        return rows.withColumn("value", plain_udf(checked)("value"))

    answer(rounds_of(deadly), port, orders(number=0, bad=(120,)))
    failure = port.answers[0].failure
    assert failure is not None
    assert failure.offset == 120
    assert failure.text.startswith("Python worker exited unexpectedly")


def test_a_transform_that_hangs_is_ended(rounds_of: RoundsOf, port: StubPort) -> None:
    def slow(rows: DataFrame) -> DataFrame:
        def checked(value: bytes) -> bytes:
            import time

            if not value.startswith(b"{"):
                time.sleep(600)  # longer than the job is permitted to take
            return value

        return rows.withColumn("value", plain_udf(checked)("value"))

    rounds = rounds_of(slow, limit_s=8.0)
    port.offer([orders(number=0, bad=(100,))])
    part = part_of(orders(number=0), port.address)
    rounds.answer([structs.replace(part, end=101)])
    assert port.answers[0].failure == RangeFailure(offset=100, text="no result within 8 s")


def test_a_record_that_waits_for_a_core_does_not_fail(
    rounds_of: RoundsOf, port: StubPort, tmp_path: Path
) -> None:
    """Two records occupy both cores for longer than the job of a third record may run. The job of
    the third record waits for a core, and then succeeds.
    """
    folder, limit_s = str(tmp_path), 15.0

    def waits(rows: DataFrame) -> DataFrame:
        def checked(value: bytes, partition: int) -> bytes:
            import time
            from pathlib import Path

            Path(folder, f"{partition}").touch()
            while not Path(folder, "end").exists():
                time.sleep(0.1)  # in Spark's worker, which the test cannot notify
            return value

        udf = F.udf(lambda *columns: checked(*columns), "binary")  # noqa: PLW0108 (as in plain_udf)
        return rows.withColumn("value", udf("value", "partition"))

    ranges = [orders(number=number) for number in range(3)]
    port.offer(ranges)
    parts = [
        structs.replace(part_of(one, port.address), end=101, size=TASK_BYTES) for one in ranges
    ]
    holding, other = (
        rounds_of(waits, OnError.SKIP, limit_s=600.0),
        rounds_of(picky, OnError.SKIP, limit_s=limit_s),
    )
    threads = [
        threading.Thread(target=holding.answer, args=[parts[:2]]),
        threading.Thread(target=other.answer, args=[parts[2:]]),
    ]
    threads[0].start()
    eventually(lambda: len([*tmp_path.iterdir()]) == 2, what="two records have the cores")
    threads[1].start()
    threads[1].join(limit_s + 2.0)
    (tmp_path / "end").touch()
    for one in threads:
        one.join()
    assert records_of(port.answers[2]) == source_records(ranges[2])[:1]
    assert not other.skipped and not holding.skipped


def test_an_answer_that_is_too_large_for_the_channel_has_fewer_records(
    rounds_of: RoundsOf, port: StubPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transformed records of one range are too large for a message to the lane, so the answer
    is for the first part of the range. A single record of another range is too large, so it fails.
    """
    monkeypatch.setattr("twinlog.channel.frames.MAX_FRAME_BYTES", 20_000)
    grown = "transform(sequence(1, partition), i -> sha2(concat(hex(value), i), 256))"
    rounds = rounds_of(lambda rows: rows.withColumn("value", F.expr(f"array_join({grown}, '')")))
    answer(rounds, port, orders(number=20), orders(number=1000))
    found = port.answers[20]
    assert (len(records_of(found)), found.end, found.is_part) == (1, 101, True)
    failure = port.answers[1000].failure
    assert failure is not None and failure.offset == 100
    assert failure.text.startswith("the transformed records have more than ")


def test_an_unreachable_port_is_not_a_failure_of_the_transform(
    rounds_of: RoundsOf, port: StubPort
) -> None:
    rounds = rounds_of(picky)
    port.close()
    with pytest.raises(TwinlogError) as raised:
        rounds.answer([part_of(orders(number=0), port.address)])
    assert raised.value.code == "CHANNEL_UNREACHABLE"
