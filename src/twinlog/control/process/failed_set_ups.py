"""Flows that this process cannot set up, and who reports that to other hosts: a thread for each, so
that none of their targets delays the supervisor, or another flow.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from twinlog.control.duties.rounds import Duties
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.set_up_publication import SetUpPublication
from twinlog.control.flow.trouble import WRONG
from twinlog.control.watch.snapshot import FlowSnapshot


@dataclass(slots=True)
class FailedSetUps:
    """In the supervisor's thread; no call waits for a cluster but `join`."""

    publishes: bool = False
    """To other hosts: from the begin of the process's turns to their end."""
    _published: dict[FlowSetup, tuple[SetUpPublication, Duties]] = field(default_factory=dict)
    _ending: dict[FlowSetup, Duties] = field(default_factory=dict)
    """Until what they say last is written: nothing is said again before it."""

    def update(self, flows: Iterable[tuple[FlowSetup, FlowSnapshot]]) -> None:
        """All flows as they are now, each with its set-up."""
        if not self.publishes:
            return
        failed = {setup: seen for setup, seen in flows if _fails(setup, seen)}
        for setup in self._published.keys() - failed.keys():
            self._ending[setup] = self._published.pop(setup)[1]
            self._ending[setup].stop()
        self._ending = {one: duties for one, duties in self._ending.items() if duties.is_alive}
        for setup, seen in failed.items():
            if setup in self._published:
                self._published[setup][0].seen = seen
                continue
            if setup in self._ending:
                continue
            duty = SetUpPublication(setup.config, setup.target, seen, setup.log_once)
            duties = Duties(setup.name, [duty])
            self._published[setup] = duty, duties
            duties.start()

    def end(self) -> None:
        """The process ends; returns at once."""
        self.publishes = False
        self._ending |= {setup: duties for setup, (_, duties) in self._published.items()}
        self._published.clear()
        for duties in self._ending.values():
            duties.stop()

    def join(self, within_s: float) -> None:
        """Behind `end`: wait for what they say last."""
        until = time.monotonic() + within_s
        for duties in self._ending.values():
            duties.join(max(0.0, until - time.monotonic()))


def _fails(setup: FlowSetup, seen: FlowSnapshot) -> bool:
    is_failed = seen.generation < 0 and seen.state in WRONG
    return is_failed and bool(setup.config.status_interval_seconds)
