"""How a flow's byte budget is shared: between topics by weight, between lanes by their backlog.

Shares are computed once a second from the reports of lanes. A topic without a backlog demands twice
its last rate; a topic with a backlog demands everything. Topics whose demand exceeds their part of
the budget share, by weight, what the other topics do not demand (weighted max-min fairness). So an
idle topic costs busy topics nothing, and a busy topic cannot starve a quiet one, which also gets a
trickle beyond the budget.

If a second copied more or less than the budget, the next seconds make up for the difference. So the
rate over ten seconds is the budget, despite trickles, lane changes and a busy machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from twinlog.clock import CLOCK, Clock
from twinlog.config.flow.schema import FlowConfig
from twinlog.config.flow.start import Priorities
from twinlog.control.lanes.lanes import Lane
from twinlog.control.lanes.partitions import Partition
from twinlog.lane.messages import Pace

PERIOD_S: Final = 1.0
HEADROOM: Final = 2.0
"""Factor by which a topic without a backlog can increase its rate within a period."""

TRICKLE_BYTES: Final = 64 * 1024
"""Bytes that a topic without a backlog can copy immediately after being idle: one usual batch.

It is not deducted from other topics, because nearly none of a thousand idle topics uses it.
"""

MOST_CREDIT_S: Final = 0.5
"""Maximum unused budget that is made up later, in seconds of copying at the limit. It keeps the
rate over ten seconds within 5 % of the limit.
"""

MOST_DEBT_S: Final = 2.0
SETTLED_A_SECOND: Final = 0.3
"""Fraction of the unused or exceeded bytes (`Pacer._balance`) that is made up per second. Reports
are up to two seconds old, so a larger fraction would oscillate.
"""

LEAST_SHARE: Final = 0.1
"""Minimum rate of a flow that must make up for exceeded bytes, as a fraction of its limit."""


def shares(
    limit: float, demands: Mapping[str, float], weights: Mapping[str, float]
) -> dict[str, float]:
    """Return bytes per second for each topic. No topic gets more than it demands, and the sum is at
    most the limit. If the limit is too low for all demands, the topics that get less than they
    demand share the rest by their weights.
    """
    out: dict[str, float] = {}
    waiting = dict(demands)
    left = limit
    while waiting:
        unit = left / sum(weights[topic] for topic in waiting)
        modest = {t: asked for t, asked in waiting.items() if asked <= unit * weights[t]}
        if not modest:
            return out | {topic: unit * weights[topic] for topic in waiting}
        for topic, asked in modest.items():
            out[topic] = asked
            left -= asked
            del waiting[topic]
    return out


@dataclass(slots=True, kw_only=True)
class Pacer:
    """Keeps one flow within `limit` bytes per second."""

    limit: int
    priorities: Priorities
    is_binding: bool = False
    """Whether at least one topic gets less than it demands."""
    clock: Clock = CLOCK
    _next: float = 0.0
    _balanced_at: float | None = None
    _bytes: int = 0
    _balance: float = 0.0
    """Bytes that earlier seconds left unused. Negative: bytes that they copied in excess."""
    _seen: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Monotonic time at which a topic's bytes were last read, and their number, by topic."""

    def tick(self, lanes: Iterable[Lane], partitions: Iterable[Partition]) -> None:
        """Send every lane its bytes per second of each topic, once per period."""
        now = self.clock.monotonic()
        if now < self._next:
            return
        self._next = now + PERIOD_S
        all_lanes = list(lanes)
        demands = self._demands(now, partitions)
        topics = {tp.topic for lane in all_lanes for tp in lane.partitions}
        asked = {topic: demands.get(topic, math.inf) for topic in topics}
        if not asked:
            self.is_binding = False
            return
        limit = max(self.limit + SETTLED_A_SECOND * self._balance, LEAST_SHARE * self.limit)
        rates = shares(limit, asked, {topic: self.priorities.weight(topic) for topic in asked})
        self.is_binding = any(rates[topic] < asked[topic] for topic in asked)
        rates = {
            topic: rate + TRICKLE_BYTES * (rate == asked[topic]) for topic, rate in rates.items()
        }
        waits = {lane.key: _topic_weights(lane) for lane in all_lanes}
        for lane in all_lanes:
            lane_rates = {
                topic: int(rates[topic] * share / sum(w.get(topic, 0.0) for w in waits.values()))
                for topic, share in waits[lane.key].items()
            }
            lane.peer.send(Pace(bytes_per_second=lane_rates))

    def recompute_soon(self) -> None:
        """Compute shares again at the next tick, because partitions have moved to other lanes."""
        self._next = 0.0

    def _demands(self, now: float, partitions: Iterable[Partition]) -> dict[str, float]:
        total: dict[str, int] = {}
        behind: set[str] = set()
        for partition in partitions:
            topic = partition.plan.source.topic
            total[topic] = total.get(topic, 0) + partition.total_bytes
            if _is_behind(partition):
                behind.add(topic)
        self._balance_copied(now, sum(total.values()))
        out: dict[str, float] = {}
        for topic, count in total.items():
            at, before = self._seen.get(topic, (now - PERIOD_S, count))
            self._seen[topic] = (now, count)
            rate = max(0, count - before) / max(now - at, PERIOD_S / 2)
            out[topic] = math.inf if topic in behind else HEADROOM * rate
        if len(self._seen) > len(total):
            self._seen = {topic: self._seen[topic] for topic in total}
        return out

    def _balance_copied(self, now: float, copied: int) -> None:
        """Add what the limit permitted since the last call, and subtract what was copied."""
        if self._balanced_at is not None:
            allowed = self.limit * (now - self._balanced_at)
            balance = self._balance + allowed - (copied - self._bytes)
            self._balance = min(max(balance, -MOST_DEBT_S * self.limit), MOST_CREDIT_S * self.limit)
        self._balanced_at, self._bytes = now, copied


def pacer_of(config: FlowConfig, bytes_per_second: int | None = None) -> Pacer | None:
    """Return the flow's pacer, or None if it has no limit. `bytes_per_second` overrides the
    limit.
    """
    limit = bytes_per_second or config.lanes.max_bytes_per_second
    return None if limit is None else Pacer(limit=limit, priorities=config.lanes.priorities)


def _is_behind(partition: Partition) -> bool:
    progress = partition.progress
    return progress is None or progress.source_end < 0 or progress.upstream < progress.source_end


def _topic_weights(lane: Lane) -> dict[str, float]:
    """Return the share of the lane in each topic's budget, as a weight by topic. Each of its
    partitions adds 1 if it has a backlog, else 0.1.
    """
    out: dict[str, float] = {}
    for tp, partition in lane.partitions.items():
        out[tp.topic] = out.get(tp.topic, 0.0) + (1.0 if _is_behind(partition) else 0.1)
    return out
