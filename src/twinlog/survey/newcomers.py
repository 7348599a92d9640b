"""Finds source partitions that were created since the flow's first survey (`twinlog.start.new`).

A survey lists the source's topics, and so finds new ones. If the copy of a new topic began at
`latest` at that time, records written before the survey would be skipped. Kafka does not record
when a topic was created, so surveys are compared. Everything that the source has now and did not
have in the first survey is new, whether the flow's filters select it or not. With
`twinlog.start.new = earliest`, the first survey is that of the flow's first process, which is
stored in the state topic (see below). Otherwise it is the first survey of this process.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.cluster.topics.internal_log import append_once
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.state_row import Rows, encode_row, read_row
from twinlog.model import NO_TOPIC_ID
from twinlog.survey.discovery import shown_by_any
from twinlog.survey.state_reader import STATE_PARTITION, state_rows


class TopicSurveys:
    """A process's surveys (lists of the source's partitions), kept as long as the process runs."""

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
        """Load the flow's first survey, which any process may have made. If there is none, make
        one, which is durable on return. Must be called before `marked`.

        `topics` are all topics of the source. A topic missing in the first survey would always
        count as new, so several brokers are queried in case that one has stale metadata.
        """
        if self._recalled_from == target.settings.bootstrap:
            return
        known = first_survey(flow, state_rows(target).of(flow))
        if known is None:
            present = {*_identities(topics.values()), *_identities(shown_by_any(source))}
            known = frozenset((self._seen or set()) | present) - self._new
            for row in first_survey_rows(flow, known):
                append_once(target, STATE_PARTITION, [row])
            first = first_survey(flow, state_rows(target).of(flow))
            # another process may have stored its survey before this one
            known = known if first is None else first
        self._seen, self._recalled_from = set(known), target.settings.bootstrap

    def marked(
        self, plans: Iterable[PartitionPlan], topics: Mapping[str, TopicMetadata]
    ) -> list[PartitionPlan]:
        """Return the plans, with `is_new` set for new partitions. `topics` are all topics of the
        source.
        """
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
            yield _identity(topic.topic_id, topic.name, partition.number)


def _identity(topic_id: str, name: str, partition: int) -> Identity:
    return (name if topic_id == NO_TOPIC_ID else topic_id), partition


# The topics that a source had when a flow first looked for new ones (`twinlog.start.new =
# earliest`), as rows of the state topic. Kafka does not record when a topic was created. So the
# partitions of the first survey are stored and never changed. Any other partition is new, also to
# later processes. New partitions get no row, so they are still new if a process dies before it
# copies them.
#
# A survey has one row for each few hundred topics, with keys of its own:
#
# - If the process dies between two rows, or a response is lost, the survey is incomplete and
#   ignored. The next process makes another survey; no lane has begun at that time.
# - If two processes write at once, or a frozen one writes late, the first complete survey in the
#   log counts. No key is written twice (`internal_log.append_once`), so the log cleaner keeps the
#   order of rows.
# - A re-created topic has another ID, so it is new. Without topic IDs only its name is known.
# - If the state topic is lost, the next survey becomes the first. Partitions with a row in the
#   offset map resume from that row.

Identity = tuple[str, int]
"""Topic ID (or the topic's name if brokers have no topic IDs) and number of a partition."""

TOPICS_A_ROW: Final = 500

_KIND: Final = "first-look"


def first_survey_rows(flow: str, identities: Iterable[Identity]) -> list[tuple[bytes, bytes]]:
    """Return (key, value) of the rows of one survey, in the order of appending."""
    counts: dict[str, int] = {}
    for topic, partition in identities:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    topics = sorted(counts)
    parts = [
        topics[index : index + TOPICS_A_ROW] for index in range(0, len(topics), TOPICS_A_ROW)
    ] or [[]]
    survey_id = uuid.uuid4().hex
    return [
        encode_row(
            ["flow", flow, _KIND, survey_id, number],
            {"of": len(parts), "partitions": {topic: counts[topic] for topic in part}},
        )
        for number, part in enumerate(parts)
    ]


def first_survey(flow: str, records: Rows) -> frozenset[Identity] | None:
    """Return the partitions of the first complete survey, from (key, value) in log order, or None.

    Raises CorruptData for a row that cannot be read.
    """
    surveys: dict[str, dict[int, dict[str, int]]] = {}
    for key, value in records:
        if key is None or value is None or not _is_row(key, flow):
            continue
        parts, fields = read_row(key, value)
        survey = surveys.setdefault(parts[3], {})
        survey[parts[4]] = fields["partitions"]
        if len(survey) == fields["of"]:
            return frozenset(
                (topic, partition)
                for row in survey.values()
                for topic, count in row.items()
                for partition in range(count)
            )
    return None


def _is_row(key: bytes, flow: str) -> bool:
    try:
        return bool(json.loads(key)[:3] == ["flow", flow, _KIND])
    except (ValueError, TypeError):
        return False
