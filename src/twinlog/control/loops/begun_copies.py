"""What a flow has begun to copy, found by name: asked once per topic in every survey.

A survey judges all topics at once, and each could be beside any row: without this it would take the
square of their number, also in flows that rename nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from twinlog.cluster.net.metadata import ClusterMetadata
from twinlog.config.flow.schema import FlowConfig
from twinlog.mirror.state.copies import CopyRow
from twinlog.model import NO_TOPIC_ID, TopicId
from twinlog.survey.cluster_state import ClusterState


class BegunCopies:
    """The rows of one flow for which a new name may matter."""

    def __init__(self, config: FlowConfig, there: ClusterMetadata, target: ClusterState) -> None:
        self._by_remote: defaultdict[str, list[CopyRow]] = defaultdict(list)
        self._by_source: defaultdict[str | TopicId, list[CopyRow]] = defaultdict(list)
        rows = [row for row in target.copied_by(str(config.flow)) if row.begun]
        if not config.policy.renames:
            rows = [row for row in rows if row.renamed]
        for row in _named(rows, there):
            self._by_remote[row.topic].append(row)
            self._by_source[row.source_topic].append(row)
            if row.source_topic_id != NO_TOPIC_ID:
                self._by_source[row.source_topic_id].append(row)

    def beside(self, row: CopyRow) -> Iterator[CopyRow]:
        """Those of the same remote topic or the same source topic; some twice."""
        for other in (
            *self._by_remote.get(row.topic, ()),
            *self._by_source.get(row.source_topic, ()),
            *self._by_source.get(row.source_topic_id, ()),
        ):
            if row.renamed or other.renamed:
                yield other


def _named(rows: Iterable[CopyRow], there: ClusterMetadata) -> Iterator[CopyRow]:
    """Rows of earlier releases say a topic's id alone; without that topic they are void."""
    names: dict[TopicId, str] | None = None
    for row in rows:
        if row.topic:
            yield row
            continue
        if names is None:
            names = {topic.topic_id: name for name, topic in there.topics.items()}
        if row.topic_id != NO_TOPIC_ID and row.topic_id in names:
            yield replace(row, topic=names[row.topic_id])
