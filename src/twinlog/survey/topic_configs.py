"""How long the source keeps its records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.configs import describe_topic_configs
from twinlog.errors import TwinlogError

POLICY: Final = "cleanup.policy"
RETENTION_MS: Final = "retention.ms"
NO_LIMIT: Final = -1
"""Of a topic that keeps its records however old they are."""


def retentions(source: ClusterClient, topics: Iterable[str]) -> dict[str, int]:
    """retention.ms of topics whose configs may be read, or NO_LIMIT; raises TwinlogError."""
    found: dict[str, int] = {}
    for topic, configs in describe_topic_configs(source, topics).items():
        if isinstance(configs, TwinlogError):
            continue
        values = {entry.name: entry.value for entry in configs}
        retention_ms = int(values.get(RETENTION_MS) or -1)
        is_limited = "delete" in (values.get(POLICY) or "") and retention_ms >= 0
        found[topic] = retention_ms if is_limited else NO_LIMIT
    return found
