"""Questions about partitions go to their leaders: a request per broker, again where one moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.errors_table import (
    LEADER_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_for,
)
from twinlog.errors import Disconnected, TwinlogError, Unreachable
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition

T = TypeVar("T")


class Led(NamedTuple):
    """A partition as its leader's broker is asked about it."""

    tp: TopicPartition
    leader_epoch: int
    topic_id: TopicId


Answers = Mapping[TopicPartition, T | TwinlogError]
Ask = Callable[[int, Sequence[Led]], Answers[T]]
"""Asks one broker, once, about partitions that it leads."""


@dataclass(slots=True)
class _Round(Generic[T]):
    client: ClusterClient
    doing: str
    done: dict[TopicPartition, T | TwinlogError] = field(default_factory=dict)
    failed: dict[TopicPartition, TwinlogError] = field(default_factory=dict)

    def group(self, tps: Iterable[TopicPartition], timeout_s: float) -> dict[int, list[Led]]:
        """Partitions by leader; those without one fail."""
        topics = sorted({tp.topic for tp in tps})
        metadata = self.client.metadata(topics, timeout_s=timeout_s)
        groups: dict[int, list[Led]] = {}
        for tp in tps:
            topic = metadata.topics.get(tp.topic)
            partition = metadata.partition(tp)
            if partition is None or partition.leader < 0:
                topic_error = UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
                missing = UNKNOWN_TOPIC_OR_PARTITION if partition is None else LEADER_NOT_AVAILABLE
                self.failed[tp] = error_for(
                    topic_error or missing,
                    cluster=self.client.alias,
                    doing=f"{self.doing} {tp}",
                    acl=f"DESCRIBE on topic {tp.topic}",
                )
                continue
            topic_id = NO_TOPIC_ID if topic is None else topic.topic_id
            led = Led(tp, partition.leader_epoch, topic_id)
            groups.setdefault(partition.leader, []).append(led)
        return groups

    def ask(self, node: int, leds: Sequence[Led], ask: Ask[T]) -> None:
        try:
            answers = ask(node, leds)
        except (Unreachable, Disconnected) as error:
            self.failed.update((led.tp, error) for led in leds)
            return
        for tp, answer in answers.items():
            if isinstance(answer, TwinlogError):
                self.failed[tp] = answer
            else:
                self.done[tp] = answer


def by_topic(leds: Iterable[Led]) -> dict[str, list[Led]]:
    """As Kafka's messages nest them."""
    topics: dict[str, list[Led]] = {}
    for led in leds:
        topics.setdefault(led.tp.topic, []).append(led)
    return topics


def ask_leaders(
    client: ClusterClient,
    tps: Iterable[TopicPartition],
    ask: Ask[T],
    *,
    doing: str,
    timeout_s: float | None = None,
) -> dict[TopicPartition, T | TwinlogError]:
    """One answer or error for each partition; raises only when the whole cluster cannot be reached.

    `doing` says what is asked, for messages: "listing offsets of".
    """
    deadline = client.deadline(timeout_s)
    retriable = client.retriable_now()
    this = _Round[T](client, doing)
    pending = list(dict.fromkeys(tps))
    failures = 0
    while pending:
        this.failed.clear()
        for node, leds in this.group(pending, deadline.left_s).items():
            this.ask(node, leds, ask)
        pending = [tp for tp, error in this.failed.items() if retriable(error)]
        again = set(pending)
        this.done.update((tp, error) for tp, error in this.failed.items() if tp not in again)
        failures += 1
        if pending and not client.patience.pause(failures, deadline):
            this.done.update((tp, this.failed[tp]) for tp in pending)
            break
    return this.done
