"""Hears the leaders of all flows, wherever they run, and what people want: by the rows on each
flow's target.

Read when somebody asks, and not more often than every two seconds, however many ask. An answer
waits a moment for it; a target that is away makes it old, and says so, but keeps nobody waiting.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.check.reported_status import Reported, reports_of
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.web.problem import RequestRefused
from twinlog.control.web.workers import RequestWorkers
from twinlog.errors import TwinlogError

FRESH_S: Final = 2.0
ASKED_AGAIN_S: Final = 10.0
"""Where a target did not answer."""
WAITED_S: Final = 1.5
GIVES_UP_S: Final = 10.0
AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderReport:
    """Of one flow."""

    told: Reported | None = None
    problem: str = ""
    """Why that is missing, or older than it should be."""


class Leaders:
    """Of one event loop."""

    def __init__(self) -> None:
        self._workers = RequestWorkers(AT_ONCE, 1 << 10)
        self._heard: dict[str, LeaderReport] = {}
        self._begun = self._changed = -math.inf
        self.version = 0
        """Another one since something was heard, or written by this process."""
        self._waits_until = 0.0
        self._task: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """Something was written just now: what was read before is old."""
        self._changed = time.monotonic()
        self.version += 1

    @property
    def begins_again(self) -> float:
        """When the next reading is due; what is being read now changes the version."""
        is_reading = self._task is not None and not self._task.done()
        return math.inf if is_reading else self._fresh_until

    @property
    def _fresh_until(self) -> float:
        is_away = any(one.problem for one in self._heard.values())
        return self._begun + (ASKED_AGAIN_S if is_away else FRESH_S)

    async def hear(self, flows: Sequence[FlowConfig]) -> dict[str, LeaderReport]:
        """By flow; of one that was never heard of there is nothing."""
        for _ in range(2):  # a reading that began before a change is followed by another one
            if self._is_fresh(flows):
                break
            if self._task is None or self._task.done():
                self._waits_until = time.monotonic() + WAITED_S
                self._task = asyncio.ensure_future(self._read(flows))
            # nobody waits for a reading that has taken too long already
            left = max(0.0, self._waits_until - time.monotonic())
            await asyncio.wait({self._task}, timeout=left)
        return dict(self._heard)

    def _is_fresh(self, flows: Sequence[FlowConfig]) -> bool:
        is_young = self._begun > self._changed and time.monotonic() < self._fresh_until
        return is_young and all(str(flow.flow) in self._heard for flow in flows)

    async def _read(self, flows: Sequence[FlowConfig]) -> None:
        begun = time.monotonic()
        try:
            settings = await self._workers.run(lambda: _by_target(flows))
        except TwinlogError as error:  # a key file is being replaced
            settings = []
            for flow in flows:
                self._problem(str(flow.flow), error)
        await asyncio.gather(*(self._read_one(*one) for one in settings))
        self._begun = begun
        self.version += 1

    async def _read_one(self, target: ClusterSettings, flows: list[str]) -> None:
        now_ms = int(time.time() * 1000)
        try:
            found = await self._workers.run(lambda: reports_of(flows, target, now_ms, GIVES_UP_S))
        except RequestRefused:  # others wait already
            raise
        except TwinlogError as error:
            for flow in flows:
                self._problem(flow, error)
        else:
            self._heard |= {flow: LeaderReport(told=told) for flow, told in found.items()}

    def _problem(self, flow: str, error: TwinlogError) -> None:
        before = self._heard.get(flow, LeaderReport())
        told = before.told
        self._heard[flow] = LeaderReport(told=told, problem=f"its target was not asked: {error}")


def _by_target(flows: Sequence[FlowConfig]) -> list[tuple[ClusterSettings, list[str]]]:
    """Flows that enter a cluster in the same way are asked for together."""
    found: list[tuple[ClusterSettings, list[str]]] = []
    for flow in flows:
        target = replace(flow_setup(flow).target, client_id="twinlog-rest")
        for settings, names in found:
            if settings == target:
                names.append(str(flow.flow))
                break
        else:
            found.append((target, [str(flow.flow)]))
    return found
