"""Finds groups that would skip records in a remote topic to which several flows copy.

A group resumes on the target at the counterpart of its offset on one source. In a topic with copies
from several sources, records of the other sources precede that offset. The group skips those of
them that it has not read. The group sync of each flow only moves offsets forwards, so a group that
reads two sources resumes at the higher one of its two counterparts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.group_offsets import GroupOffsets
from twinlog.config.flow.schema import FlowConfig
from twinlog.quantities import first_few
from twinlog.survey.cluster_state import cluster_state


def other_flows(
    flow: FlowConfig, target: ClusterClient, remotes: Iterable[str]
) -> dict[str, frozenset[str]]:
    """Return, by topic, the other flows that have begun to copy to these topics of the target."""
    state, wanted = cluster_state(target), frozenset(remotes)
    named = {row.topic for row in state.rows.values() if row.begun and row.flow != str(flow.flow)}
    names = sorted(named & wanted)
    found = target.metadata(names).topics if names else {}
    others = {
        name: frozenset(
            row.flow
            for row in state.copies_of(name, topic.topic_id)
            if row.begun and row.flow != str(flow.flow)
        )
        for name, topic in found.items()
        if not topic.error
    }
    return {name: flows for name, flows in others.items() if flows}


def skipping_groups(
    flow: FlowConfig,
    remotes: Mapping[str, str],
    others: Mapping[str, Collection[str]],
    offsets: Mapping[str, GroupOffsets],
) -> Iterator[str]:
    """Yield one line for each set of other flows that copy to the same remote topics as this flow,
    if groups of the source have offsets in these topics.

    `remotes`: remote topics by source topic. `others`: the other flows, by remote topic.
    """
    by_flows: dict[tuple[str, ...], tuple[set[str], set[str]]] = {}
    for group, some in offsets.items():
        for topic in {tp.topic for tp in some}:
            remote = remotes.get(topic, "")
            if flows := others.get(remote):
                topics, groups = by_flows.setdefault(tuple(sorted(flows)), (set(), set()))
                topics.add(remote)
                groups.add(group)
    for flows_, (topics, groups) in sorted(by_flows.items()):
        yield (
            f"{flow.flow}: {first_few(sorted(topics))} on {flow.flow.target} also gets the records "
            f"of {first_few(flows_)}, and offsets translated by {flow.flow} may be after unread "
            f"ones, so groups would skip them ({first_few(sorted(groups))}): let these groups read "
            "all sources to the end before they move, or give each source its own topics "
            "(DefaultReplicationPolicy, twinlog.rename)"
        )
