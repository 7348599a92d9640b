"""Finds partitions that cannot continue although no request fails: without a leader, or with a
damaged log.

**No leader**

Partitions that have had no leader for too long are stopped one by one, with a code.

No request gets an error for a partition without a leader, because no broker responds for it. Its
fetched records would stay in the memory that all partitions of the lane share. So the partition
leaves the lane after NO_LEADER_AFTER_S, and its records are dropped. Nothing is lost, because
records that were not acknowledged are read again, and the cold start checks the batches that were
in flight, as after any problem. The driver retries, and the lane starts the partition as soon as it
has a leader.

**Damaged logs**

A source may return nothing although its log continues.

If the length field of a batch is damaged on the broker's disk, the broker treats the rest of the
segment as a batch that is still being written. It answers every read there without an error and
without a byte, forever. From outside, the partition silently lags.

An empty response may also have a harmless reason. The check distinguishes these reasons from
damage:

- Nothing to read: the end (high watermark, or last stable offset under read_committed) is at the
  position. An open transaction that holds the last stable offset back is such a case.
- Markers and aborted records are bytes in the response, and the position moves over them.
- A partition left out of the fetch (budget, memory, no leader) is in no broker's session, and
  responses that a quota delayed are counted. Both restart the waiting time.
- A fetch filled by other partitions, or a session that lost the partition: the check requests only
  this partition, so that the broker returns at least one batch, whatever its size (KIP-74). The
  check itself waits out a quota, and uses the end and the records of the same response.
- A nearby replica that is damaged while the leader is not: the check reads from the leader, and the
  partition is then read from there.
- The end of a compacted log: its last records may be gone (tombstones, markers), so that nothing is
  between position and end. To distinguish this from damage, the check reads at later offsets. If
  there are records, a sound log would have returned them from the position, too. If nothing can be
  read there either, a compacted log gets no code, because nothing is known to be missing. A copy
  that is to end there (`--once`) is complete only if an open transaction holds the end back and the
  log, read without regard to the transaction, continues there, because damage in that segment would
  have stopped such a read, too. (Brokers skip damage in an earlier segment: see `offset_gaps`.)

A log that is not compacted has no gaps, so one empty response proves damage. A topic counts as
compacted if reading its configuration is denied.

A broker also responds like this if records are in remote storage (KIP-405) that does not return
them within `remote.fetch.max.wait.ms`. Nothing is lost then. So the message suggests deleting
records only if the brokers report that the topic has no remote storage.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_records
from twinlog.cluster.topics.configs import may_be_tiered, may_lack_offsets
from twinlog.errors import Fate, PartitionError, TwinlogError
from twinlog.lane.messages import TakePartition
from twinlog.lane.ports import LanePorts
from twinlog.lane.sides.background import JobKind
from twinlog.lane.sides.source_side import SourceSide, StalledFetch
from twinlog.mirror.copy.fan_out import Copy
from twinlog.mirror.findings import source_stalled, tier_stalled_error
from twinlog.model import Isolation, TopicPartition
from twinlog.wire.record_batch import read_headers

log = logging.getLogger(__name__)


NO_LEADER_AFTER_S: Final = 5.0
"""Time without a leader after which a partition is stopped. An election takes less time if there is
a candidate.
"""


class NoLeaderWatch:
    """Finds partitions without a reachable leader, from the lane's metadata and connections."""

    def __init__(self, ports: LanePorts) -> None:
        self._clock = ports.clock
        self._sides = ((ports.source, "source"), (ports.target, "target"))

    @property
    def all_are_led(self) -> bool:
        """True if every partition has a leader that can be reached."""
        return not any(side.leaderless or side.unreached for side, _ in self._sides)

    def of_source(self, copy: Copy, *, after_s: float) -> PartitionError | None:
        return self._error_of(0, copy.source, after_s)

    def of_target(self, tp: TopicPartition, *, after_s: float) -> PartitionError | None:
        return self._error_of(1, tp, after_s)

    def of_take(self, take: TakePartition) -> PartitionError | None:
        """Return an error if a leader of this partition is missing or unreachable on either
        cluster, so that a search must wait. Else return None.
        """
        error = self._error_of(0, take.source, 0.0)
        for tp in _targets(take):
            error = error or self._error_of(1, tp, 0.0)
        return error

    def is_sound(self, take: TakePartition) -> bool:
        """Return True if the leaders of this partition respond in time on both clusters."""
        (source, _), (target, _) = self._sides
        return source.is_sound(take.source) and all(target.is_sound(tp) for tp in _targets(take))

    def _error_of(self, which: int, tp: TopicPartition, after_s: float) -> PartitionError | None:
        side, name = self._sides[which]
        before = self._clock.monotonic() - after_s
        since = side.leaderless.get(tp)
        if since is not None:
            what = "the partition has no leader"
            return _no_leader_error(tp, name, what) if since <= before else None
        leader = side.leaders.get(tp)
        if leader is None or leader.node not in side.unreached:
            return None
        side.connection_to(leader.node)  # retry the connection, as perhaps no other code does
        # if no broker of the cluster can be reached, the cluster is the problem, not this partition
        if not side.connections or side.unreached.get(leader.node, before + 1) > before:
            return None
        what = f"the partition's leader, broker {leader.node}, cannot be reached"
        return _no_leader_error(tp, name, what)


def _targets(take: TakePartition) -> list[TopicPartition]:
    return [take.target] if take.fan is None else [branch.target for branch in take.fan.branches]


def _no_leader_error(tp: TopicPartition, side: str, what: str) -> PartitionError:
    return PartitionError(
        f"{tp}: on the {side}, {what}: check the brokers that have its replicas "
        "(kafka-topics.sh --describe --unavailable-partitions); the copy resumes by itself",
        code="NO_LEADER",
        fate=Fate.RETRIABLE,
    )


STALLED_AFTER_S: float = 60.0
"""How long a partition must return nothing before it is checked. A slow broker or a new leader
responds sooner.
"""

BOUNDED_AFTER_S: Final = 10.0
"""The same as STALLED_AFTER_S for copies with an end (`--once`). It is shorter, because maybe only
a gap of a compacted log is left before that end.
"""

ASK_S: Final = 10.0
CHECK_BYTES: Final = 1 << 16
OFFSETS_TRIED: Final = 8
"""Maximum number of later offsets at which a compacted log is read to find records after the
position.
"""


class StalledPartition(NamedTuple):
    """A partition from which nothing can be read at `position`."""

    position: int
    end: int
    is_gap: bool
    """True if compaction left no record between `position` and `end`, and the log continues after
    `end`. False if records must be there.
    """
    is_tiered: bool
    """True if the records may be in remote storage that is slow."""


StallResults = dict[TopicPartition, StalledPartition | None]
"""Results by partition. None: the partition has records to read, or it is not known that records
are missing.
"""


@dataclass(slots=True, kw_only=True)
class StallWatch:
    """Checks source partitions that lag and have returned nothing for too long."""

    ports: LanePorts
    source: SourceSide
    isolation: Isolation
    _since: dict[TopicPartition, tuple[StalledFetch, float]] = field(default_factory=dict)
    _is_checking: bool = False

    def poll(self) -> None:
        """Begin a check if one is due. Called about once a second."""
        now = self.ports.clock.monotonic()
        asked = {partition.tp: partition for partition in self.source.stalled_partitions()}
        since = self._since
        self._since = {
            tp: since[tp] if tp in since and since[tp][0] == partition else (partition, now)
            for tp, partition in asked.items()
        }
        due = {
            tp: partition.position
            for tp, (partition, began) in self._since.items()
            if now - began >= _patience_s(partition)
        }
        if due and not self._is_checking:
            self._is_checking = True
            self.ports.background.submit(
                JobKind.WATCH, lambda: self._check(due), self._on_found, self._on_failed
            )

    def _on_found(self, results: StallResults) -> None:
        self._is_checking = False
        for tp, stalled in results.items():
            self._since.pop(tp, None)
            if stalled is not None and stalled.is_gap:
                self.source.end_at(tp, stalled.position, stalled.end)
            if stalled is None or stalled.is_gap:
                self.source.refetch_from_leader(tp)
            elif self.source.position_of(tp) == stalled.position:
                self.source.events.on_troubled(tp, self._error(tp, stalled))

    def _on_failed(self, error: TwinlogError) -> None:
        self._is_checking = False
        self._since.clear()  # nothing is known, so every partition waits the full time again
        log.debug("the check of silent partitions failed error=%s", error)

    def _error(self, tp: TopicPartition, stalled: StalledPartition) -> PartitionError:
        leader = self.ports.source.leaders.get(tp)
        where = "the leader" if leader is None else f"the leader, node {leader.node}"
        what = (
            f"{tp}: the source returns no records from upstream offset {stalled.position} on, "
            f"although its log ends at {stalled.end}"
        )
        if stalled.is_tiered:
            return tier_stalled_error(what, where)
        return source_stalled(what, tp, where).error()

    # -- in the background -----------------------------------------------------------------------

    def _check(self, due: dict[TopicPartition, int]) -> StallResults:
        with self.ports.source.borrowed_client() as client:
            results: StallResults = dict.fromkeys(due)
            silent = {
                tp: self._end(answer)
                for tp, answer in self._read(client, due, isolation=self.isolation).items()
                if not answer.records and self._end(answer) > due[tp]
            }
            topics = {tp.topic for tp in silent}
            compacted, tiered = may_lack_offsets(client, topics), may_be_tiered(client, topics)
            for tp, end in silent.items():
                stall = (client, tp, due[tp], end)
                may_be_gap = tp.topic in compacted and not self._is_followed(*stall)
                if not may_be_gap or self._is_gap(*stall):
                    results[tp] = StalledPartition(due[tp], end, may_be_gap, tp.topic in tiered)
        return results

    def _is_followed(
        self, client: ClusterClient, tp: TopicPartition, position: int, end: int
    ) -> bool:
        """Return True if there are records after `position` and below `end`."""
        step = max(1, (end - 1 - position) // OFFSETS_TRIED)
        return any(
            header.base_offset < end
            # the last offset first, because the broker's index most likely has an entry near it
            for offset in range(end - 1, position, -step)
            for answer in self._read(client, {tp: offset}, isolation=self.isolation).values()
            for header, _ in read_headers(answer.records)
        )

    def _is_gap(self, client: ClusterClient, tp: TopicPartition, position: int, end: int) -> bool:
        """Return True if a read without regard to transactions finds the next batch at or after
        `end`. Then nothing is damaged before `end`: an open transaction holds `end` back.
        """
        answers = self._read(client, {tp: position}, isolation=Isolation.READ_UNCOMMITTED).values()
        headers = (header for answer in answers for header, _ in read_headers(answer.records))
        return any(header.base_offset >= end for header in islice(headers, 1))

    def _read(
        self, client: ClusterClient, offsets: dict[TopicPartition, int], *, isolation: Isolation
    ) -> dict[TopicPartition, FetchedRecords]:
        answers = fetch_records(
            client,
            {tp: (offset, CHECK_BYTES) for tp, offset in offsets.items()},
            isolation=isolation,
            timeout_s=ASK_S,
        )
        return {
            tp: answer for tp, answer in answers.items() if not isinstance(answer, TwinlogError)
        }

    def _end(self, answer: FetchedRecords) -> int:
        return (
            answer.last_stable_offset
            if self.isolation is Isolation.READ_COMMITTED
            else answer.high_watermark
        )


def _patience_s(partition: StalledFetch) -> float:
    return min(STALLED_AFTER_S, BOUNDED_AFTER_S) if partition.is_bounded else STALLED_AFTER_S
