"""Creates, deletes and observes topics of one cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

__all__ = ["Topics"]

_TIMEOUT_S = 30.0


class Topics:
    """The topics of one cluster, by an admin client that neither copier uses (librdkafka)."""

    def __init__(self, bootstrap: str) -> None:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            # otherwise a topic that did not exist at the first query stays unknown for 30 s
            "topic.metadata.propagation.max.ms": 0,
        }
        self._admin = AdminClient(settings)

    def create(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create a topic with one replica, and wait until it has leaders."""
        new = NewTopic(topic, partitions, replication_factor=1, config=dict(config or {}))
        self._admin.create_topics([new], operation_timeout=_TIMEOUT_S)[topic].result(_TIMEOUT_S)
        deadline = time.monotonic() + _TIMEOUT_S
        while not self.has(topic) or self.log_end_sum(topic, partitions) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {topic} has no leaders after {_TIMEOUT_S:.0f} s")
            time.sleep(0.05)

    def names(self) -> set[str]:
        """Return the names of all topics."""
        return set(self._admin.list_topics(timeout=_TIMEOUT_S).topics)

    def delete(self, topics: Iterable[str]) -> None:
        """Delete topics. A topic that does not exist is no error."""
        wanted = sorted(topics)
        if not wanted:
            return
        for answer in self._admin.delete_topics(wanted, operation_timeout=_TIMEOUT_S).values():
            try:
                answer.result(_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                    raise

    def delete_of_alias(self, alias: str) -> None:
        """Delete all topics whose names contain a cluster's alias: remote and internal topics."""
        self.delete(name for name in self.names() if alias in name.replace("-", ".").split("."))

    def has(self, topic: str) -> bool:
        """Return True if the topic exists and all its partitions have leaders."""
        answer = self._admin.list_topics(topic=topic, timeout=_TIMEOUT_S).topics[topic]
        found = answer.partitions.values()
        return answer.error is None and bool(found) and all(one.error is None for one in found)

    def log_end_sum(self, topic: str, partitions: int) -> int | None:
        """Return the sum of the log ends, which is the number of records unless records were
        deleted.

        Returns None after any error, because brokers return several different errors for a moment
        after the creation of a topic. Callers that wait for a topic have a deadline anyway.
        """
        latest = OffsetSpec.latest()
        wanted = {TopicPartition(topic, each): latest for each in range(partitions)}
        try:
            answers = self._admin.list_offsets(wanted, request_timeout=_TIMEOUT_S).values()
            return sum(int(answer.result(_TIMEOUT_S).offset) for answer in answers)
        except KafkaException:
            return None
