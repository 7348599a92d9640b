"""Runs rounds: Spark jobs that answer several ranges of source records (ADR 40).

Each range is transformed by one task. A task may have several ranges, because each of its two or
three Python workers costs some milliseconds.

A job ends at the first record on which the transform fails, in any of its tasks. So after a failed
job, each range gets a job of its own, and the record is searched by bisection, in trials whose
results are dropped. With `on-error` stop, the answer contains the records before the failing one,
and the failure. With skip, the search continues, and the answer contains all other records.

    round      [0..900) fails                           the answer of another range is not affected
    trials     [0..450) succeeds, [450..675) fails, ... offset 512 fails by itself
    stop       [0..512), failure at 512
    skip       [0..900) without 512

If a range has many failing records, the search ends after half of the job limit (30 s), and the
answer ends before the last failing record that was found. The lane then offers the remaining
records as another range.
"""

from __future__ import annotations

import itertools
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from pathlib import PurePath
from typing import Any, Final, TypeVar

from msgspec import structs
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from twinlog.channel.frames import MAX_FRAME_BYTES, ChannelAddress
from twinlog.clock import CLOCK, Clock
from twinlog.config.flow.transforms import OnError
from twinlog.errors import TwinlogError
from twinlog.mirror.copy.ranges import RangeFailure
from twinlog.records.columns import ddl
from twinlog.records.lent import (
    ENCODED,
    NOT_UNPACKED,
    PARTS_PROPERTY,
    LentRanges,
    RangePart,
    encode_parts,
)
from twinlog.records.ranges import COLUMNS
from twinlog.spark.lease import error_of, has_task
from twinlog.transforms.plan import record_columns
from twinlog.transforms.rows import Transform

P = TypeVar("P")

log = logging.getLogger(__name__)

GROUP: Final = "twinlog-transforms"
WITHOUT_RECORDS: Final = "the transforms fail even without records, so no record is the cause"
NOT_OF_TRANSFORM: Final = frozenset(
    ("CHANNEL_LOST", "CHANNEL_UNREACHABLE", "CHANNEL_FINGERPRINT", "CORRUPT_MESSAGE")
)
"""Codes of task errors that the transform has not caused."""
TOO_LARGE: Final = "CHANNEL_FRAME"
"""The code of the error for an answer that is larger than MAX_FRAME_BYTES."""
ROW_INVALID: Final = "ROW_INVALID"
"""The code of an error whose text contains no values of rows."""
LEAST_BYTES: Final = 256 << 10
"""Minimum of `most_bytes`. Any smaller round also takes a tenth of a second."""
ROUND_S: Final = 1.0
TASK_BYTES: Final = 128 << 10
"""Bytes of ranges per task. With fewer, another task would cost more than it saves."""
TRIES: Final = 3
"""Number of attempts for a range that fails although none of its records fails alone."""
UNLIMITED: Final = 1 << 18
"""Value of `most_offsets` if the transform is not slow."""
TIMEOUT_DIVISOR: Final = 64
"""Divisor of a part's size after a time-out, so that some records are answered soon."""
SLOW_LIMIT: Final = 6
"""Divisor of the time limit of a job with several records if the transform is slow."""
LEAST_S: Final = 0.001
QUICK: Final = 24
"""Divisor of the time limit. The next job may be larger if a job took less than the quotient."""


# Jobs of the transforms that run for too long, because a function hangs or is slow, are cancelled.
#
# The time before the first task of a job begins does not count. In this time, tasks of other jobs
# have all cores, for example because their records hang, so the job's own records are not the
# cause. If no core becomes free, the lanes get no answer, and the driver ends the application.
#
# One thread watches all jobs, because each thread that calls Spark keeps a connection to the JVM.

LOOK_S: Final = 1.0
"""Interval in seconds at which the running jobs are checked."""


@dataclass(slots=True, kw_only=True, eq=False)
class LimitedJob:
    """The running job of a group."""

    context: Any
    group: str
    left_s: float
    """Time in seconds after which the job is cancelled."""
    has_begun: bool = False
    """True if a task of the job has begun."""
    is_late: bool = False
    """True if the job was cancelled."""

    def check(self) -> None:
        """Subtract LOOK_S from the job's time if a task has begun. Cancel the job if no time is
        left. Must be called every LOOK_S seconds.
        """
        self.has_begun = self.has_begun or has_task(self.context, self.group)
        self.left_s -= LOOK_S if self.has_begun else 0.0
        if self.left_s <= 0 and not self.is_late:
            self.is_late = True
            self.context.cancelJobGroup(self.group)


class JobWatch:
    """Cancels late jobs. Thread-safe."""

    def __init__(self) -> None:
        self._jobs: list[LimitedJob] = []
        self._lock = threading.Lock()
        self._is_started = False

    def begin(self, context: Any, group: str, limit_s: float) -> LimitedJob:
        """Watch the job that begins now. `limit_s`: how many seconds the job may run."""
        job = LimitedJob(context=context, group=group, left_s=limit_s)
        with self._lock:
            self._jobs.append(job)
            if not self._is_started:
                threading.Thread(target=self._run, name="twinlog-jobs", daemon=True).start()
                self._is_started = True
        return job

    def end(self, job: LimitedJob) -> None:
        """Stop watching the job, because it has ended."""
        with self._lock:
            self._jobs.remove(job)

    def _run(self) -> None:
        while True:
            time.sleep(LOOK_S)
            with self._lock:
                jobs = [*self._jobs]
            for job in jobs:
                # if the JVM has ended or the context was stopped, the job has ended, too
                with suppress(Py4JError, OSError, AttributeError):
                    job.check()


_jobs: Final = itertools.count()
_watch: Final = JobWatch()
_planning: Final = threading.Lock()
"""Lock for creating a plan. SQL queries of all plans use the same view of the session."""


class JobFailed(Exception):
    """The transform failed in a job. `args[0]` is the reason, without values of records."""


class JobTimedOut(JobFailed):
    """A job exceeded its time limit, because a record hangs or the transform is slow."""


class AnswerTooLarge(JobTimedOut):
    """The transformed records are too large for a message to the lane. As after a time-out, the job
    is repeated with fewer records.
    """


@dataclass(slots=True, kw_only=True)
class Rounds:
    """Runs the jobs of one chain of transforms."""

    spark: SparkSession
    transform: Transform
    lent: LentRanges
    on_error: OnError = OnError.STOP
    name: str = ""
    """Names of the transforms, for dead letters."""
    cores: int = 2
    limit_s: float = 60.0
    """Maximum duration of a job in seconds, from its first task on. If a single record takes
    longer, the record fails.
    """
    is_deterministic: bool = True
    """If False, each job is planned again, because a Spark plan contains a fixed time and fixed
    random seeds.
    """
    round_bytes: int = 8 << 20
    """The upper bound of `most_bytes`."""
    most_bytes: int = LEAST_BYTES
    """A round that has this many bytes gets no more ranges. The value is the number of bytes that
    the last job would have processed in ROUND_S. A round must end long before its time limit, and
    before its lanes are replaced.
    """
    most_offsets: int = UNLIMITED
    """Maximum number of offsets in a job. A time-out halves it, and a quick job doubles it."""
    clock: Clock = CLOCK
    skipped: deque[tuple[RangePart, RangeFailure]] = field(default_factory=deque)
    """Records that were left out because the transform failed, with the range of each."""
    _plans: dict[int, DataFrame] = field(default_factory=dict)
    """The DataFrame for each number of tasks. Spark plans each only once, at its first job."""

    @property
    def is_stopped(self) -> bool:
        context: Any = self.spark.sparkContext
        try:
            return bool(context._jsc.sc().isStopped())
        except (Py4JError, OSError, AttributeError):  # the JVM has ended, or there is no context
            return True

    def connect(self, ports: tuple[ChannelAddress, ...]) -> None:
        """Use these lanes' ports for ranges and answers."""
        with _planning:  # `_plan` in another thread must not store the old ports
            self.lent = replace(self.lent, ports=ports)
            self._plans.clear()

    def answer(self, parts: Sequence[RangePart]) -> None:
        """Answer ranges, or only the first records of some if the transform is slow. Raises
        TwinlogError immediately if Spark has ended. Any other error, such as that of a lane's port,
        is raised after the ranges of all other lanes have been answered.
        """
        waiting = deque(parts)
        unreachable: TwinlogError | None = None
        while waiting:
            try:
                waiting.extend(self._answer_some(self._next(waiting)))
            except TwinlogError as error:
                if self.is_stopped:
                    raise
                unreachable = error
        if unreachable is not None:
            raise unreachable

    def _next(self, waiting: deque[RangePart]) -> list[RangePart]:
        """Remove and return the next job's parts. A first part that is too large is shortened."""
        if self.most_offsets == UNLIMITED:
            parts = [*waiting]
            waiting.clear()
            return parts
        parts = [_beginning(waiting.popleft(), self.most_offsets)]
        left = self.most_offsets - _offsets(parts[0])
        while waiting and _offsets(waiting[0]) <= left:
            parts.append(waiting.popleft())
            left -= _offsets(parts[-1])
        return parts

    def _answer_some(self, parts: Sequence[RangePart]) -> list[RangePart]:
        """Run one job for all `parts`, or separate jobs if that fails. Returns the beginnings of
        parts that took too long, which must run after all other parts. Raises TwinlogError.
        """
        began, late_parts = self.clock.monotonic(), list[RangePart]()
        error: JobFailed | None = None
        try:
            error = self._run_for_error(parts)
        except TwinlogError as unreachable:
            lanes = sorted({part.port for part in parts})
            if self.is_stopped or len(lanes) == 1:
                raise
            log.info("a job of %d lanes is repeated lane by lane: %s", len(lanes), unreachable)
            by_lane = [[part for part in parts if part.port == it] for it in lanes]
            _answer_each(lambda some: late_parts.extend(self._answer_some(some)), by_lane)
            return late_parts
        if error is None:
            self._use_larger_jobs(parts, max(self.clock.monotonic() - began, LEAST_S))
        elif isinstance(error, JobTimedOut) and len(parts) == 1:
            late_parts += self._answer_alone(parts[0], error)
        else:
            log.info("a job of %d ranges failed; each gets a job now: %s", len(parts), error)
            self.most_bytes, is_late = LEAST_BYTES, isinstance(error, JobTimedOut)
            each = [_smaller(part) if is_late else part for part in parts]
            _answer_each(lambda part: late_parts.extend(self._answer_alone(part)), each)
        return late_parts

    def _use_larger_jobs(self, parts: Sequence[RangePart], took_s: float) -> None:
        """Adapt the size of the next rounds to the duration of a successful job."""
        size, offsets = sum(part.size for part in parts), sum(map(_offsets, parts))
        self.most_bytes = min(max(int(size * ROUND_S / took_s), LEAST_BYTES), self.round_bytes)
        if took_s < self.limit_s / QUICK and offsets * 2 >= self.most_offsets:
            self.most_offsets = min(self.most_offsets * 2, UNLIMITED)

    def _answer_alone(self, part: RangePart, error: JobFailed | None = None) -> list[RangePart]:
        """Answer a range without the records on which the transform fails, or up to the first of
        them (`_stops`). If this takes too long, returns a smaller part of the range to try later.
        `error`: why the job fails, if known.
        """
        original, tries, skipped = part, 0, list[RangeFailure]()
        while (error := error or self._run_for_error([part])) is not None:
            try:
                failures, end = self._failures(part, error)
            except JobTimedOut:
                return [_smaller(original)]
            tries, failure = 0 if failures else tries + 1, part.failure
            if tries == TRIES:
                text = f"{error} (only together with other records)"
                failure = RangeFailure(offset=part.first, text=text)
            elif failures and self._stops(failures[-1]):
                *before, failure = failures
                skipped += before
            else:
                skipped += failures
            end = end if failure is None else failure.offset
            skipped = sorted(
                (skip for skip in skipped if skip.offset < end), key=attrgetter("offset")
            )
            part = structs.replace(
                part,
                end=end,
                is_cut=part.is_cut or end < part.end,
                failure=failure,
                left_out=tuple(skip.offset for skip in skipped),
                quarantined=tuple(skipped) if self.on_error is OnError.QUARANTINE else (),
            )
            error = None
        self.skipped.extend((original, skip) for skip in skipped)
        return []

    def _failures(self, part: RangePart, error: JobFailed) -> tuple[list[RangeFailure], int]:
        """Return (failures, end). `failures`: the records that fail alone, in order. `end`: the
        offset up to which the search is complete, which is the end of the part unless the search
        takes too long. With `on-error` stop, only the first record is returned. `error`: why the
        part fails.

        Each trial is a job for the next records, without the failing records that were found
        before. A trial has half as many records as the previous one if that failed, else twice as
        many. If a trial fails at a record that is already left out, jobs fail even without records,
        for example because of a full disk. TwinlogError is then raised. Raises JobTimedOut if a job
        for several records takes too long.
        """
        if part.first == part.end:
            raise TwinlogError(f"{WITHOUT_RECORDS}: {error}")
        if isinstance(error, JobTimedOut) and _offsets(part) > 1:
            raise error
        failures: list[RangeFailure] = []
        offset, size, until = part.first, _offsets(part), self.clock.monotonic() + self.limit_s / 2
        reason, is_sure = str(error), isinstance(error, JobTimedOut)
        while offset < part.end:
            end = min(offset + size, part.end)
            left_out = (*part.left_out, *(earlier.offset for earlier in failures))
            why = partial(self._why, structs.replace(part, left_out=left_out))
            if not reason and not (reason := why(offset, end) or ""):
                offset, size = end, size * 2
                continue
            failure = (offset, reason) if is_sure else first_failure(offset, end, why)
            if failure is None:
                break
            offset, size = failure[0], max(2, size // 2)
            reason, is_sure = "", False
            if offset in left_out:
                raise TwinlogError(f"{WITHOUT_RECORDS}: {failure[1]}")
            failures.append(RangeFailure(offset=offset, text=failure[1], transform=self.name))
            if self._stops(failures[-1]):
                break
            if offset > part.first and self.clock.monotonic() > until:
                return failures[:-1], offset
        return failures, part.end

    def _stops(self, failure: RangeFailure) -> bool:
        """Return True if the answer must end at this failing record. This is so with `on-error`
        stop, and for a record that could not be unpacked, because no transform has seen it.
        """
        return self.on_error is OnError.STOP or failure.text.startswith(NOT_UNPACKED)

    def _run_for_error(self, parts: Sequence[RangePart]) -> JobFailed | None:
        """Run a job. Returns the error if the transform fails, or None. Raises TwinlogError."""
        try:
            self._run(parts)
        except JobFailed as error:
            if isinstance(error, JobTimedOut):
                self._use_smaller_jobs(parts)
            return error
        return None

    def _use_smaller_jobs(self, parts: Sequence[RangePart]) -> None:
        """Make the next jobs smaller after a time-out."""
        self.most_bytes = LEAST_BYTES
        self.most_offsets = max(1, min(self.most_offsets, sum(map(_offsets, parts))) // 2)

    def _why(self, part: RangePart, first: int, end: int) -> str | None:
        """Run a trial: return why the transform fails for these records, or None if it succeeds."""
        try:
            self._run([structs.replace(part, first=first, end=end, answers=False)])
        except JobFailed as error:
            if isinstance(error, JobTimedOut) and end - first > 1:
                self._use_smaller_jobs([part])
                raise
            return str(error)
        return None

    def _run(self, parts: Sequence[RangePart]) -> None:
        """Run a job and send its answers. Raises JobFailed if the transform fails, or TwinlogError
        if Spark or the port of a lane fails.
        """
        context: Any = self.spark.sparkContext
        group = f"{GROUP}-{next(_jobs)}"  # unique: a late cancel must not concern the next job
        tasks, limit_s = split_into_tasks(parts, self.cores), self._limit_s(parts)
        job = _watch.begin(context, group, limit_s)
        try:
            # do not interrupt tasks on cancel: an interrupt during the start of a worker would make
            # Spark restart the daemon, which imports all modules again; Spark kills workers of
            # cancelled tasks after some seconds anyway
            context.setJobGroup(group, f"{len(parts)} ranges", interruptOnCancel=False)
            context.setLocalProperty(PARTS_PROPERTY, encode_parts(tasks))
            encoded = self._plan(len(tasks)).toArrow()
        except (PySparkException, Py4JJavaError) as error:
            known_error = error_of(GROUP, str(error))
            # without the mark it is no error of Twinlog, but a function's text that looks like one
            message, is_own, _ = known_error.message.partition(f"; {self.lent.mark}")
            code = known_error.code if is_own else ""
            if self.is_stopped or code in NOT_OF_TRANSFORM:
                raise TwinlogError(message, code=known_error.code) from error
            if job.is_late:
                raise JobTimedOut(f"no result within {limit_s:g} s") from error
            if code == ROW_INVALID:
                raise JobFailed(message.removeprefix(f"{GROUP}: ")) from error
            raise JobFailed(described(str(error), parts[0])) from error
        except (Py4JError, OSError) as error:
            raise TwinlogError("Spark has ended", code="CHANNEL_LOST") from error
        finally:
            _watch.end(job)
        if encoded.num_rows != len(parts):
            raise TwinlogError(
                f"Spark returned results for {encoded.num_rows} of {len(parts)} ranges"
            )
        try:
            self.lent.send_answers([part for task in tasks for part in task], encoded)
        except TwinlogError as error:
            if error.code == TOO_LARGE:
                what = f"the transformed records have more than {MAX_FRAME_BYTES} bytes"
                raise AnswerTooLarge(what) from error
            raise

    def _limit_s(self, parts: Sequence[RangePart]) -> float:
        """Return the maximum duration of a job in seconds. If the transform is slow, a job with
        several records gets less time, and is then repeated in smaller parts. So a record on which
        the transform hangs is found before the lane gives up.
        """
        is_slow = self.most_offsets < UNLIMITED and sum(map(_offsets, parts)) > 1
        return self.limit_s / SLOW_LIMIT if is_slow else self.limit_s

    def _plan(self, tasks: int) -> DataFrame:
        """Return the DataFrame of a job with this number of tasks."""
        with _planning:
            plan = self._plans.get(tasks)
            if plan is None:
                numbers = self.spark.range(0, tasks, 1, tasks)
                rows = numbers.mapInArrow(self.lent.rows, ddl(COLUMNS))
                plan = record_columns(self.transform(rows)).mapInArrow(self.lent.encoded, ENCODED)
                if self.is_deterministic:
                    self._plans[tasks] = plan
            return plan


def _answer_each(answer: Callable[[P], None], items: Iterable[P]) -> None:
    """Call `answer` for each item, then raise the last TwinlogError of these calls, if any."""
    unreachable: TwinlogError | None = None
    for item in items:
        try:
            answer(item)
        except TwinlogError as error:
            unreachable = error
    if unreachable is not None:
        raise unreachable


def _offsets(part: RangePart) -> int:
    return part.end - part.first


def _beginning(part: RangePart, limit: int) -> RangePart:
    """Return the part, shortened to its first `limit` offsets."""
    if _offsets(part) <= limit:
        return part
    return structs.replace(part, end=part.first + limit, is_cut=True)


def _smaller(part: RangePart) -> RangePart:
    """Return the beginning of a part that took too long: its offsets divided by TIMEOUT_DIVISOR."""
    return _beginning(part, max(1, _offsets(part) // TIMEOUT_DIVISOR))


def split_into_tasks(parts: Sequence[RangePart], cores: int) -> list[list[RangePart]]:
    """Distribute parts to tasks of similar size. There are at most `cores` tasks, and fewer if each
    would have less than about TASK_BYTES.
    """
    total = sum(part.size for part in parts)
    tasks: list[list[RangePart]] = [
        [] for _ in range(min(cores, len(parts), 1 + total // TASK_BYTES))
    ]
    sizes = [0] * len(tasks)
    for part in sorted(parts, key=attrgetter("size"), reverse=True):
        least = sizes.index(min(sizes))
        tasks[least].append(part)
        sizes[least] += part.size
    return tasks


# Finds the record on which a transform fails, and describes the failure without the record's
# values. The text of Spark's error contains a Python traceback or an error condition of Spark. Both
# may contain values of the record. So only names are used: the exception's class and its line in
# the code, or the name of Spark's error condition. Texts of `twinlog.transforms.rows.failure`
# contain no values, so they are returned, without the record that they name.

_TRACE: Final = "Traceback (most recent call last):\n"
_FRAME: Final = re.compile(r'^ +File "([^"\n]+)", line (\d+), in (\S+)$')
_CLASS: Final = re.compile(r"[^\W\d][\w.]*")
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_CRASHED: Final = "Python worker exited unexpectedly"
_LOST_TASK: Final = "most recent failure: "
_JAVA: Final = re.compile(r"\b[\w.$]+(?:Exception|Error)\b")


def first_failure(
    first: int, end: int, why: Callable[[int, int], str | None]
) -> tuple[int, str] | None:
    """Return the first record in [first, end) on which a transform fails, with the reason.

    `why` must return why the transform fails for the records in a range, or None if it succeeds.
    The caller knows that it fails for [first, end). Returns None if it does not fail for any single
    record.
    """
    while end - first > 1:
        middle = (first + end) // 2
        if why(first, middle) is None:
            first = middle
        else:
            end = middle
    reason = why(first, end)
    return None if reason is None else (first, reason)


def described(text: str, part: RangePart) -> str:
    """Return why a job failed, without values. `part`: the records of the job."""
    _, is_python, rest = text.rpartition(_TRACE)
    if is_python and (raised := _python(rest)):
        return raised
    own = re.escape(f"{part.topic}-{part.partition} offset {part.first}: ")
    if user_error := re.search(
        rf"\[USER_RAISED_EXCEPTION\] {own}([^\n]*?)(?: SQLSTATE: \w+)?$", text, re.M
    ):
        return user_error[1]
    if _CRASHED in text:
        return f"{_CRASHED}, perhaps because it needs too much memory"
    cause = text.partition(_LOST_TASK)[2] or text
    for pattern in (_CONDITION, _JAVA):
        if match := pattern.search(cause):
            return match[match.lastindex or 0]
    return "unknown error"


def _python(trace: str) -> str | None:
    """Return class and line of the exception from the last part of a traceback, or None."""
    location = ""
    for line in trace.split("\n"):
        if frame := _FRAME.match(line):
            location = f" ({PurePath(frame[1]).name}, line {frame[2]}, in {frame[3]})"
        elif not line.startswith(" "):
            kind = _CLASS.match(line)
            return f"{kind[0]}{location}" if kind else None
    return None
