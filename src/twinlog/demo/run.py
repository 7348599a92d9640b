"""Runs the demo: starts clusters, stream, mirror and check, shows their state, and removes them.

The demo ends after a time limit, a Ctrl-C, or an error in a part. The parts always end in this
order: the stream, the check (after all produced records have arrived), the mirror, and the clusters
with their folders.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from twinlog.codes import FlowState
from twinlog.control.watch.rates import Rates, TopicRate
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.demo.checker import Checker, CheckState
from twinlog.demo.client import confluent, create_topics
from twinlog.demo.mirror import DemoMirror, Serve
from twinlog.demo.shop import PARTITIONS, TOPIC_CONFIGS, Shop, order_events
from twinlog.demo.view import DemoState, DemoView
from twinlog.errors import EnvironmentMissing
from twinlog.quantities import size
from twinlog.sandbox.brokers import QUICK_JVM, LocalCluster

SOURCE: Final = "eu"
TARGET: Final = "us"
FLOW: Final = f"{SOURCE}->{TARGET}"
ENDING: Final = "Stopping the demo ..."
TICK_S: Final = 0.1
ARRIVES_WITHIN_S: Final = 30.0
QUIET_S: Final = 1.0
"""Time without a new record after which the target is assumed to be read to its end, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of `twinlog demo`."""

    seconds: float | None = None
    """Duration in seconds, or None to run until a signal."""
    records_per_s: float = 500.0
    mirrors: bool = True
    """False if the demo starts no mirror, because the user runs `twinlog mirror`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    produced: int
    check: CheckState
    seconds: float
    was_stopped_early: bool
    """True if the demo was stopped before a record was produced."""

    @property
    def is_identical(self) -> bool:
        """True if both sides have exactly the produced records, equal and in the same order."""
        check = self.check
        complete = check.compared == self.produced and not check.on_the_way and not check.surplus
        return complete and not check.differences


def run_demo(
    options: DemoOptions, stop: threading.Event, view: DemoView, serve: Serve
) -> DemoResult:
    """Run the demo from start to end."""
    confluent()  # if the demo's client is missing, fail before starting anything
    with ExitStack() as parts:
        clusters = parts.enter_context(_clusters(stop, view))
        if clusters is None:
            return _empty_result()
        source, target = clusters
        create_topics(source.bootstrap, PARTITIONS, TOPIC_CONFIGS)
        demo = _Demo(source, target, options, serve)
        parts.callback(demo.close)
        return demo.run(stop, view)


def _empty_result() -> DemoResult:
    return DemoResult(produced=0, check=CheckState(), seconds=0.0, was_stopped_early=True)


@contextmanager
def _clusters(
    stop: threading.Event, view: DemoView
) -> Iterator[tuple[LocalCluster, LocalCluster] | None]:
    """Start both clusters in parallel and yield them, or yield None if the demo was stopped before
    they were ready. Stops both at the end of the block.

    If the demo is stopped while clusters start, they are stopped only after their start. Otherwise
    a broker that another thread is just starting could be missed. A second signal ends the process
    without waiting, and the clusters' watchdogs then clean up.
    """
    pair = tuple(LocalCluster(name, heap_mb=384, jvm_flags=QUICK_JVM) for name in (SOURCE, TARGET))
    with ThreadPoolExecutor(len(pair)) as pool:
        starting = [pool.submit(cluster.start) for cluster in pair]
        try:
            while not all(future.done() for future in starting):
                ending = stop.is_set()
                view(DemoState(phase=ENDING if ending else "Starting two Kafka clusters ..."))
                time.sleep(TICK_S)
            if stop.is_set():
                yield None
            else:
                for future in starting:
                    future.result()
                yield pair[0], pair[1]
        finally:
            wait(starting)
            for cluster in pair:
                cluster.stop()


class _Demo:
    """The stream, the check and the mirror of the demo."""

    def __init__(
        self, source: LocalCluster, target: LocalCluster, options: DemoOptions, serve: Serve
    ) -> None:
        self._options = options
        self._clusters = source, target
        self._errors: list[BaseException] = []
        self._flows: list[FlowSnapshot] = []
        self._rates = Rates()
        self._topics: tuple[TopicRate, ...] = ()
        self._began = 0.0
        events = order_events()
        self._shop = Shop(source.bootstrap, events, options.records_per_s, self._errors.append)
        remote = {topic: f"{SOURCE}.{topic}" for topic in PARTITIONS}
        self._checker = Checker(source.bootstrap, target.bootstrap, remote, self._errors.append)
        self._config = _write_config(source, target)
        self._mirror = DemoMirror(self._config, serve, self._on_snapshot)

    def run(self, stop: threading.Event, view: DemoView) -> DemoResult:
        self._checker.start()
        if self._options.mirrors:
            self._mirror.start()
            self._run_phase(
                stop, view, "Starting the mirror (Spark takes some seconds) ...", self._is_running
            )
        if stop.is_set():
            return _empty_result()
        self._began = time.monotonic()
        self._shop.start()
        phase = f"Mirroring a shop's orders from {SOURCE} to {TARGET}; Ctrl-C ends it"
        if not self._options.mirrors or self._mirror.was_killed:
            phase = f"A shop's orders wait in {SOURCE} to be mirrored to {TARGET}; Ctrl-C ends it"
        self._run_phase(stop, view, phase, self._is_over)
        seconds = time.monotonic() - self._began
        self._shop.stop()
        # a new event, so that the first signal does not end this wait; a second signal ends the
        # process
        self._run_phase(
            threading.Event(), view, "Waiting for the remaining records ...", self._arrived()
        )
        self._checker.stop()
        return DemoResult(
            produced=self._shop.delivered,
            check=self._checker.state,
            seconds=seconds,
            was_stopped_early=self._shop.delivered == 0,
        )

    def close(self) -> None:
        """Stop stream, check and mirror, even if some of them were not started."""
        self._shop.stop()
        self._checker.stop()
        self._mirror.stop()

    def _run_phase(
        self,
        stop: threading.Event,
        view: DemoView,
        phase: str,
        is_done: Callable[[], bool],
    ) -> None:
        while not stop.wait(TICK_S):
            # an exited broker is reported first, because it causes the other errors
            problems = (exited_broker_error(self._clusters), *self._errors, self._mirror.error)
            errors = [problem for problem in problems if problem is not None]
            if errors:
                raise errors[0]
            view(self._state(phase))
            if is_done():
                return

    def _is_running(self) -> bool:
        runs = any(flow.state is FlowState.RUNNING for flow in self._flows)
        return runs or self._mirror.was_killed

    def _is_over(self) -> bool:
        seconds = self._options.seconds
        return seconds is not None and time.monotonic() - self._began >= seconds

    def _arrived(self) -> Callable[[], bool]:
        """Return a function that returns True if all records have arrived, or never will: after a
        difference, or ARRIVES_WITHIN_S.
        """
        began = time.monotonic()
        complete_since: float | None = None

        def arrived() -> bool:
            nonlocal complete_since
            now, check = time.monotonic(), self._checker.state
            complete = check.compared >= self._shop.delivered and not check.on_the_way
            complete_since = (complete_since or now) if complete else None
            settled = complete_since is not None and now - complete_since >= QUIET_S
            hopeless = bool(check.differences) or now - began >= ARRIVES_WITHIN_S
            return settled or hopeless

        return arrived

    def _state(self, phase: str) -> DemoState:
        return DemoState(
            phase=phase,
            hint=self._hint,
            flow=FLOW,
            flow_state=self._flows[0].state if self._flows else "",
            elapsed_s=time.monotonic() - self._began if self._began else 0.0,
            produced=self._shop.delivered,
            topics=self._topics if self._began else (),
            check=self._checker.state,
        )

    @property
    def _hint(self) -> str:
        """Text with the next steps for the user, such as commands."""
        if not self._options.mirrors:
            return f"twinlog mirror {self._config}"
        page = self._mirror.page
        if self._mirror.was_killed and not page:
            return (
                "the demo's mirror was killed before it served its page; this command replaces it\n"
                f"twinlog mirror {self._config}"
            )
        if not page:
            return ""
        # commands are not wrapped, so that users can copy them as a whole line
        stands_by = f"twinlog mirror {self._config} --listen {urlsplit(page).netloc}"
        if self._mirror.was_killed:
            return f"the demo's mirror was killed; to continue at this page, run\n{stands_by}"
        return (
            f"{page} shows the state of all flows\ntwinlog flow pause {self._config}\n{stands_by}"
        )

    def _on_snapshot(self, flows: list[FlowSnapshot]) -> None:
        self._flows = flows
        self._topics = tuple(self._rates.update(time.monotonic(), flows))


def _write_config(source: LocalCluster, target: LocalCluster) -> Path:
    """Write the mirror's configuration into the source cluster's folder. Returns its path."""
    path = source.home / "mm2.properties"
    path.write_text(
        f"clusters = {SOURCE}, {TARGET}\n"
        f"{SOURCE}.bootstrap.servers = {source.bootstrap}\n"
        f"{TARGET}.bootstrap.servers = {target.bootstrap}\n"
        f"{FLOW}.enabled = true\n"
        f"{FLOW}.topics = {', '.join(PARTITIONS)}\n"
        "replication.factor = 1\n"
    )
    return path


# The demo ends if one of its brokers exits, because a mirror would wait for the broker
# indefinitely.

FULL_BELOW_BYTES: Final = 64 * 1024 * 1024
"""Free disk space below which the disk is reported as full, because a broker needs more."""

LONGEST_REASON: Final = 300
_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded")
# matches only errors that end a broker, because brokers also log errors after which they continue
_ENDS: Final = re.compile(
    r"^\S+ (?:ERROR|FATAL) [^:\s]+: (.*(?i:shutdown broker|fatal|halting|exiting).*)$", re.MULTILINE
)
_OF_JAVA: Final = re.compile(
    r"^.*(?:OutOfMemoryError|insufficient memory|Could not create the Java).*$", re.MULTILINE
)


def exited_broker_error(clusters: Iterable[LocalCluster]) -> EnvironmentMissing | None:
    """Return an error with the exited broker, the reason and advice. None while all are running."""
    for cluster in clusters:
        if cluster.folder is None or len(cluster.broker_pids) == cluster.brokers:
            continue
        free = shutil.disk_usage(cluster.folder).free
        return EnvironmentMissing(end_message(cluster.name, cluster.logs(), cluster.folder, free))
    return None


def end_message(name: str, log: str, folder: Path, free: int) -> str:
    """Return the message for an exited broker. `log`: the end of its log. `free`: the free bytes on
    the disk of its folder.
    """
    full, java, errors = _FULL.search(log), _OF_JAVA.search(log), _ENDS.findall(log)
    if full is not None or free < FULL_BELOW_BYTES:
        # a full disk may have no space for the reason in the log
        why = full[0] if full is not None else f"its disk has {size(free)} left"
        todo = f"make room on the disk of {folder.parent}, or set TMPDIR to a folder with room"
    elif java is not None or errors:
        why = java[0].strip() if java is not None else errors[-1].strip()
        todo = "fix this cause"
    else:
        why = "its log has no reason, so it was probably killed, by a user or by the kernel"
        todo = "make sure that memory is free (`dmesg` lists processes killed by the kernel)"
    return f"the demo's broker of {name} ended: {why[:LONGEST_REASON]}; {todo}, and start it again"
