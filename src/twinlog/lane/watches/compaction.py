"""Which source topics may lack offsets, or keep records elsewhere than on the brokers."""

from __future__ import annotations

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.configs import describe_topic_configs
from twinlog.errors import TwinlogError


def may_lack_offsets(client: ClusterClient, topics: set[str]) -> set[str]:
    """Those that are compacted, and those whose configuration may not be read.

    In every other topic each offset between the log's start and its end is a record, a marker, or
    a record that was rolled back; a fetch answers all three.
    """
    return _without(client, topics, "cleanup.policy", "delete")


def may_be_tiered(client: ClusterClient, topics: set[str]) -> set[str]:
    """Those with remote storage (KIP-405), and those of which brokers do not say that it is off."""
    return _without(client, topics, "remote.storage.enable", "false")


def _without(client: ClusterClient, topics: set[str], name: str, value: str) -> set[str]:
    return {
        topic
        for topic, configs in describe_topic_configs(client, topics).items()
        if isinstance(configs, TwinlogError)
        or not any((entry.name, entry.value) == (name, value) for entry in configs)
    }
