"""`python -m benchmarks.transform_memory`: measures the memory (PSS) of the application of
transforms.

It needs no brokers: a port in this process offers ranges of several kinds of records, and drops the
answers. As many ranges wait as a lane would offer. The application runs in its own process, as for
a mirror. The highest PSS of its processes, by process, and the rows per second are printed.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.payload import make_key, make_values
from benchmarks.process_tree import ProcessTree, parse_pss
from tests.support.range_port import StubPort, batches_of
from twinlog.config.flow.transforms import OnError
from twinlog.mirror.copy.ranges import SourceRange
from twinlog.spark.application import (
    ApplicationFailed,
    ApplicationReady,
    RangePorts,
    TransformsApplication,
    TransformStep,
    TransformsWork,
)
from twinlog.transforms.application import config_of
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record

__all__ = ["main"]

FIRST_MS: Final = 1_700_000_000_000
TOPIC: Final = "orders"
LANE_BYTES: Final = 64 << 20
"""Bytes of the ranges that wait, as the default of `twinlog.lane.memory.bytes`."""
LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of records to transform."""

    values: Callable[[], Sequence[bytes]]
    """The values of one range."""
    per: int | None
    """Number of records in a batch. None: all records in one batch."""


def large(size: int, count: int = 1) -> list[bytes]:
    """Return JSON values with text that is compressed about two to one."""
    source, out = random.Random(size), []
    for _ in range(count):
        text = base64.b64encode(source.randbytes(size * 3 // 8)) + b"note " * (size // 10)
        out.append(b'{"state": "paid", "email": "a@example.org", "text": "%s"}' % text)
    return out


def packed() -> list[bytes]:
    """Return orders of 1 KB that are compressed about a hundred to one."""
    (value,) = make_values(1, seed=1)
    return [b"%07d%s" % (at, value[7:]) for at in range(100_000)]


KINDS: Final = {
    "1 KB": Kind(lambda: make_values(2000, seed=1), 16),
    "1 MB": Kind(lambda: large(1 << 20), 1),
    "10 MB": Kind(lambda: large(10 << 20), 1),
    "100 to 1": Kind(packed, None),
}


class Lane:
    """A lane with a backlog, which offers another range whenever a range is answered."""

    def __init__(self, transform: str, batches: bytes, records: int) -> None:
        self.port = StubPort()
        self.answered = 0
        self.problem = ""
        self._transform, self._batches, self._records = transform, batches, records
        self._numbers = itertools.count()
        self._waiting = max(2, min(64, LANE_BYTES // len(batches)))

    def run(self, until: Callable[[], bool]) -> None:
        open_ranges: dict[int, SourceRange] = {}
        while not until():
            for number in [number for number in open_ranges if number in self.port.answers]:
                failure = self.port.answers[number].failure
                self.problem = self.problem or ("" if failure is None else failure.text)
                self.port.forget(number)
                del open_ranges[number]
                self.answered += 1
            more = [self._range() for _ in range(self._waiting - len(open_ranges))]
            if more:
                open_ranges.update((one.number, one) for one in more)
                self.port.offer(more)
            time.sleep(0.01)

    def _range(self) -> SourceRange:
        number = next(self._numbers)
        return SourceRange(
            number=number,
            topic=TOPIC,
            partition=number,  # unique, because ranges of one job must not overlap
            transform=self._transform,
            first=0,
            end=self._records,
            batches=self._batches,
        )


class Peak:
    """The highest PSS of a process tree, and the PSS of each kind of process at that moment."""

    def __init__(self, root: int) -> None:
        self._tree = ProcessTree(root)
        self.total = 0
        self.parts = ""

    def look(self) -> None:
        found = sorted(self._sizes())
        total = sum(size for _, size in found)
        if total > self.total:
            self.total = total
            self.parts = ", ".join(f"{name} {size >> 20}" for name, size in found)

    def _sizes(self) -> Iterator[tuple[str, int]]:
        for stat in self._tree.look():
            place = Path("/proc") / str(stat.pid)
            try:
                words = (place / "cmdline").read_bytes().split(b"\0")
                size = parse_pss((place / "smaps_rollup").read_bytes())
            except OSError:
                continue
            if stat.pid == self._tree.root:
                yield "driver", size
            elif words[0].endswith(b"java"):
                yield "jvm", size
            elif b"twinlog.records.daemon" in words:
                yield "worker", size


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--function", default="benchmarks.transform_job:filter_and_mask")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--codec", default="LZ4")
    parser.add_argument("--memory", type=int, default=1024, help="limit in MiB")
    given = parser.parse_args(arguments)
    os.environ["PYTHONPATH"] = os.pathsep.join((".", os.environ.get("PYTHONPATH", "")))
    for name in given.kinds:
        measure(name, given.function, Codec[given.codec], given.seconds, given.memory << 20)


def measure(name: str, function: str, codec: Codec, seconds: float, memory_bytes: int) -> None:
    kind = KINDS[name]
    values = kind.values()
    records = [Record(at, FIRST_MS + at, make_key(at), one, ()) for at, one in enumerate(values)]
    batches = batches_of(records, per=kind.per, codec=codec)
    size = sum(map(len, values))
    step = TransformStep(name="t", topics=(TOPIC,), function=function)
    work = TransformsWork(
        flow="A->B", steps=(step,), on_error=OnError.STOP, memory_bytes=memory_bytes
    )
    lane = Lane(config_of(work).digest_of(TOPIC), batches, len(records))
    application = TransformsApplication(work)
    peak, begun = Peak(application.process.pid), time.monotonic()
    state = {"ready": 0.0, "end": begun + 120.0}

    def listen() -> None:
        for message in application.messages():
            if isinstance(message, ApplicationReady):
                state["ready"] = time.monotonic()
                state["end"] = state["ready"] + seconds
                application.connect(RangePorts(ports=(lane.port.address,)))
            elif isinstance(message, ApplicationFailed):
                print(f"{name}: {message.message}", flush=True)
        state["end"] = 0.0

    threading.Thread(target=listen, daemon=True).start()

    def is_over() -> bool:
        return time.monotonic() > state["end"]

    def watch() -> None:
        while not is_over():
            peak.look()
            time.sleep(LOOK_S)

    threading.Thread(target=watch, daemon=True).start()
    lane.run(is_over)
    took = time.monotonic() - (state["ready"] or time.monotonic())
    application.stop()
    lane.port.close()
    rate = lane.answered * len(records) / took if took else 0.0
    print(
        f"{name:9} range {len(batches):>9,} bytes of {size:>11,}: peak {peak.total / 1e6:6.0f} MB,"
        f" {rate:8,.1f} records/s, {rate * size / len(records) / 1e6:6.1f} MB/s;"
        f" in MiB: {peak.parts}{lane.problem and f'; failed: {lane.problem}'}",
        flush=True,
    )


if __name__ == "__main__":
    main()
