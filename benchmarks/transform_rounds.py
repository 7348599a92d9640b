"""`python -m benchmarks.transform_rounds`: measures the time and CPU that Spark needs to answer
ranges.

It needs no brokers: a port in this process offers ranges of orders of 1 KB, compressed by lz4, and
drops the answers. For each kind of transform, it prints the time until ranges with few records are
answered, the rows per second of a backlog, and the CPU time of all processes.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time
from collections.abc import Sequence
from typing import Final

import psutil

from benchmarks.payload import make_key, make_values
from benchmarks.transform_job import arrow_udf, filter_and_mask, python_udf
from tests.support.range_port import StubPort, batches_of
from twinlog.mirror.copy.range_intake import RANGE_BYTES
from twinlog.mirror.copy.ranges import SourceRange
from twinlog.records.lent import LentRanges
from twinlog.spark.application import RangePorts
from twinlog.transforms import Transform, mask_json, memory
from twinlog.transforms.application import ROUND_EVERY_S, ROUNDS_AT_ONCE, Application
from twinlog.transforms.rounds import Rounds
from twinlog.transforms.session import local_session
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record

__all__ = ["main"]

FIRST_MS: Final = 1_700_000_000_000
PER_BATCH: Final = 16
"""Number of records in a batch, as in a producer's batch of 16 KB."""
MEMORY: Final = 1 << 30
"""Limit of the application's memory in bytes, as by default."""
FEW: Final = 50
"""Number of records in a range of steady traffic."""
POLL_S: Final = 0.001


TRANSFORMS: Final[dict[str, Transform]] = {
    "nothing": lambda rows: rows,
    "SQL filter and mask": filter_and_mask,
    "mask_json": mask_json("$.customer.email"),
    "Python UDF": python_udf,
    "Arrow UDF": arrow_udf,
}


class Lane:
    """A lane that offers ranges, and waits for the application's answers."""

    def __init__(self) -> None:
        self.port = StubPort()
        self._numbers = itertools.count()

    def seconds(self, transform: str, batches: bytes, records: int, ranges: int) -> float:
        """Offer ranges with these records, and return the seconds until all are answered."""
        offered = [
            SourceRange(
                number=next(self._numbers),
                topic="orders",
                partition=partition,
                transform=transform,
                first=0,
                end=records,
                batches=batches,
            )
            for partition in range(ranges)
        ]
        time.sleep(ROUND_EVERY_S)  # so that a small round begins at once
        begun = time.perf_counter()
        self.port.offer(offered)
        while any(one.number not in self.port.answers for one in offered):
            time.sleep(POLL_S)
        took = time.perf_counter() - begun
        for one in offered:
            assert self.port.answers[one.number].failure is None
            self.port.forget(one.number)
        return took


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its children, including ended ones."""
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
    parser.add_argument("--rows", type=int, default=1700, help="records of a range of a backlog")
    parser.add_argument("--ranges", type=int, default=75, help="ranges of a backlog")
    parser.add_argument("--warm-up", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=6)
    parser.add_argument("--cores", type=int, default=2)
    given = parser.parse_args(arguments)
    few, many = records(FEW), records(given.rows)
    print(f"a range: {FEW} records, {len(few)} bytes; {given.rows} records, {len(many)} bytes")
    lane = Lane()
    flags, at_once = memory.jvm_flags(MEMORY), memory.bytes_at_once(MEMORY)
    reserved = {"spark.testing.reservedMemory": str(memory.RESERVED)}
    with local_session("benchmark", cores=given.cores, flags=flags, settings=reserved) as spark:
        lent = LentRanges(ports=(), codec=Codec.LZ4, max_bytes=1 << 20)
        application = Application(
            begin=lambda offer: Rounds(
                spark=spark,
                transform=TRANSFORMS[offer.transform],
                lent=lent,
                round_bytes=at_once // ROUNDS_AT_ONCE - RANGE_BYTES,
            ),
            say=print,
            bytes_at_once=at_once,
        )
        application.watch.connect(RangePorts(ports=(lane.port.address,)))
        for _ in range(ROUNDS_AT_ONCE):
            threading.Thread(target=run_rounds, args=[application], daemon=True).start()
        for name, (ranges, batches, count) in itertools.product(
            given.transforms, ((1, few, FEW), (8, few, FEW), (given.ranges, many, given.rows))
        ):
            first = lane.seconds(name, batches, count, ranges)
            for _ in range(given.warm_up):
                lane.seconds(name, batches, count, ranges)
            cpu = cpu_seconds()
            took = [lane.seconds(name, batches, count, ranges) for _ in range(given.repeat)]
            cpu = cpu_seconds() - cpu
            rows = ranges * count * given.repeat
            print(
                f"{name:20} {ranges:3} ranges of {count:6}: first {first:6.3f} s, median"
                f" {statistics.median(took):6.3f} s, worst {max(took):6.3f} s,"
                f" {rows / sum(took):8,.0f} rows/s, CPU {cpu / given.repeat * 1000:6.0f} ms,"
                f" {cpu / rows * 1e6:6.1f} us a row",
                flush=True,
            )
    lane.port.close()


def run_rounds(application: Application) -> None:
    while True:
        application.step()


if __name__ == "__main__":
    main()
