"""Which lane gets which partition, so that two lanes never write to one partition at the same time.

**Problem.** All lanes of a flow write the same records under one producer ID. Whichever lane sends
a record, its sequence is its ordinal, that is, the number of the flow's records before it. So as
long as the target remembers the producer ID, a second writer does no harm: the broker appends each
batch once. It rejects a second copy of the batch, or repeats the response to the first. But a
broker forgets a producer ID some time after the timestamp of its last record (one day by default).
Then two writers damage the log:

- A broker accepts any first sequence of an unknown ID, so the same records are appended twice.
- A batch is rejected, the ID expires, and the other lane's next batch is accepted in its place.
  Records are missing between two batches that look correct.
- The lanes may cut records into different batches (joined, re-encoded, split), and the source's
  cleaner may have removed a record in the meantime. Then the same sequence is a different record.
- In a topic with LogAppendTime, a lane cannot distinguish the response to a repeat from the
  response to its own append.

`mirror.copy.partition` detects most of this afterwards. The rules here prevent it.

**Rules**

1. A partition that was handed over (`Released` with a start point) goes to the next lane directly.
2. Any other start is cold: the map is first read to its end, and the Take has a new term.
3. When a lane is lost, its partitions go to another lane directly. Their Takes contain the time for
   which requests of the lost lane may still arrive (`RunState.give_up`). The new lane holds back
   batches that could collide with such requests. Two kinds of partitions are not given to a lane
   until that time is over (`takes.put_off`). The first are partitions without any row in the map,
   because the lost lane may still determine where the copy begins. The second are transformed
   partitions, because only the map shows which records of the source they have.

The driver often cannot know whether a lost lane is dead. It relies on three times instead:

    t              last message that the driver received from the lost lane
    t + 10 s       if it is still alive, it has stopped sending (`late_requests.SILENCE_MS`):
                   the driver's last message to it was not later than t (`channel.frames`)
    t + 20 s       none of its requests can arrive any more (`late_requests.wait_s`)
      + throttle   unless a broker had muted its connection; the lane reports for how long

The new lane decides about each batch:

- A *fresh* batch (the target remembers the ID after it) is sent immediately if the target certainly
  remembers the ID now. Otherwise it waits until the lost lane has stopped, and the log is read
  again.
- An *old* batch (the target may forget the ID after it) waits until no request of the lost lane can
  arrive, and the log is read again.

**What may fail**

- *The Take is lost with the connection*: the lane is lost, so rule 3 applies.
- *Released is lost*: the connection is lost with it, so the next start searches both logs instead
  of using the position.
- *The process of a lane dies*: its connection closes, and rule 3 applies.
- *A lane freezes, or its network is cut*: no connection closes, but the driver gives up the lane
  after 10 s of silence (`RunLeases.drop_silent`).
- *The driver dies*: its lanes stop after 10 s of silence. The next generation treats all partitions
  as those of lost lanes (`RunState.late_requests_until`), unless this generation was closed.
- *A lane writes rows while the map is read*: the partition waits for the next read (`left_at`).
- *The map cannot be read*: partitions that need it fail with its code, and the read is retried
  after a pause.

**Rejected:** to wait 20 s before the partitions of a lost lane are given to another. Most
partitions of most clusters are idle and have nothing to send. With that wait, 1,000 of them took 43
s to reach their end again after a mirror was killed. Now a start begins immediately, and only
batches wait (ADR 37).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping

from twinlog.clock import Attempts
from twinlog.control.lanes.lanes import spread_over_lanes
from twinlog.control.lanes.partitions import RETRY_FAILED_S, Partition, Placement
from twinlog.control.lanes.takes import (
    in_messages,
    may_begin,
    put_off,
    runs_for_each,
    take_of,
    transformed_as_before,
)
from twinlog.control.running.run_state import RunState
from twinlog.errors import Fate, TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.mirror.map.offset_map import PartitionKey, PartitionMap, Term
from twinlog.model import TopicPartition
from twinlog.survey.replica import Maps

log = logging.getLogger(__name__)

ReadMap = Callable[[Callable[[Maps], None], Callable[[TwinlogError], None]], None]
"""Reads the offset map to its end in another thread. Then calls the first callback with the map, or
the second one with the error, in the supervisor's thread.
"""


class Assigner:
    """Gives the partitions of one run to its lanes."""

    def __init__(self, run: RunState, read_map: ReadMap) -> None:
        self._run = run
        self._read_map = read_map
        self._starts = itertools.count()
        self._reads = Attempts(clock=run.clock, first_s=0.5, most_s=RETRY_FAILED_S)
        """The reads of the map. Failures and recoveries are logged."""
        self._is_reading = False
        self._read_at = 0.0
        """Monotonic time at which the last read began. Its result may lack rows written later."""
        self._read_problem = ""

    def assign(self, now: float) -> None:
        """Give due partitions to ready lanes. Before cold starts, read the map."""
        self._note_unavailable(now)
        if not self._run.lanes_in_use or self._lanes_have_all():
            return
        self.assign_handed(self._run.partitions.values(), now)
        if not self._is_reading and self._reads.is_due and self._cold_partitions():
            self._is_reading, self._read_at = True, self._run.clock.monotonic()
            self._read_map(self._on_map, self._on_map_failed)

    def assign_handed(self, partitions: Iterable[Partition], now: float) -> None:
        """Give ready lanes those of these partitions that are due and were handed over. At a change
        of leases this is called for each partition, so it must not search all of them.
        """
        self._give(self._due((p for p in partitions if p.handed is not None), now), {})

    def _on_map_failed(self, error: TwinlogError) -> None:
        """Note a failed read of the map on the partitions that wait for it, and retry later."""
        self._is_reading = False
        self._reads.on_failure()
        if error.code != self._read_problem:
            self._read_problem = error.code
            FlowLog(log, self._run.name).warning(
                "the offset map cannot be read: %s; trying again", error
            )
        self._run.errors[error.code] += 1
        for partition in self._cold_partitions():
            fail_without_map(partition, error)

    def _is_held_back(self, partition: Partition) -> bool:
        run = self._run
        waits = partition.last_plan is None and bool(run.hold_reason or run.awaits_plans)
        if partition.plan.transform and run.transforms is not None:
            waits = waits or not run.transforms.is_ready
        return waits or (run.once and partition.placement is Placement.FAILED)

    def _note_unavailable(self, now: float) -> None:
        """Show on transformed partitions why the application of the transforms does not run."""
        transforms, once = self._run.transforms, self._run.once
        if transforms is None or (error := transforms.problem) is None:
            return
        for partition in self._run.partitions.values():
            is_over = once and partition.placement is Placement.FAILED
            if partition.plan.transform and partition.is_due(now) and not is_over:
                fail_without_map(partition, error)

    def _lanes_have_all(self) -> bool:
        """Return True if every partition is in a lane, as usual. Called ten times a second."""
        held = set[TopicPartition]().union(*(lane.partitions for lane in self._run.lanes()))
        return self._run.partitions.keys() <= held

    def _due(self, partitions: Iterable[Partition], now: float) -> list[Partition]:
        return [p for p in partitions if p.is_due(now) and not self._is_held_back(p)]

    def _cold_partitions(self) -> list[Partition]:
        cold = (p for p in self._run.partitions.values() if p.handed is None)
        return self._due(cold, self._run.clock.monotonic())

    def _on_map(self, maps: Maps) -> None:
        self._is_reading = False
        self._reads.reset()
        if self._read_problem:
            FlowLog(log, self._run.name).news("the offset map can be read again")
            self._read_problem = ""
        run = self._run
        if run.is_stopping or not run.lanes_in_use:
            return
        cold = []
        for partition in self._cold_partitions():
            if partition.left_at > self._read_at:
                # the partition's former lane may have written rows during this read; the next read
                # has them
                continue
            if (error := maps.problem(partition.plan.source)) is not None:
                run.errors[error.code] += 1
                fail_without_map(partition, error)
            elif not put_off(partition, maps, self._read_at):
                cold.append(partition)
        kept = transformed_as_before(cold, run.partitions.values(), maps, run.untransformed)
        self._give(may_begin(kept, maps, run.name), maps)
        run.wants_discovery |= any(p.plan.may_begin_later and p.failure is not None for p in cold)

    def _give(self, partitions: list[Partition], maps: Mapping[PartitionKey, PartitionMap]) -> None:
        run, most_runs = self._run, runs_for_each(len(partitions))
        lanes = {lane.key: lane for lane in run.lanes_in_use}
        if not partitions or not lanes:
            return
        # a Take needs only the maps of its topic, and there may be many maps of other topics
        by_topic: dict[str, dict[PartitionKey, PartitionMap]] = {}
        for map_key, known in maps.items():
            by_topic.setdefault(known.topic, {})[map_key] = known
        for key, part in spread_over_lanes(partitions, lanes.values()).items():
            lane = lanes[key]
            takes = []
            for partition in part:
                plan = partition.plan
                if partition.handed is None:
                    partition.term = Term(run.generation, next(self._starts))
                of_topic = by_topic.get(plan.source.topic, {})
                start = run.start.at(plan.source, is_new=plan.is_new)
                takes.append(take_of(partition, of_topic, start, most_runs))
                partition.placement, partition.last_plan = Placement.ASSIGNED, plan
                partition.lane = lane.key
                partition.handed = None
                partition.progress, partition.is_seen = None, False
                lane.partitions[plan.source] = partition
            for message in in_messages(takes):
                lane.peer.send(message)
        if run.pacer is not None:
            run.pacer.recompute_soon()


def fail_without_map(partition: Partition, error: TwinlogError) -> None:
    """Fail a partition that cannot start without its map or its transforms. It is retried later."""
    partition.note_failure(error.code, error.what, retriable=error.fate is Fate.RETRIABLE)
