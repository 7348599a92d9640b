"""Spark of one process: when it starts, why it has no executor, and how many lanes it runs.

A local Spark starts with the process, in parallel with the set-up of flows, so that a standby takes
over soon. With a Spark cluster, only the driver's JVM starts with the process. The application,
which takes cores from other applications, starts when the process leads its first flow, and runs
until the process ends. If twinlog.spark.standby=warm is set, or if YARN has started the driver, the
application also starts with the process. It then reserves one executor while it is idle.

Without an executor the process waits, and flows without lanes show WAITING_FOR_SPARK. If Spark's
cluster ends the application, it is started again. On a standalone cluster, an application without
executors is also started again. A master that was restarted does not know the application, ends its
executors, and never starts new ones. Spark reports neither event to the application.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from twinlog.channel.server import ChannelServer
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.flow.wiring import MANY, lane_bytes, lanes_in_memory, lanes_of
from twinlog.control.process.supervisor import Supervisor
from twinlog.errors import Disconnected, Fate, TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.machine import memory_limit, usable_cores
from twinlog.quantities import duration, first_few, plural
from twinlog.spark.jvm_use import jvm_use
from twinlog.spark.options import is_local

if TYPE_CHECKING:
    from twinlog.control.process.run import MirrorOptions
    from twinlog.spark.session import Engine

log = logging.getLogger(__name__)

START_IS_WAITED_FOR_S: Final = 3.0
LANE_ENTRY: Final = "twinlog.spark.lane:run_lane"
WAITING_AFTER_S: Final = 30.0
"""Seconds without an executor after which the process reports that it waits. Executors usually
register within a few seconds; on a busy cluster within half a minute.
"""
ASKED_AFTER_S: Final = 5.0
ONCE_GIVES_UP_S: Final = 60.0
POLL_S: Final = 1.0
JVM_EVERY_S: Final = 10.0
"""Seconds between two reads of the JVM's resource use: the usual interval of a metrics scraper."""
RESTART_AFTER_S: Final = 5.0
FORGOTTEN_AFTER_S: Final = 60.0
"""Seconds without an executor after which an application on a standalone cluster is replaced. The
time doubles with each replacement, up to `MOST_PATIENCE_S`, because the cluster may only be full.
"""
MOST_PATIENCE_S: Final = 1800.0


class SparkEngine:
    """Runs the Spark of this process in its own thread, so that no other thread waits for it."""

    def __init__(self, options: MirrorOptions, flows: Sequence[FlowConfig]) -> None:
        self._options = options
        self._master = options.spark.master
        self._is_attached = options.spark.context is not None
        self._flows = {str(flow.flow): flow for flow in flows}
        self._cores = usable_cores()
        self._needed = threading.Event()
        if is_local(self._master):
            self._cores = min(self._cores, lanes_in_memory(flows, memory_limit()))
            self._needed.set()
        is_cluster = not is_local(self._master) and not self._is_attached
        is_warm = any(flow.lanes.has_warm_standby for flow in flows)
        self._is_warm = is_cluster and (is_warm or options.spark.is_yarns_driver)
        if self._is_warm:
            self._needed.set()
        self._room = {name: self._most_lanes(flow) for name, flow in self._flows.items()}
        self._warned: set[str] = set()
        self._supervisor: Any = None
        self._server: Any = None
        self._thread = threading.Thread(target=self._run, name="twinlog-spark", daemon=True)
        self._jvm: Any = None
        self._engine: Any = None
        self._starter: Any = None
        self._stop = threading.Event()
        self._slots: int | None = None
        """Task slots of the configured master, or None for a local Spark, which has enough."""
        self._without_since: float | None = None
        """Monotonic time since when a needed executor is missing, or None if none is missing."""
        self._began = 0.0
        """Monotonic time at which the application was started."""
        self._patience_s = FORGOTTEN_AFTER_S

    def start(self, supervisor: Supervisor, server: ChannelServer) -> None:
        """Start Spark for this supervisor; lanes connect to `server`."""
        self._supervisor, self._server = supervisor, server
        self._thread.start()

    def note_needed(self) -> None:
        """Note that this process leads a flow, so that it needs Spark."""
        self._needed.set()

    # -- the life of Spark

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._serve()
                self._stop.wait(RESTART_AFTER_S)
        except BaseException as error:  # noqa: BLE001 (raised again in the supervisor's thread)
            self._supervisor.fail(error)

    def _serve(self) -> None:
        """Start Spark, and offer leases until this process stops. Return earlier if Spark's cluster
        has ended the application, or has not started it.
        """
        from twinlog.spark.masters import slots_for
        from twinlog.spark.session import AttachedJvm, DriverJvm, reset_pyspark, stop_spark

        name, spark = f"twinlog {first_few(sorted(self._flows))}", self._options.spark
        jvm: AttachedJvm | DriverJvm
        self._jvm = jvm = AttachedJvm(spark) if self._is_attached else DriverJvm(spark, name)
        while not self._needed.wait(POLL_S):
            self._require_jvm()
        if self._stop.is_set():
            return
        self._without_since = self._without_since or time.monotonic()
        try:
            lanes = self._lanes_wanted()
            if self._stop.is_set():
                return
            self._engine = engine = jvm.begin(
                lanes,
                slots=slots_for(lanes, len(self._flows)),
                lane_bytes=max(map(lane_bytes, self._flows.values()), default=0),
                is_warm=self._is_warm,
            )
            self._began = time.monotonic()
            self._lease_from(engine)
        except Disconnected as error:
            self._stop.wait(POLL_S)  # the JVM may be ending: give it time before the check
            self._require_jvm()
            if is_local(self._master) or self._is_attached:
                raise
            log.warning("Spark's application ended: %s; another one is started", error)
            # leases without an application would fail, and lengthen the pause of the next one
            self._supervisor.set_starter(None)
            self._without_since = self._without_since or time.monotonic()
            self._give_up_if_once()
            if self._engine is None:
                reset_pyspark()
                jvm.gateway.stop()
            else:
                stop_spark(self._engine)
                self._engine = None

    def _lease_from(self, engine: Engine) -> None:
        """Offer leases on an application until this process stops. Raises Disconnected if Spark's
        cluster has ended the application, or may have lost it.
        """
        from twinlog.spark.lease import SparkLeaseStarter, await_executor
        from twinlog.spark.masters import is_dynamic, slots_for, slots_now, task_slots

        has_asked = False

        def keeps_waiting() -> bool:
            nonlocal has_asked
            self._require_jvm()
            self._give_up_if_once()
            self._require_known()
            if not has_asked and self._waited_s > ASKED_AFTER_S:
                has_asked = True
                await_executor(engine.context)
            return not self._stop.is_set()

        if self._master is not None:
            wanted = slots_for(self._lanes_wanted(), len(self._flows))
            self._slots = task_slots(engine.context, wanted, keeps_waiting)
        if self._stop.is_set():
            return
        if self._is_warm:
            await_executor(engine.context, has_python=True)
        self._without_since = None
        address, secrets = self._server.address, self._server.secrets
        self._starter = SparkLeaseStarter(engine.context, LANE_ENTRY, address, secrets)
        self._supervisor.set_starter(self._starter)
        follows = not is_dynamic(engine.context)
        reads_at = time.monotonic() + JVM_EVERY_S
        while not self._stop.wait(POLL_S):
            self._require_jvm()
            if self._is_attached or not is_local(self._master):
                self._count(slots_now(engine.context), follows=follows)
                self._require_known()
            if self._options.on_jvm is not None and time.monotonic() >= reads_at:
                reads_at = time.monotonic() + JVM_EVERY_S
                self._options.on_jvm(jvm_use(engine.context))

    def _count(self, slots: int, *, follows: bool = True) -> None:
        """Note the number of slots of the current executors. It determines the next lease's number
        of lanes, unless Spark allocates executors for each lease (not `follows`).
        """
        if slots:
            self._patience_s = FORGOTTEN_AFTER_S
            self._slots = slots if follows else self._slots
        if slots or not (follows or self._is_warm or self._starter.is_leasing):
            self._without_since = None
        elif self._without_since is None:
            self._without_since = time.monotonic()

    def _require_known(self) -> None:
        """Raise Disconnected if a standalone master may have forgotten the application."""
        is_standalone = str(self._master).startswith("spark://") and not self._is_attached
        waited_s = min(self._waited_s, time.monotonic() - self._began)
        if is_standalone and waited_s > self._patience_s:
            self._patience_s = min(2 * self._patience_s, MOST_PATIENCE_S)
            raise Disconnected(f"it has had no executor for {duration(waited_s)}")

    def _require_jvm(self) -> None:
        """Raise TwinlogError if the JVM has ended, because no lease can begin without it."""
        if not self._jvm.gateway.has_ended:
            return
        # the JVM's end is expected if a signal that stops this process has also reached the JVM
        if not self._stop.is_set() and not self._options.commands.stopping.is_set():
            raise TwinlogError(
                "Spark's JVM ended by itself, so this process ends. The JVM may have been out of "
                "memory or killed: see the log lines before this one, and the kernel's log. Then "
                "start the process again",
                code="SPARK_DIED",
            )
        self._stop.set()

    def stop(self) -> None:
        self._stop.set()
        self._needed.set()
        # wait only briefly: a Spark that is still starting ends with this process, which closes its
        # input
        self._thread.join(START_IS_WAITED_FOR_S)
        if self._engine is not None:
            from twinlog.spark.session import stop_spark

            if self._starter is not None:
                self._starter.finish()
            stop_spark(self._engine)
        elif self._jvm is not None:
            self._jvm.gateway.stop()

    # -- waiting

    @property
    def _waited_s(self) -> float:
        since = self._without_since
        return 0.0 if since is None else time.monotonic() - since

    def why_waiting(self) -> TwinlogError | None:
        """Return the error that flows without lanes show, or None if there are executors, or if
        they are not overdue yet. Thread-safe.
        """
        if is_local(self._master) or self._waited_s < WAITING_AFTER_S:
            return None
        return self._no_executor_error()

    def _no_executor_error(self) -> TwinlogError:
        words = self._jvm.gateway.last_warning
        suffix = f"; Spark reports: {words}" if words else ""
        return TwinlogError(
            f"no executor of {self._master} has registered{suffix}",
            code="WAITING_FOR_SPARK",
            fate=Fate.RETRIABLE,
        )

    def _give_up_if_once(self) -> None:
        if self._options.once and self._waited_s > ONCE_GIVES_UP_S:
            raise self._no_executor_error().with_addition(
                f"gave up after {duration(self._waited_s)}"
            )

    # -- lanes

    def _most_lanes(self, flow: FlowConfig, partitions: int = MANY) -> int:
        """Return a flow's maximum number of lanes, however many cores Spark's cluster has."""
        cores = self._cores
        if not is_local(self._master):
            cores = flow.lanes.tasks_max or cores
        return lanes_of(flow, cores, self._options.lanes, partitions)

    def _lanes_wanted(self) -> int:
        """Return the number of lanes that all flows want. Led flows count by their partitions."""
        led = {} if is_local(self._master) else self._partitions_led()
        return sum(
            self._most_lanes(flow, led.get(name, MANY)) for name, flow in self._flows.items()
        )

    def _partitions_led(self) -> dict[str, int]:
        """Return the number of partitions of each led flow, once the supervisor responds. A busy
        supervisor must not count as the end of the application, which also raises Disconnected.
        """
        while True:
            with suppress(Disconnected):
                led: dict[str, int] = self._supervisor.ask(self._partitions)
                return led
            if self._stop.is_set():
                return {}

    def _partitions(self) -> dict[str, int]:
        runs = {flow.setup.name: flow.run for flow in self._supervisor.flows}
        return {name: len(run.partitions) for name, run in runs.items() if run is not None}

    def lanes_for(
        self, flow: FlowConfig, partitions: int, *, flows: int, is_light: bool = False
    ) -> int:
        """Return the flow's number of lanes on this Spark: one if it has little traffic, unless
        `--lanes` gives the number. Before Spark's cluster has given slots, this is the number of
        lanes that the flow asks for. `flows`: the number of flows that share the slots.
        """
        override = self._options.lanes
        if is_light and override is None:
            return 1
        if self._slots is None:
            return self._within_room(flow, self._most_lanes(flow, partitions))
        lanes = lanes_of(flow, self._slots, override, partitions)
        # keep a slot free: the next lease replaces lane by lane, and starts with one lane more
        return max(1, min(lanes, self._slots // flows - 1))

    def _within_room(self, flow: FlowConfig, lanes: int) -> int:
        """Limit lanes to the number for which this Spark was started. A reload may want more."""
        name = str(flow.flow)
        room = self._room.get(name, 1)
        if lanes > room and name not in self._warned:
            self._warned.add(name)
            FlowLog(log, name).warning(
                "runs with %s, not %d, until the mirror is restarted, because Spark was started "
                "for an earlier configuration",
                plural(room, "lane"),
                lanes,
            )
        return min(lanes, room)
