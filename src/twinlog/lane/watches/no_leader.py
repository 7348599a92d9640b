"""Says which partitions have had no leader for too long: they stop alone, with a code.

A partition that nobody leads is not an error that anybody gets: there is no broker to answer.
What was fetched for it would wait in memory for as long as that lasts, and the lane's memory is one
for all. So its stay on the lane ends after NO_LEADER_AFTER_S, with what it held. Nothing is lost by
that: what was not acknowledged is read again, and what was in flight is looked for by the cold
start, as after any trouble. The driver tries again and again; the lane starts it as soon as it is
led.
"""

from __future__ import annotations

from typing import Final

from twinlog.errors import Fate, PartitionError
from twinlog.lane.messages import TakePartition
from twinlog.lane.ports import LanePorts
from twinlog.mirror.copy.fan_out import Copy
from twinlog.model import TopicPartition

NO_LEADER_AFTER_S: Final = 5.0
"""An election that has a candidate is over by then."""


class NoLeaderWatch:
    """Partitions of both clusters, as the lane's own metadata and connections show them."""

    def __init__(self, ports: LanePorts) -> None:
        self._clock = ports.clock
        self._sides = ((ports.source, "source"), (ports.target, "target"))

    @property
    def is_quiet(self) -> bool:
        """Everybody is led, by brokers that can be reached."""
        return not any(side.leaderless or side.unreached for side, _ in self._sides)

    def of_source(self, copy: Copy, *, after_s: float) -> PartitionError | None:
        return self._of(0, copy.source, after_s)

    def of_target(self, tp: TopicPartition, *, after_s: float) -> PartitionError | None:
        return self._of(1, tp, after_s)

    def of_take(self, take: TakePartition) -> PartitionError | None:
        """What would keep a look at this partition waiting now."""
        found = self._of(0, take.source, 0.0)
        for tp in _targets(take):
            found = found or self._of(1, tp, 0.0)
        return found

    def is_sound(self, take: TakePartition) -> bool:
        """Its brokers answer us."""
        (source, _), (target, _) = self._sides
        return source.is_sound(take.source) and all(target.is_sound(tp) for tp in _targets(take))

    def _of(self, which: int, tp: TopicPartition, after_s: float) -> PartitionError | None:
        side, name = self._sides[which]
        before = self._clock.monotonic() - after_s
        since = side.leaderless.get(tp)
        if since is not None:
            return _no_leader(tp, name, "no broker leads it") if since <= before else None
        leader = side.leaders.get(tp)
        if leader is None or leader.node not in side.unreached:
            return None
        side.connection_to(leader.node)  # nobody else may try it again
        # where no broker can be reached nobody is kept waiting by this one
        if not side.connections or side.unreached.get(leader.node, before + 1) > before:
            return None
        return _no_leader(tp, name, f"its leader, broker {leader.node}, cannot be reached")


def _targets(take: TakePartition) -> list[TopicPartition]:
    return [take.target] if take.fan is None else [one.target for one in take.fan.branches]


def _no_leader(tp: TopicPartition, side: str, what: str) -> PartitionError:
    return PartitionError(
        f"{tp}: on the {side} {what}: look at the brokers that have its replicas "
        "(kafka-topics.sh --describe --unavailable-partitions); it resumes by itself",
        code="NO_LEADER",
        fate=Fate.RETRIABLE,
    )
