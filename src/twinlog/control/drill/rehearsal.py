"""One rehearsal: clients write and read at the source, move to the target by the steps of the real
commands, and continue there.

Switchover: records must not be lost, duplicated or out of order ("moved"). This is checked in the
remote topics and in the records that groups have read.

Failover: mirror and clients are cut off at the same time, as if the source were lost, and the
source is not queried afterwards. Records that were not copied by then are the measured loss.
All other records must be on the target, and groups must read each of them at least once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import Committed, commit_offsets, fetch_offsets
from twinlog.cluster.logs.raw_log import produce_batch
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.internal_log import read_to_end, readable_ends
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.cutover.copies import Copy, copies
from twinlog.control.cutover.failover import Failover
from twinlog.control.cutover.scope import CutoverScope, Say
from twinlog.control.cutover.switchover import FenceKind, Switchover, SwitchoverOptions
from twinlog.control.drill.cleaning import DrillNames, Part
from twinlog.control.flow.wiring import flow_setup
from twinlog.errors import Fate, FlowError, TwinlogError, Unauthorized, or_raise
from twinlog.model import TopicPartition
from twinlog.quantities import duration, first_few, plural, total
from twinlog.threads import THREADS
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

POLL_S: Final = 0.3
BEGINS_WITHIN_S: Final = 300.0
"""Maximum wait for a step that includes the start of Spark, a discovery, or a checkpoint."""
WORKS_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Duration, rate and record size of what the drill's producer writes."""

    seconds: float = 10.0
    records_per_s: float = 200.0
    record_bytes: int = 200


@dataclass(slots=True, kw_only=True)
class Measurements:
    """The measurements and findings of a rehearsal."""

    FIELDS = (
        "part written_records=written lost_records=lost lost_seconds=lost_s "
        "lost_records_as_planned=planned_loss interruption_seconds=interruption_s "
        "records_read_again=read_again findings"
    )

    part: Part
    written: int = 0
    """Number of records that the source or the target has acknowledged."""
    lost: int = 0
    lost_s: float = 0.0
    """Age of the oldest lost record when the source was cut off, in seconds."""
    planned_loss: int | None = None
    """Number of lost offsets according to the failover's plan, or None if unknown there."""
    interruption_s: float = 0.0
    """Seconds between the last possible write to the source, and the time when every partition of
    the target had accepted a write.
    """
    read_again: int = 0
    findings: list[Defect] = field(default_factory=list)


class Rehearsal:
    """Rehearses one part of a drill (switchover or failover) on new and empty topics.

    Not thread-safe.
    """

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

    def run(self, fence: FenceKind) -> Measurements:
        """Run the rehearsal. Raises FlowError if a step fails."""
        with CutoverScope(flow_setup(self._config), reason="drill") as scope:
            try:
                if self._part is Part.SWITCHOVER:
                    return self._switchover(scope, fence)
                return self._failover(scope)
            finally:
                for client in self._clients:
                    client.stop()

    # -- switchover

    def _switchover(self, scope: CutoverScope, fence: FenceKind) -> Measurements:
        scope.require_source()
        writer, readers = self._begin(scope)
        self._until(lambda: _is_copied(scope), "the first copy")
        self._work()
        work = Switchover(scope, self._say, SwitchoverOptions(fence=fence, most_lag=1 << 40))
        work.before_groups = lambda: self._wait_for_readers(writer, readers)
        self._until(lambda: work.plan().is_open, lambda: _closed(work))
        plan = work.plan()
        stopped_at = time.monotonic()
        if fence is FenceKind.NONE:
            writer.stop_and_wait()
            stopped_at = time.monotonic()
        work.run(plan)
        new_writer, others = self._move_application(scope, writer)
        outcome = self._outcome(new_writer, writer.refused_at or stopped_at)
        whole = {
            tp: range(new_writer.next_numbers[self._remote(scope, tp)])
            for tp in writer.next_numbers
        }
        outcome.findings += self._compare_logs(scope, whole)
        for before, after in zip(readers, others, strict=True):
            for tp, numbers in before.read.items():
                read = [*numbers, *after.read[self._remote(scope, tp)]]
                where = "the records that its group read from"
                outcome.findings += findings(self._part, where, tp, read, whole[tp])
                outcome.read_again += read_again(read)
        return outcome

    def _wait_for_readers(self, writer: DrillWriter, readers: Sequence[DrillReader]) -> None:
        """Wait until writing has ended, by the fence or at its end, and readers have read
        everything.
        """
        self._until(lambda: writer.refused_at is not None or not writer.is_alive, "the fence")
        for client in (writer, *readers):
            client.stop_and_wait()

    # -- failover

    def _failover(self, scope: CutoverScope) -> Measurements:
        with CutoverScope(flow_setup(self._config), reason="drill") as source:
            source.require_source()
            writer, readers = self._begin(scope)
            self._until(lambda: _is_copied(source), "the first copy")
        scope.source_problem = FlowError("the drill treats it as lost", code="DRILL_FAILED")
        work = Failover(scope, self._say)
        self._until(
            lambda: {group.group for group in work.plan().groups} >= {*self._groups},
            "a checkpoint of every group",
        )
        self._work()
        self._mirror.kill()
        cut_at = time.monotonic()
        writer.stop_and_wait()
        for reader in readers:
            reader.cut()
        plan = work.plan()
        missing = [plan.missing(copy) for copy in plan.copies]
        left = work.run(plan)
        new_writer, others = self._move_application(scope, writer)
        outcome = self._outcome(new_writer, cut_at)
        outcome.planned_loss = None if None in missing else total(missing)
        outcome.findings += [
            Defect(part=self._part, where=f"group {plan.group}", what="is not at its offset")
            for plan in left
        ]
        self._measure_loss(scope, outcome, (writer, readers, new_writer, others), cut_at)
        return outcome

    def _measure_loss(
        self,
        scope: CutoverScope,
        outcome: Measurements,
        clients: tuple[DrillWriter, Sequence[DrillReader], DrillWriter, Sequence[DrillReader]],
        cut_at: float,
    ) -> None:
        writer, readers, new_writer, others = clients
        whole: dict[TopicPartition, Sequence[int]] = {}
        for tp, written in writer.next_numbers.items():
            remote = self._remote(scope, tp)
            on_target = numbers_in(scope.target, remote)
            copied = max((n for n in on_target if n < written), default=-1) + 1
            whole[tp] = [*range(copied), *range(written, new_writer.next_numbers[remote])]
            outcome.lost += written - copied
            late_s = round(cut_at - writer.acked_at(tp, copied, cut_at), 3)
            outcome.lost_s = max(outcome.lost_s, late_s)
        outcome.findings += self._compare_logs(scope, whole)
        for before, after in zip(readers, others, strict=True):
            for tp, numbers in before.read.items():
                later = after.read[self._remote(scope, tp)]
                read = {*numbers, *later}
                if lost := sorted({*whole[tp]} - read):
                    what = f"{plural(len(lost), 'record')} never read, the first is {lost[0]}"
                    where = f"the group of {tp}"
                    outcome.findings.append(Defect(part=self._part, where=where, what=what))
                where = "the records that its group read on the target from"
                outcome.findings += findings(self._part, where, tp, later, later)
                outcome.read_again += len(later) - len({*later} - {*numbers})

    # -- used by both

    def _begin(self, scope: CutoverScope) -> tuple[DrillWriter, list[DrillReader]]:
        """Start the application on the source, and wait until every partition has a record. Return
        the writer and the readers.
        """
        tps = [TopicPartition(t, p) for t, count in self._topics.items() for p in range(count)]
        clients = self._application(scope.setup.source, dict.fromkeys(tps, 0), self._groups)
        self._until(lambda: clients[0].is_writing, "the first records")
        return clients

    def _move_application(
        self, scope: CutoverScope, before: DrillWriter
    ) -> tuple[DrillWriter, list[DrillReader]]:
        """Run the application on the target for half of the load's time, then stop it. Readers read
        to the end of the log before they stop. Return the stopped writer and readers.
        """
        first = {self._remote(scope, tp): number for tp, number in before.next_numbers.items()}
        groups = {group: scope.remote(topic) for group, topic in self._groups.items()}
        new_writer, readers = self._application(scope.setup.target, first, groups)
        self._until(lambda: new_writer.is_writing, "records of the new owners", WORKS_WITHIN_S)
        self._work(0.5)
        for client in (new_writer, *readers):
            client.stop_and_wait()
        return new_writer, readers

    def _application(
        self,
        settings: ClusterSettings,
        first: Mapping[TopicPartition, int],
        groups: Mapping[str, str],
    ) -> tuple[DrillWriter, list[DrillReader]]:
        """Start a writer, and a reader for each group. `first`: the number of each partition's
        first record. `groups`: the topic that each group reads.
        """
        writer = DrillWriter(settings, first, self._load)
        readers = [
            DrillReader(settings, group, [tp for tp in first if tp.topic == topic])
            for group, topic in groups.items()
        ]
        for client in (writer, *readers):
            self._clients.append(client)
            client.start()
        return writer, readers

    def _work(self, share: float = 1.0) -> None:
        """Let the application run for this share of the load's time."""
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
            for client in self._clients:
                client.check()
            self._mirror.check()
            if time.monotonic() > deadline:
                awaited = what if isinstance(what, str) else what()
                raise FlowError(
                    f"drill: {self._part.value}: waited {duration(within_s)} for {awaited}; run "
                    "twinlog check and twinlog doctor for the flow itself",
                    code="DRILL_FAILED",
                )
            time.sleep(POLL_S)

    def _remote(self, scope: CutoverScope, tp: TopicPartition) -> TopicPartition:
        return TopicPartition(scope.remote(tp.topic), tp.partition)

    def _compare_logs(
        self, scope: CutoverScope, wanted: dict[TopicPartition, Any]
    ) -> Iterator[Defect]:
        for tp, numbers in wanted.items():
            remote = self._remote(scope, tp)
            on_target = numbers_in(scope.target, remote)
            yield from findings(self._part, "the log of", remote, on_target, numbers)

    def _outcome(self, new_writer: DrillWriter, stopped_at: float) -> Measurements:
        pause_s = round(max(new_writer.first_at.values()) - stopped_at, 3)
        self._say(f"producers were interrupted for {duration(pause_s)}")
        return Measurements(
            part=self._part, written=sum(new_writer.next_numbers.values()), interruption_s=pause_s
        )


def _is_copied(scope: CutoverScope) -> bool:
    """Return True if the target has at least some records of every partition."""
    try:
        current: list[Copy] = copies(scope)
    except TwinlogError:
        return False  # the drill's topics are still being created
    return bool(current) and all(copy.is_copied for copy in current)


def _closed(work: Switchover) -> str:
    shut = [gate for gate in work.plan().gates if not gate.is_open]
    return "open gates: " + "; ".join(line for gate in shut for line in gate.lines())


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """An error that the rehearsal has found, such as lost records of a partition."""

    part: str
    where: str
    """Name of the checked log, group or measurement, such as `the log of orders-0`."""
    what: str

    def __str__(self) -> str:
        return f"{self.part}: {self.where}: {self.what}"


def findings(
    part: str, where: str, tp: TopicPartition, actual: Sequence[int], expected: Sequence[int]
) -> Iterator[Defect]:
    """Yield a defect for lost records, doubled ones, unknown ones, and those out of order
    ("moved"). `actual`: the record numbers in the order of the log. `expected`: numbers that must
    each occur once, in ascending order.
    """

    def finding(numbers: Sequence[int], what: str) -> Defect:
        shown = first_few(str(number) for number in numbers)
        text = f"{plural(len(numbers), 'record')} {what}: {shown}"
        return Defect(part=part, where=f"{where} {tp}", what=text)

    counts = Counter(actual)
    if lost := sorted({*expected} - {*counts}):
        yield finding(lost, "lost")
    if doubled := sorted(number for number, times in counts.items() if times > 1):
        yield finding(doubled, "doubled")
    if strange := sorted({*counts} - {*expected}):
        yield finding(strange, "not written by the drill")
    firsts = list(dict.fromkeys(actual))  # so that a doubled record is not reported as moved, too
    if moved := [b for a, b in pairwise(firsts) if b < a]:
        yield finding(moved, "moved")


def read_again(numbers: Sequence[int]) -> int:
    """Return the number of repeated reads. A record that was read three times counts as two."""
    return len(numbers) - len({*numbers})


# The drill's application: a thread that writes numbered records, and one thread per group that
# reads and commits. Record n of a partition has the key n. The writer counts acknowledged records.
# If a response is lost, the end of the log shows how many records have arrived, because no other
# client writes to these topics.

ROUND_S: Final = 0.05
AGAIN_S: Final = 0.5


class DrillClient:
    """A client that runs in its own thread until it is stopped or fails."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._end = threading.Event()
        self._job: Future[None] | None = None

    def start(self) -> None:
        self._job = THREADS.submit("drill-client", self._run)

    @property
    def is_alive(self) -> bool:
        return self._job is not None and not self._job.done()

    def stop(self) -> None:
        """Signal the thread to end, without waiting for it."""
        self._end.set()

    def stop_and_wait(self) -> None:
        """Stop the thread and wait until it has ended. Raises the thread's error if it failed."""
        self.stop()
        if self._job is not None:
            self._job.result()

    def check(self) -> None:
        """Raise the error that ended the thread, if it failed."""
        if self._job is not None and self._job.done():
            self._job.result()

    def _run(self) -> None:
        with ClusterClient(self._settings) as client:
            self._work(client)

    def _work(self, client: ClusterClient) -> None:
        raise NotImplementedError


class DrillWriter(DrillClient):
    """Writes records to each partition, with consecutive numbers as keys."""

    def __init__(
        self, settings: ClusterSettings, first: Mapping[TopicPartition, int], load: Load
    ) -> None:
        """`first`: the number of the first record to write to each partition."""
        super().__init__(settings)
        self.next_numbers = dict(first)
        """Number of the next record of each partition. All lower numbers are acknowledged."""
        self.first_at: dict[TopicPartition, float] = {}
        """Monotonic time at which each partition's first record was acknowledged."""
        self.refused_at: float | None = None
        """Monotonic time at which a broker denied a write, which ended the writer; else None."""
        self._acked: dict[TopicPartition, list[tuple[int, float]]] = {tp: [] for tp in first}
        self._value = b"." * load.record_bytes
        self._at_once = max(1, round(load.records_per_s * ROUND_S / max(1, len(first))))
        self._pause_s = len(first) * self._at_once / load.records_per_s

    def acked_at(self, tp: TopicPartition, number: int, otherwise: float) -> float:
        """Return the monotonic time of a record's acknowledgement, or `otherwise` if there was
        none.
        """
        return next((at for end, at in self._acked[tp] if end > number), otherwise)

    @property
    def is_writing(self) -> bool:
        """True if every partition has accepted a record."""
        return len(self.first_at) == len(self.next_numbers)

    def _work(self, client: ClusterClient) -> None:
        before = {
            tp: end - self.next_numbers[tp] for tp, end in _ends(client, self.next_numbers).items()
        }
        while not self._end.wait(self._pause_s):
            for tp in self.next_numbers:
                try:
                    produce_batch(client, tp, self._batch(tp))
                    self.next_numbers[tp] += self._at_once
                except Unauthorized:
                    self.refused_at = time.monotonic()
                    return
                except TwinlogError as error:
                    if error.fate is not Fate.RETRIABLE:
                        raise
                    self._end.wait(AGAIN_S)
                    self.next_numbers[tp] = _ends(client, [tp])[tp] - before[tp]
                    continue
                now = time.monotonic()
                self._acked[tp].append((self.next_numbers[tp], now))
                self.first_at.setdefault(tp, now)

    def _batch(self, tp: TopicPartition) -> bytes:
        first, now_ms = self.next_numbers[tp], int(time.time() * 1000)
        records = [
            Record(offset=index, timestamp=now_ms, key=b"%d" % (first + index), value=self._value)
            for index in range(self._at_once)
        ]
        return bytes(encode_batch(records, codec=Codec.NONE))


class DrillReader(DrillClient):
    """Reads partitions from the committed offsets of a group, and commits the offsets reached."""

    def __init__(
        self, settings: ClusterSettings, group: str, tps: Sequence[TopicPartition]
    ) -> None:
        super().__init__(settings)
        self._group = group
        self._tps = tps
        self._is_cut = False
        self.read: dict[TopicPartition, list[int]] = {tp: [] for tp in tps}
        """Numbers of the records of each partition, in the order in which they were read."""

    def cut(self) -> None:
        """Stop without reading or committing anything more, as if the cluster were lost."""
        self._is_cut = True
        self.stop_and_wait()

    def _work(self, client: ClusterClient) -> None:
        coordinators = Coordinators(client)
        committed = or_raise(fetch_offsets(coordinators, [self._group])[self._group])
        position = {tp: committed[tp].offset if tp in committed else 0 for tp in self._tps}
        is_over = False
        while not is_over:  # after `stop`, a last round reads and commits all remaining records
            is_over = self._end.wait(ROUND_S)
            if self._is_cut:
                return
            try:
                for tp in self._tps:
                    for record in read_to_end(client, tp.topic, tp.partition, position[tp]):
                        self.read[tp].append(number_of(record))
                        position[tp] = record.offset + 1
                offsets = {tp: Committed(offset=at) for tp, at in position.items()}
                (answer,) = commit_offsets(coordinators, {self._group: offsets}).values()
                for problem in [answer] if isinstance(answer, TwinlogError) else answer.values():
                    if problem is not None:
                        raise problem
            except TwinlogError as error:
                if error.fate is not Fate.RETRIABLE or is_over:
                    raise
                self._end.wait(AGAIN_S)


def numbers_in(client: ClusterClient, tp: TopicPartition) -> list[int]:
    """Return the drill's numbers of all records of a partition, in the order of the log."""
    return [number_of(record) for record in read_to_end(client, tp.topic, tp.partition)]


def number_of(record: Record) -> int:
    """Return a record's number, or -1 if the drill did not write it."""
    key = bytes(record.key or b"")
    return int(key) if key.isdigit() else -1


def _ends(client: ClusterClient, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return client.retrying(lambda: readable_ends(client, tps))


# The mirror that a drill runs for its own topics.

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
"""Program of the mirror's process. A thread checks once a second whether the drill's process is
still the parent. If the drill has ended, even by SIGKILL, the thread stops the mirror.
"""


class MirrorProcess:
    """The drill's mirror, a process that runs until `kill`. Its log is in memory, so that no file
    remains if the drill is killed.
    """

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
        """Raise FlowError (DRILL_FAILED) if the mirror has ended without `kill`. The message has
        the last lines of the mirror's log.
        """
        code = self._process.poll()
        if code is not None and not self._is_killed:
            raise FlowError(
                f"the drill's mirror ended with {code}; the last lines of its log: "
                f"{self._last_lines()}",
                code="DRILL_FAILED",
            )

    def kill(self) -> None:
        """Send SIGKILL to the mirror and its child processes. Does nothing if it has ended."""
        self._is_killed = True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def _last_lines(self) -> str:
        log = self._log.fileno()
        # pread, because child processes that still write share the descriptor's file position
        text = os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")
        return "".join(text.splitlines(keepends=True)[-LINES:]).strip()
