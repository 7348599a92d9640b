"""Remote topics that hold the copy of another source topic than their name says now.

Beside `twinlog.rename` a name may go to another topic, which the start of a copy refuses. Whatever
else acts on remote topics by their names must leave such a one alone too: it may be the only copy
of what it holds.
"""

from __future__ import annotations

from collections.abc import Mapping

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.config.flow.schema import FlowConfig
from twinlog.mirror.names.filters import policy_of
from twinlog.survey.cluster_state import cluster_state


def without_held(
    flow: FlowConfig, topics: Mapping[str, TopicMetadata], target: ClusterClient
) -> dict[str, TopicMetadata]:
    """The source topics, by name, whose remote topic holds no other topic's copy of this flow."""
    if not flow.policy.renames:
        return dict(topics)
    policy, there = policy_of(flow), target.metadata(None)
    state = cluster_state(target, there.cluster_id or "")

    def is_held(name: str) -> bool:
        remote = there.topics.get(policy.format_remote_topic(flow.source_alias, name))
        rows = () if remote is None else state.copies_of(remote.name, remote.topic_id)
        return any(
            row.begun and row.flow == str(flow.flow) and row.source_topic != name for row in rows
        )

    return {name: topic for name, topic in topics.items() if not is_held(name)}
