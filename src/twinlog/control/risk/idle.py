"""The positions of partitions that no lane of this run has begun, because the flow was paused or
they had stopped before it. The offset map and the target's log ends show how far they are copied,
and the source when the next record was written, so that their retention can be watched too.

A partition that was never copied has the position at which its copy would begin.

The position is not a recovery point: the target may have lost records that the map has, which only
a start detects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.start import Starts
from twinlog.control.lanes.partitions import Partition, Placement
from twinlog.control.risk.running_flow import InBackground, RunningFlow
from twinlog.errors import TwinlogError
from twinlog.mirror.plan import PartitionPlan
from twinlog.model import StartKind, TopicPartition
from twinlog.survey.ends import NO_ENDS
from twinlog.survey.picture import read_flow
from twinlog.survey.replica import Maps, Replica

FIRST_S: float = 20.0
"""Seconds before the first query. By then most partitions are in a lane, and need none."""
ASK_EVERY_S: float = 10.0
AT_ONCE: Final = 50
"""Maximum number of partitions per query. One batch of each is read."""
AGAIN_S: Final = 120.0
"""Retry interval for partitions without a result, because no record waits or the query failed."""
WITHIN_S: Final = 10.0


class IdlePosition(NamedTuple):
    """The next record of a partition."""

    upstream: int
    timestamp: int
    """Timestamp of its batch, in milliseconds; 0 if unknown."""


IdlePositions = Mapping[TopicPartition, IdlePosition]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleQuestions:
    """Queries of both clusters for one run of a flow."""

    read_map: Callable[[], Maps]
    target: ClusterSettings
    next_batches: Callable[[Mapping[TopicPartition, int]], IdlePositions]
    starts: Starts
    is_shared: bool
    """Other clients may write to the target's topics."""

    def find(self, plans: Sequence[PartitionPlan]) -> IdlePositions:
        """Return the positions of the partitions that could be queried. Raises TwinlogError."""
        with ClusterClient(self.target, api_timeout_s=WITHIN_S) as client:
            picture = read_flow(
                client,
                [plan.target for plan in plans],
                after=NO_ENDS,
                is_shared=self.is_shared,
                new_owners=lambda: lambda _: False,  # a run has no plans of promoted topics
                maps=self.read_map,
            )
        positions = {
            plan.source: self._begins(plan, picture.replica(plan, plan.targets)) for plan in plans
        }
        known = {tp: begins for tp, begins in positions.items() if begins is not None}
        return self.next_batches(known) if known else {}

    def _begins(self, plan: PartitionPlan, replica: Replica) -> int | None:
        """Return where the copy of a partition resumes, or would begin. None if that is at the end
        or near it, or if its map is lost, because only the start decides then.
        """
        if replica.copied.ordinal is not None:
            return replica.copied.resumes_at
        # rows that cannot be read, or of only some of its branches
        is_unknown = (replica.key is None) != (replica.problem is None)
        if is_unknown or plan.had_row or plan.refusal is not None:
            return None
        if plan.begin_at >= 0:
            return plan.begin_at
        start = self.starts.at(plan.source, is_new=plan.is_new)
        match start.kind:
            case StartKind.EARLIEST:
                return 0  # the source answers from its log start
            case StartKind.OFFSET:
                return start.value
            case _:
                return None


@dataclass(slots=True, kw_only=True)
class IdleWatch:
    """Watches one run of a flow, in the supervisor's thread."""

    run: RunningFlow
    find: Callable[[Sequence[PartitionPlan]], IdlePositions]
    _next_ask: float | None = None
    _is_asking: bool = False
    _asked: set[TopicPartition] = field(default_factory=set)

    def poll(self, background: InBackground) -> None:
        """Query partitions without a lane that were not queried yet."""
        now = self.run.clock.monotonic()
        if self._next_ask is None:
            self._next_ask = now + FIRST_S
        if self._is_asking or now < self._next_ask or self.run.is_stopping:
            return
        plans = [partition.plan for partition in islice(self._idle(), AT_ONCE)]
        if not plans:
            self._asked.clear()
            self._next_ask = now + AGAIN_S
            return
        self._asked |= {plan.source for plan in plans}
        self._is_asking, self._next_ask = True, now + ASK_EVERY_S

        def on_found(positions: IdlePositions) -> None:
            self._is_asking = False
            for plan in plans:
                partition = self.run.partitions.get(plan.source)
                next_record = positions.get(plan.source)
                if partition is None or next_record is None:
                    continue
                if partition.plan.map_key != plan.map_key:
                    continue
                if partition.recovery.upstream is None:  # no lane has begun it in the meantime
                    partition.keeping.note_idle(*next_record)

        def on_failed(_: TwinlogError) -> None:
            self._is_asking = False

        background(lambda: self.find(plans), on_found, on_failed)

    def _idle(self) -> Iterable[Partition]:
        for tp, partition in self.run.partitions.items():
            is_known = partition.position is not None or tp in self._asked
            if is_followed(partition) and partition.lane is None and not is_known:
                yield partition


def is_followed(partition: Partition) -> bool:
    """Return True if the source is queried about this partition."""
    return partition.is_wanted and partition.placement is not Placement.DONE
