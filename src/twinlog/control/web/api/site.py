"""What REST answers from: the configuration that holds now, this process's numbers and events, what
leaders elsewhere say, and what is asked of both clusters.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.control.check.offline_status import offline_status
from twinlog.control.watch.events import EventLog
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.control.web.api import answers, shown
from twinlog.control.web.api.leaders import LeaderReport, Leaders
from twinlog.control.web.current_config import CurrentConfig
from twinlog.control.web.problem import RequestRefused
from twinlog.control.web.workers import RequestWorkers

ASKED_AGAIN_S: Final = 5.0
"""How old the partitions of a flow of another process may be."""
QUESTIONS: Final = 8
"""That ask both clusters: one runs, the others wait."""
PAGES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Partitions of a flow."""

    partitions: tuple[PartitionSnapshot, ...]
    at: float
    """When they were checked, by the monotonic clock."""
    is_here: bool


class Site:
    """Of one server; all of it runs in the thread of its event loop."""

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
        self.questions = RequestWorkers(1, QUESTIONS)
        """One at a time: they may take seconds of this process and of both clusters."""
        self.wishes = RequestWorkers(2, QUESTIONS)
        """A pause must not wait for a comparison."""
        self.pages = RequestWorkers(1, PAGES)
        self._monitor = monitor
        self._current = current
        self._asked: dict[str, Parts] = {}
        self._heard = -1
        """The version of the leaders whose events are known."""

    @property
    def config(self) -> MirrorConfig:
        return self._current.config

    @property
    def basis(self) -> tuple[object, ...]:
        """What flows are shown by: an equal one means that nothing has changed."""
        reading = self._monitor.reading
        return reading, self.config, self.leaders.version

    def flow_config(self, name: str) -> FlowConfig:
        """Raises NOT_FOUND."""
        for one in self.config.every_flow:
            if str(one.flow) == name:
                return one
        known = ", ".join(str(one.flow) for one in self.config.every_flow)
        raise RequestRefused(
            f"no flow {name[:200]} in {self.config.file}; there are {known}", code="NOT_FOUND"
        )

    def alone(self, name: str) -> MirrorConfig:
        """The configuration of this flow and no other."""
        return replace(self.config, flows=(self.flow_config(name),), elsewhere=())

    async def flows(self) -> answers.Flows:
        """All of them, also those that `--clusters` leaves to others."""
        heard = await self.hear()
        return answers.Flows(flows=[self._flow(one, heard) for one in self.config.every_flow])

    async def flow(self, name: str) -> answers.Flow:
        """One of them."""
        config = self.flow_config(name)
        return self._flow(config, await self.hear())

    async def hear(self) -> dict[str, LeaderReport]:
        """What leaders say of their flows, by flow; `events` knows what has happened to them."""
        heard = await self.leaders.hear(self.config.every_flow)
        if self._heard != self.leaders.version:
            self._heard = self.leaders.version
            told = (one.told.events for one in heard.values() if one.told is not None)
            self.events.hear(chain.from_iterable(told))
        return heard

    def _flow(self, config: FlowConfig, heard: dict[str, LeaderReport]) -> answers.Flow:
        name = str(config.flow)
        return shown.flow(
            config, self.snapshot(name), self._monitor.age_s, heard.get(name, _NOT_HEARD)
        )

    def snapshot(self, name: str) -> FlowSnapshot | None:
        """What this process says of it; None before its first report."""
        reading = self._monitor.reading
        flows = () if reading is None else reading.flows
        return next((one for one in flows if one.flow == name), None)

    async def parts(self, name: str) -> Parts:
        """Of a flow that this process leads at once; else both clusters are asked."""
        config, snapshot = self.alone(name), self.snapshot(name)
        if snapshot is not None and shown.leads(snapshot):
            at = time.monotonic() - self._monitor.age_s
            return Parts(partitions=snapshot.partitions, at=at, is_here=True)
        known = self._asked.get(name)
        if known is not None and time.monotonic() - known.at < ASKED_AGAIN_S:
            return known
        at = time.monotonic()
        (found,) = await self.questions.run(lambda: offline_status(config))
        if found.error is not None:
            raise found.error
        parts = Parts(partitions=found.partitions, at=at, is_here=False)
        self._asked[name] = parts
        return parts


_NOT_HEARD: Final = LeaderReport(problem="its target has not answered yet")
