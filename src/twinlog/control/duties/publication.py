"""Duty: writes the flow's status to the target every few seconds, so that `status` shows it from
every host. The duty continues while the flow is paused.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from msgspec import convert, structs

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.internal_log import append_rows
from twinlog.cluster.topics.topic_admin import ensure_mm2_topic
from twinlog.codes import NOT_MIRRORED, FlowState, PartitionState
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.duties.rounds import REFUSED_PAUSE_S, Duty, LedFlow, NotNow
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.errors import TwinlogError, Unauthorized
from twinlog.flow_log import FlowLog
from twinlog.mirror.names.naming import STATUS_TOPIC
from twinlog.mirror.state.published import (
    MOST_BEHIND,
    MOST_UNUSUAL,
    Behind,
    Kept,
    Proof,
    PublishedEvents,
    PublishedStatus,
    Row,
    Unusual,
)
from twinlog.model import TopicPartition
from twinlog.survey.state_reader import has_state

log = logging.getLogger(__name__)

GIVES_UP_S: Final = 10.0
"""Time limit of a write in seconds. A status that arrives much later is useless."""

HOME: Final = TopicPartition(STATUS_TOPIC, 0)
LONGEST_TEXT: Final = 200
MOST_NAMED: Final = 20
"""A status names at most this many topics whose uncopied records will soon be deleted."""
ENDS_WITHIN_S: Final = 2.0
"""Time limit in seconds for writing the last status, which is not worth a longer wait."""

EVENTS_AGAIN_S: Final = 240.0
"""Seconds after which unchanged events are written again, because a new reader reads only the last
ten minutes of the topic.
"""

USUAL: Final = frozenset(
    (
        *(PartitionState.PENDING, PartitionState.STARTING, PartitionState.COPYING),
        *(PartitionState.AT_END, PartitionState.DRAINING),
        *NOT_MIRRORED,  # not listed, as earlier releases cannot read all of these states
    )
)


def is_unusual(partition: PartitionSnapshot) -> bool:
    """Return True if the partition has a code, or is not being copied normally."""
    return bool(partition.code) or partition.state not in USUAL


def publication(flow: LedFlow) -> Duty | None:
    """Return the duty, or None if twinlog.status.interval.seconds=0."""
    return Publication(flow) if flow.config.status_interval_seconds else None


class StatusTopic:
    """Writes status rows of one flow; not thread-safe. A rejection is logged once."""

    def __init__(
        self, client: ClusterClient, config: FlowConfig, log_once: Callable[[str], None]
    ) -> None:
        self.client, self.config, self._log_once = client, config, log_once
        self._is_there = False
        self._refused_until = 0.0

    def append(self, rows: Sequence[Row], at_ms: int) -> bool:
        """Write rows. Return False if this user is not permitted to do so. Raises TwinlogError."""
        now = time.monotonic()
        if now < self._refused_until:
            return False
        try:
            if not self._is_there:
                self.ensure()
            self._is_there = True
            append_rows(self.client, HOME, rows, at_ms)
        except Unauthorized as error:
            self._refused_until = now + REFUSED_PAUSE_S
            self._log_once(
                f"{self.config.flow}: its status is shown on this host only: {error}; "
                "or set twinlog.status.interval.seconds=0"
            )
            return False
        except TwinlogError:
            self._is_there = False  # create the topic again: it may have been deleted
            raise
        return True

    def ensure(self) -> None:
        """Create the topic if it does not exist."""
        # compaction does not matter, because readers ignore old rows
        ensure_mm2_topic(self.client, STATUS_TOPIC, self.config.state_topic_replication_factor)


class Publication(Duty):
    """The duty that writes the status and the events of one flow."""

    name = "status"
    interval_s: float = 0.0
    ends_once = False
    runs_while_held = True

    def __init__(self, flow: LedFlow) -> None:
        self._flow, self.interval_s = flow, float(flow.config.status_interval_seconds)
        self._client = ClusterClient(flow.target, api_timeout_s=GIVES_UP_S)
        self._clients = (self._client,)
        self._topic = StatusTopic(self._client, flow.config, flow.log_once)
        self._last: PublishedStatus | None = None
        self._events: PublishedEvents | None = None
        """The events that were written last."""
        self._events_again = 0.0

    def round(self) -> None:
        status = self._status()
        rows, events, now = [status.encode()], self._flow.events(), time.monotonic()
        is_due = events != self._events or now >= self._events_again
        if events is not None and events.events and is_due:
            rows.append(events.encode())
        if not self._topic.append(rows, status.at_ms):
            return
        self._last = status
        if len(rows) > 1:
            self._events, self._events_again = events, now + EVENTS_AGAIN_S

    def _status(self) -> PublishedStatus:
        return published(self._flow.snapshot(), every_ms=int(self.interval_s * 1000))

    def last_round(self) -> None:
        """Write a last status with the state STOPPED, so that readers do not consider the flow
        running. The partitions are read again, because one may have stopped since the last round.
        """
        if self._last is not None:
            work = threading.Thread(target=self._end, args=(self._last,), daemon=True)
            work.start()
            work.join(ENDS_WITHIN_S)

    def _end(self, last: PublishedStatus) -> None:
        with suppress(TwinlogError):  # use the last status if the supervisor no longer responds
            last = self._status()
        now_ms = int(time.time() * 1000)
        ended = structs.replace(
            last,
            state=FlowState.STOPPED.value,
            reason="it shut down cleanly",
            at_ms=now_ms,
            since_ms=now_ms,
            lanes=0,
        )
        try:
            with ClusterClient(self._flow.target, api_timeout_s=ENDS_WITHIN_S) as client:
                append_rows(client, HOME, [ended.encode()], ended.at_ms)
        except TwinlogError as error:
            FlowLog(log, self._flow.name).info("its last status was not written: %s", error)


def published(snapshot: FlowSnapshot, *, every_ms: int) -> PublishedStatus:
    """Return the status of a snapshot, with only unusual partitions and uncopied ranges."""
    unusual = [part for part in snapshot.partitions if is_unusual(part)]
    return PublishedStatus(
        flow=snapshot.flow,
        at_ms=snapshot.taken_ms or int(time.time() * 1000),
        every_ms=every_ms,
        host=socket.gethostname(),
        pid=os.getpid(),
        generation=snapshot.generation,
        state=snapshot.state.value,
        reason=snapshot.reason[:LONGEST_TEXT],
        guarantee=snapshot.guarantee,
        lanes=snapshot.lanes,
        since_ms=snapshot.since_ms,
        records=snapshot.records,
        bytes=snapshot.bytes,
        loss_records=snapshot.loss_records,
        loss_ms=snapshot.loss_ms,
        loss_unknown=snapshot.loss_unknown,
        partitions=len(snapshot.partitions),
        unusual_partitions=len(unusual),
        unusual=tuple(_unusual(unusual)),
        behind=tuple(_uncopied_ranges(snapshot.partitions)),
        lag=snapshot.lag,
        lag_unknown=snapshot.lag_unknown,
        rpo_ms=snapshot.rpo_ms,
        rpo_excess=snapshot.rpo_excess[:LONGEST_TEXT],
        p50_ms=None if snapshot.latency is None else snapshot.latency.p50_ms,
        p99_ms=None if snapshot.latency is None else snapshot.latency.p99_ms,
        proof=convert(snapshot.verified, Proof | None, from_attributes=True),
        code=snapshot.code,
        kept=kept_of(snapshot.partitions),
    )


def kept_of(partitions: tuple[PartitionSnapshot, ...]) -> Kept:
    """Return how soon the source deletes uncopied records of these partitions."""
    known = [part for part in partitions if part.is_left_known]
    ending = [(part.left_ms, part) for part in known if part.left_ms is not None]
    first = min(ending, key=lambda pair: pair[0], default=None)
    near = dict.fromkeys(part.topic for _, part in ending if part.is_near_deletion)
    return Kept(
        ms=None if first is None else first[0],
        topic="" if first is None else first[1].topic,
        near_deletion=(*near,)[:MOST_NAMED],
        is_known=len(known) == len(partitions),
    )


def _uncopied_ranges(partitions: tuple[PartitionSnapshot, ...]) -> Iterator[Behind]:
    """Yield the largest ranges of uncopied source records, as evidence if the source is lost."""
    late = [
        Behind(
            topic=part.topic,
            partition=part.partition,
            upstream=part.upstream,
            end=part.upstream + part.loss_records,
        )
        for part in partitions
        if part.loss_records and part.upstream is not None
    ]
    yield from sorted(late, key=lambda late_range: late_range.upstream - late_range.end)[
        :MOST_BEHIND
    ]


def _unusual(partitions: list[PartitionSnapshot]) -> Iterator[Unusual]:
    # partitions with a code first, because in a paused flow all partitions are unusual
    for part in sorted(partitions, key=lambda part: not part.code)[:MOST_UNUSUAL]:
        yield Unusual(
            topic=part.topic,
            partition=part.partition,
            state=part.state.value,
            code=part.code,
            message=part.message[:LONGEST_TEXT],
            poison=part.poison,
        )


# A process that cannot set up a flow publishes the reason, for readers on other hosts. The process
# does not lead the flow, so its row has another key than the leader's row
# (`mirror.state.published`). A failure to publish is not logged, because the set-up fails and
# reports the same. Nothing is created on a cluster on which no set-up of Twinlog was admitted,
# because the file may name a wrong cluster.

LONGEST_REASON: Final = 2000


class SetUpPublication(Duty):
    """Publishes the status of one flow while its set-up fails."""

    name = "status"
    interval_s: float = 0.0
    ends_once = False

    def __init__(
        self,
        config: FlowConfig,
        target: ClusterSettings,
        snapshot: FlowSnapshot,
        log_once: Callable[[str], None],
    ) -> None:
        self.interval_s = float(config.status_interval_seconds)
        self.seen = snapshot
        """The flow's current snapshot. The creator of this object replaces it."""
        self._client = ClusterClient(target, api_timeout_s=GIVES_UP_S)
        self._topic = _TopicOfOurs(self._client, config, log_once)
        self._last: PublishedStatus | None = None

    def round(self) -> None:
        status = published(self.seen, every_ms=int(self.interval_s * 1000))
        # the flow does not run, so only the reason matters
        status = structs.replace(status, kept=None, reason=self.seen.reason[:LONGEST_REASON])
        try:
            if self._topic.append([status.encode()], status.at_ms):
                self._last = status
        except TwinlogError as error:
            raise NotNow(str(error)) from error

    def close(self) -> None:
        """Publish that the set-up no longer fails, or is no longer tried."""
        if self._last is not None:
            at_ms = int(time.time() * 1000)
            ended = structs.replace(self._last, state=FlowState.STOPPED.value, at_ms=at_ms)
            self._client.api_timeout_s = ENDS_WITHIN_S
            with suppress(TwinlogError):  # if this fails, the last row expires by its age
                append_rows(self._client, HOME, [ended.encode()], at_ms)
        self._client.close()


class _TopicOfOurs(StatusTopic):
    def ensure(self) -> None:
        """Create the topic only if the cluster has Twinlog's state topic, because then a set-up of
        Twinlog was admitted there before. Otherwise raise NotNow.
        """
        if not has_state(self.client, within_s=GIVES_UP_S):
            raise NotNow(f"{self.config.flow}: its target has no Twinlog topics yet")
        super().ensure()
