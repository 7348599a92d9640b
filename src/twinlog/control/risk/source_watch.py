"""Queries the source of a flow that this process leads, even if nothing is copied.

`SourceLiveness` checks whether the source responds at all. `SourceWatch` queries the log ends every
second, because the possible loss depends on them. For partitions that stay behind it also queries
log start and retention. If an open transaction holds a partition back, `HeldBackWatch` reports it.
`SourceQueries` sends the queries over connections of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from twinlog.cluster.client import REFUSED_FOR_S, ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_records
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.cluster_info import longest_transaction
from twinlog.codes import Trait, has
from twinlog.config.flow.schema import FlowConfig
from twinlog.config.values.times import in_iso
from twinlog.control.lanes.partitions import Failure
from twinlog.control.lanes.retention_outlook import SourceBounds
from twinlog.control.risk.idle import IdlePosition, is_followed
from twinlog.control.risk.loss import RETENTION_NEAR, RPO_EXCEEDED, warnings
from twinlog.control.risk.running_flow import InBackground, RunningFlow
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.errors import Disconnected, TwinlogError, Unauthorized, Unreachable
from twinlog.flow_log import FlowLog
from twinlog.model import Isolation, TopicId, TopicPartition
from twinlog.survey.ends import known_ends, known_offsets, known_starts
from twinlog.survey.open_transactions import OpenTransaction, open_transactions
from twinlog.survey.topic_configs import retentions
from twinlog.wire.record_batch import read_headers

Offsets = Mapping[TopicPartition, int]

WITHIN_S: Final = 5.0
PULSE_WITHIN_S: Final = 4.0
"""Timeout of a liveness request, in seconds. Two such requests take less than the 9 s
(broker.session.timeout.ms) after which Kafka's controller moves leadership away from a silent
broker. So a silent broker is reported shortly before Kafka itself regards it as failed.
"""


@dataclass(slots=True)
class QueryClient:
    """Lends a client to one thread at a time."""

    client: ClusterClient
    _in_use: threading.Lock = field(default_factory=threading.Lock)
    _left: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        # reuse leaders, so that only the query for topic IDs needs metadata of all topics
        self.client.keep_leaders()

    @contextmanager
    def lent_client(self) -> Iterator[ClusterClient]:
        with self._in_use:
            if self._left.is_set():
                raise Disconnected(f"the client of cluster {self.client.alias} is closed")
            try:
                yield self.client
            finally:
                if self._left.is_set():
                    self.client.close()

    def close(self) -> None:
        """Close the connections without waiting. A query in progress closes them when it ends."""
        self._left.set()
        if self._in_use.acquire(blocking=False):
            try:
                self.client.close()
            finally:
                self._in_use.release()


class OpenTransactions(NamedTuple):
    """Open transactions in partitions of the source."""

    limit_s: float | None
    """Maximum transaction timeout that the brokers allow; None if they do not report it."""
    transactions: tuple[OpenTransaction, ...]


class SourceAnswers(NamedTuple):
    """Answers of the source's brokers, without partitions and topics that could not be queried."""

    ends: Mapping[TopicPartition, int] = {}
    readable: Mapping[TopicPartition, int] = {}
    """Offsets up to which the partitions can be copied: last stable offsets if the flow reads
    committed records only, else the log ends.
    """
    starts: Mapping[TopicPartition, int] = {}
    ids: Mapping[str, TopicId] = {}
    """The IDs of the topics that exist."""
    retentions: Mapping[str, int] | None = None
    """retention.ms or NO_LIMIT by topic, if this user may query it. None if it was not queried."""
    open_transactions: OpenTransactions | None = None
    """The open transactions that hold the copy back, or None if they were not queried."""


class SourceQueries:
    """Queries for one run of a flow. They raise TwinlogError if no broker responds or after
    `close`.
    """

    def __init__(self, settings: ClusterSettings, config: FlowConfig) -> None:
        self._config = config
        self._line = QueryClient(ClusterClient(settings, api_timeout_s=WITHIN_S))
        # a separate client, so that a slow, large query does not make the source look silent
        self._pulse = QueryClient(
            ClusterClient(settings, api_timeout_s=PULSE_WITHIN_S, refused_s=REFUSED_FOR_S)
        )

    def pulse(self) -> None:
        """Wait until any broker has answered an empty metadata request. Raises TwinlogError after
        two requests without an answer. May run concurrently with the other queries.
        """
        with self._pulse.lent_client() as client:
            try:
                client.metadata([])
            except (Disconnected, Unreachable):
                client.metadata([])  # retry over another connection, to another broker if possible

    def answers(
        self,
        wanted: Collection[TopicPartition],
        behind: Collection[TopicPartition],
        topics: Collection[str],
        held_back: Collection[TopicPartition],
    ) -> SourceAnswers:
        """Query log ends and topic IDs for the partitions `wanted`, log starts for `behind`, open
        transactions for `held_back`, and the retention of `topics`.
        """
        with self._line.lent_client() as client:
            answers = SourceAnswers()
            if wanted:
                ends = readable = known_offsets(client, wanted)
                if self._config.isolation_level is Isolation.READ_COMMITTED:
                    readable = known_ends(client, self._config, wanted)
                answers = SourceAnswers(ends, readable)
            if behind:
                answers = answers._replace(starts=known_starts(client, behind))
            if wanted:
                # query IDs after the offsets: an unchanged ID shows that the offsets are from the
                # same topic, because IDs are never reused
                names = sorted({tp.topic for tp in wanted})
                seen = client.metadata(names, timeout_s=WITHIN_S).topics
                ids = {name: topic.topic_id for name, topic in seen.items() if not topic.error}
                answers = answers._replace(ids=ids)
            if topics:
                answers = answers._replace(retentions=retentions(client, topics))
            if held_back:
                answers = answers._replace(open_transactions=_open_transactions(client, held_back))
        return answers

    def next_batches(self, offsets: Offsets) -> dict[TopicPartition, IdlePosition]:
        """Return offset and timestamp of the next record at or after each offset, by partition."""
        with self._line.lent_client() as client:
            starts = known_starts(client, offsets)
            froms = {tp: max(at, starts[tp]) for tp, at in offsets.items() if tp in starts}
            wanted = {tp: (at, 1) for tp, at in froms.items()}
            answers = fetch_records(client, wanted, timeout_s=WITHIN_S)
        return {tp: IdlePosition(at, _written_ms(answers[tp], at)) for tp, at in froms.items()}

    def close(self) -> None:
        """Close the connections without waiting. A query in progress closes them when it ends."""
        self._line.close()
        self._pulse.close()


def _open_transactions(
    client: ClusterClient, partitions: Collection[TopicPartition]
) -> OpenTransactions:
    try:
        limit_ms = longest_transaction(client)
    except Unauthorized:
        limit_ms = None
    transactions = tuple(open_transactions(client, list(partitions)))
    return OpenTransactions(None if limit_ms is None else limit_ms / 1000, transactions)


def _written_ms(answer: FetchedRecords | TwinlogError, offset: int) -> int:
    """Return the largest timestamp of the batch that has `offset`, in ms, or 0 if unknown."""
    if isinstance(answer, TwinlogError):
        return 0
    headers = (header for header, _ in read_headers(answer.records))
    first_header = next((header for header in headers if header.last_offset >= offset), None)
    return 0 if first_header is None else max(0, first_header.max_timestamp)


# The liveness check. Connections stay open if a broker is frozen or its packets are dropped. A lane
# notices that only after request.timeout.ms (30 s) of a fetch, and regards an old log end as
# current until then.
#
# The source counts as silent after two consecutive requests without an answer (PULSE_WITHIN_S
# each). They use separate connections, and brokers answer them from memory, so a large query or a
# slow fetch does not count as an outage. If a broker is too busy to answer these requests, but
# lanes still receive records, the source does not count as silent either.

PULSE_EVERY_S: Final = 1.0
AFTER_ANSWER_S: Final = 0.5
"""Added to PULSE_EVERY_S after the source has answered a query of `SourceWatch`. These queries are
sent once a second, so that usually no liveness request is needed.
"""
NOTE_POSITIONS_AFTER_S: Final = 4.0
"""Seconds from a liveness request until the lanes' positions are noted. Lanes report once a second,
so if positions increase after that, records were received after the request.
"""


@dataclass(slots=True, kw_only=True)
class SourceLiveness:
    """Checks during one run of a flow whether the source responds, in the supervisor's thread."""

    run: RunningFlow
    ask: Callable[[], None]
    """Returns when the source has responded, or raises TwinlogError. Called in any thread."""
    silence: TwinlogError | None = None
    """The error if the source is silent. None if it responds or has not been queried yet."""
    _requested_at: float = -inf
    _is_asking: bool = False
    _copied: int | None = None
    """Sum of the positions of all partitions, NOTE_POSITIONS_AFTER_S after the request was sent."""

    def poll(self, background: InBackground, answered_at: float = -inf) -> None:
        """Send a request if one is due. `answered_at`: time of the last answer to another query."""
        now = self.run.clock.monotonic()
        if self._is_asking:
            if self._copied is None and now - self._requested_at >= NOTE_POSITIONS_AFTER_S:
                self._copied = self._positions()
            return
        since = (
            self._requested_at
            if self.silence
            else max(self._requested_at, answered_at + AFTER_ANSWER_S)
        )
        if now - since < PULSE_EVERY_S or self.run.is_stopping:
            return
        self._is_asking, self._requested_at, self._copied = True, now, None
        background(self.ask, self._on_answer, self._on_failed)

    def _on_answer(self, _: None) -> None:
        self._is_asking, self.silence = False, None

    def _on_failed(self, error: TwinlogError) -> None:
        self._is_asking = False
        is_moving = self._copied is not None and self._positions() > self._copied
        is_silent = has(error.code, Trait.AWAY) and not is_moving
        self.silence = error if is_silent else None

    def _positions(self) -> int:
        known = (partition.recovery.upstream for partition in self.run.partitions.values())
        return sum(upstream + 1 for upstream in known if upstream is not None)


# An open transaction at the source holds a `read_committed` copy back (KIP-664). Its coordinator
# aborts it after the client's timeout, which is at most the brokers' `transaction.max.timeout.ms`.
# A transaction that is open for longer may be hanging: no coordinator knows it, so the copy would
# wait forever. It is reported with its producer, after an hour at most, because some clusters
# allow very long transactions.

OPEN_TRANSACTION: Final = "OPEN_TRANSACTION"
ASK_AFTER_S: float = 60.0
"""Seconds for which a partition must be held back before its open transactions are queried."""
HELD_BACK_EVERY_S: Final = 60.0
USUAL_LIMIT_S: Final = 900.0
"""Assumed limit if brokers report none: Kafka's default of transaction.max.timeout.ms."""
LONGEST_S: float = 3600.0
GRACE_S: float = 60.0
"""Seconds added to the limit, because a coordinator searches for expired transactions only every
ten seconds, and then has to write markers.
"""


class _HeldBack(NamedTuple):
    stable: int
    """The partition's last stable offset."""
    since: float
    """Time since when the offset has not changed, by the boot clock."""


@dataclass(slots=True, kw_only=True)
class HeldBackWatch:
    """Reports open transactions that hold partitions back, in the supervisor's thread."""

    run: RunningFlow
    log: FlowLog
    _held: dict[TopicPartition, _HeldBack] = field(default_factory=dict)
    _next_ask: float = 0.0

    def note_ends(self, ends: Offsets, readable: Offsets) -> None:
        """Note high watermarks (`ends`) and last stable offsets (`readable`) of one query."""
        now = self.run.clock.boot()
        for tp, stable in readable.items():
            if stable >= ends.get(tp, -1):
                self._end_hold(tp)
            elif tp not in self._held or self._held[tp].stable != stable:
                self._end_hold(tp)
                self._held[tp] = _HeldBack(stable, now)
        for tp in self._held.keys() - self.run.partitions.keys():
            del self._held[tp]

    def due(self) -> list[TopicPartition]:
        """Return the partitions whose open transactions are to be queried now."""
        now = self.run.clock.boot()
        held = [tp for tp, held in self._held.items() if now - held.since >= ASK_AFTER_S]
        if not held or now < self._next_ask:
            return []
        self._next_ask = now + min(HELD_BACK_EVERY_S, ASK_AFTER_S)
        return held

    def report(self, tps: Iterable[TopicPartition], answer: OpenTransactions) -> None:
        """Report for these partitions the transactions that are open for too long."""
        limit_s = min(answer.limit_s or USUAL_LIMIT_S, LONGEST_S) + GRACE_S
        now = self.run.clock.boot()
        for tp in tps:
            entry, partition = self._held.get(tp), self.run.partitions.get(tp)
            if (
                entry is None
                or partition is None
                or partition.held_back
                or now - entry.since < limit_s
            ):
                continue
            # report the oldest transaction, because it determines the last stable offset
            transactions = (each for each in answer.transactions if each.tp == tp)
            oldest = min(transactions, key=lambda each: each.start_offset, default=None)
            since_ms = self.run.clock.wall_ms() - int((now - entry.since) * 1000)
            if oldest is not None and oldest.since_ms >= 0:
                since_ms = min(since_ms, oldest.since_ms)
            code, text = OPEN_TRANSACTION, _hold_text(tp, entry.stable, oldest, since_ms)
            partition.held_back = Failure(
                code=code, message=text, since_ms=since_ms, began=entry.since
            )
            self.run.errors[code] += 1
            self.log.info("%s [%s]", text, code, partition=tp, code=code)

    def _end_hold(self, tp: TopicPartition) -> None:
        self._held.pop(tp, None)
        partition = self.run.partitions.get(tp)
        if partition is not None and partition.held_back is not None:
            partition.held_back = None
            self.log.info("%s: no longer held back by an open transaction", tp, partition=tp)


def _hold_text(
    tp: TopicPartition, stable: int, oldest: OpenTransaction | None, since_ms: int
) -> str:
    tool = "kafka-transactions.sh --bootstrap-server SOURCE"
    where = f"--topic {tp.topic} --partition {tp.partition}"
    who, start = "an open transaction", stable
    if oldest is not None:
        who, start = f"a transaction of producer id {oldest.producer_id}", oldest.start_offset
    return (
        f"{tp}: {who} is open since {in_iso(since_ms)}, from upstream offset {start} on, so no "
        f"record after the last stable offset {stable} can be copied. Find out whether its "
        f"producer is alive ({tool} describe-producers {where}). If no coordinator knows the "
        f"transaction ({tool} find-hanging {where}), abort it ({tool} abort {where} "
        f"--start-offset {start}): its records are rolled back for every consumer"
    )


ASK_EVERY_S: Final = 1.0
SHARE_OF_TIME: Final = 0.05
"""Maximum share of the time that queries take. The pause grows with the duration of the last query,
up to LONGEST_PAUSE_S.
"""

LONGEST_PAUSE_S: Final = 10.0
"""Maximum time between the starts of two queries, in seconds."""

AFTER_FAILURE_S: Final = 2.0

BEHIND_FOR_S: Final = 20.0
BEHIND_EVERY_S: Final = 10.0
RETENTIONS_EVERY_S: Final = 120.0


@dataclass(slots=True, kw_only=True)
class SourceWatch:
    """Queries the source during one run of a flow. Methods are for the supervisor's thread."""

    run: RunningFlow
    source: SourceQueries
    """The queries. They may run in any thread, but only one at a time."""
    log: FlowLog
    retentions: Mapping[str, int] = field(default_factory=dict)
    answered_at: float = -inf
    """Monotonic time of a broker's last answer."""
    _next_ask: float = 0.0
    _next_starts: float = 0.0
    _next_retentions: float = 0.0
    _asked_of: set[str] = field(default_factory=set)
    """Topics of the last retention query. A topic that is not among them is queried immediately."""
    _is_asking: bool = False
    _is_exceeded: bool = False
    _near: set[str] = field(default_factory=set)
    _held_back: HeldBackWatch = field(init=False)

    def __post_init__(self) -> None:
        self._held_back = HeldBackWatch(run=self.run, log=self.log)

    def poll(self, background: InBackground) -> None:
        """Query the source in the background, if a query is due."""
        now = self.run.clock.monotonic()
        if self._is_asking or now < self._next_ask or self.run.is_stopping:
            return
        partitions = self.run.partitions.items()
        followed = {tp: partition for tp, partition in partitions if is_followed(partition)}
        wanted = {tp: partition.recovery.upstream for tp, partition in followed.items()}
        ids = {tp: partition.plan.source_topic_id for tp, partition in followed.items()}
        behind = self._starts_due(now)
        topics = {tp.topic for tp in behind}
        if topics and (now >= self._next_retentions or not topics <= self._asked_of):
            self._next_retentions, self._asked_of = now + RETENTIONS_EVERY_S, topics
        else:
            topics = set()
        self._is_asking, self._next_ask = True, now + ASK_EVERY_S
        asked_at = self.run.clock.boot()
        held_back = self._held_back.due()

        def on_found(answers: SourceAnswers) -> None:
            took_s = self.run.clock.monotonic() - now
            if answers.ids:  # the IDs were queried last, and any broker can answer that query
                self.answered_at = now + took_s
            self._done(now, min(took_s / SHARE_OF_TIME, LONGEST_PAUSE_S))
            answers = self._only_unchanged(answers, ids, asked_at)
            self._take(answers, wanted, asked_at)
            self._held_back.note_ends(answers.ends, answers.readable)
            if answers.open_transactions is not None:
                self._held_back.report(held_back, answers.open_transactions)

        def on_failed(_: TwinlogError) -> None:
            # not logged here: lanes report such errors, and the loss is shown as unknown
            self._done(self.run.clock.monotonic(), AFTER_FAILURE_S)

        background(
            lambda: self.source.answers(wanted, behind, topics, held_back), on_found, on_failed
        )

    def _starts_due(self, now: float) -> Collection[TopicPartition]:
        """Return the partitions that have been behind for BEHIND_FOR_S, if a query is due."""
        if now < self._next_starts:
            return ()
        self._next_starts = now + BEHIND_EVERY_S
        behind = []
        for tp, partition in self.run.partitions.items():
            if not is_followed(partition) or not partition.is_behind:
                partition.keeping.forget()
            elif self.run.clock.boot() - (partition.recovery.at or 0.0) > BEHIND_FOR_S:
                behind.append(tp)
        return behind

    def _only_unchanged(
        self, answers: SourceAnswers, ids: Mapping[TopicPartition, TopicId], asked_at: float
    ) -> SourceAnswers:
        """Return the answers without the values of re-created topics. Offsets are queried by name,
        but the offsets of a re-created topic have no relation to the copied records.
        """
        same = {tp for tp, topic_id in ids.items() if answers.ids.get(tp.topic) == topic_id}
        for tp in answers.ends.keys() & ids.keys() - same:
            partition = self.run.partitions.get(tp)
            if partition is not None and partition.plan.source_topic_id == ids[tp]:
                partition.recovery.invalidate(asked_at)

        def of(offsets: Offsets) -> Offsets:
            return {tp: offset for tp, offset in offsets.items() if tp in same}

        return answers._replace(
            ends=of(answers.ends), readable=of(answers.readable), starts=of(answers.starts)
        )

    def _take(
        self,
        answers: SourceAnswers,
        wanted: Mapping[TopicPartition, int | None],
        asked_at: float,
    ) -> None:
        for tp, end in answers.ends.items():
            if (partition := self.run.partitions.get(tp)) is not None:
                partition.recovery.note_end(end, asked_at, wanted[tp])
        for tp, end in answers.readable.items():
            if (partition := self.run.partitions.get(tp)) is not None:
                partition.queried_end = end
        for tp, start in answers.starts.items():
            partition = self.run.partitions.get(tp)
            if partition is None or partition.position is None or partition.recovery.end is None:
                continue
            upstream, end = partition.position, partition.recovery.end
            partition.keeping.note_source(
                SourceBounds(at=asked_at, start=start, end=end, upstream=upstream)
            )
        if answers.retentions is not None:
            self.retentions = answers.retentions

    def _done(self, since: float, pause_s: float) -> None:
        self._is_asking = False
        self._next_ask = max(self._next_ask, since + pause_s)

    def log_changes(self, snapshot: FlowSnapshot) -> None:
        """Log when the RPO is exceeded or met again, and when a retention risk begins or ends."""
        if snapshot.rpo_excess and not self._is_exceeded:
            self.run.errors[RPO_EXCEEDED] += 1
            self.log.warning("%s", snapshot.rpo_excess)
        elif self._is_exceeded and not snapshot.rpo_excess:
            self.log.warning("the RPO is met again")
        self._is_exceeded = bool(snapshot.rpo_excess)
        near = warnings(snapshot.partitions)
        for topic in near.keys() - self._near:
            self.run.errors[RETENTION_NEAR] += 1
            self.log.warning("%s", near[topic])
        for topic in self._near - near.keys():
            what = "%s: retention no longer threatens records that are not copied yet"
            self.log.warning(what, topic)
        self._near = set(near)
