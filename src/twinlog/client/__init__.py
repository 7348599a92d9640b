"""The public Python API: the methods of Java's `MirrorClient` and `RemoteClusterUtils`, and more.

`steering` writes intents for flows (pause, limit, release, promote), `skipping` and `repair` resume
a partition that has stopped, and `offset_reset` sets the offsets of groups.
"""

from __future__ import annotations

from twinlog.client.mirror_client import (
    GroupOffset,
    GroupOffsets,
    MirrorClient,
    checkpoint_topics,
    heartbeat_topics,
    replication_hops,
    translate_offsets,
    upstream_clusters,
)
from twinlog.mirror.map.translation import Translation
from twinlog.model import TopicPartition

__all__ = [
    "GroupOffset",
    "GroupOffsets",
    "MirrorClient",
    "TopicPartition",
    "Translation",
    "checkpoint_topics",
    "heartbeat_topics",
    "replication_hops",
    "translate_offsets",
    "upstream_clusters",
]
