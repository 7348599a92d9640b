"""Sends partition queries to their leaders: one request per broker, repeated if a leader moved.

A partition without a responding leader delays no other. It is retried for NO_LEADER_S, not for as
long as the call may take. The client remembers it, and its next calls try once. A broker that let a
request time out is not waited for again before SILENT_S have passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from twinlog.cluster.client import ClusterClient, Silent
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.errors import BrokerRefused, Disconnected, TwinlogError, Unreachable
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.wire.error_codes import (
    LEADER_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_for,
)

T = TypeVar("T")

NO_LEADER_S: Final = 4.0
"""Enough time for an election that has a candidate."""

FAILOVER_S: Final = 12.0
"""A cluster detects within 9 s (broker.session.timeout.ms) that a leader is dead, and elects its
successor. An unreachable leader is retried for this long.
"""

SILENT_S: Final = 10.0
"""As long as one request waits: by then the cluster itself has fenced a frozen broker."""

FORGET_S: Final = 600.0
"""A partition that was not queried for this long is forgotten."""


class Led(NamedTuple):
    """A partition, as sent in requests to its leader."""

    tp: TopicPartition
    leader_epoch: int
    topic_id: TopicId


Answers = Mapping[TopicPartition, T | TwinlogError]
Ask = Callable[[int, Sequence[Led]], Answers[T]]
"""Queries one broker, once, about partitions that it leads."""


@dataclass(slots=True)
class _Round(Generic[T]):
    client: ClusterClient
    doing: str
    done: dict[TopicPartition, T | TwinlogError] = field(default_factory=dict)
    failed: dict[TopicPartition, TwinlogError] = field(default_factory=dict)
    leaderless: dict[TopicPartition, float] = field(default_factory=dict)
    """Since when, in this call."""

    def group(
        self, tps: Iterable[TopicPartition], timeout_s: float, *, is_first: bool
    ) -> dict[int, list[Led]]:
        """Group partitions by leader. Those without a leader fail."""
        names = {tp.topic for tp in tps}
        kept = self.client.led
        if is_first and kept is not None and names <= kept.keys():
            topics: Mapping[str, TopicMetadata] = kept
        else:
            topics = self._look_up(sorted(names), timeout_s)
        groups: dict[int, list[Led]] = {}
        for tp in tps:
            topic = topics.get(tp.topic)
            partition = None if topic is None else topic.partition(tp.partition)
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

    def _look_up(self, names: list[str], timeout_s: float) -> Mapping[str, TopicMetadata]:
        asked = time.monotonic()
        topics = self.client.metadata(names, timeout_s=timeout_s).topics
        if time.monotonic() - asked > NO_LEADER_S / 2:
            self.leaderless.clear()  # the cluster itself did not respond
        return topics

    def ask(self, node: int, leds: Sequence[Led], ask: Ask[T]) -> None:
        began = self.client.clock()
        silent = self.client.silent.get(node)
        if silent is not None and time.monotonic() < silent.until:
            self.failed.update((led.tp, silent.error) for led in leds)
            return
        try:
            answers = ask(node, leds)
        except (Unreachable, Disconnected) as error:
            if self.client.clock() - began > NO_LEADER_S / 2:
                self.client.silent[node] = Silent(time.monotonic() + SILENT_S, error)
            self.failed.update((led.tp, error) for led in leds)
            return
        self.client.silent.pop(node, None)
        for tp, answer in answers.items():
            if isinstance(answer, TwinlogError):
                self.failed[tp] = answer
            else:
                self.done[tp] = answer
                self.leaderless.pop(tp, None)
                self.client.leaderless.pop(tp, None)

    def gives_up(self, tp: TopicPartition, error: TwinlogError) -> bool:
        """Return whether it has had no leader for too long, in this call or earlier ones."""
        now = time.monotonic()
        if not has_no_leader(error):
            self.leaderless.pop(tp, None)
            return False
        since = self.leaderless.setdefault(tp, now)
        patience_s = NO_LEADER_S if isinstance(error, BrokerRefused) else FAILOVER_S
        if tp not in self.client.leaderless and now - since < patience_s:
            return False
        self.client.leaderless[tp] = now
        return True


def has_no_leader(error: TwinlogError) -> bool:
    """Return whether there is no leader, or its broker does not respond."""
    if isinstance(error, BrokerRefused):
        return error.kafka_error == LEADER_NOT_AVAILABLE or error.code == "BROKER_NOT_AVAILABLE"
    return isinstance(error, Unreachable | Disconnected)


def by_topic(leds: Iterable[Led]) -> dict[str, list[Led]]:
    """Return the partitions by topic, as Kafka's messages nest them."""
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
    """Return one result or error for each partition. Raises only if the whole cluster is
    unreachable.

    `doing` describes the query for messages, for example "listing offsets of".
    """
    _forget_old(client)
    deadline = client.deadline(timeout_s)
    retriable = client.retriable_now()
    this = _Round[T](client, doing)
    pending = list(dict.fromkeys(tps))
    failures = 0
    while pending:
        this.failed.clear()
        leaders = this.group(pending, deadline.left_s, is_first=not failures)
        for node, leds in leaders.items():
            this.ask(node, leds, ask)
        pending = [
            tp
            for tp, error in this.failed.items()
            if retriable(error) and not this.gives_up(tp, error)
        ]
        again = set(pending)
        this.done.update((tp, error) for tp, error in this.failed.items() if tp not in again)
        failures += 1
        if pending and not client.patience.pause(failures, deadline):
            this.done.update((tp, this.failed[tp]) for tp in pending)
            break
    return this.done


def _forget_old(client: ClusterClient) -> None:
    if client.leaderless:
        old = time.monotonic() - FORGET_S
        for tp in [tp for tp, asked in client.leaderless.items() if asked < old]:
            del client.leaderless[tp]


def topics_of(tps: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partitions by topic, if leaders are not needed."""
    topics: dict[str, list[int]] = {}
    for tp in tps:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics
