"""`twinlog offsets rebuild`: rebuilds the offset map of a flow from the records in both clusters.

The steps, and why a crash between two of them does no harm:

1. Topics are checked, and nothing is created. A flow whose producer IDs are not in the state topic
   is refused, because nothing else shows which records are its own.
2. The command joins the flow's group and claims a generation, as a mirror does. If a mirror is
   running, the command ends with NOT_LEADER. After a crash here, the next claim is one higher. If
   the previous generation was not closed, the command waits until no request of that generation's
   lanes can arrive any more. If the map topic was deleted, the command notes in the state topic
   which topics have lost rows, before it creates the map topic. So wherever the command dies, no
   mirror starts a partition of these topics without a row.
3. For each partition, both logs are read and compared, and the rows are written if the target's end
   has not moved. If this process freezes here and another process becomes leader, the rows that it
   writes later are in an older term. They are void if the leader has written rows. Otherwise the
   leader has copied nothing to this log either, so the rows are still correct.
4. If only some rows of a partition are written, a mirror can safely start with the map. The rows
   are recognized as incomplete (`mirror.map.rebuilt_map`). Running the command again rebuilds the
   partition from the beginning.
5. The generation is closed, so that the next mirror does not wait for lanes that never existed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from twinlog.cluster.client import prompt_client
from twinlog.cluster.logs.producers import describe_producers
from twinlog.cluster.topics.configs import may_lack_offsets
from twinlog.cluster.topics.internal_log import append_rows, read_to_end
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.leading.lead import SetupWaiting, StandingBy
from twinlog.control.rebuild.partition import OnStep, Rebuild, RebuildLog, Rebuilt, moved_error
from twinlog.errors import Fate, FlowError, NotLeader, PartitionError, TwinlogError
from twinlog.lane import late_requests
from twinlog.mirror.map.offset_map import PartitionKey, Term, map_home
from twinlog.mirror.map.rebuilt_map import DescribedMaps, rows
from twinlog.mirror.names.naming import STATE_TOPIC, map_topic_of
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.generations import producers_of
from twinlog.mirror.state.intents import WantedSkip
from twinlog.model import TopicId, TopicPartition, sequence_of
from twinlog.survey.discovery import discover
from twinlog.survey.ends import append_ends, log_bounds
from twinlog.survey.map_reader import lacks_map
from twinlog.survey.state_reader import state_rows_if_any
from twinlog.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION

TERM_START: Final = 0
SETUP_TRIES_S: Final = 1.0


class LineOutcome(StrEnum):
    REBUILT = "rebuilt"
    WOULD_BE = "would be rebuilt"
    DESCRIBED = "has rows"
    EMPTY = "empty"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltLine:
    """The result of one partition, a line of the command's report."""

    FIELDS = (
        "topic=source.topic partition=source.partition target_topic=target.topic outcome "
        "first_target_offset=first target_end=end runs next_source_offset=next_upstream "
        "code=problem.code message=problem.message"
    )

    source: TopicPartition
    target: TopicPartition
    outcome: LineOutcome
    first: int | None = None
    """First target offset that the rebuilt map covers, or None if the map was not rebuilt."""
    end: int | None = None
    runs: int = 0
    next_upstream: int | None = None
    problem: TwinlogError | None = None


class MapRebuild:
    """Rebuilds the map of one flow. Call `plan`, `lead`, `run`, and always `close`."""

    def __init__(self, setup: FlowSetup, *, on_step: OnStep, say: Callable[[str], None]) -> None:
        self._setup = ClaimingSetup.of(setup)
        self._on_step = on_step
        self._say = say
        self._claimed: ClaimedGeneration | None = None
        self._is_over = True
        """True if no lane of an earlier generation can still send. Otherwise `close` does not write
        the end of the claimed generation, so that the next mirror waits for such lanes.
        """
        self._source = prompt_client(setup.source)
        self._target = prompt_client(setup.target)
        self._flow_producers: frozenset[int] = frozenset()
        self._skips: tuple[WantedSkip, ...] = ()
        self._described = DescribedMaps()
        self._compacted: set[str] = set()
        self._targets: frozenset[TopicId] = frozenset()
        """IDs of all target topics of the flow."""

    def plan(self, topics: re.Pattern[str] | None) -> list[PartitionPlan]:
        """Return the flow's partitions that exist on source and target, without creating any."""
        config = self._setup.config
        discovery = discover(config, self._setup.policy, self._source, self._target, create=False)
        plans = [
            plan
            for plan in discovery.plans
            if topics is None or topics.fullmatch(plan.source.topic)
        ]
        self._targets = frozenset(plan.target_topic_id for plan in discovery.plans)
        self._flow_producers = self._producers()
        self._described = self._read_map()
        return sorted(plans, key=lambda plan: plan.source)

    def lead(self) -> None:
        """Claim a generation, so that `run` writes rows. Raises NotLeader while a mirror runs."""
        self._require_own_producers()
        deadline = time.monotonic() + late_requests.wait_s() + 2 * SETUP_TRIES_S
        while self._claimed is None:
            try:
                self._claimed = self._setup.claim(self._targets)
            except StandingBy as error:
                raise NotLeader(f"{error.message}; nothing was changed") from error
            except SetupWaiting:
                if time.monotonic() > deadline:
                    raise
                time.sleep(SETUP_TRIES_S)
        if not self._claimed.clean:
            self._is_over = False
            self._say(
                f"{self._setup.name}: the previous process did not shut down cleanly: waiting "
                f"{late_requests.wait_s():.0f} s until none of its requests can arrive any more"
            )
            time.sleep(late_requests.wait_s())
            self._is_over = True
        self._described = self._read_map()

    def run(self, plans: list[PartitionPlan]) -> Iterator[RebuiltLine]:
        """Rebuild the partitions, and yield each result. Rows are written only after `lead`."""
        topics = {plan.source.topic for plan in plans}
        self._compacted = may_lack_offsets(self._source, topics) if topics else set()
        existing = {plan.target.topic for plan in plans}
        lacking = may_lack_offsets(self._target, existing) if existing else set()
        for plan in plans:
            try:
                yield self._rebuild_partition(plan, is_lacking=plan.target.topic in lacking)
            except NotLeader:
                raise
            except TwinlogError as error:
                yield RebuiltLine(
                    source=plan.source,
                    target=plan.target,
                    outcome=LineOutcome.REFUSED,
                    problem=error,
                )

    def close(self) -> None:
        """Close the claimed generation, leave the flow's group, and close both clients."""
        try:
            closes = self._claimed is not None and self._is_over
            self._setup.close(self._claimed.generation if closes and self._claimed else None)
        finally:
            self._source.close()
            self._target.close()

    # -- one partition

    def _rebuild_partition(self, plan: PartitionPlan, *, is_lacking: bool) -> RebuiltLine:
        if plan.targets:
            raise PartitionError(
                f"{plan.source} is partitioned by key into several target partitions, so its map "
                "cannot be rebuilt from the records alone; nothing was changed",
                code="REBUILD_UNSUPPORTED",
            )
        line = partial(RebuiltLine, source=plan.source, target=plan.target)
        key = plan.map_key
        start, end = self._bounds(plan.target)
        if self._described.is_complete(key, start):
            return line(outcome=LineOutcome.DESCRIBED, end=end)
        if plan.transform:
            raise PartitionError(
                f"{plan.source}: its records are transformed, so they cannot be compared with the "
                "target. Nothing was changed. To have the topic copied again, copy it under "
                "another name or alias (twinlog.rename, source.cluster.alias)",
                code="REBUILD_UNSUPPORTED",
            )
        if start >= end > 0:
            raise PartitionError(
                f"{plan.target}: all of its records [0, {end}) were deleted, so there is nothing "
                "to compare, and the source offset at which the copy must resume is unknown. "
                f"Nothing is written to the map. Exclude topic {plan.source.topic} from the flow. "
                "Or copy it under another alias, and set twinlog.start to the source offsets that "
                "the consumers have reached",
                code="REBUILD_EMPTIED",
            )
        if start >= end:
            return line(outcome=LineOutcome.EMPTY, end=end)
        self._require_own_producers()
        target = RebuildLog(
            client=self._target, tp=plan.target, start=start, end=end, may_lack_offsets=is_lacking
        )
        rebuilt = Rebuild(
            plan, self._source_log(plan), target, self._flow_producers, self._on_step
        ).rebuild()
        if self._bounds(plan.target)[1] != end:
            raise moved_error(plan.target, f"its end moved from {end} during the comparison")
        self._check_broker(plan.target, rebuilt)
        if self._claimed is not None:
            self._write(self._claimed, key, plan, rebuilt)
        return line(
            outcome=LineOutcome.WOULD_BE if self._claimed is None else LineOutcome.REBUILT,
            first=rebuilt.runs[0].downstream,
            end=end,
            runs=len(rebuilt.runs),
            next_upstream=rebuilt.next_upstream,
        )

    def _write(
        self, claimed: ClaimedGeneration, key: PartitionKey, plan: PartitionPlan, rebuilt: Rebuilt
    ) -> None:
        membership = self._setup.membership
        home = TopicPartition(claimed.map_topic, map_home(plan.source, claimed.map_partitions))
        for row in rows(
            rebuilt.runs,
            key=key,
            topic=plan.source.topic,
            term=Term(claimed.generation, TERM_START),
            producers=rebuilt.producers,
        ):
            if membership is None or not membership.is_leading:
                raise NotLeader(
                    f"another process leads this flow now, so {plan.target} and the partitions "
                    "after it are not rebuilt. Stop that process, then run the command again",
                    flow=self._setup.name,
                )
            append_rows(self._target, home, [row])

    def _check_broker(self, tp: TopicPartition, result: Rebuilt) -> None:
        """Raise PartitionError if the broker's last sequence of the producer is not that of the
        last record. The next start of the copy would fail on such a difference.
        """
        try:
            known = describe_producers(self._target, [tp])[tp]
        except TwinlogError:
            return  # old broker, or no permission, so the next start cannot compare this either
        state = None if isinstance(known, TwinlogError) else known.get(result.last_producer)
        if state is None or state.last_sequence == sequence_of(result.next_ordinal - 1):
            return
        raise PartitionError(
            f"{tp}: the log ends with sequence {sequence_of(result.next_ordinal - 1)} of producer "
            f"{result.last_producer}, but the broker's last sequence of this producer is "
            f"{state.last_sequence}. Nothing is written to the map. Check the target's brokers",
            code="REBUILD_FOREIGN",
        )

    def _source_log(self, plan: PartitionPlan) -> RebuildLog:
        isolation = self._setup.config.isolation_level
        start, end = log_bounds(self._source, plan.source, isolation)
        return RebuildLog(
            client=self._source,
            tp=plan.source,
            start=start,
            end=end,
            may_lack_offsets=plan.source.topic in self._compacted,
            isolation=isolation,
            skips=tuple(
                skip.skipped
                for skip in self._skips
                if skip.is_of(plan.source, plan.source_topic_id)
            ),
        )

    def _bounds(self, tp: TopicPartition) -> tuple[int, int]:
        log_end = append_ends(self._target, [tp])[tp]
        start, end = log_bounds(self._target, tp)
        if end < log_end:
            raise PartitionError(
                f"{tp}: {log_end - end} records are not on enough replicas: run the "
                "command again when the in-sync replicas have them",
                code="TARGET_UNDER_MIN_ISR",
                fate=Fate.RETRIABLE,
            )
        return start, end

    # -- the flow's state

    def _require_own_producers(self) -> None:
        if not self._flow_producers:
            raise FlowError(
                f"{STATE_TOPIC} on {self._target.alias} names no producer id "
                "of this flow, so the flow's records cannot be recognized; nothing was changed",
                flow=self._setup.name,
                code="REBUILD_FOREIGN",
            )

    def _producers(self) -> frozenset[int]:
        state = state_rows_if_any(self._target)
        self._skips = state.intents(self._setup.name).skips
        return producers_of(self._setup.name, state)

    def _read_map(self) -> DescribedMaps:
        out = DescribedMaps()
        topic = map_topic_of(self._setup.config.flow)
        known = self._target.metadata([topic]).topics[topic]
        if known.error == UNKNOWN_TOPIC_OR_PARTITION:
            return out
        for partition in range(len(known.partitions)):
            for record in read_to_end(self._target, topic, partition):
                if record.key is not None and record.value is not None:
                    out.add(record.key, record.value)
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedGeneration:
    """A generation that this process has claimed, and the flow's map topic."""

    generation: int
    clean: bool
    """True if the previous generation was closed, so that none of its requests are pending."""
    map_topic: str
    map_partitions: int


@dataclass(slots=True, kw_only=True, eq=False)
class ClaimingSetup(FlowSetup):
    """The set-up of a flow for this command: it ends after the claim of a generation."""

    @classmethod
    def of(cls, setup: FlowSetup) -> ClaimingSetup:
        return cls(
            config=setup.config,
            policy=setup.policy,
            source=setup.source,
            target=setup.target,
            lane_source=setup.lane_source,
            lane_target=setup.lane_target,
        )

    def claim(self, held: Iterable[TopicId]) -> ClaimedGeneration:
        """Lead the flow and claim a generation, by the first steps of `FlowSetup.prepare`. Like
        these, the call may be interrupted and repeated. Raises NotLeader if another process leads.

        `held`: IDs of the flow's target topics. If the map topic is lost, so are their rows.
        """
        with self._lock:
            ids, target = self._contact_clusters(once=True), self.clients.target
            map_topic = map_topic_of(self.config.flow)
            history = self.claims.history(target)
            if history is not None and history.latest and lacks_map(target, map_topic, history):
                self.claims.note_lost_map(target, history.latest.generation, held)
            map_reader = self.facts.own_map(self.clients)
            map_partitions = map_reader.partitions
            claim, clean = self.claims.claim(target, ids, map_reader, seen=history, fresh_id=False)
            return ClaimedGeneration(
                generation=claim.generation,
                clean=clean,
                map_topic=map_topic,
                map_partitions=map_partitions,
            )
