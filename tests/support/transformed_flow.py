"""An in-memory flow whose records are transformed by a function that returns different results each
time.

It differs from a raw flow (`memory_flow`) in three ways. The lane's batches come from answers,
which arrive in any order, twice, or never. A start waits until nothing of an earlier lane can
arrive. The map must be right for every record on the target at every moment, because nothing else
shows where a record is from.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from msgspec import structs

from tests.support.memory_flow import STRAY, MemoryFlow
from tests.support.memory_lanes import Lane
from tests.support.memory_source import EXPIRY_MS
from tests.support.memory_steps import STEPS, UNHEARD
from tests.support.python_transformer import PythonTransformer, transformed
from twinlog.errors import TwinlogError
from twinlog.mirror.copy.partition import CopyState, PartitionCopy
from twinlog.mirror.copy.ranges import SourceRange
from twinlog.mirror.copy.transformed import RangeDesk, TransformedCopy
from twinlog.mirror.map.offset_map import run_at
from twinlog.mirror.map.translation import Reach, downstream_of, upstream_of
from twinlog.wire.records import Record

__all__ = ["TRANSFORMED_STEPS", "TransformedFlow"]

DIGEST: Final = "ab"
ALWAYS_KEPT: Final = 3
"""Records whose offset is a multiple of this number are never filtered out."""
TASKS: Final = (
    *("task_answers",) * 6,
    *("gets_ready",) * 8,
    *("send_some",) * 6,
    *("task_answers_again", "function_fails", "task_answers_a_part", "task_answers_a_part"),
    *("position_is_noted",) * 2,
)
TRANSFORMED_STEPS: Final = (*STEPS, *TASKS)
"""Names of the steps of a raw flow and of the application, each repeated as often as its weight."""
OF_THE_DEAD: Final = (
    *UNHEARD,
    *("task_answers", "task_answers", "position_is_noted"),
    *("gets_ready", "gets_ready", "send_some", "send_some"),
)


@dataclass(slots=True)
class Application:
    """The application that transforms the ranges of one lane."""

    transformer: PythonTransformer
    desk: RangeDesk
    answered: list[SourceRange] = field(default_factory=list)


@dataclass(slots=True)
class TransformedFlow(MemoryFlow):
    """One transformed partition, from its first start to the end of a program of steps."""

    steps: ClassVar = TRANSFORMED_STEPS
    unheard: ClassVar = OF_THE_DEAD
    last_steps: ClassVar = ("start", "send", "fetch", "task_answers")
    transform: str = DIGEST
    dropped: set[int] = field(default_factory=set)
    """Upstream offsets of records that were filtered out at least once."""
    raw: set[int] = field(default_factory=set)
    """Target offsets that were written while the flow had no transform."""
    poisoned: set[int] = field(default_factory=set)
    """Upstream offsets at which the function fails until it is corrected."""
    _random: random.Random = field(default_factory=lambda: random.Random(7))
    _applications: dict[PartitionCopy, Application] = field(default_factory=dict)

    def mask(self, record: Record) -> Record | None:
        """Return the record masked, with another result each time, or None to filter it out. Raises
        ValueError for a poisoned record.
        """
        if record.offset in self.poisoned:
            raise ValueError("cannot be masked")
        if record.offset % ALWAYS_KEPT and self._random.random() < 0.4:
            self.dropped.add(record.offset)
            return None
        return record._replace(value=b"m%d-%d" % (record.offset, self._random.getrandbits(30)))

    # -- the driver --------------------------------------------------------------------------------

    def put_off(self) -> bool:
        return self.waits_for_late_requests()

    def waits_for_late_requests(self) -> bool:
        """Return True if a transformed partition must wait for late requests, as in
        `control.lanes.takes.put_off`.
        """
        return self.now_ms < self._wait_until_ms

    def _made(self, **given: Any) -> PartitionCopy:
        if not self.transform:
            return PartitionCopy(**given)
        transformer = PythonTransformer(self.mask)
        desk = RangeDesk(transformer)
        copy = TransformedCopy(transform=self.transform, desk=desk, **given)
        self._applications[copy] = Application(transformer, desk)
        return copy

    def _trouble(self, error: TwinlogError) -> None:
        if error.code == "RECORD_NOT_TRANSFORMED":
            assert error.poison is not None and error.poison[0] in self.poisoned, error
            self.poisoned.clear()  # the user corrects the function
            return
        super(TransformedFlow, self)._trouble(error)

    # -- the application ---------------------------------------------------------------------------

    def _application(self) -> Application | None:
        return None if self.lane is None else self._applications.get(self.lane.copy)

    def task_answers(self, number: int) -> bool:
        """Answer any of the waiting ranges, even if an earlier one is not answered yet."""
        application = self._application()
        if application is None or not (waiting := application.transformer.waiting):
            return False
        one = list(waiting.values())[number % len(waiting)]
        application.answered = [*application.answered[-3:], one]
        application.transformer.answer(one.number)
        return self._deliver(application)

    def task_answers_a_part(self, number: int) -> bool:
        """Answer only the beginning of a range, as for a slow function."""
        application = self._application()
        waiting = {} if application is None else application.transformer.waiting
        long = [one for one in waiting.values() if one.end - one.first > 1]
        if application is None or not long:
            return False
        one = waiting.pop(long[number % len(long)].number)
        end = one.first + 1 + number % (one.end - one.first - 1)
        application.answered = [*application.answered[-3:], one]
        found = transformed(structs.replace(one, end=end), self.mask)
        application.transformer.give(structs.replace(found, is_part=found.failure is None))
        return self._deliver(application)

    def task_answers_again(self, number: int) -> bool:
        """Answer a range again with another result, as when Spark runs a task twice."""
        application = self._application()
        if application is None or not (before := application.answered):
            return False
        again = transformed(before[number % len(before)], self.mask)
        application.transformer.give(again)
        return self._deliver(application)

    def _deliver(self, application: Application) -> bool:
        for _ in application.desk.deliver(self.now_ms):
            pass
        self._settle()
        return True

    def gets_ready(self, number: int) -> bool:
        """Do everything that precedes the first batch: fetch, answer the ranges, and write the map
        rows.
        """
        self.fetch(number)
        while self.task_answers(number):
            pass
        self.write_map(number)
        return self.rows_are_durable(number)

    def send_some(self, number: int) -> bool:
        """Send one to three batches. Some of them arrive."""
        sent = [self.send(0) for _ in range(1 + number % 3)]
        for _ in range(number // 4 % 3):
            self.arrive(0)
        return any(sent)

    def function_fails(self, number: int) -> bool:
        """Make the function fail for one of the next records. This is rare, because otherwise
        little else would happen.
        """
        if number % 16:
            return False
        self.poisoned.add(self.source.end - 2 + number % 4)
        return True

    def position_is_noted(self, _number: int) -> bool:
        """Announce the position after filtered records, as `Assignments.note_marks` does."""
        lane = self.lane
        if lane is None or lane.copy.trouble or lane.copy.state is not CopyState.COPYING:
            return False
        lane.copy.note_position()
        return True

    # -- steps that differ from those of a raw flow ------------------------------------------------

    def start(self, number: int) -> bool:
        """Start the partition, usually after waiting for late requests."""
        if self.lane is None and self.put_off() and number % 4:
            self.now_ms = self._wait_until_ms
            self._end_living()
            self._drop_late()
        return super(TransformedFlow, self).start(number)

    def delete_source(self, number: int) -> bool:
        """Delete source records. This is rare, because records that were filtered out since the
        last announced position count as lost.
        """
        return not number % 16 and super(TransformedFlow, self).delete_source(number // 16)

    def stranger_writes(self, number: int) -> bool:
        return not number % 64 and super(TransformedFlow, self).stranger_writes(number)

    def copy_on(self, number: int) -> bool:
        for _ in range(1 + number % 4):
            self.gets_ready(number)
            while self.send(0):
                pass
            while self.arrive(0) or self.answer(0):
                pass
        return self.has_lane()

    def compact_source(self, number: int) -> bool:
        stable, key = self.source.last_stable, b"k%d" % (number % 5)
        taken = self.source.compact(lambda r: r.offset >= stable or r.key != key)
        self.gone.update(record.offset for record in taken)
        return bool(taken)

    def forget(self, _number: int) -> bool:
        self.target.forget(self.now_ms - EXPIRY_MS)
        return True

    # -- invariants --------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that every record that is not filtered is on the target once, in order and masked,
        and that the map is right.
        """
        before, pairs = self.begins_at - 1, list[tuple[int, int]]()
        known = self.known()
        for record in self.target.records():
            if record.value == STRAY:
                return
            kind, value = (record.value or b"")[:1], (record.value or b"")[1:]
            assert kind == b"m" or record.offset in self.raw, f"it is not masked: {record}"
            upstream = int(value.split(b"-")[0])
            assert upstream > before, f"u{upstream} behind u{before}"
            self._check_decided(before + 1, upstream)
            before = upstream
            pairs.append((upstream, record.offset))
            assert known is not None, "records without a row"
            k = known.runs[0].downstream - known.runs[0].ordinal
            run = run_at(known.runs, record.offset - k)
            said = None if run is None else run.upstream_of(record.offset - k)
            assert said == upstream, f"offset {record.offset} is u{upstream}, map: {said}"
        self._check_translation(pairs)

    def _check_decided(self, first: int, following: int) -> None:
        for at in range(first, following):
            is_decided = at in self.gone or at in self.dropped
            assert at not in self.written or is_decided, f"u{at} is missing"

    def _check_translation(self, pairs: list[tuple[int, int]]) -> None:
        """Check that groups on either side resume at exactly the next record."""
        known, lane = self.known(), self.lane
        if known is None or lane is None:
            return
        reach = Reach(lane.copy.acked_upstream, lane.copy.acked_downstream)
        if self.target.end < reach.downstream:
            return  # the target has lost its last records, and the lane has not noticed it yet
        before = None
        for upstream, downstream in pairs:
            if upstream >= reach.upstream or downstream >= reach.downstream:
                break
            for at in range(upstream if before is None else before + 1, upstream + 1):
                found = downstream_of(known.runs, reach, at)
                assert found == (downstream, True), f"u{at} is {found}, not {downstream}"
            found = upstream_of(known.runs, reach, downstream)
            assert found == (upstream, True), f"d{downstream} is {found}, not u{upstream}"
            before = upstream
        self._check_decided(before + 1 if before is not None else self.begins_at, reach.upstream)

    def check_complete(self, lane: Lane) -> None:
        self._check_decided(lane.copy.acked_upstream, self.source.end)

    def _is_at_rest(self, lane: Lane) -> bool:
        waits = self._applications[lane.copy].transformer.waiting
        return not waits and super(TransformedFlow, self)._is_at_rest(lane)
