"""Source partitions that were made while this process ran the flow (`twinlog.start.new`).

A new topic is found at the next look, and `latest` of that moment leaves out what was written
before. Kafka does not say when a topic was made, so the looks are compared: what the source has
now and did not have at the look before is new, whether the flow's filters choose it or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.mirror.plan import PartitionPlan
from twinlog.model import NO_TOPIC_ID

Identity = tuple[str, int]
"""(topic id, or its name where the brokers have no ids; partition)"""


class Newcomers:
    """What the looks of a process have shown; kept as long as the process."""

    def __init__(self) -> None:
        self._seen: set[Identity] | None = None
        self._new: set[Identity] = set()

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
