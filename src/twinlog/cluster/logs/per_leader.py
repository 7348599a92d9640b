"""Sends requests about partitions to their leaders: one per broker, repeated if a leader has moved.

*Problem.* A query about a thousand partitions needs a result for each of them. If a partition has
no leader, no broker responds with an error. If a call waited for a leader until its deadline (a
minute), all other partitions would wait as long, and a cold start makes ten such queries.

*Rules* (ADR 14):

| the leader of a partition                  | the partition is retried for                        |
| ------------------------------------------ | --------------------------------------------------- |
| has moved, or is not ready                 | the whole call                                      |
| does not exist                             | NO_LEADER_S, enough for an election                 |
| cannot be reached                          | FAILOVER_S, until the cluster has elected a new one |
| has been missing since an earlier call     | one attempt per call: the client remembers such     |
|                                            | partitions (`client.leaderless`)                    |
| is a broker that let a request time out    | no attempt: the broker gets no request for SILENT_S |
|                                            | (`client.silent`)                                   |

So every call returns in time, with one result or error for each partition, unless the whole cluster
is unreachable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from twinlog.cluster.client import ClusterClient, SilentBroker
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.errors import BrokerRefused, ClusterError, Disconnected, TwinlogError, Unreachable
from twinlog.model import TopicPartition
from twinlog.wire.error_codes import (
    LEADER_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_for,
)

T = TypeVar("T")

NO_LEADER_S: Final = 4.0
"""How long a partition without a leader is retried, in seconds: enough to elect a live replica."""

FAILOVER_S: Final = 12.0
"""How long a partition is retried if its leader cannot be reached, in seconds. A cluster notices
within 9 s (broker.session.timeout.ms) that a broker is dead, and then elects new leaders.
"""

SILENT_S: Final = 10.0
"""Seconds for which a broker gets no request after one has timed out. If the broker is frozen, the
cluster fences it within 9 s (broker.session.timeout.ms), so its partitions then have new leaders.
"""

FORGET_S: Final = 600.0
"""If a partition was not queried for this many seconds, the client forgets that it had no leader.
"""


class LedPartition(NamedTuple):
    """A partition, and its leader epoch, which requests to the leader contain."""

    tp: TopicPartition
    leader_epoch: int


Answers = Mapping[TopicPartition, T | TwinlogError]
Ask = Callable[[int, Sequence[LedPartition]], Answers[T]]
"""A function that queries one broker once about partitions that it leads."""


@dataclass(slots=True)
class _Round(Generic[T]):
    client: ClusterClient
    doing: str
    done: dict[TopicPartition, T | TwinlogError] = field(default_factory=dict)
    failed: dict[TopicPartition, TwinlogError] = field(default_factory=dict)
    leaderless: dict[TopicPartition, float] = field(default_factory=dict)
    """Partitions without a leader, with the monotonic time at which this call first found none."""

    def group(
        self, tps: Iterable[TopicPartition], timeout_s: float, *, is_first: bool
    ) -> dict[int, list[LedPartition]]:
        """Group partitions by their leader's node. Partitions without a leader are added to
        `failed`.
        """
        names = {tp.topic for tp in tps}
        kept = self.client.led if is_first else None
        topics: Mapping[str, TopicMetadata] = kept or {}
        if unknown := names - topics.keys():
            topics = {**topics, **self._look_up(sorted(unknown), timeout_s)}
        groups: dict[int, list[LedPartition]] = {}
        for tp in tps:
            topic = topics.get(tp.topic)
            partition = None if topic is None else topic.partition(tp.partition)
            if partition is None or partition.leader < 0:
                topic_error = UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
                missing = UNKNOWN_TOPIC_OR_PARTITION if partition is None else LEADER_NOT_AVAILABLE
                number = topic_error or missing
                self.failed[tp] = partition_error(self.client, number, self.doing, tp)
                continue
            led = LedPartition(tp, partition.leader_epoch)
            groups.setdefault(partition.leader, []).append(led)
        return groups

    def _look_up(self, names: list[str], timeout_s: float) -> Mapping[str, TopicMetadata]:
        asked = time.monotonic()
        topics = self.client.metadata(names, timeout_s=timeout_s).topics
        if time.monotonic() - asked > NO_LEADER_S / 2:
            # if Metadata took this long, the whole cluster did not respond; leaders may exist, so
            # the times for which none was found do not count
            self.leaderless.clear()
        return topics

    def ask(self, node: int, partitions: Sequence[LedPartition], ask: Ask[T]) -> None:
        began = self.client.clock()
        silent = self.client.silent.get(node)
        if silent is not None and time.monotonic() < silent.until:
            self.failed.update((led.tp, silent.error) for led in partitions)
            return
        try:
            answers = ask(node, partitions)
        except (Unreachable, Disconnected) as error:
            if self.client.clock() - began > NO_LEADER_S / 2:
                self.client.silent[node] = SilentBroker(time.monotonic() + SILENT_S, error)
            self.failed.update((led.tp, error) for led in partitions)
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
        """Return True if `error` means that the partition has no reachable leader, and this has
        lasted NO_LEADER_S (FAILOVER_S if the leader does not respond), or an earlier call of this
        client has already given up on the partition.
        """
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


def partition_error(
    client: ClusterClient,
    number: int,
    doing: str,
    tp: TopicPartition,
    right: str = "DESCRIBE",
    detail: str | None = None,
) -> ClusterError:
    """Return the error for a partition's error code. `right` is the permission on the topic that
    was needed.
    """
    return error_for(
        number,
        cluster=client.alias,
        doing=f"{doing} {tp}",
        acl=f"{right} on topic {tp.topic}",
        detail=detail,
    )


def has_no_leader(error: TwinlogError) -> bool:
    """Return True if the error means that a leader does not exist, or does not respond."""
    if isinstance(error, BrokerRefused):
        return error.kafka_error == LEADER_NOT_AVAILABLE
    return isinstance(error, Unreachable | Disconnected)


def by_topic(partitions: Iterable[LedPartition]) -> dict[str, list[LedPartition]]:
    """Group partitions by topic, as Kafka's requests do."""
    topics: dict[str, list[LedPartition]] = {}
    for led in partitions:
        topics.setdefault(led.tp.topic, []).append(led)
    return topics


def send_to_leaders(
    client: ClusterClient,
    tps: Iterable[TopicPartition],
    ask: Ask[T],
    *,
    doing: str,
    timeout_s: float | None = None,
) -> dict[TopicPartition, T | TwinlogError]:
    """Call `ask` for each leader, and return one result or error for each partition. Raises an
    error only if no broker can be reached.

    `doing` begins a message about a partition, for example "listing offsets of".
    """
    _forget_old(client)
    deadline = client.deadline(timeout_s)
    retriable = client.retriable_now()
    round_ = _Round[T](client, doing)
    pending = list(dict.fromkeys(tps))
    failures = 0
    while pending:
        round_.failed.clear()
        leaders = round_.group(pending, deadline.left_s, is_first=not failures)
        for node, partitions in leaders.items():
            round_.ask(node, partitions, ask)
        pending = [
            tp
            for tp, error in round_.failed.items()
            if retriable(error) and not round_.gives_up(tp, error)
        ]
        again = set(pending)
        round_.done.update((tp, error) for tp, error in round_.failed.items() if tp not in again)
        failures += 1
        if pending and not client.patience.pause(failures, deadline):
            round_.done.update((tp, round_.failed[tp]) for tp in pending)
            break
    return round_.done


def _forget_old(client: ClusterClient) -> None:
    if client.leaderless:
        old = time.monotonic() - FORGET_S
        for tp in [tp for tp, asked in client.leaderless.items() if asked < old]:
            del client.leaderless[tp]


def topics_of(tps: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partition numbers by topic."""
    topics: dict[str, list[int]] = {}
    for tp in tps:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics
