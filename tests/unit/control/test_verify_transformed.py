"""`twinlog verify` runs the configured transforms again to compare transformed records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from tests.support.fetched_logs import Cluster, fetch_from_memory
from tests.support.memory_log import MemoryLog
from tests.support.python_transformer import transformed
from twinlog.channel.lending import LendingClient
from twinlog.control.verify.functions import FlowFunctions
from twinlog.errors import TwinlogError
from twinlog.mirror.copy.ranges import RangeAnswer, SourceRange
from twinlog.mirror.findings import Span
from twinlog.mirror.map.offset_map import Mark, Run
from twinlog.mirror.skips import Skip
from twinlog.mirror.verify.difference import Compared, DifferenceKind, GapCause
from twinlog.mirror.verify.side import Piece
from twinlog.mirror.verify.walk import Rules
from twinlog.model import Isolation, TopicPartition
from twinlog.spark.application import ApplicationFailed, ApplicationReady, RangePorts
from twinlog.survey.replica import Witness, copied_below
from twinlog.survey.transformed_source import TransformedSource
from twinlog.survey.verify import (
    MappedCopy,
    PartitionBounds,
    VerifyTask,
    verify_partition,
)
from twinlog.wire.record_batch import Codec, read_header
from twinlog.wire.records import Record, encode_batch

HERE, THERE = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
NOW = 1_750_000_000_000
COUNT = 60
Function = Callable[[Record], Record | None]
TRANSFORMS = SimpleNamespace(
    entries=(),
    on_error="stop",
    environment=(),
    memory_bytes=1 << 30,
    of_topic=lambda _: (SimpleNamespace(name="mask"),),
    digest_of=lambda _: "ab",
)
CONFIG = cast("Any", SimpleNamespace(flow="A->B", transforms=TRANSFORMS))


@pytest.fixture(autouse=True)
def _memory(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch_from_memory(monkeypatch)


def records() -> list[Record]:
    return [Record(at, NOW + at, b"k%d" % at, b"card %d" % at, ()) for at in range(COUNT)]


def masked(record: Record) -> Record | None:
    """Return the record with a masked value. Every fifth record is filtered out."""
    return None if record.offset % 5 == 0 else record._replace(value=b"***")


def log_of(some: list[Record]) -> MemoryLog:
    log = MemoryLog()
    for at in range(0, len(some), 7):
        log._store(encode_batch(some[at : at + 7], codec=Codec.NONE))
    return log


class Copy:
    """A source, and the copy that a mirror with transforms made of it."""

    def __init__(self) -> None:
        kept = [(one.offset, made) for one in records() if (made := masked(one)) is not None]
        self.source, self.target = log_of(records()), log_of([made for _, made in kept])
        offsets = [offset for offset, _ in kept]
        runs = tuple(
            Run(at, offset, at)
            for at, offset in enumerate(offsets)
            if at == 0 or offset != offsets[at - 1] + 1
        )
        known = cast("Any", SimpleNamespace(runs=runs, mark=Mark(len(kept), len(kept))))
        reach = copied_below(known, self.target.end, Witness.LOG_END).reach
        self.task = VerifyTask(
            source=HERE,
            target=THERE,
            here=PartitionBounds(start=0, end=self.source.end),
            there=PartitionBounds(start=0, end=self.target.end),
            later_source_end=self.source.end,
            mapped_copy=MappedCopy.of(known, reach, self.target.end),
            producers=frozenset((5,)),
            rules=Rules(),
            isolation=Isolation.READ_COMMITTED,
            is_led=True,
            source_may_lack=False,
            target_may_lack=False,
            transform="ab",
        )

    def compared(self, functions: FlowFunctions, **changes: Any) -> Compared:
        found, task = Compared(), replace(self.task, **changes)
        source, target = (cast("Any", Cluster(log)) for log in (self.source, self.target))
        verify_partition(task, source, target, lambda _: None, found, functions=functions)
        return found


class Application:
    """Replaces the process of the transforms. It answers the ranges of a port with a Python
    function, at most `most` offsets at a time.
    """

    def __init__(self, function: Function, most: int = COUNT, first: Any = None) -> None:
        self._function, self._most = function, most
        self._messages = [ApplicationReady() if first is None else first]
        self._ended = threading.Event()

    def messages(self) -> Iterator[object]:
        yield from self._messages
        self._ended.wait()

    def connect(self, ports: RangePorts) -> None:
        (address,) = ports.ports
        threading.Thread(target=self._answer, args=[LendingClient(address)], daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _answer(self, port: LendingClient) -> None:
        with port, suppress(TwinlogError):  # the verification closes the port when it ends
            port.subscribe()
            while not self._ended.is_set():
                for offer in port.offers(0.1):
                    taken = port.request_range(offer.number)
                    if taken is not None:
                        port.send_answer(self._made(taken))

    def _made(self, taken: SourceRange) -> RangeAnswer:
        end = min(taken.end, taken.first + self._most)
        answer = transformed(structs.replace(taken, end=end), self._function)
        return structs.replace(answer, is_part=end < taken.end and answer.failure is None)


@pytest.fixture
def functions() -> Iterator[Callable[..., FlowFunctions]]:
    """Return a function that creates the transforms of a flow from a Python function."""
    made: list[FlowFunctions] = []

    def make(function: Function, **more: Any) -> FlowFunctions:
        start = cast("Any", lambda *_, **__: Application(function, **more))
        made.append(FlowFunctions(CONFIG, start))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("most", [COUNT, 7], ids=["whole ranges", "parts"])
def test_copy_of_the_same_functions_is_identical(
    functions: Callable[..., FlowFunctions], most: int
) -> None:
    found = Copy().compared(functions(masked, most=most))
    assert (found.differences, found.equal) == ([], COUNT - COUNT // 5)
    # the first record is filtered out, so the map begins after it
    assert +found.gaps == {GapCause.BEFORE_COPY: 1}


def test_only_a_part_of_the_records(functions: Callable[..., FlowFunctions]) -> None:
    found = Copy().compared(functions(masked), since=31, until=50)
    assert (found.differences, found.equal) == ([], 19 - 3)


def test_another_function_is_a_difference(functions: Callable[..., FlowFunctions]) -> None:
    def other(record: Record) -> Record | None:
        return record if record.offset == 33 else masked(record)

    found = Copy().compared(functions(other))
    (difference,) = found.differences
    assert (difference.kind, difference.source) == (DifferenceKind.DIFFERENT, Span(33, 34))
    assert found.equal == COUNT - COUNT // 5 - 1


def test_another_filter_is_a_difference(functions: Callable[..., FlowFunctions]) -> None:
    found = Copy().compared(functions(lambda one: None if one.offset == 33 else masked(one)))
    assert [one.kind for one in found.differences] == [DifferenceKind.EXTRA]
    found = Copy().compared(functions(lambda one: one if one.offset == 35 else masked(one)))
    assert {(one.kind, one.source) for one in found.differences} == {
        (DifferenceKind.MISSING, Span(35, 36))
    }


def test_filtered_records_at_the_end_are_not_pending(
    functions: Callable[..., FlowFunctions],
) -> None:
    copy = Copy()
    copy.source.write([Record(0, NOW, b"later", b"", ())])
    found = copy.compared(
        functions(lambda one: None if one.offset >= COUNT else masked(one)),
        here=PartitionBounds(start=0, end=COUNT + 1),
        is_led=False,
    )
    assert (found.differences, found.pending) == ([], None)


def test_record_that_fails_ends_the_comparison(functions: Callable[..., FlowFunctions]) -> None:
    def failing(record: Record) -> Record | None:
        if record.offset == 33:
            raise ValueError("bad")
        return masked(record)

    copy, found = Copy(), Compared()
    source, target = (cast("Any", Cluster(log)) for log in (copy.source, copy.target))
    with pytest.raises(TwinlogError, match="orders-0: the transforms fail at offset 33") as error:
        verify_partition(
            copy.task, source, target, lambda _: None, found, functions=functions(failing)
        )
    assert error.value.code == "RECORD_NOT_TRANSFORMED"
    assert found.differences == []


def test_batch_that_is_too_large_for_transforms_ends_the_comparison(
    functions: Callable[..., FlowFunctions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlog.mirror.copy.range_intake.MOST_BYTES", 20)
    with pytest.raises(TwinlogError, match=r"offset 1: its batch has .* at most 20") as error:
        Copy().compared(functions(masked))
    assert error.value.code == "RECORD_NOT_TRANSFORMED"


def test_skipped_records_are_not_transformed(functions: Callable[..., FlowFunctions]) -> None:
    """An operator has skipped a record on which the function fails, and the copy has continued
    without it. A verification does not transform this record.
    """

    def failing(record: Record) -> Record | None:
        if record.offset == 30:
            raise ValueError("bad")
        return masked(record)

    found = Copy().compared(functions(failing), rules=Rules(skips=(Skip(first=30, next=31),)))
    assert (found.differences, found.equal) == ([], COUNT - COUNT // 5)


def test_bytes_of_aborted_batches_are_not_kept() -> None:
    """A log may have gigabytes of aborted records between two batches that are transformed. Only
    the headers of their batches are needed.
    """
    batch = memoryview(encode_batch(records()[:7], codec=Codec.NONE))
    aborted = Piece(read_header(batch), batch, GapCause.ABORTED)
    pieces = TransformedSource(HERE, cast("Any", None)).pieces(iter([aborted] * 3), 0)
    assert [(one.header, len(one.data)) for one in pieces] == [(aborted.header, 0)] * 3


def test_process_that_cannot_be_started() -> None:
    def start(*_: object, **__: object) -> Application:
        raise OSError("no memory")

    with pytest.raises(TwinlogError, match="it cannot be started: no memory"):
        FlowFunctions(CONFIG, cast("Any", start))


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (ApplicationFailed(message="no module company", code="TRANSFORM_FAILED"), "no module"),
        (
            ApplicationReady(varying=("mask",)),
            "these transforms return different records each time: mask",
        ),
    ],
    ids=["application does not start", "not deterministic"],
)
def test_functions_that_cannot_be_compared(
    functions: Callable[..., FlowFunctions], first: object, says: str
) -> None:
    with pytest.raises(TwinlogError, match=says):
        Copy().compared(functions(masked, first=first))


def test_nobody_waits_after_the_end(functions: Callable[..., FlowFunctions]) -> None:
    given = functions(masked, first=ApplicationFailed(message="", code=""))
    given.close()
    with pytest.raises(TwinlogError, match="does not run"):
        Copy().compared(given)
