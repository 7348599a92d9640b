"""Which source topics may lack offsets."""

from __future__ import annotations

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics import admin
from twinlog.errors import TwinlogError


def may_lack_offsets(client: ClusterClient, topics: set[str]) -> set[str]:
    """Those that are compacted, and those whose configuration may not be read.

    In every other topic each offset between the log's start and its end is a record, a marker, or
    a record that was rolled back; a fetch answers all three.
    """
    out = set()
    for topic, configs in admin.describe_topic_configs(client, topics).items():
        is_plain = not isinstance(configs, TwinlogError) and any(
            entry.name == "cleanup.policy" and entry.value == "delete" for entry in configs
        )
        if not is_plain:
            out.add(topic)
    return out
