"""Failback: the old source A is back. Records that only A has are saved, then kept or replayed.

    compare -> save -> compare again -> (replay) -> report how the flow back is started

1. *Compare*: find where the logs diverge, and what A has after that. Nothing is changed.
2. *Save* a file per partition and range of offsets (`saved`). If a run dies, the next run keeps the
   complete files and writes the missing ones.
3. *Compare again*: if A has grown, the run ends, and the next run saves the new records to one more
   file. The flow must still be promoted by the same rows (`PromotionWatch`). The copy must end on B
   at the same offset as in step 1. These checks are needed because a save may take hours. If
   another operator demotes the flow in that time, the mirror copies the tail itself.
4. *Replay*, if requested: append the saved records to B (`replay`).

A run begins only after the promotion, when the copy has certainly ended. Before that end, a mirror
may still copy the records that are missing on B.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from twinlog.client.export import record_of
from twinlog.cluster.groups.group_offsets import GroupOffsets
from twinlog.cluster.topics.internal_log import ensure_compacted_topic
from twinlog.config.values.times import in_iso
from twinlog.control.adopt.adoption import write_rows
from twinlog.control.cutover.promotion import is_promoted, wait_until_over
from twinlog.control.cutover.scope import CutoverScope, Say
from twinlog.control.failback.copy_end import CopyEnd, LogReads, copy_ends
from twinlog.control.failback.divergence import COMPARED, LogDivergence, divergences, record_at
from twinlog.control.failback.replay import (
    PromotionWatch,
    Replay,
    compacted_lines,
    positions,
    replayed_lines,
    require_raw,
    require_same_topics,
    transactions_of,
    undo_untouched_replays,
    work_of,
)
from twinlog.control.failback.saved import (
    Owner,
    SavedFile,
    SavedTail,
    TailCounts,
    read_tail,
    uncovered_spans,
)
from twinlog.encoded import encoded
from twinlog.errors import Fate, FlowError, TwinlogError, or_raise
from twinlog.mirror.findings import Span
from twinlog.mirror.map.offset_map import (
    MAP_PARTITIONS,
    ChunkRow,
    Mark,
    PartitionKey,
    Term,
)
from twinlog.mirror.map.runs import Run, run_at
from twinlog.mirror.names.filters import TopicSelector
from twinlog.mirror.names.naming import map_topic_of
from twinlog.mirror.state.intents import Intent, IntentKind
from twinlog.model import TopicPartition
from twinlog.quantities import count, first_few, plural
from twinlog.survey.cluster_state import cluster_state, write_copies
from twinlog.survey.ends import NO_ENDS, read_ends
from twinlog.survey.picture import read_maps
from twinlog.survey.replica import Maps

# The flow back, B->A: what it copies, what it cannot copy, and where it begins.
#
# Under the default policy the flow back creates `B.orders` on A, and is independent of this
# failback, because topic names show where records came from. So records that other clients wrote to
# `A.orders` on B are not copied back.
#
# Under the identity policy the flow back writes to the same topics that A had. It must begin at B's
# record after the last common record, and must never copy a common record again. So rows of its own
# offset map are written before it is first started. An ordinal is the number of common records
# before a record, and n is the number of all common records:
#
#     A->B    (ordinal, offset on A, offset on B)   of every record that both have
#     B->A    (ordinal, offset on B, offset on A)   the same, reversed
#             (n, first on B that A lacks, end of A's log)   the next record, after the tail
#
# The map's mark (`mirror.map.offset_map.Mark`) is the end of A's log. So the first start finds its
# position as any restart does, and a record that another client writes to A after the mark is
# foreign (TAKEN_OVER). Everything that reads maps translates the offsets of common records exactly:
# the group sync of the flow back, and `switchover`.
#
# The rows have the term (-1, 0), which is before the terms of all leaders.
#
# - A run dies before or while it writes the rows of the map: the guard still rejects the flow
#   (COPIED_BACK), because rows of B's state topic list the topics as copies of A's. The next run
#   writes the rows of the map again.
# - A run dies before it marks the rows of copies on B (`mirror.state.copies`) as ended: the guard
#   rejects the flow for the same reason, and the next run writes both again.
# - A has grown since: the next run writes the mark and the last run of offsets again.
# - A frozen run resumes while the flow back runs: the first row of the flow back that is a cut
#   (`mirror.map.offset_map`) voids the rows of the frozen run.
# - The flow back was already started: its own rows are newer. So nothing is written, and records
#   that it copied to A are not part of the tail (`Reverse.without_reverse_records`).

BEFORE_ALL: Final = Term(-1, 0)
"""The term of rows that were written before any process led the flow back."""
RUNS_PER_ROW: Final = 400
"""Maximum runs of offsets per row of the map, as in a lane (`mirror.map.map_tail`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverseStart:
    """Where the flow back begins in one partition, under the identity policy."""

    tp: TopicPartition
    key: PartitionKey
    runs: tuple[Run, ...]
    mark: Mark

    @property
    def begin(self) -> int:
        """Return the first offset of B that the flow back copies."""
        return self.runs[-1].upstream

    def rows(self) -> Iterator[ChunkRow]:
        for chunk, at in enumerate(range(0, len(self.runs), RUNS_PER_ROW)):
            portion = self.runs[at : at + RUNS_PER_ROW]
            is_last = at + RUNS_PER_ROW >= len(self.runs)
            yield ChunkRow(
                key=self.key,
                term=BEFORE_ALL,
                chunk=chunk,
                topic=self.tp.topic,
                runs=portion,
                mark=self.mark if is_last else None,
            )


def reverse_start(flow: str, divergence: LogDivergence) -> ReverseStart | None:
    """Return where the flow back (B to A) begins in a partition, or None if B does not have the
    partition.

    Raises FlowError (REVERSE_UNKNOWN) if B has other records before or between the records that
    were copied from A. Then no single offset separates copied from new records.
    """
    copy = divergence.copy
    if copy is None:
        if divergence.target_log is None:
            return None
        key = PartitionKey(divergence.target_id, divergence.topic_id, divergence.source.partition)
        run = Run(0, divergence.target_log[0], divergence.log[1])
        return ReverseStart(
            tp=divergence.source, key=key, runs=(run,), mark=Mark(0, divergence.log[1])
        )
    partition_map, common = copy.partition_map, copy.ordinal - divergence.lost_records
    first = partition_map.runs[0]
    k = first.downstream - first.ordinal
    apart = [
        run
        for run in partition_map.runs
        if run.ordinal < common and run.downstream - run.ordinal != k
    ]
    start = 0 if divergence.target_log is None else divergence.target_log[0]
    if apart or copy.reach.downstream != k + copy.ordinal:
        raise _unknown_tail_error(flow, divergence, "between the copied records")
    if partition_map.before is None and start < first.downstream:
        raise _unknown_tail_error(
            flow, divergence, f"before offset {first.downstream}, where the copy began"
        )
    runs = [
        Run(run.ordinal, run.downstream, run.upstream)
        for run in partition_map.runs
        if run.ordinal < common
    ]
    following = Run(common, k + common, divergence.log[1])
    if not runs or not following.continues(runs[-1]):
        runs.append(following)
    return ReverseStart(
        tp=divergence.source,
        key=PartitionKey(
            copy.key.target_topic_id, copy.key.source_topic_id, divergence.source.partition
        ),
        runs=tuple(runs),
        mark=Mark(common, divergence.log[1]),
    )


def _unknown_tail_error(flow: str, divergence: LogDivergence, where: str) -> FlowError:
    return FlowError(
        f"{divergence.target} on the target has records that never were on the source ({where}). "
        "So the reverse flow has no single start offset. Exclude the topic with --topics, and give "
        "it another name in the reverse flow (twinlog.rename)",
        flow=flow,
        code="REVERSE_UNKNOWN",
    )


class Reverse:
    """Prepares the flow back (B->A) of one flow. Not thread-safe."""

    def __init__(self, scope: CutoverScope, say: Say) -> None:
        self._scope, self._say = scope, say
        flow = scope.config.flow
        self.name = f"{flow.target}->{flow.source}"
        self._map_topic = map_topic_of(flow.reverse)

    def prepare(self, divergences: Sequence[LogDivergence]) -> int:
        """Write the start offsets of the flow back, and permit it to copy. Return the number of
        partitions whose offset was written.

        Does nothing under the default policy. Raises FlowError if a partition has no single start
        offset.
        """
        if not self._scope.setup.is_identity:
            return 0
        starts = [
            start
            for divergence in divergences
            if (start := reverse_start(self._scope.name, divergence))
        ]
        maps = self._maps()
        begun = [start for start in starts if self._has_begun(maps, start)]
        fresh = [start for start in starts if start not in begun]
        if begun:
            names = first_few(str(start.tp) for start in begun)
            self._say(f"flow back: {self.name} was started before, and resumes at: {names}")
        self._write(fresh)
        for start in fresh:
            self._say(f"flow back: {start.tp}: begins at offset {start.begin} of the target")
        self._permit_reverse_copy({start.tp.topic for start in starts})
        return len(fresh)

    def without_reverse_records(self, divergences: Sequence[LogDivergence]) -> list[LogDivergence]:
        """Return the divergences, each with A's log up to the first record that the flow back wrote
        to A. These records are not part of the tail.
        """
        if not self._scope.setup.is_identity:
            return [*divergences]
        maps = self._maps()
        return [self._before_reverse_records(maps, divergence) for divergence in divergences]

    def _before_reverse_records(self, maps: Maps, divergence: LogDivergence) -> LogDivergence:
        key = PartitionKey(divergence.target_id, divergence.topic_id, divergence.source.partition)
        known = maps.get(key)
        if (
            known is None
            or known.term <= BEFORE_ALL
            or not known.runs
            or divergence.problem is not None
        ):
            return divergence
        common = 0 if divergence.copy is None else divergence.copy.ordinal - divergence.lost_records
        run = run_at(known.runs, common)
        end = (
            divergence.log[1] if run is None else min(divergence.log[1], run.downstream_of(common))
        )
        return replace(
            divergence,
            log=(divergence.log[0], end),
            stable=min(divergence.stable, end),
            is_copied_back=True,
        )

    def lines(self, divergences: Sequence[LogDivergence]) -> Iterator[str]:
        """Yield the operator's next steps after the run."""
        scope = self._scope
        yield f"the flow back: in the file, {scope.name}.enabled = false and"
        yield f"  {self.name}.enabled = true; then start the mirror with it"
        if scope.setup.is_identity:
            yield "  failback run lets it begin after the last record that both sides have"
            yield "  its group sync translates groups exactly; they resume after the source's tail"
        else:
            yield (
                f"  topics of {scope.config.flow.target} come as "
                f"{scope.config.flow.target}{scope.config.policy.separator}TOPIC"
            )
            behind = sum(
                divergence.copy.foreign_offsets
                for divergence in divergences
                if divergence.copy is not None
            )
            names = sorted(
                {
                    divergence.target.topic
                    for divergence in divergences
                    if divergence.copy is not None
                }
            )
            if names:
                yield (
                    f"  {first_few(names)}: copies from {scope.config.flow.source}, so they are "
                    f"not copied back; {count(behind)} offsets of new producers stay on "
                    f"{scope.config.flow.target}"
                )
            yield "  groups fail back by its group sync (docs/groups.md)"
        yield f"  when it has caught up: twinlog switchover run FILE --flow '{self.name}'"
        if scope.setup.is_identity:
            yield "  for a day its gate `foreign` names earlier producers: add --accept foreign"

    def _maps(self) -> Maps:
        maps = read_maps(self._scope.source, self._scope.config.flow.reverse, after=NO_ENDS)
        maps.require_all()
        return maps

    def _has_begun(self, maps: Maps, start: ReverseStart) -> bool:
        known = maps.get(start.key)
        if known is None or known.term < BEFORE_ALL or not known.runs:
            return False
        if known.term > BEFORE_ALL:
            return True
        if known.runs[-1].ordinal > start.runs[-1].ordinal:
            raise FlowError(
                f"{start.tp}: an earlier run found {known.runs[-1].ordinal} records on both sides, "
                f"this run only {start.runs[-1].ordinal}, so the source has lost records since. "
                "Exclude the topic with --topics",
                flow=self.name,
                code="REVERSE_UNKNOWN",
            )
        return False

    def _write(self, starts: Sequence[ReverseStart]) -> None:
        rows = [row for start in starts for row in start.rows()]
        if not rows:
            return
        partitions = ensure_compacted_topic(
            self._scope.source,
            self._map_topic,
            partitions=MAP_PARTITIONS,
            replication_factor=self._scope.config.state_topic_replication_factor,
            on_unseen=lambda _: None,
        )
        write_rows(self._scope.source, self._map_topic, partitions, rows)

    def _permit_reverse_copy(self, topics: set[str]) -> None:
        """Mark the rows that list B's topics as copies of A's as ended, so that the flow back is
        permitted to copy these topics.
        """
        target = self._scope.target
        state = cluster_state(target)
        ended = [
            structs.replace(row, ended=True)
            for (flow, _), row in state.rows.items()
            if flow == self._scope.name and row.source_topic in topics and not row.ended
        ]
        if ended:
            write_copies(target, ended)
            self._say(f"flow back: {self.name} may copy {plural(len(ended), 'topic')}")


PROGRESS_EVERY_S: Final = 5.0
SETTLED_MS: Final = 60_000
"""Age in ms at which a topic's promotion has certainly ended its copy. No row reports that lanes
have ended if only some topics are promoted. A running leader follows within 2 s, and the lanes of a
killed leader end within 20 s.
"""


class Failback:
    """Runs one failback command; not thread-safe."""

    def __init__(self, scope: CutoverScope, say: Say) -> None:
        scope.require_source()
        self._scope = scope
        self._say = say
        self._reverse = Reverse(scope, say)

    def plan(self) -> FailbackPlan:
        """Return the plan. This reads the whole tail and changes nothing."""
        settled = self._reverse.without_reverse_records(divergences(self._scope))
        if not settled:
            todo = "check --topics, and `topics` in the file"
            if left_out := self._left_out():
                todo = f"{first_few(left_out)} were promoted by name, so select them with --topics"
            raise self._scope.error(
                f"the source has no matching topic of this flow: {todo}", code="NOT_COPIED"
            )
        tails = tuple(
            replace(divergence, counts=self._count_tail(divergence)) for divergence in settled
        )
        with_tail = {tail.target.topic for tail in tails if tail.counts.valid}
        return FailbackPlan(
            flow=self._scope.name,
            promoted=self._promoted([divergence.source.topic for divergence in settled]),
            tails=tails,
            reverse_lines=tuple(self._reverse.lines(settled)),
            left_out=tuple(self._left_out()),
            replayed=(
                *replayed_lines(settled, self._positions()),
                *compacted_lines(self._scope, with_tail),
            ),
        )

    def run(self, plan: FailbackPlan, saved: SavedTail, *, replays: bool) -> list[SavedFile]:
        """Save the divergent tails, and append them to the target if `replays`. Return the saved
        files. Raises FlowError if a step fails.
        """
        self._require(plan)
        watch = PromotionWatch(self._scope, [tail.source.topic for tail in plan.tails])
        self._wait_until_over(plan.tails, watch.newest)
        # compare again: the copy may have advanced since the plan, so the logs may diverge at a
        # higher offset
        settled = self._reverse.without_reverse_records(divergences(self._scope))
        self._require_same_partitions(plan.tails, settled)
        self._require(replace(plan, tails=tuple(settled)))
        if replays:
            require_raw(self._scope, settled)
        with saved.locked():
            files = self._save(settled, saved)
            self._say(f"saved: {plural(len(files), 'file')}, with their SHA-256 in manifest.json")
            watch.require()
            self._require_unchanged_logs(settled)
            if replays:
                work = work_of(settled, files, self._scope.intents().skips)
                count_ = Replay(self._scope, saved, watch, self._say).run(work)
                self._say(f"replay: done, {plural(count_, 'record')} appended by this run")
            watch.require()
            self._reverse.prepare(settled)
            # if the promotion was undone, the mirror copies records that the written rows lack
            watch.require()
        for line in self._reverse.lines(settled):
            self._say(line)
        return files

    def saved_in(self, folder: Path) -> SavedTail:
        """Return the folder in which the tail of this flow is saved."""
        cluster_id = self._scope.source.metadata([]).cluster_id or ""
        return SavedTail(folder, Owner(flow=self._scope.name, source_cluster_id=cluster_id))

    def abort(self) -> None:
        """Undo replays that have begun but have appended nothing. Saved files remain, because a
        save changes nothing on either cluster.

        Raises FlowError (REPLAYED) if a replay has appended records, or might have done so.
        """
        scope = self._scope
        # the whole flow includes topics that were released or promoted by name after their replay
        # was announced
        replays = scope.intents().topics(IntentKind.REPLAY)
        begun = [topic for topic in replays if scope.is_whole or scope.names(topic)]
        undone = undo_untouched_replays(scope, transactions_of(scope), begun) if begun else []
        if undone:
            self._say(f"the replay of {first_few(undone)} had appended nothing: it is undone")
        if topics := [topic for topic in begun if topic not in undone]:
            raise self._scope.error(
                f"the replay of {first_few(topics)} has begun to append records to the target, and "
                "consumers may have read them, so nothing was changed. To finish the replay, run "
                "twinlog failback run --tail replay again",
                code="REPLAYED",
            )
        self._say("no record was changed on either cluster, so there is nothing else to undo;")
        self._say("  saved files stay where they are")

    # -- planning

    def _promoted(self, topics: Sequence[str]) -> str:
        intents = self._scope.intents()
        if not is_promoted(self._scope, intents, sorted(set(topics))):
            return ""
        rows = [intents.promotion, *(intents.get(IntentKind.PROMOTE, topic) for topic in topics)]
        newest: Intent = max(
            (row for row in rows if row is not None), key=lambda intent: intent.at_ms
        )
        return f"{newest}, {in_iso(newest.at_ms)}"

    def _left_out(self) -> list[str]:
        """Return the topics that the whole flow leaves out because they were promoted by name."""
        scope = self._scope
        named = scope.intents().topics(IntentKind.PROMOTE) if scope.is_whole else []
        return [*filter(TopicSelector.of(scope.config).selects, named)]

    def _positions(self) -> GroupOffsets:
        """Return the replay positions, or an empty dict if no replay was begun. The group is
        queried only if needed, because the query needs a permission on the group.
        """
        begun = self._scope.intents().topics(IntentKind.REPLAY)
        return positions(self._scope) if begun else {}

    def _count_tail(self, divergence: LogDivergence) -> TailCounts:
        counts = TailCounts()
        span = divergence.kept
        span = span._replace(next=min(span.next, divergence.stable))
        if divergence.problem is None and not span.is_empty:
            report = self._progress(
                f"{divergence.source}: offset {{}} of {count(span.next)} checked"
            )
            for record in read_tail(self._scope.source, divergence.source, span, report):
                counts.add(record)
        return counts

    def _progress(self, text: str) -> Callable[[int], None]:
        reported_at = time.monotonic()

        def report(offset: int) -> None:
            nonlocal reported_at
            if time.monotonic() - reported_at > PROGRESS_EVERY_S:
                reported_at = time.monotonic()
                self._say(text.format(count(offset)))

        return report

    # -- running

    def _require(self, plan: FailbackPlan) -> None:
        if not plan.promoted:
            raise FlowError(f"{plan.problems[0]}", flow=plan.flow, code="NOT_PROMOTED")
        for tail in plan.tails:
            if tail.problem is not None:
                raise tail.problem
        if plan.open_transactions:
            where = first_few(
                f"{transaction.source} from offset {transaction.stable} on"
                for transaction in plan.open_transactions
            )
            raise FlowError(
                f"transactions are open on the source ({where}), so it is unknown whether their "
                "records will be committed. Wait until transaction.timeout.ms of their producers "
                "has passed, or abort them with kafka-transactions.sh, then run the same command "
                "again",
                flow=plan.flow,
                code="TAIL_OPEN",
                fate=Fate.RETRIABLE,
            )

    def _require_same_partitions(
        self, planned: Sequence[LogDivergence], found: Sequence[LogDivergence]
    ) -> None:
        """Raise FlowError if the source lists other partitions than the plan. The promotion of new
        partitions was not checked, and the tails of missing ones would be left out silently.
        """
        before, now = ({divergence.source for divergence in tails} for tails in (planned, found))
        for tps, what, code in (
            (before - now, "no longer on the source", "TAIL_MOVED"),
            (now - before, "created on the source after the plan", "TAIL_GROWS"),
        ):
            if tps:
                raise self._scope.error(
                    f"the plan has changed ({what}: {first_few(map(str, sorted(tps)))}): run the "
                    "same command again",
                    code=code,
                    fate=Fate.RETRIABLE,
                )

    def _wait_until_over(self, divergences: Sequence[LogDivergence], promotion: Intent) -> None:
        """Wait until the copy can no longer append to B, because until then the point of divergence
        may move.
        """
        scope = self._scope
        if not promotion.topic:
            remotes = {divergence.target.topic for divergence in divergences}
            wait_until_over(scope, remotes, lambda line: self._say(f"the copy: {line}"))
            return
        history = scope.history()
        closed = history is None or history.latest is None or history.is_closed
        age_ms = int(time.time() * 1000) - promotion.at_ms
        if not closed and age_ms < SETTLED_MS:
            raise scope.error(
                f"its topics were promoted {count(age_ms / 1000)} s ago, and lanes "
                "may still write to them: run the same command again a minute later",
                code="COPY_RUNS",
                fate=Fate.RETRIABLE,
            )

    def _save(self, divergences: Sequence[LogDivergence], saved: SavedTail) -> list[SavedFile]:
        client = self._scope.source
        files = saved.files()
        for divergence in divergences:
            tail_files = [file for file in files if file.tp == divergence.source]
            self._require_matching_files(saved, tail_files, divergence)
            for span in uncovered_spans(divergence.kept, tail_files):
                report = self._progress(
                    f"{divergence.source}: offset {{}} of {count(span.next)} saved"
                )
                path = saved.save(client, divergence.source, span, report)
                self._say(f"saved: {path.name}")
        files = saved.files()
        for divergence in divergences:
            tail_files = [file for file in files if file.tp == divergence.source]
            deleted = divergence.deleted or Span(0, 0)
            for span in uncovered_spans(deleted, tail_files):
                self._say(f"not saved: {divergence.source} {span}: retention had deleted it")
        saved.write_manifest(files, encoded(divergences))
        return files

    def _require_matching_files(
        self, saved: SavedTail, files: Sequence[SavedFile], divergence: LogDivergence
    ) -> None:
        """Raise FlowError if the saved files do not match A's log. A may have lost the end of its
        log, and may have other records at the saved offsets now, which are in no file. A file that
        ends after A's log does not belong to this log. If the file were replayed, a later tail with
        the same offsets would be left out.
        """
        for file in files if divergence.problem is None else ():
            if file.span.next > divergence.log[1]:
                raise saved.mismatch_error(
                    f"{file.name} ends at offset {file.span.next}, but {divergence.source} ends at "
                    f"{divergence.log[1]}. Either the source's log was truncated after it was "
                    "saved, or this command did not write the file. The file may be the only copy "
                    "of its records"
                )
            if file.span.next <= divergence.at:
                continue
            held = (
                fields for fields in saved.records(file) if fields["offset"] < divergence.log[1]
            )
            for fields in reversed(deque(held, maxlen=COMPARED)):
                record = record_at(
                    LogReads(self._scope.source), divergence.source, fields["offset"]
                )
                if record is not None and record[0] != record_of(fields):
                    raise saved.mismatch_error(
                        f"{file.name} and {divergence.source} have different records at offset "
                        f"{fields['offset']}, because the source's log was truncated and written "
                        "again after it was saved"
                    )
                if record is not None:
                    break

    def _require_unchanged_logs(self, divergences: Sequence[LogDivergence]) -> None:
        logs = read_ends(self._scope.source, [divergence.source for divergence in divergences])
        moved = []
        for divergence in divergences:
            now = logs[divergence.source]
            if now.problem is not None:
                raise now.problem
            if now.end != divergence.log[1] and not divergence.is_copied_back:
                moved.append(f"{divergence.source} from offset {divergence.log[1]} on")
        if moved:
            raise self._scope.error(
                f"producers write to the source ({first_few(moved)}). The earlier records are "
                "saved. Stop the producers, and run the same command again",
                code="TAIL_GROWS",
                fate=Fate.RETRIABLE,
            )
        target_ids = {
            divergence.target.topic: divergence.target_id
            for divergence in divergences
            if divergence.target_log is not None
        }
        require_same_topics(self._scope, target_ids)
        ends = copy_ends(
            self._scope, {divergence.source: divergence.target for divergence in divergences}
        )
        moved_ends = [
            divergence.target
            for divergence in divergences
            if not _is_same_end(divergence.copy, ends[divergence.source])
        ]
        if moved_ends:
            raise self._scope.error(
                f"the end of the copy to {first_few(map(str, moved_ends))} has moved since both "
                "logs were compared, so a mirror still copies records that this run took for "
                "missing. Saved files stay, and nothing was appended. Find out why the mirror "
                "still copies after the promotion, or end the mirror, then run the same command "
                "again",
                code="COPY_RUNS",
                fate=Fate.RETRIABLE,
            )


def _is_same_end(copy_end: CopyEnd | None, now: CopyEnd | TwinlogError | None) -> bool:
    now = or_raise(now)
    if copy_end is None or now is None:
        return copy_end is now
    return (copy_end.key, copy_end.ordinal, copy_end.reach) == (now.key, now.ordinal, now.reach)


# The report of `failback plan`: each partition's tail, the records that the source lost, reasons
# why a run cannot begin, and what the flow back needs.

MOST_LINES: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class FailbackPlan:
    """The failback plan of one flow, computed from both clusters only."""

    FIELDS = "flow is_open promoted? problems records partitions replayed way_back=reverse_lines"

    flow: str
    promoted: str
    """Who promoted the flow, when and why, or empty if the flow is not promoted."""
    tails: tuple[LogDivergence, ...]
    reverse_lines: tuple[str, ...] = ()
    """Lines on the flow back: how the operator starts it, and what it copies."""
    left_out: tuple[str, ...] = ()
    """Topics that are not part of the plan because they were promoted by name before."""
    replayed: tuple[str, ...] = ()
    """Lines on the progress of a replay, and warnings about compacted topics."""

    @property
    def problems(self) -> list[str]:
        """Return the reasons why a run cannot begin."""
        out = []
        if not self.promoted:
            out.append(
                "the flow was not promoted, so there is nothing to fail back from; the mirror "
                "copies the source's records"
            )
        out += [f"{tail.source}: {tail.problem}" for tail in self.tails if tail.problem]
        return out

    @property
    def open_transactions(self) -> list[LogDivergence]:
        """Return the partitions with an open transaction in their tail."""
        return [tail for tail in self.tails if tail.is_open]

    @property
    def is_open(self) -> bool:
        """Return True if a run could begin."""
        return not self.problems and not self.open_transactions

    def lines(self) -> Iterator[str]:
        """Yield the plan as text."""
        if self.promoted:
            yield f"{self.flow}: promoted {self.promoted}"
        else:
            yield f"{self.flow}: {self.problems[0]}"
        empty = [tail for tail in self.tails if tail.is_empty and not tail.problem]
        if self.left_out:
            yield (
                f"left out, because they were promoted by name: {first_few(self.left_out)}; save "
                "their tails in a run with --topics"
            )
        yield (
            f"{plural(len(empty), 'partition')} of {len(self.tails)} without a divergent tail; "
            f"{plural(self.records, 'record')} in all never arrived"
        )
        lines = [line for tail in self.tails for line in tail.lines()]
        yield from lines[:MOST_LINES]
        if len(lines) > MOST_LINES:
            yield f"  and {plural(len(lines) - MOST_LINES, 'more line')}: --format json"
        yield from self.replayed
        yield from self.reverse_lines

    @property
    def records(self) -> int:
        return sum(tail.counts.valid for tail in self.tails)

    @property
    def partitions(self) -> list[dict[str, Any]]:
        return [encoded(tail) | encoded(tail.counts) for tail in self.tails]
