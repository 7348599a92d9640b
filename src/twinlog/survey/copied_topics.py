"""Pairs of a source topic and the target topic that is its copy, by ID.

Code that acts on remote topics uses such pairs, never names. A name may now belong to a different
topic, even an unrelated one, or to the only copy of a deleted topic. Code that only reads may find
the pairs by the names that a flow would use (`copies_by_name`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.config.flow.schema import FlowConfig
from twinlog.mirror.names.filters import policy_of
from twinlog.model import TopicId
from twinlog.survey.cluster_state import cluster_state
from twinlog.survey.discovery import mirrored_topics


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CopiedTopic:
    """A source topic and its copy."""

    source: str
    target: str
    source_id: TopicId
    target_id: TopicId


def unchanged_pairs(
    topics: Iterable[CopiedTopic], source: ClusterClient, target: ClusterClient
) -> dict[str, str]:
    """Return target names by source name, for pairs of which both topics still have their IDs."""
    if not (topics := [*topics]):
        return {}
    at_source = source.metadata([topic.source for topic in topics])
    at_target = target.metadata([topic.target for topic in topics])
    return {
        topic.source: topic.target
        for topic in topics
        if at_source.has(topic.source, topic.source_id)
        and at_target.has(topic.target, topic.target_id)
    }


def copies_by_name(
    flow: FlowConfig, source: ClusterClient, target: ClusterClient
) -> dict[str, str]:
    """Return the name of the existing remote topic of each mirrored topic, for read-only use.

    Remote topics that are this flow's copy of another source topic are left out. With
    `twinlog.rename`, two source topics may get one remote name, which the start of a copy rejects.
    """
    policy, at_target = policy_of(flow), target.metadata(None)
    rows = cluster_state(target) if flow.policy.renames else None

    def is_held(name: str, remote: TopicMetadata) -> bool:
        copies = () if rows is None else rows.copies_of(remote.name, remote.topic_id)
        return any(
            row.begun and row.flow == str(flow.flow) and row.source_topic != name for row in copies
        )

    named = (
        (name, at_target.topics.get(policy.format_remote_topic(flow.source_alias, name)))
        for name in mirrored_topics(flow, source.metadata(None))
    )
    return {
        name: remote.name
        for name, remote in named
        if remote is not None and not is_held(name, remote)
    }
