"""The public Python API: what Java's `MirrorClient` and `RemoteClusterUtils` answer, and more.

`steering` writes what people want of flows (pause, limit, release, promote), `skipping` and
`repair` what becomes of a partition that has stopped, `offset_reset` where groups are.
"""

from __future__ import annotations

from twinlog.client.mirror_client import GroupOffset, GroupOffsets, MirrorClient
from twinlog.client.remote_cluster import (
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
