"""The data of REST's responses: the current configuration, this process's snapshots and events,
reports of leaders in other processes, and queries of both clusters.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.control.check.offline_status import offline_status
from twinlog.control.watch.events import EventLog
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.control.web.api import shown
from twinlog.control.web.api.leaders import LeaderReport, Leaders
from twinlog.control.web.current_config import CurrentConfig
from twinlog.control.web.open_requests import RequestWorkers, retrieve_error
from twinlog.control.web.problem import RequestRefused

QUERY_INTERVAL_S: Final = 5.0
"""Seconds until the partitions of a flow that another process leads are queried again. The pause is
longer if the queries would otherwise exceed SHARE_OF_TIME.
"""
SHARE_OF_TIME: Final = 0.05
"""Maximum share of a core for repeated queries of a flow's partitions."""
WAITED_S: Final = 0.5
"""Seconds to wait for the result of a query if an earlier result is available."""
OLDEST_S: Final = 120.0
"""Maximum age of shown partitions in seconds, unless OLDEST_PAUSES pauses are longer."""
OLDEST_PAUSES: Final = 2
"""Partitions are shown for at least this many pauses between queries, even beyond OLDEST_S."""
MOST_QUERIES: Final = 8
"""Maximum number of requests that query both clusters: one runs, the others wait."""
PAGES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Partitions of a flow as of one moment."""

    partitions: tuple[PartitionSnapshot, ...]
    at: float
    """Monotonic time at which the partitions were read."""
    is_here: bool
    config: FlowConfig
    """The flow's configuration when the partitions were read."""
    cost_s: float = 0.0
    """CPU time of the query in seconds."""

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.at

    @property
    def is_new(self) -> bool:
        return self.age_s < self._pause_s

    @property
    def is_too_old(self) -> bool:
        return self.age_s > max(OLDEST_S, OLDEST_PAUSES * self._pause_s)

    @property
    def _pause_s(self) -> float:
        return max(QUERY_INTERVAL_S, self.cost_s / SHARE_OF_TIME)


class Site:
    """The data of one server. All methods run in the thread of its event loop."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        events: EventLog,
        current: CurrentConfig,
        file: Path,
        is_stopping: Callable[[], bool],
    ) -> None:
        self.events = events
        self.file = file
        self.is_stopping = is_stopping
        self.leaders = Leaders()
        self.cluster_queries = RequestWorkers(1, MOST_QUERIES)
        """Queries of both clusters, one at a time, as each loads them and this process for
        seconds.
        """
        self.command_writers = RequestWorkers(2, MOST_QUERIES)
        """Writes commands, in separate workers so that a pause does not wait for a comparison."""
        self.pages = RequestWorkers(1, PAGES)
        self._monitor = monitor
        self._current = current
        self._asked: dict[str, Parts] = {}
        self._asking: dict[str, tuple[FlowConfig, asyncio.Task[Parts]]] = {}
        """The running query by flow: at most one per flow, for any number of clients."""
        self._read_version = -1
        """`Leaders.version` of the reports whose events were recorded last."""

    @property
    def config(self) -> MirrorConfig:
        return self._current.config

    @property
    def basis(self) -> tuple[object, ...]:
        """A value that changes whenever one of the inputs of responses about flows changes."""
        reading = self._monitor.reading
        return reading, self.config, self.leaders.version

    def flow_config(self, name: str) -> FlowConfig:
        """Return the configuration of a flow. `name`: `A->B`, or `A:B`. Raises NOT_FOUND."""
        for flow in self.config.every_flow:
            if name in flow.flow.spellings:
                return flow
        known = ", ".join(str(flow.flow) for flow in self.config.every_flow)
        raise RequestRefused(
            f"no flow {name[:200]} in {self.config.file}; there are {known}", code="NOT_FOUND"
        )

    def alone(self, name: str) -> MirrorConfig:
        """Return the configuration reduced to this flow."""
        return replace(self.config, flows=(self.flow_config(name),), elsewhere=())

    async def flows(self) -> dict[str, Any]:
        """Return all flows, including those that `--clusters` leaves to other processes."""
        heard = await self.read_reports()
        return {"flows": [self._flow(flow, heard) for flow in self.config.every_flow]}

    async def flow(self, name: str) -> dict[str, Any]:
        config = self.flow_config(name)
        return self._flow(config, await self.read_reports())

    async def read_reports(self) -> dict[str, LeaderReport]:
        """Return the leaders' reports by flow, and record their events in `events`."""
        heard = await self.leaders.read(self.config.every_flow)
        if self._read_version != self.leaders.version:
            self._read_version = self.leaders.version
            reported = (
                report.reported.events for report in heard.values() if report.reported is not None
            )
            self.events.add_published(chain.from_iterable(reported))
        return heard

    def _flow(self, config: FlowConfig, reports: dict[str, LeaderReport]) -> dict[str, Any]:
        name = str(config.flow)
        return shown.flow(
            config, self.snapshot(name), self._monitor.age_s, reports.get(name, NO_REPORT_YET)
        )

    def snapshot(self, name: str) -> FlowSnapshot | None:
        """Return this process's snapshot of the flow, or None before its first report."""
        reading = self._monitor.reading
        flows = () if reading is None else reading.flows
        return next((flow for flow in flows if flow.flow == name), None)

    def history(self, name: str) -> dict[str, Any]:
        """Return the last hour of a flow, as recorded by this process. Raises NOT_FOUND."""
        rows = self._monitor.history.rows(str(self.flow_config(name).flow))
        return {"flow": name, "rows": [row._asdict() for row in rows]}

    def topic_history(self, name: str, topic: str) -> dict[str, Any]:
        """Return the last hour of a topic, as recorded by this process. Raises NOT_FOUND."""
        rows = self._monitor.history.topics.rows(str(self.flow_config(name).flow), topic)
        return {"flow": name, "topic": topic, "rows": [row._asdict() for row in rows]}

    async def parts(self, name: str) -> Parts:
        """Return the flow's partitions. If another process leads the flow, both clusters are
        queried, which may take seconds. Until the query ends, the previous result is returned
        unless it is too old.
        """
        config, snapshot = self.flow_config(name), self.snapshot(name)
        if snapshot is not None and snapshot.is_led_here:
            at = time.monotonic() - self._monitor.age_s
            return Parts(partitions=snapshot.partitions, at=at, is_here=True, config=config)
        known = self._asked.get(name)
        if known is not None and known.config is not config:
            known = None  # the file was reloaded
        if known is not None and known.is_new:
            return known
        asking = self._query_task(name, config)
        has_nothing = known is None or known.is_too_old
        await asyncio.wait([asking], timeout=None if has_nothing else WAITED_S)
        return known if known is not None and not asking.done() else asking.result()

    def _query_task(self, name: str, config: FlowConfig) -> asyncio.Task[Parts]:
        before, asking = self._asking.get(name, (None, None))
        if asking is None or asking.done() or before is not config:
            asking = asyncio.ensure_future(self._ask(name, config))
            asking.add_done_callback(retrieve_error)
            self._asking[name] = config, asking
        return asking

    async def _ask(self, name: str, config: FlowConfig) -> Parts:
        asked_at, alone = time.monotonic(), self.alone(name)

        def ask() -> tuple[FlowSnapshot, float]:
            began = time.thread_time()
            (answer,) = offline_status(alone)
            return answer, time.thread_time() - began

        answer, cost_s = await self.cluster_queries.run(ask)
        if answer.error is not None:
            raise answer.error
        parts = Parts(
            partitions=answer.partitions, at=asked_at, is_here=False, config=config, cost_s=cost_s
        )
        self._asked[name] = parts
        return parts


NO_REPORT_YET: Final = LeaderReport(problem="its target has not responded yet")
