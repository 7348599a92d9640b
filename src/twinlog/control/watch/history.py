"""The last hour of each flow, for the charts of the page."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from twinlog.codes import FlowState
from twinlog.control.watch.snapshot import FlowSnapshot, known

EVERY_S: Final = 10.0
KEPT: Final = 360
"""Rows of each flow: an hour, in about 100 KB."""


class HistoryRow(NamedTuple):
    """A flow at one moment; unknown values are None."""

    at_ms: int
    state: FlowState
    generation: int
    lag: int | None
    loss_records: int | None
    loss_ms: int | None
    records: int
    """Records and bytes that this process has copied since it leads the flow."""
    bytes: int
    p50_ms: int | None
    p99_ms: int | None


class LastHour:
    """One thread calls `update`; any thread may read."""

    def __init__(self) -> None:
        self._rows: dict[str, deque[HistoryRow]] = {}
        self._next = 0.0

    def update(self, now: float, now_ms: int, flows: Iterable[FlowSnapshot]) -> None:
        """Add a row of each flow that this process leads, if one is due at monotonic `now`."""
        if now < self._next:
            return
        self._next = now + EVERY_S
        for flow in flows:
            if flow.generation >= 0 and flow.state is not FlowState.STANDBY:
                rows = self._rows.setdefault(flow.flow, deque(maxlen=KEPT))
                rows.append(_row(flow, now_ms))

    def rows(self, flow: str) -> list[HistoryRow]:
        """Return the rows, oldest first."""
        rows = self._rows.get(flow)
        # `copy` is one step, and iterating is not: `update` may add a row in between
        return [] if rows is None else list(rows.copy())


def _row(flow: FlowSnapshot, now_ms: int) -> HistoryRow:
    latency = flow.latency
    return HistoryRow(
        at_ms=now_ms,
        state=flow.state,
        generation=flow.generation,
        lag=known(flow.lag),
        loss_records=known(flow.loss_records),
        loss_ms=known(flow.loss_ms),
        records=flow.records,
        bytes=flow.bytes,
        p50_ms=None if latency is None else latency.p50_ms,
        p99_ms=None if latency is None else latency.p99_ms,
    )
