"""Cold starts of a lane: many partitions are searched together, in the background.

A partition without a leader does not delay the others: it is searched when it has a leader, or
given back to the driver after NO_LEADER_AFTER_S. Partitions whose broker does not respond are
searched separately. So is each partition for which many foreign records may have to be read to find
the end of this flow's records.

**Dead letters.** A partition that quarantines records must know which of them are already in the
dead-letter topic (`mirror.copy.dead_letters`). A start reads the whole dead-letter topic, because
no index shows where a partition's dead letters are: their timestamps are those of the source
records. All such partitions of a search share one read of that topic, so they start after the other
partitions of the search.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import LATEST, log_ends, offset_at
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.errors import Fate, PartitionError, TwinlogError, or_raise
from twinlog.flow_log import FlowLog
from twinlog.lane.lane_partition import ColdStart, LaneEvents, Start, StartPhase, StartResult
from twinlog.lane.late_requests import USER_TIMEOUT_MS
from twinlog.lane.messages import Fan, TakePartition, Work
from twinlog.lane.ports import LanePorts
from twinlog.lane.sides.background import JobKind
from twinlog.lane.sides.log_view import ClusterLogView
from twinlog.lane.watches.stalls import NO_LEADER_AFTER_S, NoLeaderWatch
from twinlog.mirror.copy.dead_letters import LetterOrigin, origin_of_copy, origin_of_letter
from twinlog.mirror.start.cold_start import starts_in_groups
from twinlog.mirror.start.fan_start import find_fan_start
from twinlog.mirror.start.our_end import LongSearch
from twinlog.mirror.start.request import StartRequest, StartRules
from twinlog.mirror.start_point import CopyRules, KnownDeadLetters, StartPoint
from twinlog.model import TopicPartition, batched

log = logging.getLogger(__name__)


VISIBLE_WITHIN_S: Final = 5.0
PAUSE_S: Final = 0.1


def quarantining(
    results: Mapping[TopicPartition, StartResult], takes: Iterable[TakePartition], work: Work
) -> dict[TopicPartition, StartPoint]:
    """Return the start points of the partitions in `results` whose failed records go to the
    dead-letter topic. Partitions whose start failed are left out.
    """
    asked = (take.source for take in takes if take.transform and work.dead_letters)
    return {tp: start for tp in asked if isinstance(start := results.get(tp), StartPoint)}


def with_dead_letters(
    starts: Mapping[TopicPartition, StartPoint],
    takes: Iterable[TakePartition],
    target: ClusterClient,
    work: Work,
) -> Mapping[TopicPartition, StartResult]:
    """Return these start points after adding the dead letters that are already on the target. If
    the dead letters cannot be read, return that error for each partition.
    """
    origins = {
        take.source: origin_of_copy(
            work.flow, take.source, take.source_topic_id, take.target_topic_id
        )
        for take in takes
        if take.source in starts
    }
    positions = {origin: starts[tp].upstream for tp, origin in origins.items()}
    try:
        there = read_dead_letters(target, TopicPartition(work.dead_letters, 0), positions)
    except TwinlogError as error:
        return dict.fromkeys(starts, error)
    return {tp: replace(starts[tp], dead_letters=there[one]) for tp, one in origins.items()}


def read_dead_letters(
    client: ClusterClient, home: TopicPartition, positions: Mapping[LetterOrigin, int]
) -> dict[LetterOrigin, KnownDeadLetters]:
    """Return each copy's dead letters for source records at or after the copy's position. `home`:
    the partition of the dead-letter topic. `positions`: by copy, the source offset at which it
    resumes.

    Dead letters above the high watermark count as well, because the response to them may be lost.
    They cannot be read yet, so the function waits until no record is above it. Raises TwinlogError
    if that takes too long, or if the topic cannot be read.
    """
    topic_id = client.metadata([home.topic]).topics[home.topic].topic_id
    end = or_raise(log_ends(client, [home])[home])
    deadline = client.deadline(VISIBLE_WITHIN_S)
    while offset_at(client, home, LATEST) < end.end_offset:
        if deadline.has_passed:
            raise PartitionError(
                f"{home}: the newest records of this dead-letter partition are not on all in-sync "
                "replicas yet. They may be dead letters that must not be written twice, so the "
                "copy does not start yet; checking again",
                code="HELD_BACK",
                fate=Fate.RETRIABLE,
            )
        client.patience.sleep(PAUSE_S)
    found: dict[LetterOrigin, set[int]] = defaultdict(set)
    if end.end_offset > 0:
        for record in read_to_end(client, home.topic, home.partition, end=end.end_offset):
            known = origin_of_letter(record)
            if known is not None and known[1] >= positions.get(known[0], known[1] + 1):
                found[known[0]].add(known[1])
    return {
        origin: KnownDeadLetters(topic_id, end.leader_epoch, tuple(sorted(found[origin])))
        for origin in positions
    }


SEARCHES_AT_ONCE: Final = 3
"""Maximum parallel searches per sort. It is low, because searches need memory for log ends."""

FEW_READS: Final = 2
"""Maximum fetches per partition after the map's mark (`offset_map.Mark`), in topics to which other
clients write. LONG searches have no such limit.
"""

MANY: Final = 256
"""Waiting partitions are split into two parallel searches only if each gets at least this many. A
search takes seconds if brokers are far away.
"""

COMBINED_WITHIN_S: Final = 0.25
"""Delayed searches begin at multiples of this time (seconds), so that they can be combined."""


class Sort(Enum):
    """Sorts of searches for start points. A search never waits for a search of another sort."""

    SOUND = auto()
    SLOW = auto()
    """Searches of partitions whose brokers do not respond in time."""
    LONG = auto()
    """Searches of one partition each, which need many reads (`mirror.start.our_end.LongSearch`)."""


NEARLY_STARTED: Final = (StartPhase.WAITING, StartPhase.SEARCHED, StartPhase.DELAYED)


class ColdStarts:
    """Finds start points without blocking the loop.

    Waiting partitions are searched together, because a search of hundreds of partitions needs as
    many requests as a search of one partition. While SEARCHES_AT_ONCE searches are running, newly
    assigned partitions wait for the next search.
    """

    def __init__(
        self,
        work: Work,
        copy_rules: CopyRules,
        ports: LanePorts,
        no_leader: NoLeaderWatch,
        events: LaneEvents,
    ) -> None:
        self._work = work
        self._log = FlowLog(log, work.flow)
        self.copy_rules = copy_rules
        self._ports = ports
        self._events = events
        self._no_leader = no_leader
        self._in: dict[StartPhase, dict[TopicPartition, ColdStart]] = {
            phase: {} for phase in StartPhase
        }
        """The starts in each phase, in order of arrival."""
        self._running = dict.fromkeys(Sort, 0)
        """Number of running searches, by sort."""
        self._late_from = math.inf
        """Earliest monotonic time at which `earlier_lanes_ended` has a partition to return."""
        self._rules = StartRules(
            producer_id=work.producer_id,
            is_ours_alone=work.is_ours_alone,
            isolation=work.isolation,
            known_producers=frozenset(work.known_producers),
        )

    def set_known_producers(self, producers: frozenset[int]) -> None:
        """Update the producer IDs of all Twinlog flows."""
        self._rules = replace(self._rules, known_producers=producers)

    @property
    def is_busy(self) -> bool:
        """True if partitions are about to start, so that fetches should wait only briefly."""
        return any(self._in[phase] for phase in NEARLY_STARTED)

    def start(self, starts: Iterable[ColdStart]) -> None:
        """Search the start point of each of these partitions as soon as it has leaders on both
        clusters.
        """
        until = self._ports.clock.monotonic() + NO_LEADER_AFTER_S
        for start in starts:
            self._ports.source.need_topics((start.take.source.topic,))
            self._ports.target.need_topics((start.take.target.topic,))
            if self._no_leader.of_take(start.take) is not None:
                start.until = until
                self._set_phase(start, StartPhase.LEADERLESS)
            else:
                self._set_phase(start, StartPhase.WAITING)
        self._begin_searches()

    def _set_phase(self, start: ColdStart, phase: StartPhase) -> None:
        tp = start.take.source
        self._in[start.phase].pop(tp, None)
        start.phase = phase
        self._in[phase][tp] = start
        if phase is StartPhase.FOUND and start.late_until:
            self._late_from = min(self._late_from, start.next_end)

    def expect_late_requests(self, start: ColdStart) -> None:
        """Set until when requests of an earlier lane may arrive, according to the message Take. A
        start point that was handed over counts as found.
        """
        take = start.take
        if take.late_requests_ms:
            now, late_s = self._ports.clock.monotonic(), take.late_requests_ms / 1000
            start.late_until = now + late_s
            start.lane_until = max(0.0, start.late_until - USER_TIMEOUT_MS / 1000)
        if take.handed is not None:
            self._set_phase(start, StartPhase.FOUND)

    def earlier_lanes_ended(self) -> list[tuple[TopicPartition, bool]]:
        """Return (partition, is_over) for each partition with a start point whose wait for an
        earlier lane, or for the requests of that lane, has ended since the last call.

        `is_over` is False if the earlier lane has certainly stopped, but its requests may still
        arrive. It is True if these can no longer arrive, either.
        """
        now = self._ports.clock.monotonic()
        if now < self._late_from:
            return []
        late = [start for start in self._in[StartPhase.FOUND].values() if start.late_until]
        ended = []
        for start in late:
            if start.next_end <= now:
                is_over = start.late_until <= now
                start.lane_until = 0.0
                start.late_until = 0.0 if is_over else start.late_until
                ended.append((start.take.source, is_over))
        self._late_from = min((s.next_end for s in late if s.late_until), default=math.inf)
        return ended

    def searched_at(self, start: ColdStart) -> float:
        """Return the monotonic time at which the last search of the target's log began. If there
        was none, because the start point was handed over, return the current time.
        """
        searched_at = start.searched_at
        return self._ports.clock.monotonic() if searched_at is None else searched_at

    def must_wait(self, start: ColdStart, result: Start) -> bool:
        """Return True if requests of an earlier lane may still change the start point. The start
        point is then searched again when they can no longer arrive.

        Most partitions need not wait: the copy itself holds back batches that must not be sent yet
        (`PartitionCopy`), and a partition at its end has nothing to send. The following partitions
        wait:

        - *LogAppendTime, or unreadable topic configs.* If the source was compacted after the
          earlier lane had read it, a late request may contain other records than this copy's batch.
          The broker would then treat this copy's batch as a duplicate, and with LogAppendTime its
          response does not show that.
        - *Partitions that other clients took over*, because the end of the copy is recorded
          permanently.
        - *Topics to which other clients write, and branches, if the target may have forgotten the
          producer ID.* A mark is final only if no late request can arrive, and the map of a branch
          names only the last record of each batch.
        """
        if not start.may_have_missed:
            return False
        points = result if isinstance(result, tuple) else (result,)
        begins = not any(point.taken_over for point in points)
        if isinstance(result, tuple) or not self._work.is_ours_alone:
            now_ms = self._ports.clock.wall_ms()
            begins &= all(self.copy_rules.is_remembered_at(point, now_ms) for point in points)
        if begins and start.take.has_log_append_time is False:
            return False
        start.until = math.ceil(start.late_until / COMBINED_WITHIN_S) * COMBINED_WITHIN_S
        self._set_phase(start, StartPhase.DELAYED)
        return True

    def forget(self, start: ColdStart) -> None:
        """Remove a partition that left the lane. If a search for it is running, the result is
        dropped.
        """
        self._in[start.phase].pop(start.take.source, None)
        start.phase = StartPhase.ABANDONED

    def tick(self) -> None:
        """Begin the searches that are due. Called on every turn."""
        if self._in[StartPhase.LEADERLESS]:
            self._check_leaderless()
        now = self._ports.clock.monotonic()
        due = [start for start in self._in[StartPhase.DELAYED].values() if start.until <= now]
        if due:
            self.start(due)
        elif self._in[StartPhase.WAITING]:
            self._begin_searches()

    def _check_leaderless(self) -> None:
        now = self._ports.clock.monotonic()
        led: list[ColdStart] = []
        for start in list(self._in[StartPhase.LEADERLESS].values()):
            error = self._no_leader.of_take(start.take)
            if error is None:
                led.append(start)
            elif start.until <= now:
                self._set_phase(start, StartPhase.FOUND)
                self._events.on_started(start.take, error)
        if led:
            self.start(led)

    def _begin_searches(self) -> None:
        sorts: dict[Sort, list[ColdStart]] = {sort: [] for sort in Sort}
        for start in self._in[StartPhase.WAITING].values():
            sorts[self._sort(start)].append(start)
        for sort, starts in sorts.items():
            free = SEARCHES_AT_ONCE - self._running[sort]
            if not starts or not free:
                continue
            if sort is Sort.LONG:
                groups: Iterable[Sequence[ColdStart]] = batched(starts[:free], 1)
            else:
                # one search is left free for partitions that arrive later
                count = max(1, min(free - 1, len(starts) // MANY))
                groups = batched(starts, -(-len(starts) // count))
            for some in groups:
                self._begin_search(some, sort)

    def _sort(self, start: ColdStart) -> Sort:
        if start.is_long:
            return Sort.LONG
        return Sort.SOUND if self._no_leader.is_sound(start.take) else Sort.SLOW

    def _begin_search(self, starts: Sequence[ColdStart], sort: Sort) -> None:
        self._running[sort] += 1
        takes = [start.take for start in starts]
        left = {start.take.source: start for start in starts}
        now = self._ports.clock.monotonic()
        for start in starts:
            start.searched_at = now
            self._set_phase(start, StartPhase.SEARCHED)

        def on_found(points: Mapping[TopicPartition, StartResult]) -> None:
            for tp, point in points.items():
                start = left.pop(tp)
                if start.phase is StartPhase.ABANDONED:
                    continue
                if isinstance(point, LongSearch):
                    start.is_long = True
                    self._set_phase(start, StartPhase.WAITING)
                else:
                    self._set_phase(start, StartPhase.FOUND)
                    self._events.on_started(start.take, point)

        def on_ended(_: object = None) -> None:
            self._running[sort] -= 1
            self._begin_searches()

        def on_failed(error: TwinlogError) -> None:
            on_found(dict.fromkeys(left, error))
            on_ended()

        most_reads = None if sort is Sort.LONG else FEW_READS

        def search() -> None:
            self._find(
                takes, most_reads, lambda some: self._ports.background.post(lambda: on_found(some))
            )

        self._ports.background.submit(JobKind.SEARCH, search, on_ended, on_failed)

    def _find(
        self,
        takes: Sequence[TakePartition],
        most_reads: int | None,
        deliver: Callable[[Mapping[TopicPartition, StartResult]], None],
    ) -> None:
        """Search both logs, and pass each result to `deliver` as soon as it is known. Runs in the
        background, not in the loop's thread. `most_reads`: the limit FEW_READS, or None.
        """
        all_requests = {
            take.source: replace(self._request(take), most_reads=most_reads) for take in takes
        }
        requests = [all_requests[take.source] for take in takes if take.fan is None]
        with ExitStack() as stack:
            source_client = stack.enter_context(self._ports.source.borrowed_client())
            target_client = stack.enter_context(self._ports.target.borrowed_client())
            for client in (source_client, target_client):
                stack.enter_context(client.keeping_leaders())
            source, target = ClusterLogView(source_client), ClusterLogView(target_client)
            last: dict[TopicPartition, StartPoint] = {}
            for some in starts_in_groups(requests, source, target, self._rules) if requests else ():
                self._say_compared(some)
                last |= quarantining(some, takes, self._work)
                deliver({tp: point for tp, point in some.items() if tp not in last})
            if last:  # the dead-letter topic is read once for all of these starts
                deliver(with_dead_letters(last, takes, target_client, self._work))
            for take in takes:
                if take.fan is not None:
                    whole = all_requests[take.source]
                    deliver({take.source: self._find_fan(whole, take.fan, source, target)})

    def _say_compared(self, points: Mapping[TopicPartition, StartResult]) -> None:
        for tp, start in points.items():
            if isinstance(start, StartPoint) and start.compared >= 0:
                self._log.info(
                    "start partition=%s ordinal=%d upstream=%d: %s",
                    tp,
                    start.ordinal,
                    start.upstream,
                    f"{start.compared} of the last records are the same on both sides"
                    if start.compared
                    else "no record could be compared; the log's end and the offset map show the "
                    "position",
                )
            if isinstance(start, StartPoint) and start.undecided is not None:
                first, following = start.undecided
                self._log.warning(
                    "%s",
                    PartitionError(
                        f"{tp}: the offset map lost its rows for target offsets [{first}, "
                        f"{following}), so the source offsets of these records are unknown. A "
                        "group with an offset in this range reads records again after a failover, "
                        "and may skip records after a failback",
                        code="REBUILD_AMBIGUOUS",
                    ),
                )

    def _find_fan(
        self, whole: StartRequest, fan: Fan, source: ClusterLogView, target: ClusterLogView
    ) -> StartResult:
        requests = [
            replace(
                whole,
                target=branch.target,
                is_branch=True,
                runs=branch.runs,
                mark=branch.mark,
                our_producers=frozenset((*branch.our_producers, fan.producer_id)),
            )
            for branch in fan.branches
        ]
        rules = replace(self._rules, producer_id=fan.producer_id)
        try:
            return find_fan_start(requests, source, target, rules)
        except TwinlogError as error:
            return error

    def _request(self, take: TakePartition) -> StartRequest:
        return StartRequest(
            **take.facts(),
            our_producers=frozenset((*take.our_producers, self._rules.producer_id)),
            may_lose_batches=take.may_reject_records,
            accept_source_loss=self._work.accept_source_loss,
        )
