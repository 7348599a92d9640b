"""One Kafka transaction for all tasks of a write or micro-batch; the driver begins and ends it.

**Problem.** Spark runs tasks twice, loses them, and repeats a whole micro-batch after a crash.
Nevertheless each row must be in the topic once, and a reader must never see a part of a
micro-batch. With a transaction per task, tasks would become visible one by one, and a repeated task
twice.

    driver   begin    InitProducerId: rolls back the open transaction of an earlier run, or finishes
                      it if its end was decided; later requests of that run are rejected
    tasks             add partitions, append with that producer ID and epoch (`appending`)
    driver   commit   read the mark; count the rows in the logs; set the mark; EndTxn; new epoch
    driver   abort    EndTxn, new epoch

Begin and commit run in different processes, and only the tasks' messages are passed from one to the
other. All steps may be repeated.

**Invariants.** The mark (`cluster.groups.commit_mark`) is an offset of a group that belongs to the
query. The mark has the number of the micro-batch that was committed last, its row count, and its
topics. The mark is part of the transaction, so it is committed if and only if the rows are. A mark
that no writer set on this cluster is refused (MARK_DIFFERS), because a mirror may have translated
it.

A micro-batch with the number of the mark is not written again. Spark repeats a micro-batch with the
same rows if Spark died after the commit but before it recorded the commit. Spark keeps the plan of
a micro-batch, so the numbers of a query have no gap. If the mark has an unexpected number
(MARK_DIFFERS), it belongs to another checkpoint, or was lost, and the topic's content is unknown.

**What may die**

- If the driver dies before EndTxn, the next begin, or the time-out, rolls back. The mark is the
  previous one.
- If the driver dies after EndTxn, the mark shows that the repeated micro-batch is committed.
- If the response to EndTxn is lost, the request is sent again while the coordinator has the same
  transaction open, which its start time shows. Otherwise the epoch is ended. The mark, read after
  pending transactions have ended (KIP-447), then shows the result.
- If another run of the query begins before EndTxn, this run's epoch is rejected (WRITER_FENCED).
  Nothing was committed, or the other run finds the commit in the mark.
- If a task's run wrote rows that no task reports, the counts differ (PARTITION_SHARED).

**Rejected:** a transactional ID per task, because there would be no point at which all of them are
committed (ADR 33). Also rejected: to store the mark only in Spark's checkpoint, because it is
written after the commit, not together with the rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import WriterCommitMessage

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.commit_mark import CommitMark, mark_group, read_mark
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import fetch_offsets
from twinlog.cluster.groups.transactions import (
    NO_PRODUCER,
    ProducerFenced,
    Transactions,
    TransactionState,
)
from twinlog.cluster.logs.producers import ProducerIdentity, describe_producers
from twinlog.errors import ClusterError, Fate, TwinlogError, or_raise
from twinlog.model import TopicPartition
from twinlog.records.connections import connected
from twinlog.records.write.appending import written_twice_error
from twinlog.records.write.options import WriteOptions
from twinlog.records.write.rows import partitions_of
from twinlog.survey.topic_configs import NO_LIMIT, retentions

log = logging.getLogger(__name__)

FENCED: Final = ProducerFenced(
    "WRITER_FENCED",
    "another run of the same query or write has begun since, or this run took longer than "
    "kafka.transaction.timeout.ms. If no other run is active, start the query again. Committed "
    "rows are not written twice",
)
OFFSETS_TOPIC: Final = "__consumer_offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunTransaction:
    """The data of an open transaction that tasks get."""

    identity: ProducerIdentity
    now_ms: int
    """Start time, used for rows without a timestamp."""
    placed_among: int
    """The topic's partition count when rows were partitioned; 0 if tasks partition them."""


@dataclass(frozen=True, kw_only=True)
class TaskResult(WriterCommitMessage):
    """The rows that a task reports as written."""

    identity: ProducerIdentity
    query: str
    """ID of the query or of the write."""
    rows: Mapping[TopicPartition, int]
    oldest_ms: Mapping[str, int]
    """Oldest timestamp by topic, if rows have their own timestamps."""
    placed_among: int
    """The partition count that was passed to the task."""


def transactions(
    client: ClusterClient,
    options: WriteOptions,
    query: str = "",
    identity: ProducerIdentity = NO_PRODUCER,
) -> Transactions:
    """Return the transaction of a query, with the group that stores the query's mark
    (`commit_mark`).
    """
    return Transactions(
        client,
        options.transactional_id,
        mark_group(options.transactional_id, query),
        timeout_ms=options.timeout_ms,
        joining=identity,
        fenced=FENCED,
    )


def begin(options: WriteOptions, placed_among: int = 0) -> BegunTransaction:
    """Fence earlier runs of the query or write, and begin a transaction. Raises TwinlogError."""
    with connected(options.cluster()) as client:
        if options.topic:
            # so that a missing topic fails before anything runs
            partitions_of(client, options.topic)
        opened = transactions(client, options)
        opened.begin_epoch()
        opened.describe()  # if brokers are too old, this fails before a row is written
        return BegunTransaction(
            identity=opened.identity,
            now_ms=time.time_ns() // 1_000_000,
            placed_among=placed_among,
        )


def commit(options: WriteOptions, messages: Sequence[TaskResult], batch: int) -> None:
    """Commit all rows of the tasks, unless they are already committed. Raises TwinlogError."""
    if not messages:
        return  # there were no tasks, so nothing was written
    first, rows = messages[0], _rows(messages)
    with connected(options.cluster()) as client:
        opened = transactions(client, options, first.query, first.identity)
        cluster_id = client.metadata([]).cluster_id
        last_mark = _mark(client, opened.group, cluster_id, is_strict=options.needs_mark)
        topics = frozenset({options.topic} if options.topic else {tp.topic for tp in rows})
        if not topics and last_mark is not None:
            topics = last_mark.topics
        mark = CommitMark(batch=batch, rows=sum(rows.values()), topics=topics)
        if _is_repeated(last_mark, mark, options):
            _warn_of_left_out(opened.group, mark)
            _end_epoch(opened, batch)  # rolls back rows that tasks have written again
            return
        if not topics:
            return  # without rows and a topic there is nothing to commit, not even a mark
        _warn_of_old(client, messages)
        _warn_of_growth(client, options.topic, first.placed_among)
        opened.commit_offsets(mark.offsets(cluster_id))
        _end(client, opened, _require_all_rows(client, opened, rows), batch, cluster_id)


def abort(options: WriteOptions, identity: ProducerIdentity) -> None:
    """Roll back the rows that the tasks of a run wrote, so that readers need not wait for the
    time-out. A task that still runs can then open no transaction. Raises TwinlogError.

    The failed run may be an older one, whose tasks failed because a newer run has begun. The newer
    run must not be affected, so `identity` must be the failed run's producer ID and epoch
    (`Transactions.end_epoch`):

    - If the newer run began before this call, it has rolled back the failed run, whose epoch is
      rejected.
    - If the newer run begins during this call, it does the same, or begins after this rollback.
    - If the transaction timed out, the coordinator has rolled it back, and rejects the failed run's
      epoch.
    - If this process dies, or a response is lost, the next begin rolls back the open transaction.
    """
    with connected(options.cluster()) as client:
        transactions(client, options, identity=identity).end_epoch()


def _rows(messages: Sequence[TaskResult]) -> dict[TopicPartition, int]:
    out: dict[TopicPartition, int] = {}
    for message in messages:
        both = out.keys() & message.rows.keys()
        if both:
            raise written_twice_error(f"two tasks have rows of {min(both)}")
        out |= message.rows
    return out


def _mark(
    client: ClusterClient, group: str, cluster_id: str | None, *, is_strict: bool
) -> CommitMark | None:
    """Return the mark of the last micro-batch that was committed on this cluster, or None if there
    is no mark.

    `is_strict`: raise TwinlogError if the group also has offsets that are not marks of this
    cluster.
    """
    answer = or_raise(fetch_offsets(Coordinators(client), [group], settled=True)[group])
    mark, invalid = read_mark(answer, cluster_id)
    if invalid and is_strict:
        committed = answer[invalid[0]]
        raise _differs_error(
            f"group {group} has offset {committed.offset} of {invalid[0]}, but the offset's "
            f"metadata ({committed.metadata[:80]}) is not that of micro-batch {committed.offset} "
            "on this cluster, because a mirror translated the offset or another client committed it"
        )
    return mark


def _is_repeated(last_mark: CommitMark | None, mark: CommitMark, options: WriteOptions) -> bool:
    last, batch = -1 if last_mark is None else last_mark.batch, mark.batch
    if last_mark is not None and last == batch:
        if last_mark.topics != mark.topics:
            old_topics, new_topics = (
                ", ".join(sorted(mark_of.topics)) for mark_of in (last_mark, mark)
            )
            raise _differs_error(
                f"micro-batch {batch} was committed to {old_topics}, and is now written to "
                f"{new_topics}",
                options.write_id,
            )
        if last_mark.rows == mark.rows:
            return True
        raise _differs_error(
            f"micro-batch {batch} is committed with {last_mark.rows} rows, but now has {mark.rows}",
            options.write_id,
        )
    if last > batch:
        what = f"micro-batch {last} is committed, but micro-batch {batch} should be written"
        raise _differs_error(what)
    if last < batch - 1 and options.topic and options.needs_mark:
        known = (
            "no earlier micro-batch is committed"
            if last_mark is None
            else f"the last committed micro-batch is {last}"
        )
        raise _differs_error(f"micro-batch {batch} should be written, but {known}")
    return False


def _require_all_rows(
    client: ClusterClient, opened: Transactions, rows: Mapping[TopicPartition, int]
) -> TransactionState:
    """Return the transaction's state. Raises TwinlogError unless it has exactly the tasks' rows."""
    state = opened.describe()
    if not state.is_open or state.identity != opened.identity:
        raise ClusterError(
            f"cluster {client.alias}: the transaction with ID {opened.transactional_id} is no "
            f"longer open: {FENCED.why}",
            code=FENCED.code,
        )
    tps = {tp for tp in state.tps if tp.topic != OFFSETS_TOPIC} | rows.keys()
    for tp, producers in describe_producers(client, sorted(tps)).items():
        writer = or_raise(producers).get(opened.identity.producer_id)
        is_there = (
            writer is not None
            and writer.producer_epoch == opened.identity.producer_epoch
            and writer.current_transaction_start_offset >= 0
        )
        count = writer.last_sequence + 1 if writer is not None and is_there else 0
        if count != rows.get(tp, 0):
            raise written_twice_error(
                f"{tp} has {count} rows of the transaction, but tasks wrote {rows.get(tp, 0)}"
            )
    return state


def _end(
    client: ClusterClient,
    opened: Transactions,
    state: TransactionState,
    batch: int,
    cluster_id: str | None,
) -> None:
    failures, deadline = 0, client.deadline()
    while True:
        try:
            opened.end(committed=True)
        except TwinlogError as error:
            failures += 1
            if error.fate is not Fate.RETRIABLE or not client.patience.pause(failures, deadline):
                raise
            now = opened.describe()
            is_ours = now.identity == state.identity and now.started_ms == state.started_ms
            if is_ours and now.is_open:
                continue  # repeated, because the transaction whose rows were counted is still open
            if is_ours and now.is_committed:
                _end_epoch(opened, batch)
                return
            opened.end_epoch()
            last_mark = _mark(client, opened.group, cluster_id, is_strict=False)
            if last_mark is None or last_mark.batch != batch:
                raise
            return
        _end_epoch(opened, batch)
        return


def _end_epoch(opened: Transactions, batch: int) -> None:
    """End the epoch, so that a late run of a task can open no transaction. The call waits until the
    committed transaction is complete on all leaders. An unavailable leader is only logged, because
    the transaction is committed nevertheless, and an error would cause the rows to be written
    again.
    """
    try:
        opened.end_epoch()
    except TwinlogError as error:
        log.warning(
            "%s: micro-batch %d is committed, and its rows become visible when all leaders are "
            "available. The producer's epoch could not be ended yet; the next write with this ID "
            "ends it. Until then, a late run of a task could open a transaction, for which readers "
            "with read_committed would wait for up to kafka.transaction.timeout.ms: %s",
            opened.group,
            batch,
            error,
        )


def _warn_of_left_out(group: str, mark: CommitMark) -> None:
    if mark.rows:
        log.warning(
            "%s: %d rows were left out, because micro-batch %d of %s is already committed with "
            "the same row count",
            ", ".join(sorted(mark.topics)),
            mark.rows,
            mark.batch,
            group,
        )


def _warn_of_old(client: ClusterClient, messages: Sequence[TaskResult]) -> None:
    oldest: dict[str, int] = {}
    for message in messages:
        for topic, at in message.oldest_ms.items():
            oldest[topic] = min(at, oldest.get(topic, at))
    try:
        retained = retentions(client, sorted(oldest))
    except TwinlogError as error:
        log.info("retention.ms of %s unknown: %s", ", ".join(sorted(oldest)), error)
        return
    for topic, kept_ms in retained.items():
        age_ms = time.time_ns() // 1_000_000 - oldest[topic]
        if kept_ms != NO_LIMIT and age_ms > kept_ms:
            log.warning(
                "%s: rows are up to %d hours old by their timestamps, but the topic retains %d "
                "hours (retention.ms), so brokers delete such rows within minutes",
                topic,
                age_ms // 3_600_000,
                kept_ms // 3_600_000,
            )


def _warn_of_growth(client: ClusterClient, topic: str, placed_among: int) -> None:
    if not topic or not placed_among:
        return
    try:
        count = partitions_of(client, topic)
    except TwinlogError as error:
        log.info("%s: current partition count unknown: %s", topic, error)
        return
    if count != placed_among:
        log.warning(
            "%s has %d partitions, but `partitioned` was called when it had %d, so rows are not in "
            "the partitions that Java's producers choose. Call `partitioned` again. If this is a "
            "stream, restart it",
            topic,
            count,
            placed_among,
        )


def _differs_error(what: str, write_id: str = "") -> ClusterError:
    advice = (
        "Possible causes: another checkpoint wrote last, the query has moved to another cluster, "
        "brokers have expired the mark (offsets.retention.minutes), or the transactional ID was "
        "changed. Compare the topic with the query's input. If the topic lacks the micro-batch, "
        "resume once with missingMark=write. If it has some of the rows, or the resumed query "
        "fails again, begin after the topic's last row with a new checkpoint and transactional ID"
    )
    if write_id:
        advice = f"The writeId {write_id} identifies one write; give each write its own writeId"
    return ClusterError(
        f'format("twinlog"), writing: {what}. {advice}. This run committed nothing',
        code="MARK_DIFFERS",
    )
