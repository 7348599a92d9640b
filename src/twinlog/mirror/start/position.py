"""Determines where one partition resumes, by checking both logs.

**Problem.** A start must find the first source record that is not on the target. If it resumes too
low, records are copied twice; if it resumes too high, they are lost. A start relies on nothing that
a lane or the driver remembers, and on no committed offset, because each may be older than the log.
And any of the logs may be damaged: the target lost its end, the source was truncated or re-created,
the offset map lost rows or announces records that were never written, other clients wrote to the
target, or a lane that was thought dead still writes during the check.

    target's log end --(b)--  minus K  --(c)-->  ordinal  --(d) map-->  upstream offset
                                 |                                          |
                     producer state, last batch          (e) compare the last 100 records
                                                                            |
                                                                            v
                                                                       StartPoint

**Steps**, after the topics are known to be the ones in the map (`cold_start`):

- (b) Read the target's log end by OffsetForLeaderEpoch. If the high watermark is below it, wait
  (`TARGET_UNDER_MIN_ISR`), because the records between the two may still disappear.
- (c) Next ordinal (number of records that the flow has written) = log end - K
  (`mirror.start_point`). Compare it with the broker's producer state and with the header of the
  last batch: `GAP_WRITTEN`, `EXTRA_RECORDS`; and with what was acknowledged in this generation:
  `POSITION_REGRESSED`.
- (d) Take the upstream offset from the map.
- (e) Run the tail check. On a mismatch, search the neighbourhood for the matching position, else
  `DIVERGED`, or `SOURCE_DIVERGED` if the source's log shows the cause.
- (f) The caller writes the first map row of this start before the first batch. This row is a cut:
  it voids older rows after the position (`offset_map`, rule C).
- (g) The first request goes alone (`mirror.copy.partition`).

In a topic to which other clients write, K grows with their records. So (b) and (c) are a walk over
batch headers from the map's mark on (`our_end`), and (e) compares only one record, because other
clients may write between this flow's records.

**The map is ahead of the log.** That is normal after a crash, because rows are written before their
data. The ordinal comes from the log, so runs at or above it are ignored, and the cut voids them.

**The map is behind the log**, or wrong about the log's end. Either the map topic lost its newest
rows by an unclean election, or a lane that was thought dead wrote records whose rows were not read,
or are void. The ordinal is right even then. But the map's newest remaining run is taken to extend
to the log's end, so (d) is wrong. A comparison of records detects this (`resume_point`):

1. The last 100 records of the target are compared with the source records that the map gives for
   them. If they are equal, the map is right.
2. Otherwise the newest runs of the map are left out, up to three, if the last record then matches.
3. This may not explain the records, or the source may have no record where the map has the last
   one. Then the last records are searched in the source, within 2,000 offsets of the expected
   position. They must match one after the other at exactly one position. The copy resumes after
   that position, and `corrections` finds the runs before it that the map lost.
4. If no position matches, the partition stops (`DIVERGED`). It never continues by a guess.

**If nothing can be compared**, because the source or the target has deleted its records, K, the
producer state and the map are the only evidence. That is no error, because a topic that is idle for
longer than its retention has no records. The log line of the start reports it.

**Transformed records** cannot be compared, so their position follows from the map alone, under
stricter conditions (`announced`). Raw records after them are compared as above.

**A start may fail at any step.** A start only reads, so no cleanup is needed. The first thing that
is written is the row of the cut, and every batch waits for it. If a batch of another lane is
appended during the check, the log ends do not match the producer state, and the check is repeated
(`cold_start.one_moment`). If it is appended after the check, the first request is rejected, or
answered as a repeat, and the partition is started again.

A partition that has a row never uses the configured start again. So retention, restarts and lost
producer state cannot send it back to the beginning or, with `latest`, past records that were not
copied.

**Rejected:** to treat a missing answer as a confirmation. Four real faults were caused by that, and
led to the rules above (ADR 13).
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, replace

from twinlog.errors import CorruptData, Fate, PartitionError
from twinlog.mirror import findings
from twinlog.mirror.map.foreign_records import (
    ForeignWalk,
    TailStretch,
    last_stretch,
    pending,
    walk,
)
from twinlog.mirror.map.offset_map import Run, run_at, upstream_range
from twinlog.mirror.map.runs import is_transformed
from twinlog.mirror.ports import LogEnds, LogReader, ProducerTail, answer_of
from twinlog.mirror.start.announced import (
    after_filtered,
    announced_upstream,
    raw_from,
)
from twinlog.mirror.start.both_logs import BothLogs, holds_records
from twinlog.mirror.start.corrections import ResumePoint, next_upstream
from twinlog.mirror.start.divergence import find_break, not_disproved_error, source_diverged_error
from twinlog.mirror.start.first_start import begin_of, check_is_new
from twinlog.mirror.start.our_end import (
    OurEnd,
    find_end,
    record_before,
    under_min_isr_error,
    with_jumps,
)
from twinlog.mirror.start.request import StartRequest, StartRules
from twinlog.mirror.start.resume_point import TailCheck
from twinlog.mirror.start.tail_check import EqualRecord, TargetTail, same_record
from twinlog.mirror.start_point import StartPoint
from twinlog.model import (
    Isolation,
    StartAt,
    StartKind,
    TopicPartition,
    sequence_of,
    sequences_ahead,
)
from twinlog.wire.records import Record


@dataclass(eq=False)
class StartSearch:
    """The search for the start of one partition, based on the state that both clusters returned."""

    request: StartRequest
    source_ends: LogEnds
    target_ends: LogEnds
    producer: ProducerTail | None
    has_producer_states: bool
    source: InitVar[LogReader]
    target: InitVar[LogReader]
    rules: StartRules
    lost: tuple[int, int] | None = None
    """Source offsets [first, next) that were deleted before they were copied, if the copy resumes
    after them, else None.
    """

    def __post_init__(self, source: LogReader, target: LogReader) -> None:
        ends = self.source_ends, self.target_ends
        self.logs = BothLogs(self.request, *ends, source, target, self.rules.isolation)

    def resume(self) -> StartPoint:
        """Return where the copy resumes or begins. Raises TwinlogError if it must not."""
        if self._is_alone:
            self._check_replicated(self.target_ends.log_end)
        if not self.request.runs:
            return self._begin_copy()
        return self._resume_own_copy() if self._is_alone else self._resume_shared_copy()

    @property
    def _is_alone(self) -> bool:
        return self.rules.is_ours_alone and not self.request.is_branch

    def _check_replicated(self, end: int) -> None:
        """Raise PartitionError (TARGET_UNDER_MIN_ISR) if target records below `end` are on too few
        replicas. Records at or after `end` are of other clients, so it does not matter if they
        disappear.
        """
        if self.target_ends.high_watermark < end:
            raise under_min_isr_error(self.request.target, end - self.target_ends.high_watermark)

    # -- a topic to which only this flow writes

    def _resume_own_copy(self) -> StartPoint:
        runs, end = self.request.runs, self.target_ends.log_end
        stretch = last_stretch(runs, end)
        if (start_point := self._after_accepted(stretch)) is not None:
            return start_point
        k = stretch.k
        ordinal, runs_from = end - k, self.request.runs_from
        raw = raw_from(self.request.transformed, ordinal)
        lows = (k + first for first in (raw, runs_from) if first > 0)
        low = max((self.target_ends.log_start, stretch.low, *lows))
        self.logs = replace(self.logs, target_ends=replace(self.target_ends, log_start=low))
        if ordinal < 0 or run_at(runs, ordinal) is None:
            raise self._log_error(
                f"the target's log ends at {end}, but this copy began at target offset "
                f"{runs[0].downstream}, so the target has lost all records of the copy",
                code="TARGET_TRUNCATED",
            )
        self._check_regress(ordinal)
        if ordinal <= runs_from:
            raise PartitionError(
                f"{self.request.target}: the log ends at {end}, but this start has only the rows "
                f"of the offset map from target offset {k + runs_from} on; retrying. If this "
                "persists, run twinlog offsets rebuild",
                fate=Fate.RETRIABLE,
            )
        self._check_producer(ordinal, k)
        tail = self.logs.target_tail()
        self._check_last_batch(tail, ordinal, k)
        return self._point(ordinal, self._resume_point(self.logs, tail, k, ordinal), k, tail)

    def _resume_point(self, logs: BothLogs, tail: TargetTail, k: int, ordinal: int) -> ResumePoint:
        if is_transformed(self.request.transformed, ordinal - 1):
            upstream = announced_upstream(self.request, tail, k, ordinal)
            return ResumePoint(self._check_source(upstream), -1)
        resume_point = ResumePoint(
            next_upstream(self.request.runs, ordinal, self.source_ends.log_start), -1
        )
        if tail.records or self.request.lost is not None:
            resume_point = TailCheck(logs, tail, k, ordinal).resume_point()
        upstream = self._check_source(after_filtered(self.request, resume_point.upstream, ordinal))
        if upstream != resume_point.upstream:
            resume_point = resume_point._replace(upstream=upstream, leader_epoch=-1)
        return resume_point

    def _after_accepted(self, stretch: TailStretch) -> StartPoint | None:
        """Return a start point after accepted foreign records, or None if no acceptance applies. An
        acceptance applies if the log's foreign records are exactly the accepted ones, and the map
        does not have them yet. `stretch`: the last part of the log with constant K, by the map.
        """
        runs, end = self.request.runs, self.target_ends.log_end
        low = max(self.target_ends.log_start, stretch.low)
        walk: ForeignWalk | None = None
        for accepted in pending(self.request.accepted, stretch, end):
            walk = None if accepted.first < low else self._walk(accepted.first, stretch)
            if walk is not None and walk.accepted == accepted:
                break
        else:
            return None
        assert walk is not None  # noqa: S101 (set before the break)
        ordinal, k = walk.next_ordinal, walk.accepted.k
        if run_at(runs, ordinal) is None:
            return None
        self._check_regress(ordinal)
        self._check_producer(ordinal, k)
        view = walk.stretch_end(self.target_ends, stretch.low)
        logs = replace(self.logs, target_ends=view)
        tail = logs.target_tail()
        resume_point = self._resume_point(logs, tail, view.log_end - ordinal, ordinal)
        if resume_point.corrected:
            return None  # the map is wrong as well, and a start makes only one correction
        learnt = _runs_of_acceptance(runs, walk, resume_point.upstream)
        return self._point(ordinal, resume_point._replace(corrected=learnt), k, tail)

    def _walk(self, first: int, stretch: TailStretch) -> ForeignWalk | None:
        end, producers = self.target_ends.log_end, self.request.our_producers
        return walk(self.logs.read_target, first, end, k=stretch.k, producers=producers)

    def _begin_copy(self) -> StartPoint:
        check_is_new(self.logs, is_alone=self._is_alone, is_listed=self.producer is not None)
        upstream, request = self.source_ends.log_start, self.request
        begin = begin_of(request, self.source_ends.log_end)
        is_group = request.group_at >= 0 > max(request.siblings_at, request.began_at)
        if is_group and begin < upstream:
            # the group would have skipped these records, too, but they are reported as lost all the
            # same
            self.lost = begin, upstream
        upstream = max(upstream, begin)
        ordinal = 0
        if self.producer is not None:
            # The flow has written to this partition before. It copied an earlier source topic of
            # this name, or a broker that identifies topics by name only accepted a batch for an
            # earlier target topic (`first_start`).
            self._check_replicated(self.target_ends.log_end)
            ordinal = sequence_of(self.producer.last_sequence + 1)
        return StartPoint(
            ordinal=ordinal,
            upstream=upstream,
            k=self._k(ordinal),
            last_fetched_epoch=self._epoch(upstream),
            is_protected=False,
            last_timestamp=-1,
            lost=self.lost,
        )

    def _log_error(
        self, what: str, *, code: str, source: TopicPartition | None = None
    ) -> PartitionError:
        """Return an error about the target's log, with the ranges of both logs. `source`: the
        source partition if the target lacks source records, else None.
        """
        held = findings.sides(self.source_ends, self.target_ends, self.request.complete_runs)
        return findings.target_error(self.request.target, what, code=code, source=source, held=held)

    def _check_regress(self, ordinal: int) -> None:
        acked, epoch = self.request.acked_ordinal, self.request.acked_epoch
        if ordinal < acked and epoch == self.target_ends.leader_epoch:
            lost_range = upstream_range(self.request.complete_runs, ordinal, acked - ordinal)
            raise self._log_error(
                f"{acked - ordinal} acknowledged records are gone from the end of the target's "
                f"log, although its leader did not change. They are upstream records {lost_range} "
                f"of {self.request.source}",
                code="POSITION_REGRESSED",
            )

    def _check_producer(self, ordinal: int, k: int) -> None:
        if self.producer is None or ordinal == 0:
            return
        off = sequences_ahead(self.producer.last_sequence, sequence_of(ordinal - 1))
        if off:
            raise self._k_error(ordinal, k, off, "the leader's producer state")

    def _check_last_batch(self, tail: TargetTail, ordinal: int, k: int) -> None:
        last = tail.last_header
        if last is None or last.magic < 2 or last.base_offset < k:
            return  # records below K were there before this copy began (`control.adopt.adoption`)
        if last.producer_id in self.request.our_producers and not last.is_control:
            should = sequence_of(last.base_offset - k)
            if off := sequences_ahead(last.base_sequence, should):
                raise self._k_error(ordinal, k, off, "the sequence of the last batch")
        elif last.producer_id not in self.rules.known_producers:
            raise self._log_error(
                f"the batch at offset {last.base_offset} was not written by this flow: another "
                "client produces to the target topic",
                code="EXTRA_RECORDS",
            )

    def _k_error(self, ordinal: int, k: int, off: int, witness: str) -> PartitionError:
        end = self.target_ends.log_end
        broken_at = find_break(
            self.logs.read_target,
            low=max(self.target_ends.log_start, last_stretch(self.request.runs, end).low, k),
            high=end,
            k=k,
            producers=self.request.our_producers,
        )
        detail = (
            f"according to {witness}, this flow wrote {ordinal + off} records, but the log has "
            f"{ordinal}"
        )
        if off > 0:
            where = f"somewhere below offset {end}"
            if broken_at is not None and broken_at.distance > 0:
                runs, first = self.request.complete_runs, broken_at.offset - k
                lost = upstream_range(runs, first, broken_at.distance)
                where = (
                    f"before offset {broken_at.offset}, so upstream records {lost} of "
                    f"{self.request.source} are not on the target"
                )
            what = f"{off} records are missing {where} ({detail})"
            return self._log_error(what, code="GAP_WRITTEN", source=self.request.source)
        where = f"below offset {end}" if broken_at is None else f"from offset {broken_at.offset} on"
        what = f"{-off} records {where} were written by another client, or twice ({detail})"
        return self._log_error(what, code="EXTRA_RECORDS")

    # -- a topic to which other clients may write

    def _resume_shared_copy(self) -> StartPoint:
        own_end = find_end(
            self.request,
            self.target_ends,
            self.producer,
            self.logs.target,
            self.rules.known_producers,
            self.logs.are_same,
        )
        self._check_replicated(own_end.downstream)
        resumed, k = self._source_after(own_end), self._k(own_end.ordinal, own_end.foreign)
        return replace(
            self._point(own_end.ordinal, resumed, k),
            taken_over=own_end.foreign is not None,
            has_company=own_end.has_company,
        )

    def _k(self, ordinal: int, foreign: int | None = None) -> int:
        """Return K (target offset minus ordinal) for the next record, or a lower bound of K if
        other clients write to the topic. `foreign`: target offset of the first foreign record after
        the copy, or None.

        The bound is computed from the high watermark, because foreign records above it may
        disappear with their leader. If other clients have ended the copy, K is computed from
        `foreign`.
        """
        return (self.target_ends.high_watermark if foreign is None else foreign) - ordinal

    def _source_after(self, own_end: OurEnd) -> ResumePoint:
        """Return where the source is read next. `own_end`: the end of this flow's records in the
        target log.
        """
        runs = self.request.runs
        if run_at(runs, own_end.ordinal) is None:
            raise CorruptData(
                f"{self.request.target}: the offset map has no row for ordinal {own_end.ordinal}",
                code="STATE_CORRUPT",
            )
        upstream = next_upstream(runs, own_end.ordinal, self.source_ends.log_start)
        if own_end.foreign is not None:
            # read before the check, so that no transaction below this offset is open during the
            # check
            stable = self._stable_end()
            end = max(stable, self.source_ends.high_watermark)
            self._check_taken_over(upstream, own_end.foreign, end)
        checked = self._check_source(upstream)
        last = self._check_last(own_end)
        if last is None and self.request.lost is not None:
            raise not_disproved_error(self.request.lost, source=self.request.source)
        if own_end.foreign is not None:
            # below the stable end only markers remain, which are not copied, so they are passed;
            # above it an open transaction may still commit records
            checked = max(checked, stable)
        jumps = with_jumps(runs, own_end.jumps, own_end.ordinal)
        if last is not None and last.upstream >= checked:
            checked = last.upstream + 1
            jumps = (*jumps, Run(own_end.ordinal - 1, last.upstream, own_end.downstream - 1))
        epoch = -1 if last is None or last.upstream != checked - 1 else last.leader_epoch
        return ResumePoint(checked, epoch, jumps, 0 if last is None else 1)

    def _stable_end(self) -> int:
        """Return the source's last stable offset, or its high watermark if uncommitted records are
        copied.
        """
        tp = self.request.source
        if self.rules.isolation is Isolation.READ_UNCOMMITTED:
            return self.source_ends.high_watermark
        ends = self.logs.source.begins(
            {tp: StartAt(StartKind.LATEST)}, isolation=Isolation.READ_COMMITTED
        )
        return answer_of(ends, tp, self.logs.source)

    def _check_taken_over(self, upstream: int, foreign: int, end: int) -> None:
        """Raise PartitionError (TAKEN_OVER) if the source still has records to copy, although other
        writers to the target have ended the copy. `upstream`: offset after the last copied record.
        `foreign`: target offset of their first record.

        `end`: upper bound of the source offsets to check. It may be above the log end that was read
        earlier, because the marker of a transaction may have been written since then.
        """
        if holds_records(
            self.logs.read_source,
            low=max(upstream, self.source_ends.log_start),
            high=end,
            isolation=self.rules.isolation,
            skips=self.request.skips,
        ):
            raise PartitionError(
                f"{self.request.target}: other clients wrote from offset {foreign} on, so the "
                f"copy has ended. Later upstream records [{upstream}, {end}) of "
                f"{self.request.source} are not copied",
                code="TAKEN_OVER",
            )

    def _check_last(self, own_end: OurEnd) -> EqualRecord | None:
        """Run the tail check of a topic to which other clients write, and return this flow's last
        record. Only this record is compared, because records of other clients may be before it.

        Return None if one of both logs no longer has the record. Raises PartitionError (DIVERGED)
        if the records differ.
        """
        run = run_at(self.request.runs, own_end.ordinal - 1)
        if run is None or own_end.downstream <= self.target_ends.log_start:
            return None
        offset, upstream = own_end.downstream - 1, run.upstream_of(own_end.ordinal - 1)
        raw = self.logs.read_target(offset)
        target_record = record_before(raw, own_end.downstream, self.request.our_producers)
        source_record = self.logs.source_record(upstream)
        if target_record is None:
            return None
        if source_record is None:
            return self._find_after_gap(own_end, upstream, target_record)
        if same_record(source_record[0], target_record[0], compare_timestamp=target_record[1]):
            return EqualRecord(own_end.ordinal - 1, upstream, source_record[1])
        raise self._log_error(
            f"according to the offset map, this flow's last record (at offset {offset}) is "
            f"upstream record {upstream} of {self.request.source}, but these records differ. The "
            "log of the source or of the target was rewritten",
            code="DIVERGED",
        )

    def _find_after_gap(
        self, own_end: OurEnd, upstream: int, target_record: tuple[Record, bool]
    ) -> EqualRecord | None:
        """Find this flow's last record at a source offset above `upstream`, after a gap that no map
        row announced. Return None if not exactly one record is equal.

        A lane that was thought dead may have written that record. A single equal record is proof
        only if the target keeps the source's timestamps.
        """
        record, has_own_time = target_record
        epochs = {
            at: epoch
            for at, (known, epoch) in self.logs.around(upstream).records.items()
            if at > upstream and has_own_time and same_record(known, record, compare_timestamp=True)
        }
        if len(epochs) != 1:
            return None
        ((at, epoch),) = epochs.items()
        return EqualRecord(own_end.ordinal - 1, at, epoch)

    # -- topics of either kind

    def _epoch(self, upstream: int, known_epoch: int = -1) -> int:
        """Return the leader epoch of source offset `upstream` - 1: `known_epoch` if it is not -1.
        Otherwise it is read now, because an idle copy would get it only with its next record.
        """
        return known_epoch if known_epoch >= 0 else self.logs.epoch_before(upstream)

    def _check_source(self, upstream: int) -> int:
        end = self.source_ends.log_end
        if upstream > end:
            raise source_diverged_error(
                f"{self.request.source}: the source's log ends at {end}, but "
                f"records up to {upstream} were copied. The source lost [{end}, "
                f"{upstream}), which the target still has",
                self.request.target,
                findings.lost_at(self.request.complete_runs, end, self.target_ends),
                lost=(end, upstream),
            )
        if upstream < self.source_ends.log_start:
            lost = findings.Span(upstream, self.source_ends.log_start)
            if not self.request.accept_source_loss:
                raise findings.source_truncated(self.request.source, lost).error()
            self.lost = lost.first, lost.next
        return max(upstream, self.source_ends.log_start)

    def _point(
        self, ordinal: int, resume_point: ResumePoint, k: int, tail: TargetTail | None = None
    ) -> StartPoint:
        timestamp = -1
        last = None if tail is None or self.has_producer_states else tail.last_header
        if self.producer is not None:
            timestamp = self.producer.last_timestamp
        elif last is not None:
            timestamp = last.max_timestamp
        return StartPoint(
            ordinal=ordinal,
            upstream=resume_point.upstream,
            k=k,
            last_fetched_epoch=self._epoch(resume_point.upstream, resume_point.leader_epoch),
            compared=resume_point.compared,
            lost=self.lost,
            target_epoch=self.target_ends.leader_epoch,
            is_protected=self.producer is not None,
            last_timestamp=timestamp,
            jumps=resume_point.corrected,
            undecided=resume_point.undecided,
        )


def _runs_of_acceptance(runs: tuple[Run, ...], walk: ForeignWalk, upstream: int) -> tuple[Run, ...]:
    """Return the runs that an acceptance of foreign records adds to the map. `upstream`: the source
    offset at which the copy resumes.
    """
    jumps = []
    for ordinal, downstream in walk.jumps:
        run = run_at(runs, ordinal)
        if run is not None:
            jumps.append(Run(ordinal, run.upstream_of(ordinal), downstream))
    moved = with_jumps(runs, jumps, walk.next_ordinal)
    return (*moved, Run(walk.next_ordinal, upstream, walk.end))
