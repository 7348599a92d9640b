"""Finds the positions of partitions that no lane of this run has begun. There are such partitions
if the flow is paused, or if partitions had stopped before the run. The offset map and the target's
log ends show how far they are copied. The source returns the timestamp of the next record. So the
source's retention is watched for these partitions, too.

The position of a partition that was never copied is where its copy would begin.

Such a position is not a recovery point, because the target may have lost records that the map
lists. Only the start of a copy detects that.
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
"""Delay of the first query, in seconds. Most partitions are in a lane by then and need no query."""
ASK_EVERY_S: float = 10.0
AT_ONCE: Final = 50
"""Maximum number of partitions per query, which reads one batch from each of them."""
AGAIN_S: Final = 120.0
"""Seconds after which partitions without a result are queried again. They have none because they
have no record to copy, or because the query failed.
"""
WITHIN_S: Final = 10.0


class IdlePosition(NamedTuple):
    """The next record to copy of a partition without a lane."""

    upstream: int
    timestamp: int
    """The newest timestamp in the record's batch, in milliseconds; 0 if unknown."""


IdlePositions = Mapping[TopicPartition, IdlePosition]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleQueries:
    """Finds the positions of partitions without a lane, by queries of both clusters."""

    read_map: Callable[[], Maps]
    target: ClusterSettings
    next_batches: Callable[[Mapping[TopicPartition, int]], IdlePositions]
    starts: Starts
    is_shared: bool
    """True if other clients are permitted to write to the remote topics."""

    def find(self, plans: Sequence[PartitionPlan]) -> IdlePositions:
        """Return the known positions. Raises TwinlogError if a cluster does not respond."""
        with ClusterClient(self.target, api_timeout_s=WITHIN_S) as client:
            picture = read_flow(
                client,
                [plan.target for plan in plans],
                after=NO_ENDS,
                is_shared=self.is_shared,
                new_owners=lambda: lambda _: False,  # a run has no promoted topics
                maps=self.read_map,
            )
        positions = {
            plan.source: self._begins(plan, picture.replica(plan, plan.targets)) for plan in plans
        }
        known = {tp: begins for tp, begins in positions.items() if begins is not None}
        return self.next_batches(known) if known else {}

    def _begins(self, plan: PartitionPlan, replica: Replica) -> int | None:
        """Return the source offset at which a partition's copy resumes or would begin. Return None
        if only a start can decide that. This is so if the copy begins at a time or the log end, or
        if its map has been lost or cannot be read.
        """
        if replica.copied.ordinal is not None:
            return replica.copied.resumes_at
        # the map has rows of this copy, but they cannot be read or are incomplete
        is_unknown = (replica.key is None) != (replica.problem is None)
        if is_unknown or plan.had_row or plan.refusal is not None:
            return None
        if plan.begin_at >= 0:
            return plan.begin_at
        start = self.starts.at(plan.source, is_new=plan.is_new)
        match start.kind:
            case StartKind.EARLIEST:
                return 0  # `next_batches` replaces 0 by the log start
            case StartKind.OFFSET:
                return start.value
            case _:
                return None


@dataclass(slots=True, kw_only=True)
class IdleWatch:
    """Starts queries for partitions without a lane during one run, in the supervisor's thread."""

    run: RunningFlow
    find: Callable[[Sequence[PartitionPlan]], IdlePositions]
    _next_ask: float | None = None
    _is_asking: bool = False
    _asked: set[TopicPartition] = field(default_factory=set)

    def poll(self, background: InBackground) -> None:
        """Query the next partitions without a lane and without a known position, if it is due."""
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
                # a lane may have begun the partition since, and then reports its position
                if partition.recovery.upstream is None:
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
    """Return True if the source's log ends are queried for this partition."""
    return partition.is_wanted and partition.placement is not Placement.DONE
