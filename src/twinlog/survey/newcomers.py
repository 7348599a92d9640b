"""Source partitions that were made since the flow first looked for topics (`twinlog.start.new`).

A new topic is found at the next look, and `latest` of that moment leaves out what was written
before. Kafka does not say when a topic was made, so looks are compared: what the source has now and
did not have at the first look is new, whether the flow's filters choose it or not. Where new ones
begin with their first record, the first look is that of the flow's first process, and stands in the
state topic (`mirror.state.first_survey`); else it is that of this process.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.cluster.topics.internal_log import append_once
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.first_survey import Identity, first_survey, first_survey_rows
from twinlog.model import NO_TOPIC_ID, TopicPartition
from twinlog.survey.stale_metadata import shown_by_any
from twinlog.survey.state_reader import state_rows


class Newcomers:
    """What the looks of a process have shown; kept as long as the process."""

    def __init__(self) -> None:
        self._seen: set[Identity] | None = None
        self._new: set[Identity] = set()
        self._recalled_from: object = None

    def recall(
        self,
        flow: str,
        source: ClusterClient,
        target: ClusterClient,
        topics: Mapping[str, TopicMetadata],
    ) -> None:
        """Before `marked`: what the flow's first look showed counts, whoever made it; where it has
        made none, this one does, and is durable when this returns. `topics` are all that the source
        has.

        A topic that is missing in the first look would be new for ever, so several brokers are
        asked then: one may be behind.
        """
        if self._recalled_from == target.settings.bootstrap:
            return
        known = first_survey(flow, state_rows(target).of(flow))
        if known is None:
            here = {*_identities(topics.values()), *_identities(shown_by_any(source))}
            known = frozenset((self._seen or set()) | here) - self._new
            state, now_ms = TopicPartition(STATE_TOPIC, 0), int(time.time() * 1000)
            for row in first_survey_rows(flow, known):
                append_once(target, state, [row], now_ms)
        self._seen, self._recalled_from = set(known), target.settings.bootstrap

    def marked(
        self, plans: Iterable[PartitionPlan], topics: Mapping[str, TopicMetadata]
    ) -> list[PartitionPlan]:
        """The plans, those of new partitions marked; `topics` are all that the source has."""
        now = set(_identities(topics.values()))
        if self._seen is not None:
            self._new |= now - self._seen
        self._seen = now | (self._seen or set())
        return [
            replace(plan, is_new=True)
            if _identity(plan.source_topic_id, *plan.source) in self._new
            else plan
            for plan in plans
        ]


def _identities(topics: Iterable[TopicMetadata]) -> Iterator[Identity]:
    for topic in topics:
        for partition in topic.partitions:
            yield _identity(topic.topic_id, topic.name, partition.partition)


def _identity(topic_id: str, name: str, partition: int) -> Identity:
    return (name if topic_id == NO_TOPIC_ID else topic_id), partition
