"""Readiness of flows. A flow is ready if it made progress, was at its end, or was a standby in the
last minute.

Readiness measures progress, not state: a RUNNING flow whose copy has stopped is not ready, and a
DEGRADED flow that still copies is ready. The minute covers pauses without a reported cause, such as
a search for the log end, the begin of a lease or a take-over. A flow that reports an unreachable
cluster, or has failed, has a known cause, so its time limit is only a few seconds.

A flow is ready in these cases:

- Progress: another record is on the target, or the copy's position at the source has advanced.
  Aborted data and compacted gaps advance the position without a record. A position that went back
  and forth is not progress, because only offsets beyond the furthest one so far count.
- Standby: another process leads the flow, and this process is working. A standby whose
  configuration differs from the leader's is also ready. It would take over nevertheless. In
  addition, a rolling update stops the old process only after the new one is ready, and must not
  wait forever.
- Paused or promoted, because a user wants that.
- At the end: all its partitions are at their ends, and the clusters are reachable. If a cluster is
  unreachable, the last known end may be outdated.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from twinlog.codes import NOT_MIRRORED, FlowState, PartitionState, Trait, has
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot

WITHIN_S: Final = 60.0
OUTAGE_WITHIN_S: Final = 10.0
"""A flow that has failed or reports an unreachable cluster is not ready after this many seconds
without progress. A single dead broker of several is not an outage: its partitions get another
leader within 9 s (Kafka's broker.session.timeout.ms).
"""
AT_END: Final = NOT_MIRRORED | {
    PartitionState.AT_END,
    PartitionState.DONE,
    PartitionState.TAKEN_OVER,
    PartitionState.PAUSED,
}
RESTING: Final = frozenset({FlowState.STANDBY, FlowState.PAUSED, FlowState.FENCED})


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowReadiness:
    """A flow's readiness. `silent_s`: seconds since it last made progress, was at its end, or was a
    standby.
    """

    flow: str
    is_ready: bool
    silent_s: float
    state: str
    reason: str

    def as_json(self) -> dict[str, object]:
        """Return the flow's fields in the response to `/readyz`, named as in REST."""
        return {
            "flow": self.flow,
            "isReady": self.is_ready,
            "silentMs": round(self.silent_s * 1000),
            "state": self.state,
            "reason": self.reason,
        }


@dataclass(slots=True)
class _Furthest:
    records: int
    upstream: int


@dataclass(slots=True)
class _KnownState:
    since: float
    """Monotonic time at which the flow was first seen."""
    good_at: float | None = None
    """Monotonic time at which the flow last made progress, was at its end, or was a standby."""
    is_late: bool = True
    """Whether the time limit has passed. Progress resets this; the end of an outage does not."""
    furthest: dict[tuple[str, int], _Furthest] = field(default_factory=dict)


class Readiness:
    """Tracks when each flow last made progress."""

    def __init__(
        self, within_s: float = WITHIN_S, outage_within_s: float = OUTAGE_WITHIN_S
    ) -> None:
        self._within_s = within_s
        self._outage_within_s = min(within_s, outage_within_s)
        self._flows: dict[str, _KnownState] = {}

    def update(self, now: float, flows: Iterable[FlowSnapshot]) -> list[FlowReadiness]:
        """Add the flows' snapshots and return their readiness; `now` is monotonic."""
        out = [self._flow(now, flow) for flow in flows]
        if len(self._flows) > len(out):
            self._flows = {flow: self._flows[flow] for flow in {each.flow for each in out}}
        return out

    def _flow(self, now: float, flow: FlowSnapshot) -> FlowReadiness:
        entry = self._flows.setdefault(flow.flow, _KnownState(now))
        moved = [_has_progressed(entry, partition) for partition in flow.partitions]
        if any(moved) or flow.state in RESTING or _is_at_end(flow):
            entry.good_at, entry.is_late = now, False
        if 0 < len(flow.partitions) < len(entry.furthest):
            current = {(part.topic, part.partition) for part in flow.partitions}
            entry.furthest = {
                key: furthest for key, furthest in entry.furthest.items() if key in current
            }
        good_at = entry.good_at
        silent_s = now - (entry.since if good_at is None else good_at)
        # a flow that reports why it makes no progress gets less time
        is_away = flow.state is FlowState.DEGRADED and has(flow.code, Trait.AWAY)
        is_explained = is_away or flow.state is FlowState.FAILED
        within_s = self._outage_within_s if is_explained else self._within_s
        entry.is_late = entry.is_late or silent_s > within_s
        stopped = (
            f"{partition.message} [{partition.code}]"
            for partition in flow.partitions
            if partition.code
        )
        return FlowReadiness(
            flow=flow.flow,
            is_ready=not entry.is_late,
            silent_s=silent_s,
            state=flow.state,
            reason=flow.why(int(time.time() * 1000)) or next(stopped, ""),
        )


def _has_progressed(known: _KnownState, partition: PartitionSnapshot) -> bool:
    key = (partition.topic, partition.partition)
    furthest = known.furthest.get(key)
    if furthest is None:
        if partition.upstream is None:
            return False
        # the offset at which the partition resumes is not progress
        known.furthest[key] = _Furthest(partition.records, partition.upstream)
        return partition.records > 0
    upstream = furthest.upstream if partition.upstream is None else partition.upstream
    moved = partition.records > furthest.records or upstream > furthest.upstream
    furthest.records = max(furthest.records, partition.records)
    furthest.upstream = max(furthest.upstream, upstream)
    return moved


def _is_at_end(flow: FlowSnapshot) -> bool:
    if flow.state in (FlowState.FAILED, FlowState.DEGRADED) or flow.generation is None:
        return False
    return all(partition.state in AT_END for partition in flow.partitions)
