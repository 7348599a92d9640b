"""One Kafka transaction for all tasks of a write or micro-batch; the driver begins and ends it.

    driver   begin    InitProducerId: what an earlier run left open is rolled back, or finished
                      where its end was decided; nothing of that run is taken any more
    tasks             add partitions, append with that producer id and epoch (`appending`)
    driver   commit   read the mark; count what is in the logs; set the mark; EndTxn; new epoch
    driver   abort    EndTxn, new epoch

Begin and commit run in different processes, and only the tasks' messages go from one to the other.
All of it may be repeated.

The mark (`cluster.groups.commit_mark`) is an offset of a group that belongs to the query. It has
the number of the micro-batch that was committed last, its row count, and its topics. It is part of
the transaction, so it is committed if and only if the rows are. A mark that no writer set on this
cluster is refused (MARK_DIFFERS), because a mirror may have translated it.
A micro-batch whose number it has is not written again: Spark repeats one with the same rows when it
died between our end and its own note of it. Spark keeps the plan of a micro-batch, so numbers of a
query have no gap; where the mark says otherwise (MARK_DIFFERS), it is of another checkpoint, or was
lost, and nobody knows what the topic has.

- We die before EndTxn: the next begin, or the time-out, rolls back. The mark is the one before.
- We die behind EndTxn: the mark says so, the repeated micro-batch is recognised.
- EndTxn's answer is lost: it is asked again while the coordinator has the same transaction open, by
  the time at which that began. Else the epoch is ended, and the mark, read when nothing is in
  doubt (KIP-447), says what became of it.
- Somebody else begins meanwhile: our epoch is refused (WRITER_FENCED), and nothing was committed,
  or it was and the mark says so to the next run.
- Some run of a task wrote what no task says that it wrote: the counts differ (PARTITION_SHARED).
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
from twinlog.cluster.groups.transactions import NOBODY, Described, ProducerFenced, Transactions
from twinlog.cluster.logs.producers import ProducerIdentity, describe_producers
from twinlog.errors import ClusterError, Fate, TwinlogError, or_raise
from twinlog.model import TopicPartition
from twinlog.records.connections import connected
from twinlog.records.write.appending import shared
from twinlog.records.write.options import WriteOptions
from twinlog.records.write.rows import partitions_of
from twinlog.survey.topic_configs import NO_LIMIT, retentions

log = logging.getLogger(__name__)

FENCED: Final = ProducerFenced(
    "WRITER_FENCED",
    "another run of the same query or write has begun since, or this one took longer than "
    "kafka.transaction.timeout.ms: where no other runs, start it again; what it has committed is "
    "recognised",
)
OFFSETS_TOPIC: Final = "__consumer_offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What tasks are given."""

    identity: ProducerIdentity
    now_ms: int
    """When it began: of rows without a timestamp."""
    placed_among: int
    """The partitions that the topic had when rows were partitioned; 0: tasks do that."""


@dataclass(frozen=True, kw_only=True)
class TaskWritten(WriterCommitMessage):
    """What a task says that it has written."""

    identity: ProducerIdentity
    query: str
    """Or which write."""
    rows: Mapping[TopicPartition, int]
    oldest_ms: Mapping[str, int]
    """Of each topic, where rows have timestamps of their own."""
    placed_among: int
    """As the task was given it."""


def transactions(
    client: ClusterClient,
    options: WriteOptions,
    query: str = "",
    identity: ProducerIdentity = NOBODY,
) -> Transactions:
    """Return the transaction of a query. Its group has the query's mark."""
    return Transactions(
        client,
        options.transactional_id,
        mark_group(options.transactional_id, query),
        timeout_ms=options.timeout_ms,
        joining=identity,
        fenced=FENCED,
    )


def begin(options: WriteOptions, placed_among: int = 0) -> Begun:
    """Shut out what ran before. Raises TwinlogError."""
    with connected(options.cluster()) as client:
        if options.topic:
            partitions_of(client, options.topic)  # before anything runs
        opened = transactions(client, options)
        opened.begin_epoch()
        opened.describe()  # brokers that cannot are refused before a row is written
        return Begun(
            identity=opened.identity,
            now_ms=time.time_ns() // 1_000_000,
            placed_among=placed_among,
        )


def commit(options: WriteOptions, messages: Sequence[TaskWritten], batch: int) -> None:
    """All that was written, if it is not committed yet. Raises TwinlogError."""
    if not messages:
        return  # Spark had no task at all
    first, rows = messages[0], _rows(messages)
    with connected(options.cluster()) as client:
        opened = transactions(client, options, first.query, first.identity)
        cluster_id = client.metadata([]).cluster_id
        found = _mark(client, opened.group, cluster_id, is_strict=options.needs_mark)
        topics = frozenset({options.topic} if options.topic else {tp.topic for tp in rows})
        if not topics and found is not None:
            topics = found.topics
        mark = CommitMark(batch=batch, rows=sum(rows.values()), topics=topics)
        if _is_repeated(found, mark, options):
            _warn_of_left_out(opened.group, mark)
            _end_epoch(opened, batch)  # which rolls back what tasks have written again
            return
        if not topics:
            return  # without rows and a topic there is nothing to commit, not even a mark
        _warn_of_old(client, messages)
        _warn_of_growth(client, options.topic, first.placed_among)
        opened.commit_offsets(mark.offsets(cluster_id))
        _end(client, opened, _counted(client, opened, rows), batch, cluster_id)


def abort(options: WriteOptions, identity: ProducerIdentity) -> None:
    """Roll back what the tasks of a run wrote: readers need not wait for the time-out, and a task
    that is still running can open nothing any more. Raises TwinlogError.

    A run that fails may be an older one, whose tasks failed because a newer one has begun. That one
    is left alone, so the identity must be that of the run which fails (`Transactions.end_epoch`):

    - The newer run has begun before: our epoch is refused, and its begin has rolled ours back.
    - It begins meanwhile: the same, or it waits for our rollback and begins then.
    - The time was up: the coordinator has rolled back, and refuses our epoch likewise.
    - We die on our way, or an answer is lost: it is done or not; the next begin does the rest.
    """
    with connected(options.cluster()) as client:
        transactions(client, options, identity=identity).end_epoch()


def _rows(messages: Sequence[TaskWritten]) -> dict[TopicPartition, int]:
    out: dict[TopicPartition, int] = {}
    for one in messages:
        both = out.keys() & one.rows.keys()
        if both:
            raise shared(f"two tasks have rows of {min(both)}")
        out |= one.rows
    return out


def _mark(
    client: ClusterClient, group: str, cluster_id: str | None, *, is_strict: bool
) -> CommitMark | None:
    """Return the newest mark that a writer set on this cluster, or None.

    `is_strict`: raise TwinlogError if the group also has offsets that are no such marks.
    """
    answer = or_raise(fetch_offsets(Coordinators(client), [group], settled=True)[group])
    found, invalid = read_mark(answer, cluster_id)
    if invalid and is_strict:
        one = answer[invalid[0]]
        raise _differs(
            f"group {group} has offset {one.offset} of {invalid[0]}, and its metadata "
            f"({one.metadata[:80]}) is not that of micro-batch {one.offset} on this cluster: a "
            "mirror has translated it, or another client committed it"
        )
    return found


def _is_repeated(found: CommitMark | None, mark: CommitMark, options: WriteOptions) -> bool:
    last, batch = -1 if found is None else found.batch, mark.batch
    if found is not None and last == batch:
        if found.topics != mark.topics:
            there, here = (", ".join(sorted(one.topics)) for one in (found, mark))
            raise _differs(
                f"micro-batch {batch} is committed to {there}, and is now to be written to {here}",
                options.write_id,
            )
        if found.rows == mark.rows:
            return True
        raise _differs(
            f"micro-batch {batch} is committed with {found.rows} rows, and now has {mark.rows}",
            options.write_id,
        )
    if last > batch:
        raise _differs(f"micro-batch {last} is committed, and {batch} is to be written")
    if last < batch - 1 and options.topic and options.needs_mark:
        known = "none is known to be committed" if found is None else f"the last one is {last}"
        raise _differs(f"micro-batch {batch} is to be written, and of those before it {known}")
    return False


def _counted(
    client: ClusterClient, opened: Transactions, rows: Mapping[TopicPartition, int]
) -> Described:
    """The transaction, in which is what tasks say, and nothing else. Raises TwinlogError."""
    state = opened.describe()
    if not state.is_open or state.identity != opened.identity:
        raise ClusterError(
            f"cluster {client.alias}: transaction of {opened.transactional_id} is not open any "
            f"more: {FENCED.why}",
            code=FENCED.code,
        )
    tps = {tp for tp in state.tps if tp.topic != OFFSETS_TOPIC} | rows.keys()
    for tp, found in describe_producers(client, sorted(tps)).items():
        one = or_raise(found).get(opened.identity.producer_id)
        is_there = (
            one is not None
            and one.producer_epoch == opened.identity.producer_epoch
            and one.current_transaction_start_offset >= 0
        )
        count = one.last_sequence + 1 if one is not None and is_there else 0
        if count != rows.get(tp, 0):
            raise shared(f"{tp} has {count} rows of it, and tasks wrote {rows.get(tp, 0)}")
    return state


def _end(
    client: ClusterClient,
    opened: Transactions,
    state: Described,
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
                continue  # it has not ended, and is still the one that was counted
            if is_ours and now.is_committed:
                _end_epoch(opened, batch)
                return
            opened.end_epoch()
            found = _mark(client, opened.group, cluster_id, is_strict=False)
            if found is None or found.batch != batch:
                raise
            return
        _end_epoch(opened, batch)
        return


def _end_epoch(opened: Transactions, batch: int) -> None:
    """So that a run of a task which comes late can open nothing. It waits for the end of what was
    committed, which all leaders must have heard of. Where one is away, all is committed
    nevertheless: an error would have the rows written again.
    """
    try:
        opened.end_epoch()
    except TwinlogError as error:
        log.warning(
            "%s: micro-batch %d is committed, and its rows are there once all leaders of "
            "partitions are; its epoch could not be ended yet. The next write with this id does "
            "so. A run of a task that comes late could open a transaction until then, for which "
            "readers with read_committed wait for up to kafka.transaction.timeout.ms: %s",
            opened.group,
            batch,
            error,
        )


def _warn_of_left_out(group: str, mark: CommitMark) -> None:
    if mark.rows:
        log.warning(
            "%s: %d rows were left out, because micro-batch %d of %s is committed already with as "
            "many rows",
            ", ".join(sorted(mark.topics)),
            mark.rows,
            mark.batch,
            group,
        )


def _warn_of_old(client: ClusterClient, messages: Sequence[TaskWritten]) -> None:
    oldest: dict[str, int] = {}
    for one in messages:
        for topic, at in one.oldest_ms.items():
            oldest[topic] = min(at, oldest.get(topic, at))
    for topic, kept_ms in retentions(client, sorted(oldest)).items():
        age_ms = time.time_ns() // 1_000_000 - oldest[topic]
        if kept_ms != NO_LIMIT and age_ms > kept_ms:
            log.warning(
                "%s: rows are up to %d hours old by their timestamps, and the topic keeps %d hours "
                "(retention.ms): brokers delete such rows within minutes",
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
        log.info("%s: how many partitions it has by now is not known: %s", topic, error)
        return
    if count != placed_among:
        log.warning(
            "%s has %d partitions by now, and rows are placed among the %d that it had when "
            "`partitioned` was called: keys are not where Java's producers put them. Call it "
            "again; a stream has to be started again",
            topic,
            count,
            placed_among,
        )


def _differs(what: str, write_id: str = "") -> ClusterError:
    advice = (
        "the checkpoint is not the one that wrote last, or the query has moved to another cluster, "
        "or brokers have forgotten the mark (offsets.retention.minutes), or the transactional id "
        "was changed; compare the topic with the input of the query, then begin with a new "
        "checkpoint and transactional id where it ends, or resume once with missingMark=write"
    )
    if write_id:
        advice = f"writeId {write_id} names one write; give each other write its own writeId"
    return ClusterError(
        f'format("twinlog"), writing: {what}: {advice}. Nothing was committed now',
        code="MARK_DIFFERS",
    )
