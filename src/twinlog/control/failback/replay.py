"""Appends the saved tail to the new primary B: each record exactly once, even if a run dies.

**Problem.** The run may be killed at any point, its responses may be lost, a second run may exist,
and a frozen run may resume. A tail has old records, and B's log is compacted, truncated by
retention, and written to by other clients. So neither B's records nor the broker's producer state
show what was appended.

    begin an epoch -> read the position -> (records + the next offset of A), in one transaction

**Invariant.** The position of a replay is A's offset after the last record that was appended to B.
The position is the committed offset of one of Twinlog's groups on B, for the remote partition. It
is written in the transaction that appends the records, so either both exist or neither does:

- A run dies before the end of a transaction, or the response is lost: the next epoch aborts the
  transaction, or completes it if its end was decided, *before* the run reads the position.
- A frozen run continues: its epoch is fenced, and neither its records nor its offsets are accepted.
- The flow is demoted, and the mirror resumes its copy with the first record of the tail: see below.
- The remote topic is deleted and re-created: its ID is compared right before each transaction, and
  nothing is appended to another topic than the one that was checked.
- Leaders, coordinators or log starts change, B is compacted, other clients write in between: the
  position does not depend on any record of the topic, so it remains valid.
- Brokers have dropped the producer ID's state because the records are old: sequences begin again
  with each epoch, and the position does not depend on them.

Brokers delete the committed offsets of a group without members after a week
(`offsets.retention.minutes`). So a permanent intent records that the replay of a topic was begun.
If the intent exists but the position does not, the appended records are unknown (REPLAY_UNKNOWN).
Before the intent, a transaction without records writes the first position of every partition, also
of empty tails, which may have records when the next run starts.

The metadata of the committed offset names the record that was appended last. The next run searches
the files for that record. If that record is missing, the run ends (REPLAY_UNKNOWN). Then the folder
is a different one, or the source lost the end of its log and has other records at these offsets.

**A demotion at the same time.** The intent `replay` and a demotion are rows of one log:

    replay:   write `replay`, check the promotion, then for each portion:
              append its records, check the promotion, commit
    demotion: check for `replay`, write the row, check again (`client.steering`)

- The demotion's row is after `replay`: the demotion finds `replay` and undoes itself.
- The demotion's row is before `replay`: the first check ends the run (NOT_PROMOTED) before anything
  is appended.
- The demotion's row is after `replay` but remains, because its command was killed between its two
  steps, or belongs to an older release: the first check after the row aborts the portion. So every
  committed portion was appended before the row. A leader that follows the row begins its copy after
  these records. The flow did not write them, so the leader stops before its own first record
  (EXTRA_RECORDS, TAKEN_OVER). No record of the tail is on the target twice.

A promotion that was undone and then repeated has a different row (`PromotionWatch`).

After a run has died, consumers of uncommitted records also get the records of its aborted
transactions, as with any transactional producer. Two kinds of saved records are not replayed: those
that the source's applications aborted, and those that an operator left out of the copy (`twinlog
topic skip`).

**Rejected** (ADR 24): An idempotent producer alone loses its identity when it dies. Headers that
name the source record would change the records, and would have to be searched in a compacted log.
The sequences of a stored producer ID are dropped by brokers when the records are old.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from twinlog.client.export import Transaction, record_of
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import Committed, GroupOffsets, fetch_offsets
from twinlog.cluster.groups.transactions import Transactions
from twinlog.cluster.topics.configs import may_lack_offsets
from twinlog.control.cutover.promotion import is_promoted
from twinlog.control.cutover.scope import CutoverScope, Say
from twinlog.control.failback.divergence import LogDivergence
from twinlog.control.failback.saved import SavedFile, SavedTail
from twinlog.errors import Fate, FlowError, or_raise
from twinlog.mirror.skips import Skip, skip_at
from twinlog.mirror.state.intents import Intent, IntentKind, WantedSkip
from twinlog.model import OWN_GROUPS, TopicId, TopicPartition
from twinlog.quantities import first_few, plural
from twinlog.survey.state_reader import StateReader
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, fingerprint

TRANSACTION_TIMEOUT_MS: Final = 30_000
"""Transaction timeout: the maximum delay of consumers of committed records after a run died."""
MOST_RECORDS: Final = 1_000
MOST_BYTES: Final = 500_000
"""Maximum bytes of keys and values per transaction: half of the default max.message.bytes of a
topic. A larger record gets its own transaction.
"""
REPORTED_EVERY: Final = 100


class TailWork(NamedTuple):
    """One partition of a replay: its tail, the saved files, and the records to leave out."""

    tail: LogDivergence
    files: tuple[SavedFile, ...]
    skips: tuple[Skip, ...] = ()
    """Records that an operator left out of the copy. A replay leaves them out as well."""

    @property
    def next(self) -> int:
        return max((file.span.next for file in self.files), default=self.tail.at)


NOTHING_YET: Final = "begun"
"""The metadata of a partition's position before any record was appended."""


def last_appended(record: Record) -> str:
    """Return the metadata of a position: offset and hash of the record that was appended last."""
    return f"{record.offset} {fingerprint(record)}"


def group_of(flow: str) -> str:
    """Return the group whose offsets are the positions of a replay. No flow copies the group."""
    return f"{OWN_GROUPS}failback-{flow}"


def work_of(
    tails: Sequence[LogDivergence],
    files: Sequence[SavedFile],
    skips: Sequence[WantedSkip] = (),
) -> list[TailWork]:
    """Return the partitions to replay: all partitions of each topic that has a tail."""
    out = []
    for tail in tails:
        tail_files = tuple(
            file for file in files if file.tp == tail.source and file.span.next > tail.at
        )
        if tail_files or tail.target_log is not None:
            left_out = tuple(
                skip.skipped for skip in skips if skip.is_of(tail.source, tail.topic_id)
            )
            out.append(TailWork(tail, tail_files, left_out))
    topics = {tail_work.tail.source.topic for tail_work in out if tail_work.files}
    return [tail_work for tail_work in out if tail_work.tail.source.topic in topics]


def require_raw(scope: CutoverScope, divergences: Sequence[LogDivergence]) -> None:
    """Raise FlowError (TRANSFORMS_NOT_RUN) if topics have transforms, because a replay appends
    records as they are.
    """
    topics = {
        divergence.source.topic
        for divergence in divergences
        if scope.config.transforms.of_topic(divergence.source.topic)
        or (divergence.copy is not None and divergence.copy.partition_map.transformed)
    }
    if topics:
        raise scope.error(
            f"a replay would append the records of {first_few(sorted(topics))} without their "
            "transforms. Replay only other topics (--topics). Or keep the tail in files (--tail "
            "keep), then transform the records and produce them yourself",
            code="TRANSFORMS_NOT_RUN",
        )


class Replay:
    """Runs the replay of one flow. Not thread-safe."""

    def __init__(
        self, scope: CutoverScope, saved: SavedTail, watch: PromotionWatch, say: Say
    ) -> None:
        self._scope, self._saved, self._say, self._watch = scope, saved, say, watch
        self._group = group_of(scope.name)
        self._transactions = transactions_of(scope)

    def run(self, work: Sequence[TailWork]) -> int:
        """Append the tails. Return how many records were appended. Raises FlowError on failure."""
        if not work:
            self._say("replay: there is nothing to replay")
            return 0
        self._require_targets(work)
        self._watch.require()
        self._transactions.begin_epoch()
        at = self._begun(work)
        self._require_promoted(work)
        appended = 0
        for tail_work in work:
            if tail_work.files:
                appended += self._partition(tail_work, at[tail_work.tail.target])
        return appended

    def _require_targets(self, work: Sequence[TailWork]) -> None:
        seen = self._scope.target.metadata(
            sorted({tail_work.tail.target.topic for tail_work in work})
        )
        targets = [tail_work.tail.target for tail_work in work if tail_work.files]
        missing = [str(tp) for tp in targets if seen.partition(tp) is None]
        if missing:
            raise self._scope.error(
                f"the target has no partition {first_few(missing)}. The tail is saved, and nothing "
                "was replayed. Create the partition, or exclude its topic with --topics, then run "
                "the same command again",
                code="TOPIC_MISSING",
            )
        self._require_same(*work)

    def _require_same(self, *work: TailWork) -> None:
        """Check that the topics still have the same IDs, because writes address topics by name."""
        divergences = [tail_work.tail for tail_work in work if tail_work.files]
        if ids := {divergence.target.topic: divergence.target_id for divergence in divergences}:
            require_same_topics(self._scope, ids)

    def _begun(self, work: Sequence[TailWork]) -> dict[TopicPartition, Committed]:
        """Return each partition's position. Missing positions are created first, and then the
        intent `replay`, so that a later loss of a position is detected.
        """
        at: dict[TopicPartition, Committed] = {}
        known = positions(self._scope)
        begun = {*self._scope.intents().topics(IntentKind.REPLAY)}
        for tail_work in work:
            source, target = tail_work.tail.source, tail_work.tail.target
            if target in known:
                before = known[target]
                at[target] = before._replace(offset=self._resume_offset(tail_work, before))
                continue
            if source.topic in begun:
                if not tail_work.files:
                    continue  # there is nothing to append, so no position is needed
                raise self._scope.error(
                    f"the replay of {source} was begun, but the brokers of the target have lost "
                    f"its position (group {self._group}). Compare the saved files with the records "
                    f"of {target}, and append missing records by hand",
                    code="REPLAY_UNKNOWN",
                )
            self._require_same(tail_work)
            start = Committed(tail_work.tail.at, NOTHING_YET)
            offsets = {target: start.offset}
            self._transactions.write(target, (), offsets, metadata=start.metadata)
            at[target] = start
        self._scope.steering.set(IntentKind.REPLAY, _topics(work))
        return at

    def _require_promoted(self, work: Sequence[TailWork]) -> None:
        """Check the promotion right after the rows `replay` were written. If the promotion was
        undone, delete the rows `replay` of topics to which nothing was ever appended.
        """
        topics = _topics(work)
        try:
            self._watch.require(topics)
        except FlowError:
            undo_untouched_replays(self._scope, self._transactions, topics)
            raise

    def _resume_offset(self, work: TailWork, committed: Committed) -> int:
        """Return the source offset at which the replay resumes. Raises FlowError if the files lack
        the record that an earlier run appended last.
        """
        first = work.tail.at
        last = -1 if committed.metadata == NOTHING_YET else committed.offset - 1
        if last >= first and committed.metadata:
            last = self._last_offset(work, committed)
        if last < first:
            return first  # nothing of this tail was appended yet
        if (
            not work.files
            or not committed.metadata
            or self._has_last_appended(work, committed.metadata)
        ):
            return committed.offset
        raise self._scope.error(
            f"an earlier run replayed {work.tail.source} up to offset {committed.offset}, but no "
            "saved file has the last record that it appended. Pass the folder of that run with "
            "--save. If you did, the source's log was truncated and written again: compare the "
            f"files with the records of {work.tail.target}, and append missing ones by hand. This "
            "run appended nothing to this partition",
            code="REPLAY_UNKNOWN",
        )

    def _last_offset(self, work: TailWork, committed: Committed) -> int:
        """Return the offset of the record that was appended last, from the position's metadata."""
        offset = committed.metadata.partition(" ")[0]
        if offset.isdecimal() and offset.isascii():
            return int(offset)
        raise self._scope.error(
            f"the position of the replay of {work.tail.source} (group {self._group}, offset "
            f"{committed.offset}) was not committed by Twinlog, but by another client (metadata "
            f"{committed.metadata[:80]!r}). Nothing was appended. Compare the saved files with the "
            f"records of {work.tail.target}, and append missing records by hand",
            code="REPLAY_UNKNOWN",
        )

    def _has_last_appended(self, work: TailWork, last: str) -> bool:
        offset = int(last.partition(" ")[0])
        return any(
            last_appended(record_of(fields)) == last
            for file in work.files
            if file.span.first <= offset < file.span.next
            for fields in self._saved.records(file)
            if fields["offset"] == offset
        )

    def _partition(self, work: TailWork, begin: Committed) -> int:
        appended, (at, last) = 0, begin
        source, target = work.tail.source, work.tail.target
        for number, (records, after) in enumerate(_portions(self._records(work, at))):
            last = last_appended(records[-1])
            self._require_same(work)
            self._transactions.write(
                target,
                records,
                {target: after},
                codec=Codec.LZ4,
                metadata=last,
                check=lambda: self._watch.require([source.topic]),
            )
            appended += len(records)
            if number % REPORTED_EVERY == REPORTED_EVERY - 1:
                self._say(f"replay: {source}: up to offset {after} of {work.next}")
        if at < work.next:
            # move the position past the markers and aborted records after the last record
            self._require_same(work)
            self._transactions.write(target, (), {target: work.next}, metadata=last)
            task_text = f"{source} [{at}, {work.next}) -> {target}"
            self._say(f"replay: {task_text}: {plural(appended, 'record')} appended")
        return appended

    def _records(self, work: TailWork, offset: int) -> Iterator[Record]:
        for file in work.files:
            if file.span.next <= offset:
                continue
            for fields in self._saved.records(file):
                if fields["transaction"] == Transaction.ABORTED or fields["offset"] < offset:
                    continue
                if skip_at(work.skips, fields["offset"]) is not None:
                    continue
                yield record_of(fields)


def positions(scope: CutoverScope) -> GroupOffsets:
    """Return the positions of the replay: A's next offset to be appended, by partition of the
    target.

    Waits for pending offsets, because a coordinator may confirm the end of a transaction before the
    group's offsets show that transaction.
    """
    group = group_of(scope.name)
    return or_raise(fetch_offsets(Coordinators(scope.target), [group], settled=True)[group])


def require_same_topics(scope: CutoverScope, ids: Mapping[str, TopicId]) -> None:
    """Raise FlowError (TARGET_RECREATED) if a topic of the target no longer has its ID in `ids`."""
    now = scope.target.metadata(sorted(ids))
    for name, topic_id in ids.items():
        if not now.has(name, topic_id):
            raise scope.error(
                f"topic {name} of the target was deleted or re-created since it was checked: "
                "nothing more is appended to it. The tail is saved. Run the same command again, or "
                "exclude its source topic with --topics",
                code="TARGET_RECREATED",
                fate=Fate.RETRIABLE,
            )


def undo_untouched_replays(
    scope: CutoverScope, transactions: Transactions, topics: Sequence[str]
) -> list[str]:
    """Delete the intent `replay` of the topics to which nothing was appended. Return these topics.

    A run that is appending is fenced first, so that it cannot commit after the check. A run that
    begins later detects the missing intent before its first commit.
    """
    if not _untouched(scope, topics):
        return []
    transactions.begin_epoch()
    untouched = _untouched(scope, topics)
    scope.steering.set(IntentKind.REPLAY, untouched, is_set=False)
    return untouched


def _untouched(scope: CutoverScope, topics: Sequence[str]) -> list[str]:
    """Return the topics that have a replay position, but no appended record in any partition."""
    at = positions(scope)
    known = {tp.topic for tp in at}
    appended = {tp.topic for tp, committed in at.items() if committed.metadata != NOTHING_YET}
    return [topic for topic in topics if scope.remote(topic) in known - appended]


def _topics(work: Sequence[TailWork]) -> list[str]:
    return sorted({tail_work.tail.source.topic for tail_work in work})


def transactions_of(scope: CutoverScope) -> Transactions:
    """Return the transactional producer of the flow's replays."""
    return Transactions(
        scope.target,
        f"twinlog-failback-{scope.name}",
        group_of(scope.name),
        timeout_ms=TRANSACTION_TIMEOUT_MS,
    )


def replayed_lines(divergences: Sequence[LogDivergence], at: GroupOffsets) -> Iterator[str]:
    """Yield a line on the progress of each replay that was begun."""
    for divergence in divergences:
        committed = at.get(divergence.target)
        if committed is not None:
            left = max(0, divergence.log[1] - committed.offset)
            what = "all of it is on the target" if not left else f"{plural(left, 'offset')} left"
            yield f"  {divergence.source}: replayed up to offset {committed.offset}, {what}"


def compacted_lines(scope: CutoverScope, topics: set[str]) -> Iterator[str]:
    """Yield a warning for each compacted topic: a replay may replace newer records there."""
    if topics:
        for topic in sorted(may_lack_offsets(scope.target, topics)):
            yield (
                f"  {topic} of the target is compacted, as far as is known: a replayed record "
                "becomes the newest of its key, even if a new producer has written a later one. "
                "With --tail keep, none is replayed"
            )


def _portions(records: Iterator[Record]) -> Iterator[tuple[list[Record], int]]:
    """Yield the records of each transaction, and A's offset after the last one."""
    portion: list[Record] = []
    size = 0
    for record in records:
        more = len(record.key or b"") + len(record.value or b"")
        more += sum(len(name) + len(value or b"") for name, value in record.headers)
        if portion and (len(portion) >= MOST_RECORDS or size + more > MOST_BYTES):
            yield portion, portion[-1].offset + 1
            portion, size = [], 0
        portion.append(record)
        size += more
    if portion:
        yield portion, portion[-1].offset + 1


class PromotionWatch:
    """Checks before each step of a failback that the promotion on which it relies is still valid.
    Not thread-safe.

    The whole flow was promoted, or each topic by name. The run has waited for the end of the copy
    after the promotion. If the row of a promotion is gone or was replaced, the copy may have
    continued. Then records that the run considers missing may already be on the target.
    """

    def __init__(self, scope: CutoverScope, topics: Sequence[str]) -> None:
        """Raise FlowError (NOT_PROMOTED) if these topics are not promoted."""
        self._scope = scope
        self._state = StateReader(scope.target, scope.name)
        intents = scope.intents()
        if not is_promoted(scope, intents, sorted(set(topics))):
            raise self._withdrawn_error("its promotion was undone since the plan was made")
        flow = intents.promotion
        named = [intents.get(IntentKind.PROMOTE, topic) for topic in sorted(set(topics))]
        self._rows = [flow] if flow else [intent for intent in named if intent is not None]

    @property
    def newest(self) -> Intent:
        """Return the promotion row that was written last."""
        return max(self._rows, key=lambda intent: intent.at_ms)

    def require(self, replayed: Sequence[str] = ()) -> None:
        """Raise FlowError: NOT_PROMOTED if a row of the promotion is gone or was replaced,
        REPLAY_FENCED if the intent `replay` of one of these topics is gone.

        Only rows that were appended to the state topic since the last call are read.
        """
        intents = self._state.read().intents
        if any(intents.get(*row.key) != row for row in self._rows):
            raise self._withdrawn_error("its promotion was undone while this command ran")
        withdrawn = [topic for topic in replayed if intents.get(IntentKind.REPLAY, topic) is None]
        if withdrawn:
            raise self._scope.error(
                "another process (twinlog failback abort) has undone this replay, so nothing more "
                "was appended. Once that process has ended, run the same command again",
                code="REPLAY_FENCED",
                fate=Fate.RETRIABLE,
            )

    def _withdrawn_error(self, why: str) -> FlowError:
        return self._scope.error(
            f"{why}, so the mirror may copy the tail itself: nothing more was appended to the "
            "target, and saved files stay. To fail back, promote the flow again (twinlog failover "
            "run), then run the same command again",
            code="NOT_PROMOTED",
        )
