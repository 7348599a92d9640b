"""A map that was there is not rebuilt in silence while the target holds what it describes."""

from __future__ import annotations

from collections.abc import Iterable

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import LATEST, list_offsets
from twinlog.errors import TwinlogError
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.generations import FlowHistory
from twinlog.survey.map_reader import map_missing
from twinlog.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION


def is_lost(target: ClusterClient, map_topic: str, history: FlowHistory | None) -> bool:
    """The flow was led before, so the topic was there; now it is not."""
    if history is None or history.latest is None:
        return False
    return target.metadata([map_topic]).topics[map_topic].error == UNKNOWN_TOPIC_OR_PARTITION


def require_nothing_copied(
    target: ClusterClient, map_topic: str, plans: Iterable[PartitionPlan]
) -> None:
    """Raises MAP_MISSING where a remote topic ever held a record, or may have."""
    topics = target.metadata(sorted({plan.target.topic for plan in plans})).topics.values()
    tps = [tp for topic in topics for tp in topic.tps]
    ends = list_offsets(target, tps, LATEST)
    for end in (ends[tp] for tp in tps):
        # also where retention emptied it since: where to resume was in the map
        if isinstance(end, TwinlogError) or end.offset > 0:
            raise map_missing(map_topic)
