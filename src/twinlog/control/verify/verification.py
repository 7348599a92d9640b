"""Verifies the flows of a configuration, without writing to either cluster.

The queries are made in this order, so that a running mirror does not cause false differences:

1. Committed offsets of groups on the target (`groups`).
2. Log ends of the source and of the target, the offset map, and the state topic
   (`survey.picture`).
3. Log ends of the target again. A mark in the map (a point that the copy has reached) is written
   after the records before it. So if a mark is beyond even these ends, the target has lost records.
4. Log ends of the source again. Offsets in the map that are beyond these ends were never records of
   the source.
5. Both logs of each partition, several partitions at a time.
6. Committed offsets of groups on the source, and configs of topics.

Leaders may change during the run, so every fetch goes to the current leader. Records that retention
deletes during the run are counted as deleted, not as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from twinlog.cluster.client import ClusterClient, prompt_client
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import Group, list_groups
from twinlog.cluster.groups.group_offsets import GroupOffsets
from twinlog.cluster.groups.share_groups import offsets_of
from twinlog.cluster.topics.configs import may_lack_offsets
from twinlog.config.flow.schema import MirrorConfig
from twinlog.control.check.group_readiness import GroupSurvey, Offsets, survey_groups
from twinlog.control.check.offline_status import idle_flow_interface
from twinlog.control.compare import compare_topic_configs, why_left_alone
from twinlog.control.duties.rounds import LedFlow
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.verify.functions import FlowFunctions
from twinlog.control.verify.result import VerifiedFlow, VerifiedGroup, VerifiedPartition
from twinlog.control.verify.workers import (
    ClusterPair,
    ThreadWorkers,
    VerifyWorkers,
    WalkProgress,
)
from twinlog.errors import TwinlogError
from twinlog.extras import require_extra
from twinlog.mirror.findings import Span
from twinlog.mirror.map.offset_map import PartitionMap
from twinlog.mirror.map.runs import digest_of, run_at
from twinlog.mirror.plan import FOREVER, PartitionPlan
from twinlog.mirror.state.generations import producers_of
from twinlog.mirror.state.intents import FlowIntents
from twinlog.mirror.verify.difference import Compared, DifferenceKind
from twinlog.model import TopicPartition
from twinlog.spark.verify import VerifyDone
from twinlog.survey.discovery import Discovery, discover, selected_topics
from twinlog.survey.ends import Ends, LogState, Want, known_offsets, read_ends
from twinlog.survey.picture import read_flow
from twinlog.survey.replica import Replica
from twinlog.survey.state_reader import state_rows_if_any
from twinlog.survey.verify import (
    MappedCopy,
    PartitionBounds,
    VerifyTask,
    rules_of,
)

BY_KEY: Final = (
    "its records are placed by key in several partitions: order and offsets do not correspond"
)
NO_TRANSFORM: Final = "its records were transformed, and the configuration has no transform for it"
OTHER_TRANSFORM: Final = "its newest records have other transforms than the configuration"
EARLIER_TRANSFORM: Final = "records had other transforms, or none, before offset"
NO_TOPIC: Final = "the target has no such topic, and no mirror is running"
NO_BOUNDS: Final = "the bounds of its logs are unknown"
NO_SUCH_PARTITION: Final = "not compared: it is not empty, and the source has no such partition"
AGAIN: Final = "rechecking the differences"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyScope:
    """Topics and times to verify, as selected by the user."""

    matches: Callable[[str], bool] = lambda _: True
    """Returns True for the name of a source topic to verify."""
    since_ms: int | None = None
    until_ms: int | None = None
    """Each partition is verified from its first source record at or after `since_ms` up to, not
    including, the first one at or after `until_ms`.
    """
    is_deep: bool = False


OnStep = Callable[[str, int, int], None]
"""Called with the flow's name, the number of target offsets compared, and their total number."""


def verify_flows(
    config: MirrorConfig, scope: VerifyScope, workers: VerifyWorkers, on_step: OnStep
) -> Iterator[VerifiedFlow]:
    """Verify each flow. Raises TwinlogError if a cluster of a flow cannot be queried."""
    for flow in config.flows:
        setup = flow_setup(flow)
        with prompt_client(setup.source) as source, prompt_client(setup.target) as target:
            yield _Flow(setup, source, target, scope, workers, on_step).verified()


@dataclass(slots=True)
class _Flow:
    _setup: FlowSetup
    _source: ClusterClient
    _target: ClusterClient
    _scope: VerifyScope
    _workers: VerifyWorkers
    _on_step: OnStep
    _intents: FlowIntents = field(default_factory=FlowIntents)
    _producers: frozenset[int] = frozenset()
    _partly: dict[TopicPartition, str] = field(default_factory=dict)
    """Why only a part of a source partition is compared, by partition."""

    def verified(self) -> VerifiedFlow:
        coordinators = Coordinators(self._target)
        led_by = list_groups(coordinators).get(f"twinlog-{self._setup.name}")
        out = VerifiedFlow(flow=self._setup.name, is_led=led_by is not None and led_by.is_active)
        before = target_offsets_of(coordinators, self._setup.config.groups.selects)
        self._read_state()
        flow = replace(self._setup.config, released=self._intents.unmirrored_topics)
        discovery = discover(flow, self._setup.policy, self._source, self._target, create=False)
        out.notes += discovery.notes
        out.partitions += self._never_made(discovery, out)
        out.partitions += self._compare_partitions(discovery, out)
        out.partitions.sort(key=lambda verified: verified.source)
        led = idle_flow_interface(self._setup, self._source, self._target, out.note)
        views = tuple(
            partition
            for partition in led.partitions()
            if self._scope.matches(partition.source.topic)
        )
        led = replace(led, partitions=lambda: views)
        verify_groups(led, Coordinators(self._source), coordinators, before, out)
        configs = compare_topic_configs(
            self._setup, self._source, self._target, self._scope.matches
        )
        out.configs += configs.differences
        out.notes += (line for line in configs.notes if line not in out.notes)
        return out

    def _read_state(self) -> None:
        rows = state_rows_if_any(self._target)
        self._intents = rows.intents(self._setup.name)
        self._producers = producers_of(self._setup.name, rows)

    # -- partitions without a target

    def _never_made(
        self, discovery: Discovery, verified: VerifiedFlow
    ) -> Iterator[VerifiedPartition]:
        """Yield results for source partitions without a target partition: the remote topic is
        missing or too small, or the topic cannot be mirrored.
        """
        policy, alias = self._setup.policy, self._setup.config.source_alias
        why = {problem.topic: str(problem.error) for problem in discovery.problems}
        first = {problem.topic: problem.first for problem in discovery.problems}
        flow = replace(self._setup.config, released=self._intents.unmirrored_topics)
        # topics whose remote name is refused are included here, because they are not copied either
        topics = selected_topics(flow, self._source.metadata(None))
        planned = {plan.source for plan in discovery.plans}
        lost = [
            tp
            for name, topic in topics.items()
            if self._scope.matches(name)
            for tp in topic.tps
            if tp.partition >= first.get(name, 0) and tp not in planned
        ]
        logs = self._source_ends(lost)
        since, until = self._scope_offsets(lost)
        for tp in lost:
            target = TopicPartition(policy.format_remote_topic(alias, tp.topic), tp.partition)
            compared, problem = Compared(), why.get(tp.topic, "")
            start, end = logs[tp].start, logs[tp].end
            if not problem and (start is None or end is None):
                problem = NO_BOUNDS
            limit = _until(until.get(tp))
            next_offset = end or 0 if limit is None else min(end or 0, limit)
            missing = Span(max(start or 0, _since(since.get(tp, 0))), next_offset)
            if not problem and not missing.is_empty:
                if verified.is_led:
                    compared.pending = missing
                else:
                    count, kind = missing.next - missing.first, DifferenceKind.MISSING
                    compared.add_difference(kind, missing, None, count, NO_TOPIC)
            yield VerifiedPartition(source=tp, target=target, compared=compared, why_not=problem)

    # -- partitions with a target

    def _compare_partitions(
        self, discovery: Discovery, verified: VerifiedFlow
    ) -> Iterable[VerifiedPartition]:
        plans = [plan for plan in discovery.plans if self._scope.matches(plan.source.topic)]
        targets = [plan.target for plan in plans]
        picture = read_flow(
            self._target,
            targets,
            Want.STARTS,
            after=self._source_ends([plan.source for plan in plans]),
            is_shared=self._setup.is_identity,
            new_owners=lambda: self._intents.new_owners,
            maps=self._setup.config.flow,
        )
        # read skips again, so that a record that was skipped meanwhile is not reported as missing
        self._read_state()
        there_later = read_ends(self._target, targets)
        later_ends = self._source_ends([plan.source for plan in plans])
        source_lacking = may_lack_offsets(self._source, {plan.source.topic for plan in plans})
        target_lacking = may_lack_offsets(self._target, {plan.target.topic for plan in plans})
        since, until = self._scope_offsets([plan.source for plan in plans])
        tasks: list[VerifyTask | VerifiedPartition] = []
        for plan in plans:
            replica = picture.replica(plan, plan.targets)
            source_bounds, target_bounds = _bounds(replica.source), _bounds(replica.target)
            transform, begin = _newest_transform(plan, replica.map)
            why = ""
            if plan.targets:
                why = BY_KEY
            elif replica.problem is not None and replica.key is None:
                why = str(replica.problem)
            elif transform not in ("", plan.transform):
                why = OTHER_TRANSFORM if plan.transform else NO_TRANSFORM
            if why or source_bounds is None or target_bounds is None:
                tasks.append(_unknown_partition(plan, why or NO_BOUNDS))
                continue
            first = _since(since.get(plan.source, 0))
            if first < begin:
                self._partly[plan.source] = f"{EARLIER_TRANSFORM} {begin}"
            later_end = later_ends[plan.source].end
            tasks.append(
                VerifyTask(
                    source=plan.source,
                    target=plan.target,
                    here=source_bounds,
                    there=target_bounds,
                    later_source_end=FOREVER if later_end is None else later_end,
                    mapped_copy=self._mapped_copy(replica, there_later[plan.target]),
                    producers=self._producers | _producers(replica.map),
                    rules=rules_of(
                        self._intents,
                        plan,
                        is_shared=self._setup.is_identity,
                        is_deep=self._scope.is_deep,
                    ),
                    isolation=self._setup.config.isolation_level,
                    is_led=verified.is_led,
                    source_may_lack=plan.source.topic in source_lacking,
                    target_may_lack=plan.target.topic in target_lacking,
                    since=max(first, begin),
                    until=_until(until.get(plan.source)),
                    transform=transform,
                )
            )
        self._note_unmapped(plans, verified)
        return self._verified(tasks)

    def _note_unmapped(self, plans: Sequence[PartitionPlan], verified: VerifiedFlow) -> None:
        """Add a note for each non-empty target partition that has no source partition."""
        topics = {plan.target.topic: plan.source.topic for plan in plans if not plan.targets}
        if self._setup.is_identity or not topics:
            return
        target_topics = self._target.metadata(list(topics)).topics
        # query the source after the target, so that partitions that a mirror has just created are
        # not regarded as extra
        source_topics = self._source.metadata(list(topics.values())).topics
        surplus = [
            tp
            for remote, name in topics.items()
            if remote in target_topics and name in source_topics and source_topics[name].partitions
            for tp in target_topics[remote].tps
            if tp.partition >= len(source_topics[name].partitions)
        ]
        for tp, log in read_ends(self._target, surplus, Want.STARTS).items():
            if log.problem is not None or log.start != log.end:
                verified.leave_out(f"{tp}: {NO_SUCH_PARTITION}")

    def _mapped_copy(self, replica: Replica, later: LogState) -> MappedCopy:
        # if other clients write to the topic, the end of the copy must be found in the log
        reach = None if self._setup.is_identity else replica.copied.reach
        end = replica.target.end or 0
        return MappedCopy.of(replica.map, reach, end if later.end is None else later.end)

    def _source_ends(self, tps: Sequence[TopicPartition]) -> Ends:
        isolation = self._setup.config.isolation_level
        return read_ends(self._source, tps, Want.STARTS, isolation=isolation)

    def _scope_offsets(
        self, tps: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return (since, until), two mappings by partition: the first offsets at or after
        `since_ms`, and at or after `until_ms`. An offset is -1 if no record is that new. A mapping
        is empty if its time is not set.
        """
        isolation = self._setup.config.isolation_level
        since, until = (
            {} if at_ms is None else known_offsets(self._source, tps, at_ms, isolation=isolation)
            for at_ms in (self._scope.since_ms, self._scope.until_ms)
        )
        return since, until

    # -- several at a time

    def _verified(
        self, wanted: Sequence[VerifyTask | VerifiedPartition]
    ) -> list[VerifiedPartition]:
        asked = [task for task in wanted if isinstance(task, VerifyTask)]
        name = self._setup.name

        def step(progress: WalkProgress) -> None:
            of = f"{name}, {AGAIN}" if progress.is_again else name
            self._on_step(of, progress.done, progress.total)

        clusters = ClusterPair(source=self._setup.source, target=self._setup.target)
        unchanged = [task for task in asked if not task.transform]
        transformed = [task for task in asked if task.transform]
        results = self._workers.verify(clusters, unchanged, step)
        results += self._verify_transformed(clusters, transformed, step)
        tasks = zip([*unchanged, *transformed], results, strict=True)
        found = {task.source: result for task, result in tasks}
        return [
            verified
            if isinstance(verified, VerifiedPartition)
            else self._partition(verified, found[verified.source])
            for verified in wanted
        ]

    def _verify_transformed(
        self, clusters: ClusterPair, tasks: list[VerifyTask], step: Callable[[WalkProgress], None]
    ) -> list[VerifyDone]:
        """Compare transformed partitions in this process. The functions run in another process."""
        if not tasks:
            return []
        try:
            require_extra("pyarrow", "records", "verify: the transforms of a topic")
            functions = FlowFunctions(self._setup.config)
        except TwinlogError as error:
            return [VerifyDone(compared=Compared(), why_not=str(error)) for _ in tasks]
        return ThreadWorkers(functions).verify(clusters, tasks, step)

    def _partition(self, task: VerifyTask, result: VerifyDone) -> VerifiedPartition:
        return VerifiedPartition(
            source=task.source,
            target=task.target,
            compared=result.compared,
            why_not=result.why_not or self._partly.get(task.source, ""),
            map=digest_of(task.mapped_copy.runs),
        )


def _newest_transform(plan: PartitionPlan, partition_map: PartitionMap | None) -> tuple[str, int]:
    """Return the digest of the transforms that the newest records have passed, and the source
    offset of the first record with these transforms.
    """
    if partition_map is None or not partition_map.runs:
        return plan.transform, 0
    ordinal = partition_map.transform_begins
    run = run_at(partition_map.runs, ordinal) if ordinal > partition_map.runs[0].ordinal else None
    return partition_map.transform, 0 if run is None else run.upstream_of(ordinal)


def _bounds(log: LogState) -> PartitionBounds | None:
    if log.start is None or log.end is None:
        return None
    return PartitionBounds(start=log.start, end=log.end)


def _since(offset: int) -> int:
    return FOREVER if offset < 0 else offset


def _producers(partition_map: PartitionMap | None) -> frozenset[int]:
    return frozenset() if partition_map is None else frozenset(partition_map.producers)


def _until(offset: int | None) -> int | None:
    return None if offset is None or offset < 0 else offset


def _unknown_partition(plan: PartitionPlan, why: str) -> VerifiedPartition:
    return VerifiedPartition(
        source=plan.source, target=plan.target, compared=Compared(), why_not=why
    )


# Checks whether a group would skip records if it moved to the target now.
#
# Offsets on the target are queried before those on the source. Commits only move forward, so a
# sync that sets a group's offset between the two queries cannot make the target appear to be ahead.


def target_offsets_of(coordinators: Coordinators, selects: Callable[[str], bool]) -> Offsets:
    """Return the committed offsets on the target of the groups that the flow selects."""
    groups = [group for group in list_groups(coordinators).values() if selects(group.name)]
    return offsets_of(
        coordinators,
        [group.name for group in groups if group.has_offsets and not group.is_share],
        [group.name for group in groups if group.is_share],
        furthest=True,
    )


def verify_groups(
    led_flow: LedFlow,
    source_groups: Coordinators,
    target_groups: Coordinators,
    before: Offsets,
    verified: VerifiedFlow,
) -> None:
    """Verify the selected groups' offsets that have a counterpart on the target, and add the
    results to `verified`. `before`: result of `target_offsets_of`, queried earlier.
    """
    survey = survey_groups(led_flow, source_groups, target_groups)
    for group in survey.selected:
        target_offsets = before.get(group.name, {})
        source_offsets = survey.offsets[group.name]
        for problem in (target_offsets, source_offsets):
            if isinstance(problem, TwinlogError):
                verified.leave_out(f"group {group.name} is not compared: {problem}")
        if not isinstance(target_offsets, TwinlogError) and not isinstance(
            source_offsets, TwinlogError
        ):
            verified.groups += _verify_group(group, survey, source_offsets, target_offsets)


def _verify_group(
    group: Group, survey: GroupSurvey, source_offsets: GroupOffsets, target_offsets: GroupOffsets
) -> Iterator[VerifiedGroup]:
    why = why_left_alone(group, survey.there.get(group.name))
    for tp, committed in sorted(source_offsets.items()):
        if tp in survey.without_counterpart or tp not in survey.counterparts:
            continue
        counterpart = survey.counterparts[tp]
        stands = target_offsets.get(counterpart.target)
        yield VerifiedGroup(
            group=group.name,
            source=tp,
            target=TopicPartition(*counterpart.target),
            committed=committed.offset,
            translated_offset=counterpart.translate(committed.offset).offset,
            target_committed=None if stands is None else stands.offset,
            left_alone=why,
        )
