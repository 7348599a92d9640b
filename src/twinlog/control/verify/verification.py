"""Verifies the flows of a configuration. Only reads.

The queries are made in this order, so that a running mirror does not cause false differences:

1. Committed offsets of groups on the target (`groups`).
2. Log ends of the source, then of the target. Records that are on the target then were on the
   source before, and records that a lane writes later are not read.
3. The offset map and the state topic. Rows of the map are written before their data, so this map
   has all rows of records below the target's end (`mirror.map.translation`, rule A).
4. Log ends of the target again, because the map marks no record as written before it is. If its
   mark is beyond even that end, the target has lost records. Then log ends of the source again:
   offsets in the map beyond them were never records of the source.
5. Both logs of each partition, several partitions at a time.
6. Committed offsets of groups on the source, and configs of topics.

Leaders and log starts may move: every fetch goes to the current leader, and records that retention
deletes during the run are counted as deleted, not as missing. A process that dies has changed
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from twinlog.cluster.client import ClusterClient, prompt_client
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import list_groups
from twinlog.cluster.logs.offsets import EARLIEST, LATEST
from twinlog.config.flow.schema import MirrorConfig
from twinlog.control.check.resting_flow import resting_flow
from twinlog.control.compare.comparison import compare_topic_configs
from twinlog.control.duties.rounds import LedFlow
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.verify.groups import offsets_there, verify_groups
from twinlog.control.verify.progress import WalkProgress
from twinlog.control.verify.result import VerifiedFlow, VerifiedPartition
from twinlog.control.verify.workers import ClusterPair, Found, VerifyWorkers
from twinlog.lane.watches.compaction import may_lack_offsets
from twinlog.mirror.map.offset_map import PartitionMap
from twinlog.mirror.map.runs import digest_of
from twinlog.mirror.plan import FOREVER, PartitionPlan
from twinlog.mirror.state.generations import producers_of
from twinlog.mirror.state.intents import FlowIntents
from twinlog.mirror.verify.difference import Compared, Range
from twinlog.mirror.verify.walk import Rules
from twinlog.model import TopicPartition
from twinlog.survey.discovery import Discovery, discover, selected_topics
from twinlog.survey.ends import NO_ENDS, known_ends, known_offsets
from twinlog.survey.map_reader import Maps, read_maps
from twinlog.survey.state_reader import state_rows_if_any
from twinlog.survey.verify.partition import MappedCopy, PartitionBounds, VerifyTask, never_made
from twinlog.survey.verify.rules import rules_of

BY_KEY: Final = (
    "its records are placed by key in several partitions: order and offsets do not correspond"
)
NO_BOUNDS: Final = "the bounds of its logs are unknown"
NO_SUCH_PARTITION: Final = "not compared: it is not empty, and the source has no such partition"
AGAIN: Final = "rechecking the differences"
Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyScope:
    """The part of the flows that is verified."""

    matches: Callable[[str], bool] = lambda _: True
    """Selects source topics by name."""
    since_ms: int | None = None
    until_ms: int | None = None
    """Source times: from the first record at or after `since_ms` to the first at or after this."""
    is_deep: bool = False


OnStep = Callable[[str, int, int], None]
"""Called with the flow, the number of target offsets done, and their total."""


def verify_flows(
    config: MirrorConfig, scope: VerifyScope, workers: VerifyWorkers, on_step: OnStep
) -> Iterator[VerifiedFlow]:
    """Verify each flow. Raises TwinlogError if a cluster of a flow cannot be queried."""
    for flow in config.flows:
        setup = flow_setup(flow)
        with prompt_client(setup.source) as source, prompt_client(setup.target) as target:
            yield _Flow(config, setup, source, target, scope, workers, on_step).verified()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logs:
    """The bounds and maps of all partitions, in the order in which they were queried."""

    here_ends: Offsets
    here_starts: Offsets
    there_starts: Offsets
    there_ends: Offsets
    maps: Maps
    there_later: Offsets
    here_later: Offsets

    def of(self, plan: PartitionPlan) -> PartitionMap | None:
        """Return the map of a partition."""
        return self.maps.get(plan.map_key)


class _Flow:
    def __init__(
        self,
        config: MirrorConfig,
        setup: FlowSetup,
        source: ClusterClient,
        target: ClusterClient,
        scope: VerifyScope,
        workers: VerifyWorkers,
        on_step: OnStep,
    ) -> None:
        self._config, self._setup = config, setup
        self._source, self._target = source, target
        self._scope = scope
        self._workers = workers
        self._on_step = on_step
        self._intents = FlowIntents()
        self._producers: frozenset[int] = frozenset()

    def verified(self) -> VerifiedFlow:
        there = Coordinators(self._target)
        led_by = list_groups(there).get(f"twinlog-{self._setup.name}")
        out = VerifiedFlow(flow=self._setup.name, is_led=led_by is not None and led_by.is_active)
        before = offsets_there(there, self._setup.config.groups.selects)
        self._read_state()
        flow = replace(self._setup.config, released=self._intents.released)
        found = discover(flow, self._setup.policy, self._source, self._target, create=False)
        out.notes += found.notes
        out.partitions += self._never_made(found, out)
        out.partitions += self._compared(found, out)
        out.partitions.sort(key=lambda one: one.source)
        led = resting_flow(self._config, self._setup, self._source, self._target, out.note)
        verify_groups(self._chosen(led), Coordinators(self._source), there, before, out)
        configs = compare_topic_configs(
            self._setup, self._source, self._target, self._scope.matches
        )
        out.configs += configs.differences
        out.notes += (line for line in configs.notes if line not in out.notes)
        return out

    def _chosen(self, led: LedFlow) -> LedFlow:
        views = tuple(one for one in led.partitions() if self._scope.matches(one.source.topic))
        return replace(led, partitions=lambda: views)

    def _read_state(self) -> None:
        rows = state_rows_if_any(self._target)
        self._intents = rows.intents(self._setup.name)
        self._producers = producers_of(self._setup.name, rows)

    # -- partitions without a target

    def _never_made(self, found: Discovery, out: VerifiedFlow) -> Iterator[VerifiedPartition]:
        """Yield partitions of missing remote topics, and of topics that cannot be mirrored."""
        policy, alias = self._setup.policy, self._setup.config.source_alias
        why = {one.topic: str(one.error) for one in found.problems}
        first = {one.topic: one.first for one in found.problems}
        flow = replace(self._setup.config, released=self._intents.released)
        # including topics whose remote name is refused, because they are not copied
        topics = selected_topics(flow, self._source.metadata(None))
        planned = {plan.source for plan in found.plans}
        lost = [
            tp
            for name, topic in topics.items()
            if self._scope.matches(name)
            for tp in topic.tps
            if tp.partition >= first.get(name, 0) and tp not in planned
        ]
        starts = known_offsets(self._source, lost, EARLIEST)
        ends = known_ends(self._source, self._setup.config, lost)
        since, until = self._scoped(lost)
        for tp in lost:
            target = TopicPartition(policy.format_remote_topic(alias, tp.topic), tp.partition)
            compared, problem = Compared(), why.get(tp.topic, "")
            here = Range(starts.get(tp, -1), ends.get(tp, -1))
            if not problem and min(here) < 0:
                problem = NO_BOUNDS
            here = _narrowed(here, _since(since.get(tp, 0)), _until(until.get(tp)))
            if not problem and here.next > here.first:
                if out.is_led:
                    compared.pending = here
                else:
                    compared = never_made(here)
            yield VerifiedPartition(source=tp, target=target, compared=compared, why_not=problem)

    # -- partitions with one

    def _compared(self, found: Discovery, out: VerifiedFlow) -> Iterable[VerifiedPartition]:
        plans = [plan for plan in found.plans if self._scope.matches(plan.source.topic)]
        logs = self._ask(plans)
        lacking_here = may_lack_offsets(self._source, {plan.source.topic for plan in plans})
        lacking_there = may_lack_offsets(self._target, {plan.target.topic for plan in plans})
        since, until = self._scoped([plan.source for plan in plans])
        wanted: list[VerifyTask | VerifiedPartition] = []
        for plan in plans:
            why_not = self._why_not(plan, logs)
            if why_not:
                wanted.append(_unknown(plan, why_not))
                continue
            wanted.append(
                VerifyTask(
                    source=plan.source,
                    target=plan.target,
                    here=PartitionBounds(
                        start=logs.here_starts[plan.source], end=logs.here_ends[plan.source]
                    ),
                    there=PartitionBounds(
                        start=logs.there_starts[plan.target], end=logs.there_ends[plan.target]
                    ),
                    here_later=logs.here_later.get(plan.source, FOREVER),
                    written=self._written(plan, logs),
                    producers=self._producers | _producers(logs.of(plan)),
                    rules=self._rules(plan),
                    isolation=self._setup.config.isolation_level,
                    is_led=out.is_led,
                    source_may_lack=plan.source.topic in lacking_here,
                    target_may_lack=plan.target.topic in lacking_there,
                    since=_since(since.get(plan.source, 0)),
                    until=_until(until.get(plan.source)),
                )
            )
        self._note_wider(plans, out)
        return self._verified(wanted)

    def _note_wider(self, plans: Sequence[PartitionPlan], out: VerifiedFlow) -> None:
        """Note target partitions with records that the source topic does not have: no map covers
        them.
        """
        topics = {plan.target.topic: plan.source.topic for plan in plans if not plan.targets}
        if self._setup.is_identity or not topics:
            return
        there = self._target.metadata(list(topics)).topics
        # queried last, so that a partition that a mirror has just created is not regarded as extra
        here = self._source.metadata(list(topics.values())).topics
        surplus = [
            tp
            for remote, name in topics.items()
            if remote in there and name in here and here[name].partitions
            for tp in there[remote].tps
            if tp.partition >= len(here[name].partitions)
        ]
        starts = known_offsets(self._target, surplus, EARLIEST)
        ends = known_offsets(self._target, surplus, LATEST)
        for tp in surplus:
            if ends.get(tp, -1) < 0 or tp not in starts or starts[tp] < ends[tp]:
                out.leave_out(f"{tp}: {NO_SUCH_PARTITION}")

    def _written(self, plan: PartitionPlan, logs: _Logs) -> MappedCopy:
        end = logs.there_ends[plan.target]
        later = logs.there_later.get(plan.target, end)
        return MappedCopy.of(logs.of(plan), end, later, is_shared=self._setup.is_identity)

    def _why_not(self, plan: PartitionPlan, logs: _Logs) -> str:
        if plan.targets:
            return BY_KEY
        here, there = plan.source in logs.here_ends, plan.target in logs.there_ends
        if not (here and there and plan.source in logs.here_starts):
            return NO_BOUNDS
        if plan.target not in logs.there_starts:
            return NO_BOUNDS
        problem = logs.maps.problem(plan.source)
        return "" if problem is None else str(problem)

    def _ask(self, plans: Iterable[PartitionPlan]) -> _Logs:
        sources = [plan.source for plan in plans]
        targets = [plan.target for plan in plans]
        here_ends = known_ends(self._source, self._setup.config, sources)
        here_starts = known_offsets(self._source, sources, EARLIEST)
        there_starts = known_offsets(self._target, targets, EARLIEST)
        there_ends = known_offsets(self._target, targets, LATEST)
        maps = read_maps(self._target, self._setup.config.flow, after=NO_ENDS)
        return _Logs(
            here_ends=here_ends,
            here_starts=here_starts,
            there_starts=there_starts,
            there_ends=there_ends,
            maps=maps,
            there_later=known_offsets(self._target, targets, LATEST),
            here_later=known_ends(self._source, self._setup.config, sources),
        )

    def _scoped(self, tps: Sequence[TopicPartition]) -> tuple[Offsets, Offsets]:
        """Return the first offsets at or after `since` and `until`; -1 if there is none."""
        isolation = self._setup.config.isolation_level
        since, until = (
            {} if at_ms is None else known_offsets(self._source, tps, at_ms, isolation=isolation)
            for at_ms in (self._scope.since_ms, self._scope.until_ms)
        )
        return since, until

    def _rules(self, plan: PartitionPlan) -> Rules:
        return rules_of(
            self._intents,
            (plan.source, plan.source_topic_id),
            (plan.target, plan.target_topic_id),
            is_shared=self._setup.is_identity,
            is_deep=self._scope.is_deep,
        )

    # -- several at a time

    def _verified(
        self, wanted: Sequence[VerifyTask | VerifiedPartition]
    ) -> list[VerifiedPartition]:
        asked = [one for one in wanted if isinstance(one, VerifyTask)]
        name = self._setup.name

        def step(progress: WalkProgress) -> None:
            of = f"{name}, {AGAIN}" if progress.is_again else name
            self._on_step(of, progress.done, progress.total)

        clusters = ClusterPair(source=self._setup.source, target=self._setup.target)
        found = iter(self._workers.verify(clusters, asked, step))
        return [
            one if isinstance(one, VerifiedPartition) else _partition(one, next(found))
            for one in wanted
        ]


def _partition(wanted: VerifyTask, found: Found) -> VerifiedPartition:
    return VerifiedPartition(
        source=wanted.source,
        target=wanted.target,
        compared=found.compared,
        why_not=found.why_not,
        map=digest_of(wanted.written.runs),
    )


def _narrowed(here: Range, since: int, until: int | None) -> Range:
    """Return the part of the range that is in the scope; it may be empty."""
    return Range(max(here.first, since), here.next if until is None else min(here.next, until))


def _since(offset: int) -> int:
    return FOREVER if offset < 0 else offset


def _producers(known: PartitionMap | None) -> frozenset[int]:
    return frozenset() if known is None else frozenset(known.producers)


def _until(offset: int | None) -> int | None:
    return None if offset is None or offset < 0 else offset


def _unknown(plan: PartitionPlan, why: str) -> VerifiedPartition:
    return VerifiedPartition(
        source=plan.source, target=plan.target, compared=Compared(), why_not=why
    )
