"""One rehearsal: clients run, move to the target by the steps of the real commands, and continue.

Switchover: no record may be lost, duplicated or moved, in the remote topics and as read by groups.

Failover: mirror and clients are cut off at the same time, as if the source were lost, and the
source is not queried any more. Records that had not arrived are the measured loss. All other
records must be complete, and each must be read; some are read twice.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from twinlog.config.flow.schema import FlowConfig
from twinlog.control.cutover.copies import Copy, copies
from twinlog.control.cutover.failover import Failover
from twinlog.control.cutover.scope import CutoverScope, Say
from twinlog.control.cutover.switchover import FenceKind, Switchover, Ways
from twinlog.control.drill.cleaning import DrillNames, Part
from twinlog.control.drill.clients import DrillClient, DrillReader, DrillWriter, numbers_in
from twinlog.control.flow.wiring import flow_setup
from twinlog.errors import FlowError, TwinlogError
from twinlog.model import TopicPartition
from twinlog.quantities import duration, first_few, plural, total

POLL_S: Final = 0.3
BEGINS_WITHIN_S: Final = 300.0
"""Time for Spark to start, topics to be found, and a checkpoint to be written."""
WORKS_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of the drill's application."""

    seconds: float = 10.0
    records_per_s: float = 200.0
    record_bytes: int = 200


@dataclass(slots=True, kw_only=True)
class Measured:
    """The measurements of a rehearsal."""

    FIELDS = (
        "part written_records=written lost_records=lost lost_seconds=lost_s "
        "lost_records_as_planned=said_lost interruption_seconds=interruption_s "
        "records_read_again=read_again findings"
    )

    part: Part
    written: int = 0
    """Records that were acknowledged by either cluster."""
    lost: int = 0
    lost_s: float = 0.0
    """Age of the oldest lost record when the source was cut off."""
    said_lost: int | None = None
    """The loss by the plan of the failover, or None if it was unknown."""
    interruption_s: float = 0.0
    """Time from the last moment at which producers could write until all could write again."""
    read_again: int = 0
    findings: list[Defect] = field(default_factory=list)


class Rehearsal:
    """The rehearsal of one part, on new and empty topics; not thread-safe."""

    def __init__(
        self,
        part: Part,
        config: FlowConfig,
        names: DrillNames,
        partitions: Sequence[int],
        load: Load,
        mirror: MirrorProcess,
        say: Say,
    ) -> None:
        """`partitions`: the partition count of each topic."""
        self._part, self._config, self._load, self._mirror = part, config, load, mirror
        self._say: Say = lambda line: say(f"{part.value}: {line}")
        self._topics = {names.topic(part, n): count for n, count in enumerate(partitions)}
        self._groups = {names.group(part, n): names.topic(part, n) for n in range(len(partitions))}
        self._clients: list[DrillClient] = []

    def run(self, fence: FenceKind) -> Measured:
        """Run the rehearsal. Raises FlowError if a step fails."""
        with CutoverScope(flow_setup(self._config), reason="drill") as scope:
            try:
                if self._part is Part.SWITCHOVER:
                    return self._switchover(scope, fence)
                return self._failover(scope)
            finally:
                for one in self._clients:
                    one.stop()

    # -- switchover

    def _switchover(self, scope: CutoverScope, fence: FenceKind) -> Measured:
        scope.require_source()
        writer, readers = self._begin(scope)
        self._until(lambda: _is_copied(scope), "the first copy")
        self._work()
        work = Switchover(scope, Ways(fence=fence, most_lag=1 << 40), self._say)
        work.before_groups = lambda: self._all_read(writer, readers)
        self._until(lambda: work.plan().is_open, lambda: _closed(work))
        plan = work.plan()
        stopped_at = time.monotonic()
        if fence is FenceKind.NONE:
            writer.end()
            stopped_at = time.monotonic()
        work.run(plan)
        there, others = self._go_over(scope, writer)
        outcome = self._outcome(there, writer.refused_at or stopped_at)
        whole = {tp: range(count) for tp, count in self._written(scope, there).items()}
        outcome.findings += self._in_logs(scope, whole)
        for before, after in zip(readers, others, strict=True):
            for tp, numbers in before.read.items():
                read = [*numbers, *after.read[self._remote(scope, tp)]]
                where = "the records that its group read from"
                outcome.findings += findings(self._part, where, tp, read, whole[tp])
                outcome.read_again += read_again(read)
        return outcome

    def _all_read(self, writer: DrillWriter, readers: Sequence[DrillReader]) -> None:
        """Wait until producers are fenced off, and consumers have read to the end and stopped."""
        self._until(lambda: writer.refused_at is not None or not writer.is_alive, "the fence holds")
        for one in (writer, *readers):
            one.end()

    # -- failover

    def _failover(self, scope: CutoverScope) -> Measured:
        with CutoverScope(flow_setup(self._config), reason="drill") as source:
            source.require_source()
            writer, readers = self._begin(scope)
            self._until(lambda: _is_copied(source), "the first copy")
        scope.source_problem = FlowError("the drill treats it as lost", code="DRILL_FAILED")
        work = Failover(scope)
        self._until(
            lambda: {one.group for one in work.plan().groups} >= {*self._groups},
            "a checkpoint of every group",
        )
        self._work()
        self._mirror.kill()
        cut_at = time.monotonic()
        writer.end()
        for one in readers:
            one.cut()
        plan = work.plan()
        missing = [plan.missing(copy) for copy in plan.copies]
        left = work.run(plan, self._say)
        there, others = self._go_over(scope, writer)
        outcome = self._outcome(there, cut_at)
        outcome.said_lost = None if None in missing else total(missing)
        outcome.findings += [
            Defect(part=self._part, where=f"group {one.group}", what="is not at its offset")
            for one in left
        ]
        self._after_a_loss(scope, outcome, (writer, readers, others), cut_at)
        return outcome

    def _after_a_loss(
        self,
        scope: CutoverScope,
        outcome: Measured,
        clients: tuple[DrillWriter, Sequence[DrillReader], Sequence[DrillReader]],
        cut_at: float,
    ) -> None:
        writer, readers, others = clients
        whole: dict[TopicPartition, Sequence[int]] = {}
        there = self._there
        for tp, written in writer.written.items():
            remote = self._remote(scope, tp)
            found = numbers_in(scope.target, remote)
            copied = max((n for n in found if n < written), default=-1) + 1
            whole[tp] = [*range(copied), *range(written, there.written[remote])]
            outcome.lost += written - copied
            late_s = round(cut_at - writer.acked_at(tp, copied, cut_at), 3)
            outcome.lost_s = max(outcome.lost_s, late_s)
        outcome.findings += self._in_logs(scope, whole)
        for before, after in zip(readers, others, strict=True):
            for tp, numbers in before.read.items():
                later = after.read[self._remote(scope, tp)]
                read = {*numbers, *later}
                if lost := sorted({*whole[tp]} - read):
                    what = f"{plural(len(lost), 'record')} never read, the first is {lost[0]}"
                    outcome.findings.append(
                        Defect(part=self._part, where=f"the group of {tp}", what=what)
                    )
                again = findings(
                    self._part,
                    "the records that its group read on the target from",
                    tp,
                    later,
                    later,
                )
                outcome.findings += again
                outcome.read_again += len(later) - len({*later} - {*numbers})

    # -- both

    def _begin(self, scope: CutoverScope) -> tuple[DrillWriter, list[DrillReader]]:
        tps = [TopicPartition(t, p) for t, count in self._topics.items() for p in range(count)]
        writer = DrillWriter(
            scope.setup.source,
            dict.fromkeys(tps, 0),
            records_per_s=self._load.records_per_s,
            record_bytes=self._load.record_bytes,
        )
        readers = [
            DrillReader(scope.setup.source, group, [tp for tp in tps if tp.topic == topic])
            for group, topic in self._groups.items()
        ]
        self._start([writer, *readers])
        self._until(lambda: writer.is_writing, "the first records")
        return writer, readers

    def _go_over(
        self, scope: CutoverScope, before: DrillWriter
    ) -> tuple[DrillWriter, list[DrillReader]]:
        """Run the application on the target for half of the time; it reads everything at last."""
        there = DrillWriter(
            scope.setup.target,
            {self._remote(scope, tp): number for tp, number in before.written.items()},
            records_per_s=self._load.records_per_s,
            record_bytes=self._load.record_bytes,
        )
        readers = [
            DrillReader(
                scope.setup.target,
                group,
                [tp for tp in there.written if tp.topic == scope.remote(topic)],
            )
            for group, topic in self._groups.items()
        ]
        self._there = there
        self._start([there, *readers])
        self._until(lambda: there.is_writing, "records of the new owners", WORKS_WITHIN_S)
        self._work(0.5)
        for one in (there, *readers):
            one.end()
        return there, readers

    def _start(self, clients: Sequence[DrillClient]) -> None:
        for one in clients:
            self._clients.append(one)
            one.start()

    def _work(self, share: float = 1.0) -> None:
        """Let the application run for a while."""
        until = time.monotonic() + self._load.seconds * share
        self._until(lambda: time.monotonic() >= until, "", self._load.seconds + WORKS_WITHIN_S)

    def _until(
        self,
        is_so: Callable[[], bool],
        what: str | Callable[[], str],
        within_s: float = BEGINS_WITHIN_S,
    ) -> None:
        deadline = time.monotonic() + within_s
        while not is_so():
            for one in self._clients:
                one.check()
            self._mirror.check()
            if time.monotonic() > deadline:
                said = what if isinstance(what, str) else what()
                raise FlowError(
                    f"drill: {self._part.value}: waited {duration(within_s)} for {said}; run "
                    "twinlog check and twinlog doctor for the flow itself",
                    code="DRILL_FAILED",
                )
            time.sleep(POLL_S)

    def _remote(self, scope: CutoverScope, tp: TopicPartition) -> TopicPartition:
        return TopicPartition(scope.remote(tp.topic), tp.partition)

    def _written(self, scope: CutoverScope, there: DrillWriter) -> dict[TopicPartition, int]:
        """Return how many numbers there are in total, by partition of the source."""
        return {
            TopicPartition(topic, p): there.written[TopicPartition(scope.remote(topic), p)]
            for topic, count in self._topics.items()
            for p in range(count)
        }

    def _in_logs(self, scope: CutoverScope, wanted: dict[TopicPartition, Any]) -> Iterator[Defect]:
        for tp, numbers in wanted.items():
            remote = self._remote(scope, tp)
            found = numbers_in(scope.target, remote)
            yield from findings(self._part, "the log of", remote, found, numbers)

    def _outcome(self, there: DrillWriter, stopped_at: float) -> Measured:
        pause_s = round(max(there.first_at.values()) - stopped_at, 3)
        self._say(f"producers were interrupted for {duration(pause_s)}")
        return Measured(
            part=self._part, written=sum(there.written.values()), interruption_s=pause_s
        )


def _is_copied(scope: CutoverScope) -> bool:
    """Return True if at least a part of every partition is copied."""
    try:
        found: list[Copy] = copies(scope)
    except TwinlogError:
        return False  # the drill's topics are being created
    return bool(found) and all(one.is_copied for one in found)


def _closed(work: Switchover) -> str:
    shut = [gate for gate in work.plan().gates if not gate.is_open]
    return "open gates: " + "; ".join(line for gate in shut for line in gate.lines())


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """A defect of one partition."""

    part: str
    where: str
    """Such as `the target log of orders-0`."""
    what: str

    def __str__(self) -> str:
        return f"{self.part}: {self.where}: {self.what}"


def findings(
    part: str, where: str, tp: TopicPartition, found: Sequence[int], wanted: Sequence[int]
) -> Iterator[Defect]:
    """Yield how records differ from the wanted ones: each number once, in ascending order."""

    def finding(numbers: Sequence[int], what: str) -> Defect:
        shown = first_few(str(number) for number in numbers)
        text = f"{plural(len(numbers), 'record')} {what}: {shown}"
        return Defect(part=part, where=f"{where} {tp}", what=text)

    counts = Counter(found)
    if lost := sorted({*wanted} - {*counts}):
        yield finding(lost, "lost")
    if doubled := sorted(number for number, times in counts.items() if times > 1):
        yield finding(doubled, "doubled")
    if strange := sorted({*counts} - {*wanted}):
        yield finding(strange, "not written by the drill")
    firsts = list(dict.fromkeys(found))  # a doubled record does not count as moved as well
    if moved := [b for a, b in pairwise(firsts) if b < a]:
        yield finding(moved, "moved")


def read_again(found: Sequence[int]) -> int:
    """Return how many records were read more than once."""
    return len(found) - len({*found})


LINES: Final = 20
PROGRAM: Final = """
import os, signal, sys, threading, time
from twinlog.cli.main import run

def watch(parent):
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=watch, args=(int(sys.argv[1]),), daemon=True).start()
sys.exit(run(sys.argv[2:]))
"""
"""It ends when the drill ends, even if the drill is killed."""


class MirrorProcess:
    """Runs until it is killed. Its log is in memory, so a drill that is killed leaves no file."""

    def __init__(self, config: Path, *words: str, pass_fds: Collection[int] = ()) -> None:
        self._log = os.fdopen(os.memfd_create("mirror.log"), "rb")
        self._is_killed = False
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(os.getpid()), "mirror", str(config), *words],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=pass_fds,
            start_new_session=True,
        )

    def check(self) -> None:
        """Raise FlowError (DRILL_FAILED) with its last lines if it has ended by itself."""
        code = self._process.poll()
        if code is not None and not self._is_killed:
            raise FlowError(
                f"the drill's mirror ended with {code}; its last lines: {self._last_lines()}",
                code="DRILL_FAILED",
            )

    def kill(self) -> None:
        """Send SIGKILL to it and all of its processes; harmless if it has ended."""
        self._is_killed = True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def _last_lines(self) -> str:
        log = self._log.fileno()
        # its child processes may still write, and share the file position
        text = os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")
        return "".join(text.splitlines(keepends=True)[-LINES:]).strip()
