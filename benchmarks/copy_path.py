"""CPU time of a lane per batch, without brokers and sockets: `python -m benchmarks.copy_path`.

A whole lane (`lane.assignments`) gets Fetch responses and sends Produce requests, and this process
also creates the responses to these. The lane's connections are objects that only store requests. So
the measured time is the CPU time of the lane itself, without system calls, by stage:

    take    a Fetch response of a partition becomes batches of this producer (`Intake.take`)
    fetch   everything else around a Fetch response, and the next request (`SourceSide`)
    send    the batches are put into Produce requests (`TargetSide.pump`)
    answer  the responses to them (`TargetSide.on_answer`), and the end of the turn

Responses are created immediately before they are processed, as if they came from a socket. This
time is not counted. With `TWINLOG_KERNELS=python`, the lane runs without the compiled kernels.

The last lines show a lower bound: a forwarder in C (`forwarder.c`) that only reads and writes
sockets.
"""

from __future__ import annotations

import argparse
import selectors
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final, cast

from tests.support.driver import HandClock, work_of
from tests.support.lane_takes import HERE_ID, PRODUCER, THERE_ID, take
from tests.support.records import with_bits
from twinlog.cluster.net.framing import FramePool
from twinlog.config.flow.tuning import Tuning
from twinlog.lane.assignments import Assignments
from twinlog.lane.map_writer import Round
from twinlog.lane.messages import HandOver, Take
from twinlog.lane.ports import LanePorts
from twinlog.lane.sides.cluster_side import ClusterSide, Leader
from twinlog.mirror.map.offset_map import Run
from twinlog.mirror.start_point import StartPoint
from twinlog.model import Isolation, TopicId, TopicPartition
from twinlog.wire.fetch import FETCH, VERSION_BY_ID
from twinlog.wire.kernels import library
from twinlog.wire.kernels.chosen import CHOSEN
from twinlog.wire.primitives import uvarint
from twinlog.wire.produce import PRODUCE
from twinlog.wire.produce import VERSION_BY_ID as PRODUCE_BY_ID
from twinlog.wire.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, Codec
from twinlog.wire.records import Record, encode_batch

STAGES: Final = ("take", "fetch", "send", "answer")
NODE: Final = 1
MAP_ID: Final = TopicId("c" * 32)
HERE, THERE = TopicPartition("t", 0), TopicPartition("A.t", 0)
_OFFSET: Final = struct.Struct(">q")
_FETCHED: Final = struct.Struct(">ihqqq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kind of batches to copy."""

    name: str
    records: int
    """Number of records in a batch, of 1 KB each."""
    batches: int
    """Number of batches in one response."""
    join_bytes: int = 0
    gap: int = 0
    """Number of batches between two transaction markers, or 0 for no markers."""


CASES: Final = (
    Case(name="1 KB, one a response", records=1, batches=1),
    Case(name="1 KB, 512 a response", records=1, batches=512),
    Case(name="1 KB, 512 a response, joined", records=1, batches=512, join_bytes=16_384),
    Case(name="1 KB, 512 a response, a marker after 4", records=1, batches=512, gap=4),
    Case(name="16 KB, one a response", records=16, batches=1),
    Case(name="16 KB, 64 a response", records=16, batches=64),
)


@dataclass
class Wire:
    """A connection that only stores requests, and returns given responses."""

    api_versions: dict[int, tuple[int, int]]
    requests: deque[Any] = field(default_factory=deque)
    responses: list[tuple[Any, memoryview]] = field(default_factory=list)
    opened_at: float = 0.0
    may_send: bool = True
    wants_write: bool = False
    is_ending: bool = False
    peer: str = "a wire"

    def submit(self, _key: int, _version: int, _parts: Sequence[Any], context: object) -> None:
        self.requests.append(context)

    def throttled(self, _ms: int) -> None:
        """Do nothing."""

    def receive(self) -> list[tuple[Any, memoryview]]:
        out, self.responses = self.responses, []
        return out


class Brokers(ClusterSide):
    """A cluster whose connections are Wires."""

    def flush(self, node: int, connection: object) -> None:
        self.before_sending()

    def tick(self) -> None:
        """Send no queries."""


@dataclass
class Bench:
    """A lane that copies batches of one kind."""

    case: Case
    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    batches: int = 0
    bytes: int = 0

    def __post_init__(self) -> None:
        self._clock = HandClock()
        self._offset = self._written = 0
        self._selector = selectors.DefaultSelector()
        work = work_of(
            memory_bytes=64 << 20,
            isolation=Isolation.READ_COMMITTED,
            producer_id=PRODUCER,
            producer_expiry_ms=86_400_000,
            tuning=Tuning(join_bytes=self.case.join_bytes),
        )
        versions = {FETCH: (4, VERSION_BY_ID), PRODUCE: (3, PRODUCE_BY_ID)}
        self._source, self._target = Wire(versions), Wire(versions)
        sides = [
            Brokers(
                settings=settings,
                background=cast("Any", None),
                selector=self._selector,
                pool=FramePool(0),
                clock=self._clock,
            )
            for settings in (work.source, work.target)
        ]
        for side, wire, tp, topic_id in (
            (sides[0], self._source, HERE, HERE_ID),
            (sides[1], self._target, THERE, THERE_ID),
            (sides[1], self._target, TopicPartition(work.map_topic, 0), MAP_ID),
        ):
            side.leaders[tp] = Leader(NODE, 0)
            side.topic_ids[tp.topic] = topic_id
            side.connections[NODE] = cast("Any", wire)
        ports = LanePorts(
            clock=self._clock,
            source=sides[0],
            target=sides[1],
            background=cast("Any", None),
            send=lambda _message: None,
        )
        self._lane = Assignments(work, ports)
        now_ms = self._clock.wall_ms()
        start = StartPoint(
            ordinal=0,
            upstream=0,
            k=0,
            last_fetched_epoch=-1,
            is_protected=True,
            last_timestamp=now_ms,
            target_epoch=0,
        )
        over = HandOver(start=start, chunk=0, runs=(Run(0, 0, 0),), durable_ordinal=0, map_epoch=-1)
        self._lane.on_take(Take(partitions=(take(0, handed=over),)))
        (self._copy,) = self._lane._copies()
        self._sizes: list[tuple[int, int]] = []
        kept = [Record(at, now_ms, None, b"x" * 1000) for at in range(self.case.records)]
        data = encode_batch(kept, codec=Codec.NONE)
        mark = _marker(now_ms)
        out = bytearray()
        for at in range(self.case.batches):
            is_marker = self.case.gap and at % (self.case.gap + 1) == self.case.gap
            self._sizes.append((len(out), 1 if is_marker else self.case.records))
            out += mark if is_marker else data
        self._response = bytes(out)
        self._lane.pump(hurry=False)

    def close(self) -> None:
        self._selector.close()

    def run(self, responses: int) -> None:
        """Copy the batches of this number of responses."""
        for _ in range(responses):
            self._fetch()
            while self._target.requests:
                self._acknowledge()

    def _fetch(self) -> None:
        copy, spent, now = self._copy, self.spent, time.process_time
        self._source.responses = [(self._source.requests.popleft(), self._fetched())]
        taking, taken = copy.intake.take, 0.0

        def timed(*given: Any) -> Any:
            nonlocal taken
            began = now()
            try:
                return taking(*given)
            finally:
                taken += now() - began

        copy.intake.take = timed  # type: ignore[method-assign, assignment]
        began = now()
        self._lane.source.on_readable(NODE, cast("Any", self._source))
        arrived = now()
        self._lane.target.pump(self._clock.wall_ms())
        sent = now()
        self._lane.pump(hurry=False)
        ended = now()
        del copy.intake.take
        spent["take"] += taken
        spent["fetch"] += arrived - began - taken + ended - sent
        spent["send"] += sent - arrived
        self.batches += self.case.batches
        self.bytes += len(self._response)

    def _fetched(self) -> memoryview:
        data = bytearray(self._response)
        for at, records in self._sizes:
            _OFFSET.pack_into(data, at, self._offset)
            self._offset += records
        head = bytes(4 + 2) + (7).to_bytes(4, "big") + b"\x02" + HERE_ID.raw + b"\x02"
        head += _FETCHED.pack(0, 0, self._offset, self._offset, 0) + b"\x01" + b"\xff" * 4
        return memoryview(bytearray(head + uvarint(len(data) + 1)) + data + b"\x00" * 3)

    def _acknowledge(self) -> None:
        """Answer all stored requests, and let the lane send the next ones."""
        spent, now, requests = self.spent, time.process_time, self._target.requests
        answers: list[tuple[Callable[..., int], tuple[Any, ...]]] = []
        while requests:
            sent = requests.popleft()
            if isinstance(sent, Round):
                answers.append((self._lane.map.on_answer, (sent, _answer(MAP_ID.raw, 0))))
            else:
                ((_, batch),) = sent.batches.values()
                given = sent, _answer(THERE_ID.raw, batch.ordinal), self._clock.wall_ms()
                answers.append((self._lane.target.on_answer, given))
        began = now()
        for process, given in answers:
            process(*given)
        answered = now()
        self._lane.target.pump(self._clock.wall_ms())
        pumped = now()
        self._lane.pump(hurry=False)
        self._lane.settle()
        spent["answer"] += answered - began + now() - pumped
        spent["send"] += pumped - answered


def _marker(timestamp: int) -> bytes:
    """Return a batch with a commit marker."""
    made = encode_batch([Record(0, timestamp, bytes(3) + b"\x01", bytes(6))], codec=Codec.NONE)
    return bytes(with_bits(made, TRANSACTIONAL_BIT | CONTROL_BIT))


def _answer(topic_id: bytes, base_offset: int) -> memoryview:
    body = b"\x02" + topic_id + b"\x02" + _FETCHED.pack(0, 0, base_offset, -1, 0)
    return memoryview(body + b"\x01\x00\x00" + b"\x00" + bytes(4) + b"\x00")


def print_floor(mb: int) -> None:
    """Compile and run the forwarder in C, if there is a compiler, and print its CPU time."""
    source = Path(__file__).with_name("forwarder.c")
    if shutil.which("cc") is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "forwarder")
        build = [
            "cc",
            "-O2",
            "-I",
            str(Path(library.__file__).parent),
            "-o",
            str(program),
            str(source),
        ]
        subprocess.run(build, check=True)
        for name, size in (("1 KB", 1_083), ("16 KB", 16_384)):
            command = [str(program), str(16 * mb), str(size)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            copied, in_code, in_kernel = map(int, done.stdout.split())
            whole, code = (in_code + in_kernel) / copied, in_code / copied
            print(
                f"forwarder in C, {name}: {size * whole:.2f} us a batch, {1e3 * whole:.2f} s/GB, "
                f"of which {1e3 * code:.2f} outside of system calls"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--mb", type=int, default=64, help="MB per case and round (default: 64)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: 5)")
    given = parser.parse_args()
    kernels = "compiled" if CHOSEN.is_compiled else f"Python: {CHOSEN.not_compiled_reason}"
    print(f"us of CPU a batch, medians of {given.rounds} (kernels: {kernels})")
    print(f"{'':40}{''.join(f'{stage:>8}' for stage in STAGES)}{'all':>8}{'s/GB':>8}")
    for case in CASES:
        rows: list[list[float]] = []
        size = 1100 * case.records * case.batches
        for _ in range(given.rounds):
            bench = Bench(case)
            bench.run(max(1, min(given.mb * 1_000_000 // size, 20_000)))
            bench.close()
            each = [1e6 * bench.spent[stage] / bench.batches for stage in STAGES]
            whole = sum(bench.spent.values())
            rows.append([*each, sum(each), 1e9 * whole / bench.bytes])
        cells = [median(column) for column in zip(*rows, strict=True)]
        print(f"{case.name:40}{''.join(f'{cell:8.2f}' for cell in cells)}")
    print_floor(given.mb)
    return 0


if __name__ == "__main__":
    sys.exit(main())
