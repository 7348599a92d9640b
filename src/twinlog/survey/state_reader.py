"""Reads the state topic: once for each process and cluster, then only the rows added since.

Every read first queries the log's end, through the caller's own client, so the result has all rows
that were appended before the read began. Rows come from memory only if the response shows that the
log still has them. All rows are read again if

- the topic has another ID, because it was re-created;
- the log begins later, because rows were deleted;
- the log has lost its end, and may have other rows there. It then ends before the position up to
  which it was read, or the leader epoch at that position ends earlier in the log of a newer leader.

Brokers before Kafka 2.8 have no topic IDs. All rows are then read again each time, or once a minute
for a flow that only follows them.

`leader_status` reads the last status that a flow's leader published in the status topic of its
target.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import LATEST, leader_epoch_ends, list_offsets
from twinlog.cluster.logs.raw_log import fetch_partition
from twinlog.cluster.net.metadata import Operation
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.errors import BrokerRefused, TwinlogError, Unreachable, or_raise
from twinlog.mirror.names.naming import STATE_TOPIC, STATUS_TOPIC
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.copies import MAPPED, MappedCopies, mapped_copies
from twinlog.mirror.state.held_producers import HELD, held_producers
from twinlog.mirror.state.intents import INTENT, FlowIntents, flow_intents
from twinlog.mirror.state.published import PublishedStatus, published_status
from twinlog.mirror.state.rows import NO_ROWS, RowFolder, StateRows
from twinlog.mirror.state.state_row import Row
from twinlog.model import NO_TOPIC_ID, TopicPartition
from twinlog.survey.rights import denied_error
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION

STATE_PARTITION: Final = TopicPartition(STATE_TOPIC, 0)
FOLLOWS_WITHIN_S: Final = 0.5
"""If rows were read less than this many seconds ago, `StateLog.follow` sends no request."""
WITHOUT_ID_S: Final = 60.0
"""Seconds after which `StateLog.follow` reads all rows of a topic without an ID again."""
UNUSED_S: Final = 3600.0
"""Cached state logs that were not read for this many seconds are dropped. This is checked only when
another log is added.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateNews:
    """The current rows of the state topic that concern one flow."""

    intents: FlowIntents
    producers: frozenset[int]
    """All producer IDs that any flow has ever obtained."""
    mapped: MappedCopies = field(default_factory=MappedCopies)
    """The copies of the flow that have rows in the offset map."""
    has_held_producers: bool = False
    """True if the flow has set a quota on the source's producers."""


class _LogBounds(NamedTuple):
    """The current start and end of the log, with its leader epoch and its topic's ID."""

    topic_id: str
    leader_epoch: int
    start: int
    end: int

    @classmethod
    def now(cls, client: ClusterClient) -> _LogBounds:
        """Query the leader. The last request needs the right READ, as reading rows does."""
        with client.keeping_leaders():
            topic_id = client.metadata([STATE_TOPIC]).topics[STATE_TOPIC].topic_id
            end = or_raise(list_offsets(client, [STATE_PARTITION], LATEST)[STATE_PARTITION])
            start = fetch_partition(client, STATE_PARTITION, end.offset, 1).log_start
        return cls(topic_id, end.leader_epoch, start, end.offset)


class StateLog:
    """The state topic of one cluster, shared by all clients of the same user in any thread.

    Only one thread reads at a time. `at_hand` returns rows in memory without waiting.
    """

    def __init__(self) -> None:
        self._turn, self._follower_turn = threading.Lock(), threading.Lock()
        self._at: _LogBounds | None = None
        """The log as it was when the rows were last read, or None if nothing was read."""
        self._next = 0
        self._folder, self._rows = RowFolder(), NO_ROWS
        self.seen_at = -math.inf
        """Monotonic time at which the rows in memory were last known to be complete."""
        self._whole_at = -math.inf

    def read(self, client: ClusterClient, *, without_id_s: float = 0.0) -> StateRows:
        """Return all rows that were appended before this call. Raises TwinlogError.

        `without_id_s`: maximum age in seconds of rows in memory, if the topic has no ID.
        """
        try:
            return self._read(client, without_id_s)
        except BrokerRefused as refusal:
            if refusal.code != "OFFSET_OUT_OF_RANGE":
                raise
            # the log was truncated between the two requests, so it is read again
            return self._read(client, without_id_s)

    def follow(self, client: ClusterClient) -> StateRows:
        """Return all rows that were appended until FOLLOWS_WITHIN_S before this call. If many flows
        follow the log at the same time, one of them reads it.
        """
        with _locked_within(self._follower_turn, client):
            rows = self.at_hand()
            return self.read(client, without_id_s=WITHOUT_ID_S) if rows is None else rows

    def at_hand(self) -> StateRows | None:
        """Return the rows that `follow` would return without a request to the cluster, or None."""
        is_fresh = time.monotonic() - self.seen_at < FOLLOWS_WITHIN_S
        return self._rows if is_fresh else None

    def _read(self, client: ClusterClient, without_id_s: float) -> StateRows:
        began, seen = time.monotonic(), _LogBounds.now(client)
        with _locked_within(self._turn, client):
            if not self._has_all(seen, without_id_s):
                # query the end again: if another thread has read newer rows while this thread
                # waited for the lock, the first end is below these rows, and the log would look
                # truncated
                began, seen = time.monotonic(), _LogBounds.now(client)
                self._read_on(client, seen, without_id_s)
            self.seen_at = max(self.seen_at, began)
            return self._rows

    def _has_all(self, bounds: _LogBounds, without_id_s: float) -> bool:
        is_known = (
            bounds.topic_id != NO_TOPIC_ID or time.monotonic() - self._whole_at < without_id_s
        )
        return is_known and bounds == self._at and bounds.end <= self._next

    def _read_on(self, client: ClusterClient, bounds: _LogBounds, without_id_s: float) -> None:
        if self._at is None or self._is_another(client, self._at, bounds, without_id_s):
            self._folder, self._next = RowFolder(), 0
            self._whole_at = time.monotonic()
        self._at = bounds
        for record in read_to_end(client, STATE_TOPIC, 0, self._next, end=bounds.end):
            if record.key is not None:
                self._folder.add(record.key, record.value)
            self._next = record.offset + 1
        # the log cleaner may have removed the last records
        self._next = max(self._next, bounds.end)
        self._rows = self._folder.rows()

    def _is_another(
        self, client: ClusterClient, at: _LogBounds, bounds: _LogBounds, without_id_s: float
    ) -> bool:
        """Return True if the log may no longer have the rows that were read."""
        is_unnamed = bounds.topic_id == NO_TOPIC_ID
        if is_unnamed and time.monotonic() - self._whole_at >= without_id_s:
            return True
        if (bounds.topic_id, bounds.start) != (at.topic_id, at.start) or bounds.end < self._next:
            return True
        if bounds.leader_epoch <= at.leader_epoch:
            return bounds.leader_epoch < at.leader_epoch
        last = or_raise(
            leader_epoch_ends(client, {STATE_PARTITION: at.leader_epoch})[STATE_PARTITION]
        )
        return last.end_offset < self._next


@contextmanager
def _locked_within(turn: threading.Lock, client: ClusterClient) -> Iterator[None]:
    """Acquire a lock, waiting no longer than the client would wait for a cluster."""
    if not turn.acquire(timeout=client.api_timeout_s):
        raise Unreachable(
            f"cluster {client.alias}: {STATE_TOPIC} could not be read for "
            f"{client.api_timeout_s:.0f} s, because another thread of this process is still "
            "waiting for its response"
        )
    try:
        yield
    finally:
        turn.release()


_logs: Final[dict[ClusterSettings, StateLog]] = {}
_logs_turn: Final = threading.Lock()


def state_log(client: ClusterClient) -> StateLog:
    """Return this process's reader of the state topic, shared by all clients of the same user."""
    who = replace(client.settings, client_id="")
    with _logs_turn:
        if who not in _logs:
            old = time.monotonic() - UNUSED_S
            for other in [settings for settings, log in _logs.items() if log.seen_at < old]:
                del _logs[other]
            _logs[who] = StateLog()
        return _logs[who]


def state_rows(target: ClusterClient) -> StateRows:
    """Return the rows of the state topic up to its end. Raises TwinlogError, also if there is no
    such topic.
    """
    return state_log(target).read(target)


def state_rows_if_any(target: ClusterClient) -> StateRows:
    """Return all rows, or none if the topic does not exist. Raises Unauthorized if it is hidden."""
    error = target.metadata([STATE_TOPIC]).topics[STATE_TOPIC].error
    if error == TOPIC_AUTHORIZATION_FAILED:
        # name READ here, because ListOffsets requires only DESCRIBE
        raise denied_error(target.alias, Operation.READ.name, STATE_TOPIC)
    return NO_ROWS if error == UNKNOWN_TOPIC_OR_PARTITION else state_rows(target)


def has_state(target: ClusterClient, *, within_s: float) -> bool:
    """Return True if the state topic is visible. Problems with it are reported elsewhere."""
    topic = target.metadata([STATE_TOPIC], timeout_s=within_s).topics.get(STATE_TOPIC)
    return topic is not None and not topic.error


def with_rows(plans: Iterable[PartitionPlan], mapped: MappedCopies) -> list[PartitionPlan]:
    """Return the plans, with `had_row` True for each copy that once had a row in the offset map."""

    def had_row(plan: PartitionPlan) -> bool:
        copy = plan.source_topic_id, plan.target_topic_id
        return mapped.has_row(*copy, plan.source.partition)

    return [replace(plan, had_row=had_row(plan)) for plan in plans]


class StateReader:
    """Follows the state topic for one flow, through a client of its own. Not thread-safe.

    If the topic was re-created, rows of the old topic that were not revoked still count.
    """

    def __init__(self, target: ClusterClient, flow: str) -> None:
        self._target = target
        self._flow = flow
        self._intents: dict[bytes | None, bytes | None] = {}
        self._producers: frozenset[int] = frozenset()
        self._mapped: set[Row] = set()
        self._held = False
        self._rows = NO_ROWS
        self._news: StateNews | None = None
        """The last result, derived from `_rows`, or None if nothing was read or the last read
        failed.
        """

    def read(self) -> StateNews:
        """Return the current rows of the flow. If a row cannot be decoded, each call raises
        CorruptData. Raises other TwinlogErrors if the topic cannot be read.
        """
        return self._news_of(state_log(self._target).read(self._target))

    def follow(self) -> StateNews:
        """Return the rows of the flow, which may lack rows of the last FOLLOWS_WITHIN_S."""
        return self._news_of(state_log(self._target).follow(self._target))

    def at_hand(self) -> StateNews | None:
        """Return the result of `follow`, or None if `follow` would have to send a request or decode
        rows.
        """
        rows = state_log(self._target).at_hand()
        if rows is None or self._news is None or not rows.has_same_rows(self._flow, self._rows):
            return None
        return self._news_of(rows)

    def _news_of(self, rows: StateRows) -> StateNews:
        before, self._news = self._news, None
        is_same = rows.has_same_rows(self._flow, self._rows)
        self._rows = rows
        self._producers |= rows.producers
        if before is not None and is_same:
            self._news = replace(before, producers=self._producers)
            return self._news
        # every row can be read, because `producers` raises if one cannot
        self._intents.update(rows.of(self._flow, INTENT))
        self._mapped.update(rows.of(self._flow, *MAPPED))
        for key, value in rows.of(self._flow, HELD):
            self._held = held_producers(key, value) is not None
        self._news = StateNews(
            intents=flow_intents(self._flow, self._intents.items()),
            producers=self._producers,
            has_held_producers=self._held,
            mapped=mapped_copies(self._flow, self._mapped),
        )
        return self._news


STATUS_PARTITION: Final = TopicPartition(STATUS_TOPIC, 0)
FIRST_READ_BACK_MS: Final = 600_000
"""Age in ms up to which rows of the status topic are searched first. All rows are read only if the
search finds no status, because compaction may be late and leave the rows of a day.
"""


def leader_status(target: ClusterClient, flow: str) -> PublishedStatus | None:
    """Return the newest status of the flow's leader, whatever its age, or None if there is none."""
    topic = target.metadata([STATUS_TOPIC]).topics.get(STATUS_TOPIC)
    if topic is None or topic.error:
        return None
    lately = rows_since(target, int(time.time() * 1000) - FIRST_READ_BACK_MS)
    return published_status(flow, lately or ()) or published_status(flow, _rows(target, 0))


def rows_since(target: ClusterClient, since_ms: int) -> list[Row] | None:
    """Return the rows of the status topic from this time on, or None if its log cannot be read."""
    begin = list_offsets(target, [STATUS_PARTITION], since_ms)[STATUS_PARTITION]
    if isinstance(begin, TwinlogError):
        return None
    return _rows(target, begin.offset) if begin.offset >= 0 else []


def _rows(target: ClusterClient, first: int) -> list[Row]:
    return [(row.key, row.value) for row in read_to_end(target, STATUS_TOPIC, 0, first)]
