"""Reads the last status that a flow's leader published in the status topic of its target."""

from __future__ import annotations

import time
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import list_offsets
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.errors import TwinlogError
from twinlog.mirror.names.naming import STATUS_TOPIC
from twinlog.mirror.state.published import PublishedStatus, published_status
from twinlog.mirror.state.rows import Row
from twinlog.model import TopicPartition

HOME: Final = TopicPartition(STATUS_TOPIC, 0)
LATELY_MS: Final = 600_000
"""The first read of the topic begins this long ago, because compaction may be a day late."""


def leader_status(target: ClusterClient, flow: str) -> PublishedStatus | None:
    """Return the newest row, whatever its age, or None without a row or a topic."""
    topic = target.metadata([STATUS_TOPIC]).topics.get(STATUS_TOPIC)
    if topic is None or topic.error:
        return None
    lately = rows_since(target, int(time.time() * 1000) - LATELY_MS)
    return published_status(flow, lately or ()) or published_status(flow, _rows(target, 0))


def rows_since(target: ClusterClient, since_ms: int) -> list[Row] | None:
    """Return the rows of the status topic from this time on, or None if its log cannot be read."""
    begin = list_offsets(target, [HOME], since_ms)[HOME]
    if isinstance(begin, TwinlogError):
        return None
    return _rows(target, begin.offset) if begin.offset >= 0 else []


def _rows(target: ClusterClient, first: int) -> list[Row]:
    return [(row.key, row.value) for row in read_to_end(target, STATUS_TOPIC, 0, first)]
