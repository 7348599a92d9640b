"""Runs the flows of a configuration in this process: channel, Spark and supervisor, started in
parallel.

Spark takes seconds to start; flows are set up in the meantime. No record is copied before both are
ready.

`run_in_session` runs the flows in a Spark session of the caller (`twinlog.run`).
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from twinlog.channel.codec import MessageCodec
from twinlog.channel.server import ChannelServer, address_for_executors
from twinlog.cluster.certificates import (
    DAY_S,
    CertificateExpiry,
    ExpiryUrgency,
    certificate_ends,
    urgent,
)
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.security.renewal import CHECK_EVERY_S, current
from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.codes import conditions
from twinlog.config.advice.transforms import refuse_transforms
from twinlog.config.flow.offset_storage import OffsetStorage
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.config.load import load_all
from twinlog.control.flow.wiring import admins_of, flow_setup, neighbours_of
from twinlog.control.loops.neighbours import SiblingFlows
from twinlog.control.process.commands import CommandPort, Stop
from twinlog.control.process.engine import SparkEngine
from twinlog.control.process.reload import Reloader, file_watch
from twinlog.control.process.supervisor import Supervisor
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.watch.status_file import StatusFile
from twinlog.errors import TwinlogError
from twinlog.extras import require_extra
from twinlog.lane.messages import MESSAGES
from twinlog.mirror.state.published import PublishedEvents
from twinlog.spark.jvm_use import JvmUse
from twinlog.spark.options import SparkOptions
from twinlog.threads import RepeatedJob, ThreadWatch
from twinlog.wire.kernels.chosen import CHOSEN, KERNELS_MISSING, ChosenKernels

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    """Command-line options of `twinlog mirror`, and callbacks."""

    once: bool = False
    lanes: int | None = None
    lease_s: float | None = None
    spark: SparkOptions = field(default_factory=SparkOptions)
    adopts: Callable[[FlowConfig], OffsetStorage | None] = lambda _: None
    """Returns the storage with positions of the MirrorMaker 2 that a flow adopts, or None."""
    commands: CommandPort = field(default_factory=CommandPort)
    read_again: Callable[[], MirrorConfig] | None = None
    """Reads the configuration. None if it is read only once."""
    on_snapshot: Callable[[list[FlowSnapshot]], None] = lambda _: None
    on_turn: Callable[[], None] = lambda: None
    """Called once a second if the supervisor is alive and takes no snapshots."""
    on_jvm: Callable[[JvmUse | None], None] | None = None
    """Called every JVM_EVERY_S with the use of Spark's JVM. None if it is not needed."""
    events: Callable[[str], PublishedEvents | None] = lambda _: None
    """Returns the recent events of a flow that are published to other hosts."""
    on_config: Callable[[MirrorConfig], None] = lambda _: None
    """Called with each new configuration before any flow uses it."""
    thread_watch: ThreadWatch = field(default_factory=ThreadWatch)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorResult:
    """The final state of the flows."""

    flows: tuple[FlowSnapshot, ...]
    seconds: float
    errors: tuple[TwinlogError, ...]


def warn_of_slow_kernels(chosen: ChosenKernels = CHOSEN) -> None:
    """Log one line if this installation lacks the compiled kernels.

    The line also applies to executors of a Spark cluster, unless they have their own installation.
    """
    if not chosen.is_compiled:
        what = "decoding batches and joining small ones take"
        log.warning("%s", chosen.warning(what), extra={"code": KERNELS_MISSING})


def run_mirror(config: MirrorConfig, path: Path, options: MirrorOptions) -> MirrorResult:
    """Mirror until everything is copied (`once`) or the process is stopped. Raises ConfigError if a
    flow has transforms that do not run.
    """
    refuse_transforms(config)
    require_extra("pyspark", "spark", "twinlog mirror")
    warn_of_slow_kernels()
    conditions()  # read now, because files may be replaced while a mirror runs for months
    # Spark is imported later, so that commands that do not need it start fast, and flows are set up
    # in the meantime
    neighbours = neighbours_of(config.flows)
    flows = [flow_setup(flow, options.adopts(flow), neighbours) for flow in config.flows]
    status = StatusFile(path, *map(Path, config.more_files))

    def show(snapshots: list[FlowSnapshot]) -> None:
        status.update(snapshots)
        key_files.update(snapshots)
        options.on_snapshot(snapshots)

    reloader = _reloader(config, options, neighbours)
    engine = SparkEngine(options, config.flows)
    supervisor = Supervisor(
        flows,
        once=options.once,
        lease_s=options.lease_s,
        lane_count=lambda setup, partitions, is_light: engine.lanes_for(
            setup.config, partitions, flows=max(1, len(supervisor.flows)), is_light=is_light
        ),
        on_led=engine.note_needed,
        spark_waits=engine.why_waiting,
        commands=options.commands,
        reloader=reloader,
        on_snapshot=show,
        on_turn=options.on_turn,
        events=options.events,
    )
    key_files = KeyFileWatch(on_renewed=supervisor.retry_now)
    watch = nullcontext() if reloader is None else file_watch(reloader, options.commands)
    host = address_for_executors(options.spark.master)
    server = ChannelServer(MessageCodec(MESSAGES), supervisor.deliver, host=host)
    with options.thread_watch.guarding(supervisor.fail):
        server.start()
        engine.start(supervisor, server)
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
    config: MirrorConfig, options: MirrorOptions, neighbours: SiblingFlows
) -> Reloader | None:
    if options.read_again is None:
        return None

    def on_adopted(now: MirrorConfig) -> None:
        neighbours.change(now.flows, admins_of(now.flows))
        options.on_config(now)

    return Reloader(
        config,
        read=options.read_again,
        setup=lambda flow: flow_setup(flow, options.adopts(flow), neighbours),
        adopted=on_adopted,
    )


# Checks the key files of all flows while they run, and warns of certificates that expire soon. Each
# connection checks its own key files (`cluster.security.renewal`). Lanes get new credentials from
# this thread, even if the driver does not connect.

TURN_S: Final = CHECK_EVERY_S / 2
"""Seconds between two turns: half of the check interval. If a turn comes a moment before the check
is due, the check is delayed by a turn, not by a whole interval.
"""


class KeyFileWatch(RepeatedJob):
    """Checks key files during its `with` block, whose end does not wait for a running check, which
    may hang in a read from a disk that does not respond. `update` sets the current flows.
    """

    def __init__(
        self,
        *,
        on_renewed: Callable[[], object] = lambda: None,
        turn_s: float = TURN_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`on_renewed` is called when files have changed; `now` is in seconds since 1970."""
        super().__init__("twinlog-key-files", self.turn)
        self._on_renewed = on_renewed
        self._in_use: dict[SecuritySettings, SecuritySettings] = {}
        self._turn_s = turn_s
        self._now = now
        self._flows: Sequence[FlowSnapshot] = ()
        self._warned_at: dict[CertificateExpiry, float] = {}

    def update(self, flows: Sequence[FlowSnapshot]) -> None:
        """Set the current snapshots of all flows; thread-safe."""
        self._flows = flows

    def turn(self) -> float:
        """Check all files once, and log certificates that expire soon. Return the seconds until the
        next turn.
        """
        clusters = [cluster for flow in self._flows for cluster in flow.clusters()]
        securities = {cluster.security for cluster in clusters if cluster.security is not None}
        in_use = {security: current(security) for security in securities}
        is_renewed = any(self._in_use.get(old, old) != new for old, new in in_use.items())
        self._in_use = in_use
        if is_renewed:
            self._on_renewed()
        self._log_ends(clusters)
        return self._turn_s

    def _log_ends(self, clusters: Sequence[ClusterSettings]) -> None:
        now = self._now()
        for urgency, end in urgent(certificate_ends(clusters), now):
            if now - self._warned_at.get(end, float("-inf")) >= DAY_S:
                self._warned_at[end] = now
                is_over = urgency is ExpiryUrgency.OVER
                code = "CERTIFICATE_EXPIRED" if is_over else "CERTIFICATE_ENDS_SOON"
                log.warning("%s [%s]", end.line(now), code, extra={"code": code})


def run_in_session(
    spark: Any, files: Sequence[str | Path], *, once: bool, lanes: int | None, may_be_open: bool
) -> MirrorResult:
    """Run the flows of these files until everything is copied (`once`), or until the caller is
    interrupted. Then shut down cleanly. Raises TwinlogError.
    """
    require_extra("pyspark", "spark", "twinlog.run")
    from twinlog.spark.session import session_options

    options = session_options(spark, may_be_open=may_be_open)

    paths = [Path(file) for file in files]

    def read() -> MirrorConfig:
        return load_all(paths)

    config, commands = read(), CommandPort()
    for warning in config.warnings:
        log.warning("%s", warning, extra={"code": warning.code})
    how = MirrorOptions(
        once=once,
        lanes=lanes,
        spark=options,
        commands=commands,
        read_again=None if once else read,
    )
    # in a separate thread, because an interrupt must not stop the thread that decides
    with _interrupts(), ThreadPoolExecutor(1, "twinlog-run") as pool:
        running = pool.submit(run_mirror, config, paths[0], how)
        try:
            return running.result()
        except KeyboardInterrupt:
            commands.put(Stop(who="an interrupt"))
            return running.result()


@contextmanager
def _interrupts() -> Iterator[None]:
    """Let Ctrl-C only raise KeyboardInterrupt: PySpark's handler would also cancel lanes' jobs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
