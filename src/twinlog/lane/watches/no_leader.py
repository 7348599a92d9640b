"""Finds partitions that have had no leader for too long. They are stopped one by one, with a code.

No request gets an error for a partition without a leader, because no broker responds for it. Its
fetched records would stay in memory for the whole time, and all partitions share the lane's memory.
So its time in the lane ends after NO_LEADER_AFTER_S, and its records are dropped. Nothing is lost:
records that were not acknowledged are read again, and the cold start checks what was in flight, as
after any problem. The driver retries, and the lane starts the partition as soon as it has a leader.
"""

from __future__ import annotations

from typing import Final

from twinlog.errors import Fate, PartitionError
from twinlog.lane.messages import TakePartition
from twinlog.lane.ports import LanePorts
from twinlog.mirror.copy.fan_out import Copy
from twinlog.model import TopicPartition

NO_LEADER_AFTER_S: Final = 5.0
"""Longer than an election takes if there is a candidate."""


class NoLeaderWatch:
    """Finds leaderless partitions of both clusters, by the lane's metadata and connections."""

    def __init__(self, ports: LanePorts) -> None:
        self._clock = ports.clock
        self._sides = ((ports.source, "source"), (ports.target, "target"))

    @property
    def is_quiet(self) -> bool:
        """Whether every partition has a leader that can be reached."""
        return not any(side.leaderless or side.unreached for side, _ in self._sides)

    def of_source(self, copy: Copy, *, after_s: float) -> PartitionError | None:
        return self._of(0, copy.source, after_s)

    def of_target(self, tp: TopicPartition, *, after_s: float) -> PartitionError | None:
        return self._of(1, tp, after_s)

    def of_take(self, take: TakePartition) -> PartitionError | None:
        """Return why a search of this partition would have to wait now, or None."""
        error = self._of(0, take.source, 0.0)
        for tp in _targets(take):
            error = error or self._of(1, tp, 0.0)
        return error

    def is_sound(self, take: TakePartition) -> bool:
        """Return whether the brokers of this partition respond."""
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
        side.connection_to(leader.node)  # retry the connection: perhaps nothing else does
        # if no broker of the cluster can be reached, the cluster is the problem, not this partition
        if not side.connections or side.unreached.get(leader.node, before + 1) > before:
            return None
        return _no_leader(tp, name, f"its leader, broker {leader.node}, cannot be reached")


def _targets(take: TakePartition) -> list[TopicPartition]:
    return [take.target] if take.fan is None else [branch.target for branch in take.fan.branches]


def _no_leader(tp: TopicPartition, side: str, what: str) -> PartitionError:
    return PartitionError(
        f"{tp}: on the {side} {what}: check the brokers that have its replicas "
        "(kafka-topics.sh --describe --unavailable-partitions); it resumes by itself",
        code="NO_LEADER",
        fate=Fate.RETRIABLE,
    )
