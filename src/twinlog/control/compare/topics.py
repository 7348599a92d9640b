"""Compares topics, their partition counts and replication factors, from metadata only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from twinlog.cluster.net.metadata import ClusterMetadata, TopicMetadata
from twinlog.config.flow.schema import FlowConfig, PolicyKind
from twinlog.control.compare.deviation import Aspect, Deviation
from twinlog.mirror.names.filters import TopicSelector, Verdict, is_remote_topic_of, policy_of
from twinlog.mirror.names.naming import is_own_topic
from twinlog.mirror.names.renaming import refused_names
from twinlog.quantities import plural
from twinlog.survey.discovery import selected_topics

MISSING: Final = "missing"
SHOWN_VERDICTS: Final = (
    Verdict.NOT_INCLUDED,
    Verdict.EXCLUDED,
    Verdict.CYCLE,
    Verdict.RELEASED,
)
NO_SOURCE: Final = "its source topic no longer exists; the mirror never deletes topics"


def remote_names(flow: FlowConfig, topics: Mapping[str, TopicMetadata]) -> dict[str, str]:
    """Return the remote names of source topics."""
    policy = policy_of(flow)
    return {name: policy.format_remote_topic(flow.source_alias, name) for name in topics}


def compare_topics(
    flow: FlowConfig, here: ClusterMetadata, there: ClusterMetadata, remote: Mapping[str, str]
) -> Iterator[Deviation]:
    """Yield topics that exist on one side only; `remote` has the remote names of mirrored ones."""
    for name, wanted in remote.items():
        if wanted not in there.topics:
            yield _topic(name, _size(here.topics[name]), MISSING)
    for name, error in refused_names(flow, selected_topics(flow, here)).items():
        yield _topic(name, _size(here.topics[name]), f"not copied [{error.code}]")
    selector = TopicSelector.of(flow)
    for name, topic in here.topics.items():
        verdict = Verdict.INTERNAL if topic.is_internal else selector.verdict(name)
        if verdict in SHOWN_VERDICTS:
            yield _topic(name, _size(topic), "", left_alone=verdict.value)
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
            yield _topic(upstream or name, MISSING, _size(topic), left_alone=NO_SOURCE)


def _topic(name: str, source: str, target: str, *, left_alone: str = "") -> Deviation:
    return Deviation(
        aspect=Aspect.TOPIC, name=name, source=source, target=target, left_alone=left_alone
    )


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
            yield Deviation(
                aspect=Aspect.PARTITIONS,
                name=name,
                source=str(wanted),
                target=str(count),
                left_alone=_why_other_count(flow, more=count > wanted),
            )


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
            yield _factor(name, f"replication.factor = {wanted}", said, "")
        theirs = sorted({len(one.replicas) for one in here[name].partitions})
        if theirs != counts and (wanted <= 0 or counts == [wanted]):
            why = "replication.factor sets that of remote topics"
            yield _factor(name, ", ".join(map(str, theirs)), said, why)


def _factor(name: str, source: str, target: str, left_alone: str) -> Deviation:
    return Deviation(
        aspect=Aspect.REPLICATION_FACTOR,
        name=name,
        source=source,
        target=target,
        left_alone=left_alone,
    )
