"""Runs the flows of a configuration in this process: channel, Spark and supervisor, started in
parallel.

Spark takes seconds to start; flows are set up in the meantime. No record is copied before both are
ready.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from twinlog.channel.codec import MessageCodec
from twinlog.channel.reachable import address_for_executors
from twinlog.channel.server import ChannelServer
from twinlog.cluster.certificates import DAY_S, CertificateEnd, Ending, certificate_ends, urgent
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.security.renewal import CHECK_EVERY_S, current
from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.codes import conditions
from twinlog.config.flow.offset_storage import OffsetStorage
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.control.flow.wiring import admins_of, flow_setup, lanes_of, neighbours_of
from twinlog.control.loops.neighbours import Neighbours
from twinlog.control.process.commands import CommandPort
from twinlog.control.process.reload import FileWatch, Reloader
from twinlog.control.process.supervisor import Supervisor
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.watch.status_file import StatusFile
from twinlog.control.watch.vital import Vital
from twinlog.errors import TwinlogError
from twinlog.extras import require_extra
from twinlog.flow_log import FlowLog
from twinlog.lane.messages import MESSAGES
from twinlog.mirror.state.published_events import PublishedEvents
from twinlog.quantities import plural
from twinlog.spark.jvm_use import JvmUse, jvm_use
from twinlog.wire.kernels.chosen import CHOSEN, KERNELS_MISSING, Chosen

log = logging.getLogger(__name__)

START_IS_WAITED_FOR_S: Final = 3.0
JVM_EVERY_S: Final = 10.0
"""As often as a scraper usually reads it."""
LANE_ENTRY: Final = "twinlog.spark.lane:run_lane"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    """Options of the command line."""

    once: bool = False
    lanes: int | None = None
    lease_s: float | None = None
    master: str | None = None
    adopts: Callable[[FlowConfig], OffsetStorage | None] = lambda _: None
    """Returns the positions of the MirrorMaker 2 whose work a flow adopts, or None."""
    archive: Path | None = None
    """The archive that is sent to the master's executors, or None if Twinlog is installed there."""
    may_be_open: bool = False
    """A Spark master without a secret is accepted."""
    commands: CommandPort = field(default_factory=CommandPort)
    read_again: Callable[[], MirrorConfig] | None = None
    """Reads the configuration, or None if it is read once."""
    on_snapshot: Callable[[list[FlowSnapshot]], None] = lambda _: None
    on_turn: Callable[[], None] = lambda: None
    """Called when the supervisor is alive, but there are no new snapshots."""
    on_jvm: Callable[[JvmUse | None], None] | None = None
    """Called every JVM_EVERY_S with the use of Spark's JVM; None if nobody reads it."""
    events: Callable[[str], PublishedEvents | None] = lambda _: None
    """Returns recent events of a flow, for other hosts."""
    on_config: Callable[[MirrorConfig], None] = lambda _: None
    """Called with the new configuration when it was read again."""
    vital: Vital = field(default_factory=Vital)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorResult:
    """The final state of the flows."""

    flows: tuple[FlowSnapshot, ...]
    seconds: float
    errors: tuple[TwinlogError, ...]


def local_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def say_slow_kernels(chosen: Chosen = CHOSEN) -> None:
    """Log one line if this installation lacks the compiled kernels.

    Executors of a Spark cluster have the archive of this installation, or one of their own.
    """
    if not chosen.is_compiled:
        what = "batches that must be decoded, and small ones that are joined, take"
        log.warning("%s", chosen.warning(what), extra={"code": KERNELS_MISSING})


def run_mirror(config: MirrorConfig, path: Path, options: MirrorOptions) -> MirrorResult:
    """Mirror until done (`once`) or stopped."""
    require_extra("pyspark", "spark", "twinlog mirror")
    say_slow_kernels()
    conditions()  # read now: a mirror may run for months, and its files may be replaced
    # Spark is imported late: commands that do not need it start fast, and flows are set up in the
    # meantime
    neighbours = neighbours_of(config.flows)
    flows = [flow_setup(flow, options.adopts(flow), neighbours) for flow in config.flows]
    many = 1 << 30
    room = {f.name: lanes_of(f.config, local_cores(), options.lanes, many) for f in flows}
    status = StatusFile(path, *map(Path, config.more_files))

    def show(snapshots: list[FlowSnapshot]) -> None:
        status.update(snapshots)
        key_files.update(snapshots)
        options.on_snapshot(snapshots)

    reloader = _reloader(config, options, neighbours)
    supervisor = Supervisor(
        flows,
        once=options.once,
        lease_s=options.lease_s,
        lane_count=lambda setup, partitions: engine.lanes_for(
            setup.config, options.lanes, partitions, flows=supervisor.flow_count
        ),
        commands=options.commands,
        reloader=reloader,
        on_snapshot=show,
        on_turn=options.on_turn,
        events=options.events,
    )
    key_files = KeyFileWatch(on_renewed=supervisor.hurry)
    watch = nullcontext() if reloader is None else FileWatch(reloader, options.commands)
    host = address_for_executors(options.master)
    server = ChannelServer(MessageCodec(MESSAGES), supervisor.deliver, host=host)
    with options.vital.guarding(supervisor.fail):
        server.start()
        engine = _Engine(supervisor, server, options, room)
        engine.start()
        try:
            with status.writing(), key_files, watch:
                snapshots = supervisor.run()
        finally:
            engine.stop()
            server.close()
    return MirrorResult(
        flows=tuple(snapshots), seconds=supervisor.seconds, errors=tuple(supervisor.errors)
    )


def _reloader(
    config: MirrorConfig, options: MirrorOptions, neighbours: Neighbours
) -> Reloader | None:
    if options.read_again is None:
        return None

    def adopted(now: MirrorConfig) -> None:
        neighbours.change(now.flows, admins_of(now.flows))
        options.on_config(now)

    return Reloader(
        config,
        read=options.read_again,
        setup=lambda flow: flow_setup(flow, options.adopts(flow), neighbours),
        adopted=adopted,
    )


class _Engine:
    """Spark, started in its own thread so that nothing waits for it."""

    def __init__(
        self,
        supervisor: Supervisor,
        server: ChannelServer,
        options: MirrorOptions,
        room: Mapping[str, int],
    ) -> None:
        self._supervisor = supervisor
        self._server = server
        self._options = options
        self._room = room
        self._warned: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="twinlog-spark", daemon=True)
        self._engine: Any = None
        self._is_stopping = False
        self._slots: int | None = None

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            from twinlog.spark.lease import SparkLeaseStarter
            from twinlog.spark.session import start_spark

            self._engine = engine = start_spark(
                self._options.master,
                sum(self._room.values()),
                self._options.archive,
                may_be_open=self._options.may_be_open,
            )
            self._slots = engine.slots  # first, because lanes are counted once there is a starter
            self._supervisor.set_starter(
                SparkLeaseStarter(
                    engine.context, LANE_ENTRY, self._server.address, self._server.secrets
                )
            )
            threading.Thread(target=self._watch, name="twinlog-jvm", daemon=True).start()
        except BaseException as error:  # noqa: BLE001 (raised again in the supervisor's thread)
            self._supervisor.fail(error)

    def _watch(self) -> None:
        """Fail if the JVM ends, because no lease can begin without it."""
        while True:
            try:
                self._engine.gateway.process.wait(JVM_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                if self._options.on_jvm is not None:
                    self._options.on_jvm(jvm_use(self._engine.context))
        # a signal that stops this process may go to its JVM as well; then the end is expected
        if not self._is_stopping and not self._options.commands.stopping.is_set():
            self._supervisor.fail(
                TwinlogError(
                    "Spark's JVM ended by itself (out of memory, or killed?): see the lines "
                    "before this one and the kernel's log; this process ends, and must be started "
                    "again",
                    code="SPARK_DIED",
                )
            )

    def lanes_for(
        self, flow: FlowConfig, override: int | None, partitions: int, *, flows: int
    ) -> int:
        """Return the flow's number of lanes on this Spark."""
        if self._slots is None:
            return self._within_room(flow, lanes_of(flow, local_cores(), override, partitions))
        lanes = lanes_of(flow, self._slots, override, partitions)
        # a lease and its successor run side by side
        return max(1, min(lanes, self._slots // (2 * flows)))

    def _within_room(self, flow: FlowConfig, lanes: int) -> int:
        """Limit lanes to the slots with which this Spark was started; a reload may want more."""
        name = str(flow.flow)
        room = self._room.get(name, 1)
        if lanes > room and name not in self._warned:
            self._warned.add(name)
            FlowLog(log, name).warning(
                "gets %s and not %d until the mirror is restarted: its Spark was started for "
                "an earlier configuration",
                plural(room, "lane"),
                lanes,
            )
        return min(lanes, room)

    def stop(self) -> None:
        self._is_stopping = True
        # a Spark that is still starting ends with this process, because its input closes then
        self._thread.join(START_IS_WAITED_FOR_S)
        if self._engine is not None:
            from twinlog.spark.session import stop_spark

            stop_spark(self._engine)


# Checks the key files of all flows while they run, and warns of certificates that expire soon. Each
# connection checks its own (`cluster.security.renewal`); lanes get new ones from this thread even
# if the driver does not connect.

TURN_S: Final = CHECK_EVERY_S / 2
"""Half the interval, so that a check that comes a moment too early does not cost a whole one."""


class KeyFileWatch:
    """A thread from `with` to its end; `update` gives it the current flows."""

    def __init__(
        self,
        *,
        on_renewed: Callable[[], object] = lambda: None,
        turn_s: float = TURN_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`on_renewed` is called when files have changed; `now` is in seconds since 1970."""
        self._on_renewed = on_renewed
        self._in_use: dict[SecuritySettings, SecuritySettings] = {}
        self._turn_s = turn_s
        self._now = now
        self._flows: Sequence[FlowSnapshot] = ()
        self._said: dict[CertificateEnd, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="twinlog-key-files", daemon=True)

    def update(self, flows: Sequence[FlowSnapshot]) -> None:
        """Set the current snapshots of all flows; thread-safe."""
        self._flows = flows

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # not joined, because it may hang in a read of a disk that does not respond
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._turn_s):
            self.turn()

    def turn(self) -> None:
        """Check all files once, and log certificates that expire soon."""
        clusters = [one for flow in self._flows for one in flow.clusters()]
        given = {one.security for one in clusters if one.security is not None}
        in_use = {security: current(security) for security in given}
        is_renewed = any(self._in_use.get(old, old) != new for old, new in in_use.items())
        self._in_use = in_use
        if is_renewed:
            self._on_renewed()
        self._log_ends(clusters)

    def _log_ends(self, clusters: Sequence[ClusterSettings]) -> None:
        now = self._now()
        for ending, end in urgent(certificate_ends(clusters), now):
            if now - self._said.get(end, float("-inf")) >= DAY_S:
                self._said[end] = now
                is_over = ending is Ending.OVER
                code = "CERTIFICATE_EXPIRED" if is_over else "CERTIFICATE_ENDS_SOON"
                log.warning("%s [%s]", end.line(now), code, extra={"code": code})
