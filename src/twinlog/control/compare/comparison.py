"""Compares the two clusters of each flow by what its mirror keeps equal, which its replication
policy, filters and syncs determine. Only reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from twinlog.cluster.client import ClusterClient, prompt_client
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import Group
from twinlog.cluster.groups.group_offsets import GroupOffsets
from twinlog.cluster.groups.share_groups import offsets_of
from twinlog.cluster.net.metadata import ClusterMetadata, TopicMetadata
from twinlog.config.flow.schema import FlowConfig, MirrorConfig, PolicyKind
from twinlog.control.check.group_readiness import GroupSurvey, survey_groups
from twinlog.control.check.offline_status import resting_flow
from twinlog.control.compare.deviation import Aspect, Deviation, FlowComparison
from twinlog.control.compare.settings import compare_acls, compare_configs, compare_quotas
from twinlog.control.duties.rounds import LedFlow
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.wiring import flow_setup
from twinlog.errors import TwinlogError, UsageError
from twinlog.mirror.names.filters import TopicSelector, Verdict, is_remote_topic_of, policy_of
from twinlog.mirror.names.naming import is_own_topic
from twinlog.mirror.names.renaming import refused_names
from twinlog.quantities import plural
from twinlog.survey.discovery import mirrored_topics, selected_topics
from twinlog.survey.state_reader import state_rows_if_any

MANY: Final = 1_000
"""Number of topics from which on a comparison shows its steps, because it takes long."""


def matching(topics: str | None, where: str) -> Callable[[str], bool]:
    """Return a matcher of whole names; None matches all. Raises UsageError, which names `where`."""
    if topics is None:
        return lambda _: True
    try:
        compiled = re.compile(topics)
    except re.error as problem:
        raise UsageError(f"{where}: {topics} is not a regular expression: {problem}") from None
    return lambda name: compiled.fullmatch(name) is not None


def compare_flows(
    config: MirrorConfig,
    matches: Callable[[str], bool],
    *,
    with_left_alone: bool,
    say: Callable[[str], None],
) -> Iterator[FlowComparison]:
    """Compare each flow. `matches` selects the source topics that are checked. `with_left_alone`
    adds what the flows do not copy. Raises TwinlogError if a cluster of a flow cannot be queried.
    """
    for flow in config.flows:
        setup = flow_setup(flow)
        with prompt_client(setup.source) as source, prompt_client(setup.target) as target:
            comparer = _Comparer(setup, source, target, with_left_alone, say)
            yield comparer.compared(matches)


def compare_topic_configs(
    setup: FlowSetup,
    source: ClusterClient,
    target: ClusterClient,
    matches: Callable[[str], bool],
) -> FlowComparison:
    """Compare only the topic configs of one flow."""
    out = FlowComparison(flow=setup.name)
    here, there = source.metadata(None), target.metadata(None)
    flow, remote = _remotes(setup, target, here, matches)
    present = {name: its for name, its in remote.items() if its in there.topics}
    narrowed = _narrowed(flow, here, matches)
    compare_configs(narrowed, source, target, present, out, with_left_alone=False)
    return out


def _remotes(
    setup: FlowSetup, target: ClusterClient, here: ClusterMetadata, matches: Callable[[str], bool]
) -> tuple[FlowConfig, dict[str, str]]:
    """Return the flow with its released topics, and the remote names of the topics to compare."""
    released = state_rows_if_any(target).intents(setup.name).released
    flow = replace(setup.config, released=released)
    mirrored = {n: t for n, t in mirrored_topics(flow, here).items() if matches(n)}
    return flow, remote_names(flow, mirrored)


def _narrowed(
    flow: FlowConfig, here: ClusterMetadata, matches: Callable[[str], bool]
) -> FlowConfig:
    """Return the flow without topics that are not compared, for the sync of configs."""
    unseen = frozenset(name for name in here.topics if not matches(name))
    return replace(flow, released=flow.released | unseen)


@dataclass(slots=True)
class _Comparer:
    """Compares the two clusters of one flow."""

    _setup: FlowSetup
    _source: ClusterClient
    _target: ClusterClient
    _with_left_alone: bool
    _say: Callable[[str], None]

    def compared(self, matches: Callable[[str], bool]) -> FlowComparison:
        out = FlowComparison(flow=self._setup.name)
        here, there = self._source.metadata(None), self._target.metadata(None)
        flow, remote = _remotes(self._setup, self._target, here, matches)
        present = {name: its for name, its in remote.items() if its in there.topics}

        def report(what: str) -> None:
            if len(remote) >= MANY:
                self._say(f"{self._setup.name}: comparing {what}")

        topics = [one for one in compare_topics(flow, here, there, remote) if matches(one.name)]
        out.add(Aspect.TOPIC, len(remote), topics)
        partitions = compare_partitions(flow, here.topics, there.topics, present)
        out.add(Aspect.PARTITIONS, len(present), partitions)
        factors = compare_replication(flow, here.topics, there.topics, present)
        out.add(Aspect.REPLICATION_FACTOR, len(present), factors)
        narrowed = _narrowed(flow, here, matches)
        with_left_alone = self._with_left_alone
        report(f"configs of {plural(len(present), 'topic')}")
        compare_configs(
            narrowed, self._source, self._target, present, out, with_left_alone=with_left_alone
        )
        report("ACLs")
        compare_acls(flow, self._source, self._target, remote, out, with_left_alone=with_left_alone)
        if with_left_alone:
            compare_quotas(self._source, self._target, out)
        if with_left_alone or flow.groups.sync_s is not None:
            report("groups")
            self._groups(out, matches)
        return out

    def _groups(self, out: FlowComparison, matches: Callable[[str], bool]) -> None:
        led = resting_flow(self._setup, self._source, self._target, out.notes.append)
        views = tuple(view for view in led.partitions() if matches(view.source.topic))
        compare_groups(
            replace(led, partitions=lambda: views),
            Coordinators(self._source),
            Coordinators(self._target),
            out,
            with_left_alone=self._with_left_alone,
        )


# Compares topics, their partition counts and replication factors, from metadata only.

MISSING: Final = "missing"
SHOWN_VERDICTS: Final = (
    Verdict.NOT_INCLUDED,
    Verdict.EXCLUDED,
    Verdict.CYCLE,
    Verdict.RELEASED,
)
NO_SOURCE: Final = "its source topic no longer exists; the mirror never deletes topics"


def remote_names(flow: FlowConfig, topics: Mapping[str, TopicMetadata]) -> dict[str, str]:
    policy = policy_of(flow)
    return {name: policy.format_remote_topic(flow.source_alias, name) for name in topics}


def compare_topics(
    flow: FlowConfig, here: ClusterMetadata, there: ClusterMetadata, remote: Mapping[str, str]
) -> Iterator[Deviation]:
    """Yield topics that exist on one side only; `remote` has the remote names of mirrored ones."""
    for name, wanted in remote.items():
        if wanted not in there.topics:
            yield Deviation(Aspect.TOPIC, name, "", _size(here.topics[name]), MISSING)
    for name, error in refused_names(flow, selected_topics(flow, here)).items():
        target = f"not copied [{error.code}]"
        yield Deviation(Aspect.TOPIC, name, "", _size(here.topics[name]), target)
    selector = TopicSelector.of(flow)
    for name, topic in here.topics.items():
        verdict = Verdict.INTERNAL if topic.is_internal else selector.verdict(name)
        if verdict in SHOWN_VERDICTS:
            yield Deviation(Aspect.TOPIC, name, "", _size(topic), "", verdict.value)
    if flow.policy.kind is PolicyKind.IDENTITY:
        return  # names do not show which topics of the target are copies
    policy = policy_of(flow)
    copied = {*remote_names(flow, here.topics).values()}
    for name, topic in there.topics.items():
        if is_own_topic(name) or policy.is_internal_topic(name):
            continue
        if is_remote_topic_of(policy, flow.source_alias, name) and name not in copied:
            # with rename rules the remote name does not contain the source's
            upstream = None if flow.policy.renames else policy.upstream_topic(name)
            found = _size(topic)
            yield Deviation(Aspect.TOPIC, upstream or name, "", MISSING, found, NO_SOURCE)


def _size(topic: TopicMetadata) -> str:
    return plural(len(topic.partitions), "partition")


def compare_partitions(
    flow: FlowConfig,
    here: Mapping[str, TopicMetadata],
    there: Mapping[str, TopicMetadata],
    remote: Mapping[str, str],
) -> Iterator[Deviation]:
    """Yield differing partition counts. A remote topic grows with its source, and never shrinks."""
    for name, its in remote.items():
        found = there.get(its)
        if found is None or found.error:
            continue
        wanted, count = len(here[name].partitions), len(found.partitions)
        if count != wanted:
            why = _why_other_count(flow, more=count > wanted)
            yield Deviation(Aspect.PARTITIONS, name, "", str(wanted), str(count), why)


def _why_other_count(flow: FlowConfig, *, more: bool) -> str:
    if flow.keyed_partitions:
        return "twinlog.target.partitions = keyed: records are placed by key"
    if flow.same_partitions or not more:
        return ""
    return "additional partitions on the target are never removed"


def compare_replication(
    flow: FlowConfig,
    here: Mapping[str, TopicMetadata],
    there: Mapping[str, TopicMetadata],
    remote: Mapping[str, str],
) -> Iterator[Deviation]:
    """Yield differing replication factors. Remote topics should have `replication.factor`,
    regardless of their source.
    """
    wanted = flow.new_topics.replication_factor
    for name, its in remote.items():
        found = there.get(its)
        if found is None or not found.partitions or not here[name].partitions:
            continue
        counts = sorted({len(one.replicas) for one in found.partitions})
        said = ", ".join(map(str, counts))
        if wanted > 0 and counts != [wanted]:
            ours = f"replication.factor = {wanted}"
            yield Deviation(Aspect.REPLICATION_FACTOR, name, "", ours, said)
        theirs = sorted({len(one.replicas) for one in here[name].partitions})
        if theirs != counts and (wanted <= 0 or counts == [wanted]):
            why = "replication.factor sets that of remote topics"
            ours = ", ".join(map(str, theirs))
            yield Deviation(Aspect.REPLICATION_FACTOR, name, "", ours, said, why)


# Compares the offsets of the target's groups with those that the flow's sync would set.

SYNC_OFF: Final = "sync.group.offsets.enabled = false"
ACTIVE_THERE: Final = "it is active on the target, so its own commits count"
AHEAD: Final = "it is ahead on the target: an idle group is never moved back"
OTHER_KIND: Final = "a group of another type has that name on the target"


def compare_groups(
    led: LedFlow,
    here: Coordinators,
    there: Coordinators,
    out: FlowComparison,
    *,
    with_left_alone: bool,
) -> None:
    """Compare every offset of a selected group that has a counterpart on the target."""
    sync_s = led.config.groups.sync_s
    if sync_s is None and not with_left_alone:
        return
    survey = survey_groups(led, here, there)
    off = SYNC_OFF if sync_s is None else ""
    follows = f"it is active on {led.config.flow.source}, and synchronized every {sync_s} s"
    offsets = offsets_of(
        there,
        [one.name for one in survey.selected if not one.is_share],
        [one.name for one in survey.selected if one.is_share],
        furthest=True,
    )
    found: list[Deviation] = []
    for group in survey.selected:
        theirs = offsets.get(group.name, {})
        if isinstance(theirs, TwinlogError):
            out.note(f"group {group.name} is not compared: {theirs}")
            continue
        counterpart = survey.there.get(group.name)
        why = off or why_left_alone(group, counterpart) or (follows if group.is_active else "")
        found += _of_group(group, survey, theirs, why)
    out.add(Aspect.GROUP, len(survey.selected), found)


def why_left_alone(group: Group, there: Group | None) -> str:
    """Return why a group of the target may have other offsets; empty if it is synchronized."""
    if there is None:
        return ""
    if there.is_active:
        return ACTIVE_THERE
    is_same = there.is_share if group.is_share else there.has_offsets
    return "" if is_same else OTHER_KIND


def _of_group(
    group: Group, survey: GroupSurvey, theirs: GroupOffsets, why: str
) -> Iterator[Deviation]:
    ours = survey.offsets[group.name]
    if isinstance(ours, TwinlogError):
        return
    for tp, committed in sorted(ours.items()):
        if tp in survey.without_counterpart or tp not in survey.counterparts:
            continue
        counterpart = survey.counterparts[tp]
        wanted = counterpart.translate(committed.offset).offset
        stands = theirs[counterpart.target].offset if counterpart.target in theirs else None
        if stands == wanted:
            continue
        is_ahead = stands is not None and stands > wanted
        source = f"{committed.offset}, which corresponds to {wanted}"
        target = "none" if stands is None else str(stands)
        left_alone = why or (AHEAD if is_ahead else "")
        partition = str(counterpart.target)
        yield Deviation(Aspect.GROUP, group.name, partition, source, target, left_alone)
