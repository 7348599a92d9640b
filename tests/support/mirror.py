"""A mirror in the test's own process. Its supervisor, channel and lanes are real, but lanes run
without Spark.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Self

from tests.support.eventually import PATIENCE_S
from tests.support.lanes import ProcessLeases
from twinlog.channel.codec import MessageCodec
from twinlog.channel.server import ChannelServer
from twinlog.config.flow.offset_storage import offset_storage
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.config.load import load
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.wiring import admins_of, flow_setup, lanes_of, neighbours_of
from twinlog.control.lanes.partitions import Partition
from twinlog.control.process.commands import CommandPort, Reload, Stop
from twinlog.control.process.reload import Reloader
from twinlog.control.process.supervisor import Supervisor
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.lane.messages import MESSAGES
from twinlog.mirror.state.published import PublishedEvents
from twinlog.model import TopicPartition
from twinlog.threads import ThreadWatch

CORES = 2


def silent(flow: FlowConfig) -> FlowConfig:
    """Return the configuration without heartbeats and offset syncs, and without copies of other
    tests' heartbeats. Status rows are written only if the file requests one per second.
    """
    interval_s = flow.status_interval_seconds
    return replace(
        flow,
        heartbeats=(),
        offset_syncs=None,
        heartbeats_replication_enabled=False,
        status_interval_seconds=interval_s if interval_s == 1 else 0,
    )


class Mirror:
    """Runs the flows of a configuration until it is stopped, or with `once` until they are done. It
    emits no heartbeats and no offset syncs.
    """

    emits = False
    started: ClassVar[list[Mirror]] = []
    """Mirrors that the current test has started."""

    def __init__(
        self,
        config: Path | MirrorConfig,
        *,
        once: bool = False,
        lanes: int | None = None,
        lease_s: float = 300.0,
        secrets: Path | None = None,
        adopt_mm2: bool = False,
        connector: str | None = None,
        tls: bool = False,
        on_snapshot: Callable[[list[FlowSnapshot]], None] = lambda _: None,
        events: Callable[[str], PublishedEvents | None] = lambda _: None,
    ) -> None:
        file = config if isinstance(config, Path) else Path(config.file)
        if isinstance(config, Path):
            config = load(config, environment={}, secrets=secrets)
        self.commands = CommandPort()
        self.snapshots: list[FlowSnapshot] = []
        self._on_snapshot = on_snapshot
        flows = [flow if self.emits else silent(flow) for flow in config.flows]
        self.neighbours = neighbours_of(flows)
        self.reloader = Reloader(
            config,
            read=lambda: load(file, environment={}, secrets=secrets),
            setup=self._setup,
            adopted=lambda now: self.neighbours.change(now.flows, admins_of(now.flows)),
        )
        self.supervisor = Supervisor(
            [
                flow_setup(
                    flow,
                    offset_storage(config, flow, connector) if adopt_mm2 else None,
                    self.neighbours,
                )
                for flow in flows
            ],
            commands=self.commands,
            reloader=self.reloader,
            once=once,
            lease_s=lease_s,
            lane_count=lambda setup, parts, is_light: (
                1 if is_light and lanes is None else lanes_of(setup.config, CORES, lanes, parts)
            ),
            on_snapshot=self._keep,
            events=events,
        )
        self.server = ChannelServer(
            MessageCodec(MESSAGES),
            self.supervisor.deliver,
            host="0.0.0.0" if tls else "127.0.0.1",  # noqa: S104 (as for executors of a cluster)
            advertised_host="127.0.0.1",
        )
        self.thread_watch = ThreadWatch()
        self.leases = ProcessLeases(self.server.address, self.server.secrets)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        self._done = threading.Event()

    def _setup(self, flow: FlowConfig) -> FlowSetup:
        return flow_setup(flow if self.emits else silent(flow), None, self.neighbours)

    def _keep(self, snapshots: list[FlowSnapshot]) -> None:
        self.snapshots = snapshots
        self._on_snapshot(snapshots)

    def _run(self) -> None:
        try:
            with self.thread_watch.guarding(self.supervisor.fail):
                self.snapshots = self.supervisor.run()
        except BaseException as error:  # noqa: BLE001 (raised again in the test's thread)
            self._error = error
        finally:
            self._done.set()

    def explained(self) -> str:
        """Return a text with the state of each flow, and the state, code and message of each
        partition.
        """
        lines = []
        for flow in self.snapshots:
            lines.append(f"{flow.flow}: {flow.state} {flow.code} {flow.reason}".rstrip())
            for one in flow.partitions:
                where = f"  {one.topic}-{one.partition} -> {one.target_topic}: {one.state}"
                lines.append(f"{where}, lag {one.lag} {one.code} {one.message}".rstrip())
        lanes = [f"lease {job.lease}: lanes {job.pids()}" for job in self.leases.jobs]
        errors = [repr(error) for error in self.supervisor.errors]
        return "\n".join([*lines, *lanes, *errors])

    def start(self) -> Self:
        Mirror.started.append(self)
        self.server.start()
        self.supervisor.set_starter(self.leases)
        self._thread.start()
        return self

    def wait(self, within: float = PATIENCE_S) -> list[FlowSnapshot]:
        """Wait until the flows have ended, and return their last snapshots."""
        if not self._done.wait(within):
            raise AssertionError(f"the mirror has not ended in {within} s: {self.snapshots}")
        if self._error is not None:
            raise self._error
        return self.snapshots

    def eventually(
        self, what: Callable[[list[PartitionSnapshot]], bool], within: float = PATIENCE_S
    ) -> list[PartitionSnapshot]:
        """Wait until the partitions of all flows satisfy the condition, and return them."""
        deadline = time.monotonic() + within
        while True:
            parts = [p for flow in self.snapshots for p in flow.partitions]
            if parts and what(parts):
                return parts
            if self._error is not None:
                raise self._error
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {within} s: {self.snapshots}")
            time.sleep(0.05)

    def partition(self, source: TopicPartition) -> Partition:
        """Return the driver's state of a partition. A test may change this state."""
        runs = [flow.run for flow in self.supervisor.flows if flow.run is not None]
        return next(run.partitions[source] for run in runs if source in run.partitions)

    def discover_topics(self) -> None:
        """Discover topics now instead of at the next interval."""
        for flow in self.supervisor.flows:
            if flow.run is not None:
                flow.run.wants_discovery = True

    def reload(self) -> tuple[str, ...]:
        """Read the file again, and return a line for each change. Raises the errors in the file."""
        return self.commands.put(Reload(who="a test")).result(PATIENCE_S)

    def stop(self, within: float = PATIENCE_S) -> list[FlowSnapshot]:
        self.commands.put(Stop(who="a test"))
        return self.wait(within)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.commands.put(Stop(who="a test"))
        self._done.wait(15.0)
        self.leases.close()
        self.server.close()


class EmittingMirror(Mirror):
    """A mirror that emits heartbeats and offset syncs, as users run it."""

    emits = True
