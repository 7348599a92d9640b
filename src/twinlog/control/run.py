"""Runs the flows of a configuration in this process: channel, Spark and supervisor, started side by
side.

Spark takes seconds to start; meanwhile the flows are set up. Nothing is written to a topic before
both are there.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from twinlog.cluster.security import load_security
from twinlog.cluster.settings import (
    DEFAULT_REQUEST_TIMEOUT_MS,
    ClusterSettings,
    parse_bootstrap,
)
from twinlog.config.offset_storage import OffsetStorage
from twinlog.config.origin import ClientProperties
from twinlog.config.schema import FlowConfig, MirrorConfig
from twinlog.config.tuning import request_timeout_ms
from twinlog.control.channel_server import ChannelServer
from twinlog.control.flow_setup import FlowSetup
from twinlog.control.located import located
from twinlog.control.reload import Reloader
from twinlog.control.snapshot import FlowSnapshot
from twinlog.control.status_file import StatusFile
from twinlog.control.supervisor import Supervisor
from twinlog.errors import TwinlogError
from twinlog.lane.messages import MESSAGES
from twinlog.mirror.filters import policy_of
from twinlog.quantities import plural
from twinlog.spark.codec import MessageCodec

log = logging.getLogger(__name__)

START_IS_WAITED_FOR_S: Final = 3.0
LANE_ENTRY: Final = "twinlog.spark.lane:run_lane"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    """What the command line decides."""

    once: bool = False
    lanes: int | None = None
    lease_s: float | None = None
    master: str | None = None
    adopts: Callable[[FlowConfig], OffsetStorage | None] = lambda _: None
    """Where the MirrorMaker 2 of a flow is whose work is taken over; None: there is none."""
    archive: Path | None = None
    """What executors of the master are sent; None where Twinlog is installed there."""
    stop: threading.Event = field(default_factory=threading.Event)
    reload: threading.Event | None = None
    """Set when the configuration is to be read again; None where it never is."""
    read_again: Callable[[], MirrorConfig] | None = None
    """Reads it."""
    on_snapshot: Callable[[list[FlowSnapshot]], None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorResult:
    """How the flows ended."""

    flows: tuple[FlowSnapshot, ...]
    seconds: float
    errors: tuple[TwinlogError, ...]


def cluster_settings(alias: str, properties: ClientProperties, flow: str) -> ClusterSettings:
    """One cluster as the connections need it; secrets and key files are read here, on the
    driver.
    """
    with located(alias, properties):
        security = load_security(properties, where=alias)
    return ClusterSettings(
        alias=alias,
        bootstrap=parse_bootstrap(properties["bootstrap.servers"], f"{alias}.bootstrap.servers"),
        security=security,
        client_id=f"twinlog-{flow}",
        request_timeout_ms=request_timeout_ms(properties, DEFAULT_REQUEST_TIMEOUT_MS),
    )


def flow_setup(config: FlowConfig, adopts: OffsetStorage | None = None) -> FlowSetup:
    """One flow's set-up, with the settings of each of its clients as MM2 resolves them."""
    name, flow = str(config.flow), config.flow
    return FlowSetup(
        config=config,
        policy=policy_of(config),
        source=cluster_settings(flow.source, config.source_admin, name),
        target=cluster_settings(flow.target, config.target_admin, name),
        lane_source=cluster_settings(flow.source, config.source_consumer, name),
        lane_target=cluster_settings(flow.target, config.target_producer, name),
        adopts=adopts,
    )


def local_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def lanes_of(flow: FlowConfig, cores: int, override: int | None, partitions: int) -> int:
    """min(tasks.max where it is set, partitions, cores), at least 1; `--lanes` overrides."""
    if override is not None:
        return max(1, min(override, partitions))
    return max(1, min(partitions, cores, flow.tasks_max or cores))


def run_mirror(config: MirrorConfig, path: Path, options: MirrorOptions) -> MirrorResult:
    """Mirror until done (`once`) or stopped."""
    # Spark is imported late: commands that do not need it start fast, and flows are set up
    # meanwhile
    flows = [flow_setup(flow, options.adopts(flow)) for flow in config.flows]
    many = 1 << 30
    room = {f.name: lanes_of(f.config, local_cores(), options.lanes, many) for f in flows}
    status = StatusFile(path, *map(Path, config.more_files))

    def show(snapshots: list[FlowSnapshot]) -> None:
        status.write(snapshots)
        options.on_snapshot(snapshots)

    supervisor = Supervisor(
        flows,
        once=options.once,
        lease_s=options.lease_s,
        lane_count=lambda setup, partitions: engine.lanes_for(
            setup.config, options.lanes, partitions, flows=supervisor.flow_count
        ),
        on_snapshot=show,
    )
    host = "127.0.0.1" if options.master is None else _address_for_executors(options.master)
    server = ChannelServer(MessageCodec(MESSAGES), supervisor.deliver, host=host)
    server.start()
    engine = _Engine(supervisor, server, options, room)
    engine.start()
    try:
        with _reloading(config, options, supervisor):
            snapshots = supervisor.run(options.stop)
    finally:
        engine.stop()
        server.close()
        status.remove()
    return MirrorResult(
        flows=tuple(snapshots), seconds=supervisor.seconds, errors=tuple(supervisor.errors)
    )


def _reloading(
    config: MirrorConfig, options: MirrorOptions, supervisor: Supervisor
) -> AbstractContextManager[object]:
    if options.read_again is None or options.reload is None:
        return nullcontext()
    return Reloader(
        config,
        read=options.read_again,
        setup=lambda flow: flow_setup(flow, options.adopts(flow)),
        supervisor=supervisor,
        asked=options.reload,
    )


def _address_for_executors(master: str) -> str:
    """The address under which executors reach this process."""
    if master.startswith("local"):
        return "127.0.0.1"
    return os.environ.get("SPARK_LOCAL_IP") or _outward_address()


def _outward_address() -> str:
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # no packet is sent: connecting a datagram socket only picks the interface
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


class _Engine:
    """Spark, started in its own thread so that nobody waits for it."""

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
        self._told: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="twinlog-spark", daemon=True)
        self._engine: Any = None
        self._slots: int | None = None

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            from twinlog.spark.lease import LeaseStarter
            from twinlog.spark.session import start_spark

            self._engine = engine = start_spark(
                self._options.master, sum(self._room.values()), self._options.archive
            )
            self._slots = engine.slots  # first: with a starter, lanes are counted
            self._supervisor.set_starter(
                LeaseStarter(engine.context, LANE_ENTRY, self._server.address)
            )
        except BaseException as error:  # noqa: BLE001 (raised again in the supervisor's thread)
            self._supervisor.fail(error)

    def lanes_for(
        self, flow: FlowConfig, override: int | None, partitions: int, *, flows: int
    ) -> int:
        """How many lanes a flow gets on this Spark."""
        if self._slots is None:
            return self._within_room(flow, lanes_of(flow, local_cores(), override, partitions))
        lanes = lanes_of(flow, self._slots, override, partitions)
        # a lease and its successor run side by side
        return max(1, min(lanes, self._slots // (2 * flows)))

    def _within_room(self, flow: FlowConfig, lanes: int) -> int:
        """This Spark has the slots that it was started with: a reload may want more."""
        name = str(flow.flow)
        room = self._room.get(name, 1)
        if lanes > room and name not in self._told:
            self._told.add(name)
            log.warning(
                "%s: gets %s and not %d until the mirror is started again: its Spark was made for "
                "the configuration of its start",
                name,
                plural(room, "lane"),
                lanes,
            )
        return min(lanes, room)

    def stop(self) -> None:
        # a Spark that is still coming up ends with this process: its input closes then
        self._thread.join(START_IS_WAITED_FOR_S)
        if self._engine is not None:
            from twinlog.spark.session import stop_spark

            stop_spark(self._engine)
