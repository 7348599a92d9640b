"""Reads the reports of all flows' leaders and the commands in effect, from each flow's target.

A target is read on demand, at most once every two seconds regardless of the number of clients. A
response waits briefly for this read. If a target is unreachable, only the reports of its flows
become old, and contain the problem. No client waits for an unreachable target.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.check.reported_status import ReportedFlow, reports_of
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.web.open_requests import RequestWorkers
from twinlog.errors import TwinlogError

FRESH_S: Final = 2.0
RETRY_INTERVAL_S: Final = 10.0
"""Seconds until a target is read again if it did not respond."""
WAITED_S: Final = 1.5
GIVES_UP_S: Final = 10.0
AT_ONCE: Final = 4

Problems = dict[str, TwinlogError]
"""Errors by flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderReport:
    """The last report about one flow."""

    reported: ReportedFlow | None = None
    problem: str = ""
    """Why the report is missing, or older than it should be."""


@dataclass(slots=True)
class _Target:
    """One cluster that is queried for all flows into it."""

    begun: float = -math.inf
    """Start time of the last read that finished."""
    is_away: bool = False
    waits_until: float = 0.0
    task: asyncio.Task[None] | None = None

    @property
    def is_read(self) -> bool:
        """Whether a read is in progress."""
        return self.task is not None and not self.task.done()

    @property
    def fresh_until(self) -> float:
        return self.begun + (RETRY_INTERVAL_S if self.is_away else FRESH_S)


class Leaders:
    """Reads and stores the reports of leaders. Used in the thread of one event loop."""

    def __init__(self) -> None:
        self._workers = RequestWorkers(AT_ONCE, 1 << 10)
        self._reports_by_flow: dict[str, LeaderReport] = {}
        self._targets: dict[str, _Target] = {}
        """The targets by cluster alias."""
        self._changed = -math.inf
        self.version = 0
        """A number that changes when a report is read, or when this process writes a command."""

    def on_write(self) -> None:
        """Mark earlier reads as outdated because this process has just written a command."""
        self._changed = time.monotonic()
        self.version += 1

    @property
    def next_read_at(self) -> float:
        """Monotonic time at which the next read is due. Reads in progress do not count, because
        they change the version when they end.
        """
        if not self._targets:
            return -math.inf
        due = (target.fresh_until for target in self._targets.values() if not target.is_read)
        return min(due, default=math.inf)

    async def read(self, flows: Sequence[FlowConfig]) -> dict[str, LeaderReport]:
        """Return the reports by flow. Flows without any report so far are left out."""
        by_target: dict[str, list[FlowConfig]] = {}
        for wanted_flow in flows:
            by_target.setdefault(wanted_flow.flow.target, []).append(wanted_flow)
        for gone in self._targets.keys() - by_target.keys():
            del self._targets[gone]
        names = {str(flow.flow) for flow in flows}
        self._reports_by_flow = {
            flow: report for flow, report in self._reports_by_flow.items() if flow in names
        }
        for _ in range(2):  # a read that began before this process wrote a command is repeated
            old = [
                self._target_to_read(alias, of_target)
                for alias, of_target in by_target.items()
                if not self._is_fresh(alias, of_target)
            ]
            if not old:
                break
            # do not wait for a read that has already taken too long
            left = max(0.0, max(target.waits_until for target in old) - time.monotonic())
            await asyncio.wait(
                [target.task for target in old if target.task is not None], timeout=left
            )
        return dict(self._reports_by_flow)

    def _is_fresh(self, alias: str, flows: Sequence[FlowConfig]) -> bool:
        target = self._targets.get(alias, _Target())
        is_young = target.begun > self._changed and time.monotonic() < target.fresh_until
        return is_young and all(str(flow.flow) in self._reports_by_flow for flow in flows)

    def _target_to_read(self, alias: str, flows: Sequence[FlowConfig]) -> _Target:
        target = self._targets.setdefault(alias, _Target())
        if not target.is_read:
            target.waits_until = time.monotonic() + WAITED_S
            target.task = asyncio.ensure_future(self._read(alias, target, flows))
        return target

    async def _read(self, alias: str, target: _Target, flows: Sequence[FlowConfig]) -> None:
        begun = time.monotonic()
        try:
            targets, problems = await self._workers.run(lambda: _by_settings(flows))
            answers = await asyncio.gather(*(self._reports(*each) for each in targets.items()))
        except TwinlogError as error:  # too many requests are waiting
            answers, problems = [], {str(flow.flow): error for flow in flows}
        if self._targets.get(alias) is not target:
            return  # a reload has removed the target in the meantime
        for answer, failed in answers:
            self._reports_by_flow |= {
                flow: LeaderReport(reported=reported) for flow, reported in answer.items()
            }
            problems |= failed
        for flow, why in problems.items():
            before = self._reports_by_flow.get(flow, LeaderReport())
            self._reports_by_flow[flow] = LeaderReport(
                reported=before.reported, problem=f"its target could not be queried: {why}"
            )
        target.is_away = bool(problems)
        target.begun = begun
        self.version += 1

    async def _reports(
        self, target: ClusterSettings, flows: Mapping[str, bool]
    ) -> tuple[dict[str, ReportedFlow], Problems]:
        now_ms = int(time.time() * 1000)
        try:
            run = self._workers.run(lambda: reports_of(flows, target, now_ms, GIVES_UP_S))
            return await run, {}
        except TwinlogError as error:
            return {}, dict.fromkeys(flows, error)


def _by_settings(
    flows: Sequence[FlowConfig],
) -> tuple[dict[ClusterSettings, dict[str, bool]], Problems]:
    """Group flows by connection settings, so that each group is queried together. Return (groups,
    problems). `groups`: by settings and flow, True if the flow's leader writes reports.
    `problems`: the errors of flows with unusable settings, such as while a key file is replaced.
    """
    targets: dict[ClusterSettings, dict[str, bool]] = {}
    problems: Problems = {}
    for flow in flows:
        name, reports = str(flow.flow), bool(flow.status_interval_seconds)
        try:
            target = replace(flow_setup(flow).target, client_id="twinlog-rest")
        except TwinlogError as error:
            problems[name] = error
        else:
            targets.setdefault(target, {})[name] = reports
    return targets, problems
