"""Finds source topics that may lack offsets, or keep records outside the brokers."""

from __future__ import annotations

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.configs import describe_topic_configs
from twinlog.errors import TwinlogError


def may_lack_offsets(client: ClusterClient, topics: set[str]) -> set[str]:
    """Return the topics that are compacted, or whose configuration may not be read.

    In every other topic, each offset between the log's start and its end is a record, a marker, or
    an aborted record. A fetch returns all three.
    """
    return _without(client, topics, "cleanup.policy", "delete")


def may_be_tiered(client: ClusterClient, topics: set[str]) -> set[str]:
    """Return the topics with remote storage (KIP-405), or for which brokers do not report that it
    is disabled.
    """
    return _without(client, topics, "remote.storage.enable", "false")


def _without(client: ClusterClient, topics: set[str], name: str, value: str) -> set[str]:
    return {
        topic
        for topic, configs in describe_topic_configs(client, topics).items()
        if isinstance(configs, TwinlogError)
        or not any((entry.name, entry.value) == (name, value) for entry in configs)
    }
