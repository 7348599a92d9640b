"""Whether flows get anywhere: each moved, was at its end, or stood by, within the last minute.

Progress, not state: a flow that says RUNNING and has stopped is not ready, and one that is
DEGRADED and still copies is. A minute is for silence that nobody can explain: an end that is
looked for, a lease that begins, a take-over. A flow that names a cluster which does not answer, or
has failed, explains it, and has a few seconds.

- It moved: a record more is on the target, or the copy's position at the source continued (aborted
  data and compacted gaps move it without a record). A position that went back and forth is no
  movement: only what is past the furthest offset so far counts.
- It stands by: another process leads it, and this one does all that it should. So it is with
  another configuration than the leader's: it would take over all the same, and a rolling update,
  which waits until the new process is ready before it ends the old one, must not wait for ever.
- It is paused, or was promoted, because somebody wants that.
- It is at its end: all its partitions are, and the clusters can be reached: what was the end a
  while ago may not be any more.
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
"""For a flow that says that a cluster is away, or that has failed. A broker that dies beside others
is none: its partitions have another leader within 9 s (Kafka's broker.session.timeout.ms).
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
    """One flow now; `silent_s` is how long ago it last moved, was at its end, or stood by."""

    flow: str
    is_ready: bool
    silent_s: float
    state: str
    reason: str


@dataclass(slots=True)
class _Furthest:
    records: int
    upstream: int


@dataclass(slots=True)
class _Known:
    since: float
    """When the flow was first seen."""
    good_at: float | None = None
    """When it last moved, was at its end, or stood by."""
    is_late: bool = True
    """It has been too long since: only what is good ends it, an outage that is over does not."""
    furthest: dict[tuple[str, int], _Furthest] = field(default_factory=dict)


class Readiness:
    """Remembers when each flow last got anywhere."""

    def __init__(
        self, within_s: float = WITHIN_S, outage_within_s: float = OUTAGE_WITHIN_S
    ) -> None:
        self._within_s = within_s
        self._outage_within_s = min(within_s, outage_within_s)
        self._flows: dict[str, _Known] = {}

    def update(self, now: float, flows: Iterable[FlowSnapshot]) -> list[FlowReadiness]:
        """Take what the flows report; `now` is monotonic."""
        out = [self._flow(now, flow) for flow in flows]
        if len(self._flows) > len(out):
            self._flows = {one: self._flows[one] for one in {each.flow for each in out}}
        return out

    def _flow(self, now: float, flow: FlowSnapshot) -> FlowReadiness:
        known = self._flows.setdefault(flow.flow, _Known(now))
        moved = [_moved(known, partition) for partition in flow.partitions]
        if any(moved) or flow.state in RESTING or _is_at_end(flow):
            known.good_at, known.is_late = now, False
        if len(known.furthest) > len(flow.partitions):
            here = {(part.topic, part.partition) for part in flow.partitions}
            known.furthest = {key: one for key, one in known.furthest.items() if key in here}
        good_at = known.good_at
        silent_s = now - (known.since if good_at is None else good_at)
        within_s = self._outage_within_s if _is_explained(flow) else self._within_s
        known.is_late = known.is_late or silent_s > within_s
        return FlowReadiness(
            flow=flow.flow,
            is_ready=not known.is_late,
            silent_s=silent_s,
            state=flow.state,
            reason=flow.why(int(time.time() * 1000)) or _first_error(flow),
        )


def _moved(known: _Known, partition: PartitionSnapshot) -> bool:
    key = (partition.topic, partition.partition)
    furthest = known.furthest.get(key)
    if furthest is None:
        if partition.upstream < 0:
            return False
        # where it resumes is no movement yet
        known.furthest[key] = _Furthest(partition.records, partition.upstream)
        return partition.records > 0
    moved = partition.records > furthest.records or partition.upstream > furthest.upstream
    furthest.records = max(furthest.records, partition.records)
    furthest.upstream = max(furthest.upstream, partition.upstream)
    return moved


def _is_explained(flow: FlowSnapshot) -> bool:
    """Why it does not move, by its own account: then nothing is to be waited for."""
    is_away = flow.state is FlowState.DEGRADED and has(flow.code, Trait.AWAY)
    return is_away or flow.state is FlowState.FAILED


def _is_at_end(flow: FlowSnapshot) -> bool:
    if flow.state in (FlowState.FAILED, FlowState.DEGRADED) or flow.generation < 0:
        return False
    return all(partition.state in AT_END for partition in flow.partitions)


def _first_error(flow: FlowSnapshot) -> str:
    stopped = next((p for p in flow.partitions if p.code), None)
    return "" if stopped is None else f"{stopped.message} [{stopped.code}]"
