"""Says when a flow is in trouble, and when that is over; at most once a minute in a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from twinlog.codes import FlowState
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.quantities import duration

SAME_FLOW_EVERY_S: Final = 60.0

UNREMARKABLE: Final = frozenset({FlowState.STARTING, FlowState.RUNNING})
OUTAGE: Final = frozenset({FlowState.DEGRADED, FlowState.FAILED})
"""One of these behind the other is the same trouble, that began with the first."""
PASSING: Final = frozenset({FlowState.STARTING, FlowState.STOPPING, FlowState.STOPPED})
"""A flow does not come back from trouble to its end, and not before it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    state: str
    at: float
    since: float


class StateLines:
    """Remembers what was said."""

    def __init__(
        self,
        write: Callable[[str], None],
        write_trouble: Callable[[str], None] | None = None,
        *,
        every_s: float = SAME_FLOW_EVERY_S,
    ) -> None:
        """`every_s`: a flow's troubles are said so seldom."""
        self._every_s = every_s
        self._write, self._write_trouble = write, write_trouble or write
        self._said: dict[str, _Said] = {}
        self._seen: dict[str, tuple[str, float]] = {}

    def update(self, now: float, flows: Iterable[FlowSnapshot]) -> None:
        """Say what has changed; `now` is monotonic, in seconds."""
        for flow in flows:
            self._flow(flow, now)

    def _flow(self, flow: FlowSnapshot, now: float) -> None:
        state, since = self._seen.get(flow.flow, ("", now))
        if state != flow.state:
            since = now
            self._seen[flow.flow] = (flow.state, now)
        said = self._said.get(flow.flow)
        if flow.state in PASSING:
            return
        if flow.state in UNREMARKABLE:
            if said is not None and said.state == FlowState.STANDBY:
                del self._said[flow.flow]  # whoever takes over does not run again: events say it
            elif said is not None and said.state not in UNREMARKABLE:
                self._write(f"{flow.flow}: {flow.state} again after {duration(now - said.since)}")
                self._said[flow.flow] = _Said(state=flow.state, at=now, since=now)
            return
        if said is not None and (said.state == flow.state or now - said.at < self._every_s):
            return
        if said is not None and said.state in OUTAGE and flow.state in OUTAGE:
            since = said.since
        self._said[flow.flow] = _Said(state=flow.state, at=now, since=since)
        reason = f": {flow.reason}" if flow.reason else ""
        self._write_trouble(f"{flow.flow}: {flow.state}{reason}")
