"""Workers that compare the partitions of a flow: threads of this process, or tasks of Spark.

Threads are the default, because comparing equal batches costs little more than receiving them, and
Spark takes seconds to start (docs/adr/0034). If a Spark master is given, partitions are split into
sections, and each section is compared by one task.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from twinlog.channel.codec import MessageCodec
from twinlog.channel.server import (
    ChannelEvent,
    ChannelServer,
    LaneConnected,
    LaneMessage,
    address_for_executors,
)
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.control.verify.functions import FlowFunctions
from twinlog.errors import EnvironmentMissing, TwinlogError
from twinlog.extras import require_extra
from twinlog.mirror.verify.difference import Compared
from twinlog.mirror.verify.matching import OffsetPairs
from twinlog.spark.options import SparkOptions
from twinlog.spark.verify import VERIFY_MESSAGES, VerifyDone, VerifyStep, VerifyTaken, VerifyWork
from twinlog.survey.verify import (
    VerifyTask,
    combined,
    joined,
    ranges_to_repeat,
    size,
    split,
    verify_partition,
    with_needed_runs,
)


class WalkProgress:
    """Progress of walks, counted in target offsets. A walk compares one partition or section. The
    progress never decreases, and is complete when all walks have ended, even if one was restarted,
    read less than planned, or failed. Only one thread at a time may update it, but any thread may
    read it.
    """

    def __init__(self, tasks: Sequence[VerifyTask], *, is_again: bool = False) -> None:
        self._of_each = [extent(task) for task in tasks]
        self._done = [0] * len(tasks)
        self.is_again = is_again
        """True if the walks repeat comparisons that found differences."""
        self.total = sum(self._of_each)
        self.done = 0

    def set_done(self, number: int, offsets: int) -> None:
        """Set the number of offsets that the walk with this number has compared."""
        now = min(offsets, self._of_each[number])
        if now > self._done[number]:
            self.done += now - self._done[number]
            self._done[number] = now

    def end(self, number: int) -> None:
        """Mark the walk with this number as ended."""
        self.set_done(number, self._of_each[number])


def extent(task: VerifyTask) -> int:
    """Return how many target offsets a walk will compare, by the log bounds in its task."""
    runs, reach = task.mapped_copy.runs, task.mapped_copy.reach
    if not runs:
        return 0
    pairs, target_bounds = OffsetPairs(runs), task.there
    since = min(task.since, task.here.end)
    begin = pairs.first_counterpart(max(task.here.start, pairs.first.upstream, since))
    end = target_bounds.end
    if task.until is not None and (reach is None or task.until < reach.upstream):
        end = min(end, pairs.first_counterpart(task.until))
    return max(0, end - max(begin, target_bounds.start))


MOST_THREADS: Final = 4
TASK_ENTRY: Final = "twinlog.spark.verify:verify_section"
TASK_FAILURES: Final = 4
"""Failures of a task after which Spark fails the job. Spark's default is enough, because these
tasks only read. A mirror allows more, because a failed task must never end its lease.
"""
FIRST_TASK_WITHIN_S: Final = 60.0
TICK_S: Final = 0.1

OnStep = Callable[[WalkProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPair:
    """Connection settings of both clusters."""

    source: ClusterSettings
    target: ClusterSettings


@dataclass(frozen=True, slots=True)
class ThreadWorkers:
    """Compares partitions in threads of this process. Each thread has its own connections."""

    functions: FlowFunctions | None = None
    """The functions for transformed partitions, or None if no partition is transformed."""

    def verify(
        self, clusters: ClusterPair, tasks: Sequence[VerifyTask], on_step: OnStep
    ) -> list[VerifyDone]:
        """Return a result per task, in order. `on_step` is called by one thread at a time."""
        count = max(1, min(MOST_THREADS, os.cpu_count() or 1, len(tasks)))
        of_thread, lock, is_over = threading.local(), threading.Lock(), threading.Event()
        progress = WalkProgress(tasks)

        def stepping(number: int) -> Callable[[int], None]:
            done = 0

            def step(offsets: int) -> None:
                nonlocal done
                if is_over.is_set():
                    raise CancelledError  # the command was interrupted, so end this thread, too
                done += offsets
                with lock:
                    progress.set_done(number, done)
                    on_step(progress)

            return step

        with ExitStack() as stack:

            def enter() -> None:
                of_thread.clients = ClusterClient(clusters.source), ClusterClient(clusters.target)
                with lock:
                    for client in of_thread.clients:
                        stack.enter_context(client)

            def verify(number: int, task: VerifyTask) -> VerifyDone:
                compared, why_not = Compared(), ""
                try:
                    source, target = of_thread.clients
                    step = stepping(number)
                    verify_partition(task, source, target, step, compared, functions=self.functions)
                except TwinlogError as error:
                    why_not = str(error)  # `compared` keeps the differences found before the error
                with lock:
                    progress.end(number)
                    on_step(progress)
                return VerifyDone(compared=compared, why_not=why_not)

            pool = stack.enter_context(ThreadPoolExecutor(count, initializer=enter))
            try:
                return list(pool.map(verify, range(len(tasks)), tasks))
            finally:
                is_over.set()
                if self.functions is not None:
                    self.functions.close()  # ends the wait of threads for transformed records
                pool.shutdown(cancel_futures=True)


@contextmanager
def workers(options: SparkOptions) -> Iterator[VerifyWorkers]:
    """Yield Spark tasks as workers, or threads if `options` has no master. Raises
    EnvironmentMissing or ConfigError if Spark cannot be started.
    """
    if options.master is None:
        yield ThreadWorkers()
        return
    require_extra("pyspark", "spark", "twinlog verify --master")
    from twinlog.spark.lease import SparkLeaseStarter
    from twinlog.spark.session import start_spark, stop_spark

    tasks = SparkWorkers()
    host = address_for_executors(options.master)
    server = ChannelServer(MessageCodec(VERIFY_MESSAGES), tasks.deliver, host=host)
    server.start()
    try:
        engine = start_spark(options, 0, "twinlog verify", task_failures=TASK_FAILURES)
        try:
            tasks.starter = SparkLeaseStarter(
                engine.context, TASK_ENTRY, server.address, server.secrets
            )
            yield tasks
        finally:
            stop_spark(engine)
    finally:
        server.close()


class SparkWorkers:
    """Compares partitions in two Spark jobs. The first has a task per section. The second joins
    adjacent sections with differences and compares them again.
    """

    def __init__(self) -> None:
        self.starter: Any = None
        self._jobs = 0
        self._job = _Job(number=0, work=(), progress=WalkProgress(()))

    def verify(
        self, clusters: ClusterPair, tasks: Sequence[VerifyTask], on_step: OnStep
    ) -> list[VerifyDone]:
        """Return a result per task, in the order of `tasks`. Raises TwinlogError if a Spark job
        fails, and EnvironmentMissing if no Spark task begins within FIRST_TASK_WITHIN_S.
        """
        offsets = size(tasks)
        parts = [split(task, offsets) for task in tasks]
        all_sections = [section for sections in parts for section in sections]
        flat = self._run(clusters, all_sections, WalkProgress(all_sections), on_step)
        of_each, at = list[list[VerifyDone]](), 0
        for sections in parts:
            of_each.append(flat[at : at + len(sections)])
            at += len(sections)
        again = [
            (number, first, section_end)
            for number, (sections, result) in enumerate(zip(parts, of_each, strict=True))
            for first, section_end in ranges_to_repeat(
                sections, [outcome.compared for outcome in result]
            )
        ]
        whole = [joined(parts[number][first:section_end]) for number, first, section_end in again]
        answers = self._run(clusters, whole, WalkProgress(whole, is_again=True), on_step)
        # replace from the end, because a replacement shifts the indexes of later sections
        for (number, first, section_end), answer in reversed(
            list(zip(again, answers, strict=True))
        ):
            of_each[number][first:section_end] = [answer]
        return [
            VerifyDone(
                compared=combined([outcome.compared for outcome in result]),
                why_not=next((outcome.why_not for outcome in result if outcome.why_not), ""),
            )
            for result in of_each
        ]

    def _run(
        self,
        clusters: ClusterPair,
        sections: Sequence[VerifyTask],
        progress: WalkProgress,
        on_step: OnStep,
    ) -> list[VerifyDone]:
        if not sections:
            return []
        self._jobs += 1
        job = self._job = _Job(
            number=self._jobs,
            work=[
                VerifyWork(source=clusters.source, target=clusters.target, wanted=section)
                for section in sections
            ],
            progress=progress,
        )
        running = self.starter.start(job.number, len(sections))
        began = time.monotonic()
        try:
            while not running.done.wait(TICK_S):
                on_step(progress)
                if not job.is_begun and time.monotonic() > began + FIRST_TASK_WITHIN_S:
                    raise EnvironmentMissing(
                        f"no task of Spark has begun within {FIRST_TASK_WITHIN_S:.0f} s: check "
                        "the master's free cores, and whether executors can reach this machine"
                    )
        finally:
            running.cancel()
        if running.error is not None:
            raise running.error
        on_step(progress)
        return job.results()

    def deliver(self, event: ChannelEvent) -> None:
        """Handle a message or connection of a Spark task. Called in the channel's thread."""
        job = self._job
        if event.peer.identity.lease != job.number:
            return  # the event comes from a task of an earlier job, whose results were returned
        task = event.peer.identity.lane
        match event:
            case LaneConnected(peer=peer):
                job.is_begun = True
                work = job.work[task]
                peer.send(replace(work, wanted=with_needed_runs(work.wanted)))
            case LaneMessage(message=VerifyStep(offsets=offsets)):
                job.progress.set_done(task, offsets)
            case LaneMessage(peer=peer, message=VerifyDone() as done):
                job.progress.end(task)
                job.answers.setdefault(task, done)
                peer.send(VerifyTaken())


VerifyWorkers = ThreadWorkers | SparkWorkers


@dataclass(slots=True, kw_only=True)
class _Job:
    number: int
    work: Sequence[VerifyWork]
    progress: WalkProgress
    is_begun: bool = False
    answers: dict[int, VerifyDone] = field(default_factory=dict)

    def results(self) -> list[VerifyDone]:
        """Return the result of each section. Raises TwinlogError (LEASE) if one is missing."""
        missing = [task for task in range(len(self.work)) if task not in self.answers]
        if missing:
            raise TwinlogError(
                f"{len(missing)} tasks of Spark ended without a result: run the command again",
                code="LEASE",
            )
        return [self.answers[task] for task in range(len(self.work))]
