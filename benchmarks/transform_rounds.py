"""`python -m benchmarks.transform_rounds`: what Spark needs to answer ranges of lanes.

Without brokers: a port in this process lends ranges of orders of 1 KB, packed by lz4, and drops the
answers. Printed are the price of a round with ranges of few records, and rows per second in warm
rounds of a backlog, by kind of transform, with the CPU time of all processes.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Sequence
from typing import Any, Final

import psutil
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.payload import make_key, make_values
from tests.support.range_port import StubPort, batches_of
from twinlog.mirror.copy.ranges import SourceRange
from twinlog.records.lent import LentRanges
from twinlog.transforms import Transform, mask_json
from twinlog.transforms.application import part_of
from twinlog.transforms.rounds import Rounds
from twinlog.transforms.session import local_session
from twinlog.wire.record import Record
from twinlog.wire.record_batch import Codec

__all__ = ["main"]

FIRST_MS: Final = 1_700_000_000_000
PER_BATCH: Final = 16
"""Records of a batch, as producers make of 16 KB."""
FEW: Final = 50
"""Records of a range of steady traffic."""
WARM_UP: Final = 6
MASKED: Final = r"""regexp_replace(CAST(value AS STRING), '"email": ?"[^"]*"', '"email":"****"')"""


def filter_and_mask(rows: DataFrame) -> DataFrame:
    """Two functions of Spark."""
    kept = rows.where("get_json_object(CAST(value AS STRING), '$.state') <> 'returned'")
    return kept.withColumn("value", F.expr(MASKED))


def python_udf(rows: DataFrame) -> DataFrame:
    """One Python call for each row."""

    def masked(value: bytes) -> bytes:
        at = value.find(b'"email"')
        return value[:at] + value[at:].replace(b"@example.org", b"@", 1)

    return rows.withColumn("value", F.udf(masked, "binary")("value"))


def arrow_udf(rows: DataFrame) -> DataFrame:
    """One Python call for each Arrow array."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def masked(value: pa.Array) -> pa.Array:
        return pc.replace_substring(
            value.cast(pa.string()), "@example.org", "@", max_replacements=1
        )

    masked.__annotations__ = {"value": pa.Array, "return": pa.Array}
    functions: Any = F
    return rows.withColumn("value", functions.arrow_udf(masked, "string")("value"))


TRANSFORMS: Final[dict[str, Transform]] = {
    "nothing": lambda rows: rows,
    "SQL filter and mask": filter_and_mask,
    "mask_json": mask_json("$.customer.email"),
    "Python UDF": python_udf,
    "Arrow UDF": arrow_udf,
}


class Bench:
    """Rounds of one transform."""

    _numbers = itertools.count()

    def __init__(self, rounds: Rounds, port: StubPort) -> None:
        self._rounds, self._port = rounds, port

    def seconds(self, batches: bytes, records: int, ranges: int) -> float:
        """Answer ranges with these records in one round."""
        offered = [
            SourceRange(
                number=next(self._numbers),
                topic="orders",
                partition=partition,
                transform="",
                first=0,
                end=records,
                batches=batches,
            )
            for partition in range(ranges)
        ]
        self._port.offer(offered)
        parts = [part_of(one, self._port.address) for one in offered]
        begun = time.perf_counter()
        self._rounds.answer(parts)
        took = time.perf_counter() - begun
        for one in offered:
            assert self._port.answers[one.number].failure is None
            self._port.forget(one.number)
        return took


def cpu_seconds() -> float:
    """CPU time of this process and its children, also of those that have ended."""
    me = psutil.Process()
    found = [me, *me.children(recursive=True)]
    return sum(sum(one.cpu_times()[:4]) for one in found)


def records(count: int) -> bytes:
    values = make_values(1000, seed=1)
    made = [Record(at, FIRST_MS + at, make_key(at), values[at % 1000], ()) for at in range(count)]
    return batches_of(made, per=PER_BATCH, codec=Codec.LZ4)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transforms", nargs="*", default=list(TRANSFORMS))
    parser.add_argument("--rows", type=int, default=4000, help="records of a range of a backlog")
    parser.add_argument("--ranges", type=int, nargs="*", default=[1, 4, 8])
    parser.add_argument("--repeat", type=int, default=10)
    given = parser.parse_args(arguments)
    few, many = records(FEW), records(given.rows)
    print(f"a range: {FEW} records, {len(few)} bytes; {given.rows} records, {len(many)} bytes")
    port = StubPort()
    with local_session("benchmark") as spark:
        lent = LentRanges(ports=(port.address,), codec=Codec.LZ4, max_bytes=1 << 20)
        for name in given.transforms:
            bench = Bench(Rounds(spark=spark, transform=TRANSFORMS[name], lent=lent), port)
            for ranges in given.ranges:
                for batches, count in ((few, FEW), (many, given.rows)):
                    first = bench.seconds(batches, count, ranges)
                    for _ in range(WARM_UP):
                        bench.seconds(batches, count, ranges)
                    cpu = cpu_seconds()
                    took = [bench.seconds(batches, count, ranges) for _ in range(given.repeat)]
                    cpu = cpu_seconds() - cpu
                    rows = ranges * count * given.repeat
                    print(
                        f"{name:20} {ranges:3} ranges of {count:6}: first {first:6.3f} s, median"
                        f" {statistics.median(took):6.3f} s, worst {max(took):6.3f} s,"
                        f" {rows / sum(took):8,.0f} rows/s, CPU {cpu / given.repeat * 1000:6.0f} ms"
                        f" a round, {cpu / rows * 1e6:6.1f} us a row",
                        flush=True,
                    )
    port.close()


if __name__ == "__main__":
    main()
