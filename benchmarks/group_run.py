"""One run of the groups case: first a group that keeps up with a topic, then many groups at once.

First, one group commits after each record, like an application that keeps up. Measured is the time
until its checkpoint is on the target. Then many groups commit in every partition. Measured is the
time from the last commit until all are on the target, both as checkpoints and as group offsets.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.copier import Copier, CopierFailed
from benchmarks.group_logs import (
    GROUP_OFFSETS,
    Pair,
    checkpoints_in,
    commits_in,
    first_since,
    latencies_ms,
    log_ends,
    read_log,
)
from benchmarks.results import Latency
from benchmarks.scale import Scale
from benchmarks.steady import summarize
from benchmarks.watch import RemoteTopic, wait_for_first_record

__all__ = ["GROUP_KEYS", "RECORDS_EACH", "GroupNumbers", "GroupRun"]

GROUP_KEYS: Final = {
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "refresh.groups.interval.seconds": "5",
    # a sync for every batch, so that MirrorMaker 2 translates offsets near the end of a log exactly
    "offset.lag.max": "0",
}
"""Keys for both copiers: the shortest possible intervals."""

RECORDS_EACH: Final = 100
"""Number of records in each partition of the topic that the many groups have read."""

_HEAD: Final = "head"
_STEP_S: Final = 0.37
"""Time between two commits, in seconds, chosen so that commits do not coincide with rounds of a
second.
"""
_SETTLE_S: Final = 12.0
"""Time for the copiers to find new groups, in seconds: more than two refreshes. MirrorMaker 2 also
restarts its tasks in this time.
"""
_QUIET_S: Final = 4.0
_SYNC_WITHIN_S: Final = 45.0
_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNumbers:
    """The measurements. None for values that were not reached in time."""

    first_record_s: float
    latency: Latency
    checkpointed_s: float | None
    committed_s: float | None
    checkpointed: int
    committed: int
    expected: int


@dataclass(slots=True, kw_only=True)
class GroupRun:
    """Measures one run with its groups on both clusters."""

    alias: str
    source: str
    target: str
    many_topic: str
    head_topic: str
    scale: Scale

    @property
    def selects(self) -> str:
        """A regular expression that matches only the names of this run's groups."""
        return f"{self.alias}-.*"

    @property
    def checkpoints_topic(self) -> str:
        return f"{self.alias}.checkpoints.internal"

    @property
    def _head(self) -> str:
        return f"{self.alias}-{_HEAD}"

    @property
    def _many(self) -> list[str]:
        return [f"{self.alias}-many-{number}" for number in range(self.scale.groups)]

    def prepare(self) -> None:
        """Create the group that keeps up, before the copier looks for groups."""
        _commit(_admin(self.source), [self._head], self.head_topic, [0], 0)

    def measure(self, copier: Copier, remote: RemoteTopic) -> GroupNumbers:
        """Run all measurements with a copier that was just started."""
        first = wait_for_first_record(copier, remote)
        deadline = time.monotonic() + _SYNC_WITHIN_S
        while remote.records() < self.scale.group_partitions * RECORDS_EACH:
            copier.check()
            if time.monotonic() > deadline:
                raise CopierFailed(f"the topic was not copied: {copier.last_words()}")
            time.sleep(0.1)
        time.sleep(self.scale.groups_warm_up_s)
        steady = self._keep_up(copier)
        admin, partitions = _admin(self.source), range(self.scale.group_partitions)
        _commit(admin, self._many, self.many_topic, partitions, 1)
        self._wait(copier, _SETTLE_S)
        self._until_quiet(copier, self._sizes(), 0)
        before = self._sizes()
        began_ms = int(time.time() * 1000)
        _commit(admin, self._many, self.many_topic, partitions, RECORDS_EACH)
        ended_ms = int(time.time() * 1000)
        self._until_quiet(copier, before, self.scale.groups * self.scale.group_partitions)
        return self._numbers(first.at - copier.started, steady, began_ms, ended_ms)

    def clean(self) -> None:
        """Delete the groups on both clusters, so that the lists of groups stay short."""
        for bootstrap in (self.source, self.target):
            admin = _admin(bootstrap)  # keeps the client alive, without which no response arrives
            answers = admin.delete_consumer_groups([self._head, *self._many])
            for done in answers.values():
                with suppress(KafkaException):  # the group does not exist on this cluster
                    done.result(_TIMEOUT_S)

    def _keep_up(self, copier: Copier) -> dict[int, float]:
        """Repeatedly write a record and commit the offset after it. Returns the time of each commit
        in ms, by offset.
        """
        admin = _admin(self.source)
        producer = Producer({"bootstrap.servers": self.source, "log_level": 0, "linger.ms": 0})
        offsets: list[int] = []
        commits: dict[int, float] = {}
        until = time.monotonic() + self.scale.groups_window_s
        while time.monotonic() < until:
            producer.produce(
                self.head_topic,
                b"x" * 100,
                partition=0,
                on_delivery=lambda _, message: offsets.append(message.offset() or 0),
            )
            producer.flush(_TIMEOUT_S)
            _commit(admin, [self._head], self.head_topic, [0], offsets[-1] + 1)
            commits[offsets[-1] + 1] = time.time() * 1000
            self._wait(copier, _STEP_S)
        self._wait(copier, _QUIET_S)
        return commits

    def _until_quiet(self, copier: Copier, before: tuple[int, int], grown: int) -> None:
        """Wait until `grown` checkpoints and commits have arrived, and then no more for a while.
        Returns after a timeout, too.

        A slow copier may be quiet before it writes anything, so quiet alone is not sufficient.
        """
        deadline = time.monotonic() + _SYNC_WITHIN_S
        seen, since = before, time.monotonic()
        while time.monotonic() < deadline:
            now = self._sizes()
            if now != seen:
                seen, since = now, time.monotonic()
            is_all = all(end - begin >= grown for begin, end in zip(before, now, strict=True))
            if is_all and time.monotonic() > since + _QUIET_S:
                return
            self._wait(copier, 0.5)

    def _sizes(self) -> tuple[int, int]:
        """Return how many records the checkpoints topic and the offsets topic of the target have
        had.
        """
        checkpoints, commits = (
            sum(log_ends(self.target, topic).values())
            for topic in (self.checkpoints_topic, GROUP_OFFSETS)
        )
        return checkpoints, commits

    def _numbers(
        self, first_s: float, steady: dict[int, float], began_ms: int, ended_ms: int
    ) -> GroupNumbers:
        checkpoints = list(checkpoints_in(read_log(self.target, self.checkpoints_topic)))
        commits = list(commits_in(read_log(self.target, GROUP_OFFSETS)))
        many = f"{self.alias}-many-"
        moved = [one for one in checkpoints if one.offset == RECORDS_EACH]
        checkpointed = first_since(moved, many, began_ms)
        committed = first_since(commits, many, began_ms)
        expected = self.scale.groups * self.scale.group_partitions

        def after_s(found: dict[Pair, int]) -> float | None:
            done = len(found) == expected
            return max(0.0, max(found.values()) - ended_ms) / 1000 if done else None

        return GroupNumbers(
            first_record_s=first_s,
            latency=summarize(latencies_ms(steady, checkpoints, self._head), len(steady)),
            checkpointed_s=after_s(checkpointed),
            committed_s=after_s(committed),
            checkpointed=len(checkpointed),
            committed=len(committed),
            expected=expected,
        )

    @staticmethod
    def _wait(copier: Copier, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            copier.check()
            time.sleep(min(left, 0.5))


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _commit(
    admin: AdminClient, groups: Iterable[str], topic: str, partitions: Iterable[int], offset: int
) -> None:
    """Set the offsets of all groups, which have no members. Repeats rejected requests, because a
    coordinator that is starting rejects them for a moment.
    """
    where = [TopicPartition(topic, each, offset) for each in partitions]
    left, deadline = list(groups), time.monotonic() + _TIMEOUT_S
    while left:
        sent: dict[str, Future[Any]] = {}
        for group in left:
            request = [ConsumerGroupTopicPartitions(group, where)]
            sent |= admin.alter_consumer_group_offsets(request, request_timeout=_TIMEOUT_S)
        left = [group for group, done in sent.items() if not _is_taken(done)]
        if left and time.monotonic() > deadline:
            raise TimeoutError(f"offsets of {len(left)} groups could not be committed")


def _is_taken(done: Future[Any]) -> bool:
    try:
        answer = done.result(_TIMEOUT_S)
    except KafkaException:
        return False
    return all(one.error is None for one in answer.topic_partitions)
