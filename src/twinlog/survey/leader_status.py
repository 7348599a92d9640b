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
from twinlog.model import TopicPartition

LATELY_MS: Final = 600_000
"""The topic is first read from this far back: compaction may be a day late."""


def leader_status(target: ClusterClient, flow: str) -> PublishedStatus | None:
    """Return the newest row, whatever its age, or None if there is none or the topic does not
    exist.
    """
    home = TopicPartition(STATUS_TOPIC, 0)
    found = target.metadata([STATUS_TOPIC]).topics.get(STATUS_TOPIC)
    if found is None or found.error:
        return None
    lately = int(time.time() * 1000) - LATELY_MS
    begin = list_offsets(target, [home], lately)[home]
    late = 0 if isinstance(begin, TwinlogError) else begin.offset
    for first in (late, 0) if late >= 0 else (0,):
        rows = read_to_end(target, STATUS_TOPIC, 0, first)
        status = published_status(flow, ((row.key, row.value) for row in rows))
        if status is not None:
            return status
    return None
