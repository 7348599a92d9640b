"""Where one partition goes on: a look at both logs that trusts nothing that it can check.

In order, after the topics are known to be the ones the map speaks of (`cold_start`):

(b) the target's log end by OffsetForLeaderEpoch; a high watermark below it: `TARGET_UNDER_MIN_ISR`,
    wait;
(c) next ordinal = log end - K, cross-checked with what the broker remembers of our producer id and
    with the last batch's header: `GAP_WRITTEN`, `EXTRA_RECORDS`, `POSITION_REGRESSED`;
(d) the upstream offset from the map;
(e) the tail check: `DIVERGED`, after a search of the neighbourhood for the place that does match;
(f) the cut: the caller writes the term's first row before the first batch;
(g) the first request goes alone (`copy.py`).

A partition that has a row never uses the configured start again: retention, restarts and lost
producer state cannot send it back to the beginning or, with `latest`, over records that nobody
copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from twinlog.errors import CorruptData, Fate, PartitionError
from twinlog.mirror.break_search import distance, find_break
from twinlog.mirror.copy import StartPoint
from twinlog.mirror.corrections import Place, continued, found_by_content, without_newest
from twinlog.mirror.divergence import Known, Logs, diverged, find_parting
from twinlog.mirror.offset_map import Run, run_at, upstream_range
from twinlog.mirror.ports import LogEnds, LogView, ProducerTail
from twinlog.mirror.shared_topic import OurEnd, find_our_end, record_before, with_jumps
from twinlog.mirror.start_request import StartRequest, StartRules
from twinlog.mirror.tail_check import (
    TAIL_RECORDS,
    Comparison,
    TargetTail,
    compare,
    read_tail,
    same_record,
    search,
    source_records,
)
from twinlog.mirror.unread import holds_records
from twinlog.model import StartKind, TopicPartition, sequence_of
from twinlog.wire.records import Record

MAX_TAIL_READS: Final = 20
"""Fetches of about 1 MB that the tail check may take to see the last 100 records."""

NEIGHBOURHOOD: Final = 2_000
"""Upstream offsets to both sides of the expected place in which the tail is searched."""


def tail_start(there: LogEnds) -> int:
    """Where the tail check begins to read the target."""
    return max(there.log_start, there.log_end - TAIL_RECORDS)


def tail_source(runs: Sequence[Run], there: LogEnds) -> int | None:
    """Where it then begins to read the source, if no record of the tail is missing."""
    if not runs or there.log_end <= there.log_start:
        return None
    ordinal = tail_start(there) - (runs[0].downstream - runs[0].ordinal)
    first = run_at(runs, ordinal) or runs[0]
    return first.upstream_of(max(first.ordinal, ordinal))


class Look:
    """One partition's start, with all answers at hand."""

    def __init__(  # noqa: PLR0913, PLR0917 (all answers of one look)
        self,
        request: StartRequest,
        here: LogEnds,
        there: LogEnds,
        producer: ProducerTail | None,
        may_ask: bool,
        source: LogView,
        target: LogView,
        rules: StartRules,
    ) -> None:
        self.request = request
        self.here = here
        self.there = there
        self.producer = producer
        self.may_ask = may_ask
        self.source = source
        self.target = target
        self.rules = rules
        if there.high_watermark < there.log_end:
            raise PartitionError(
                f"{request.target}: {there.log_end - there.high_watermark} records are not on "
                "enough replicas; "
                "waiting until the in-sync replicas have them",
                code="TARGET_UNDER_MIN_ISR",
                fate=Fate.RETRIABLE,
            )

    # -- a topic that is ours alone
    # --------------------------------------------------------------------

    def own(self) -> StartPoint:
        runs, end = self.request.runs, self.there.log_end
        if not runs:
            return self._first()
        k = runs[0].downstream - runs[0].ordinal
        ordinal = end - k
        if ordinal < 0 or (run := run_at(runs, ordinal)) is None:
            raise PartitionError(
                f"{self.request.target}: the target's log ends at {end}, before the first record "
                "of this copy "
                f"({runs[0].downstream}): the target lost its log; delete the topic to copy it "
                "anew",
                code="TARGET_TRUNCATED",
            )
        self._check_regress(ordinal)
        self._check_producer(ordinal, k)
        tail = self._target_tail()
        self._check_last_batch(tail, ordinal, k)
        upstream = run.upstream_of(ordinal)
        place = self._tail_checked(tail, runs, k, ordinal, upstream)
        place = place._replace(upstream=self._check_source(place.upstream, ordinal))
        return self._point(ordinal, place, k, tail)

    def _first(self) -> StartPoint:
        end = self.there.log_end
        holds = f"[{self.there.log_start}, {end})"
        if (
            self.rules.is_ours_alone
            and end > self.there.log_start
            and self.request.had_other_source
        ):
            raise PartitionError(
                f"{self.request.source}: the source topic was deleted and created again; "
                f"{self.request.target} still holds records {holds} of the old one; delete the "
                "target topic to copy "
                "the new one from its beginning",
                code="SOURCE_RECREATED",
            )
        if self.rules.is_ours_alone and end > self.there.log_start:
            raise PartitionError(
                f"{self.request.target}: the topic already holds records {holds} that this "
                "flow did not write; delete it, or mirror under another name "
                "(replication.policy.separator)",
                code="FOREIGN_DATA",
            )
        upstream = self.here.log_start
        if self.request.began_at >= 0:
            upstream = max(upstream, self.request.began_at)
        else:
            upstream = max(upstream, self._begin())
        ordinal = 0
        if self.producer is not None and not self.rules.is_ours_alone:
            # our id wrote here already, for a source topic of this name that was deleted since
            ordinal = sequence_of(self.producer.last_sequence + 1)
        return StartPoint(
            ordinal=ordinal,
            upstream=upstream,
            k=end - ordinal,
            last_fetched_epoch=-1,
            is_protected=False,
            last_timestamp=-1,
        )

    def _begin(self) -> int:
        begin = self.request.begin
        if self.request.start.kind is StartKind.OFFSET and begin > self.here.log_end:
            raise PartitionError(
                f"{self.request.source}: twinlog.start begins at offset {begin}, but the log ends "
                f"at {self.here.log_end}: correct the offset, or write latest",
                code="START_BEYOND_END",
            )
        return begin

    def _check_regress(self, ordinal: int) -> None:
        acked, epoch = self.request.acked_ordinal, self.request.acked_epoch
        if ordinal < acked and epoch == self.there.leader_epoch:
            raise PartitionError(
                f"{self.request.target}: {acked - ordinal} records that were acknowledged are "
                "gone from the end of the "
                "target's log though its leader did not change",
                code="POSITION_REGRESSED",
            )

    def _check_producer(self, ordinal: int, k: int) -> None:
        if self.producer is None or ordinal == 0:
            return
        off = distance(self.producer.last_sequence, sequence_of(ordinal - 1))
        if off:
            raise self._k_broken(ordinal, k, off, "the broker's producer state")

    def _check_last_batch(self, tail: TargetTail, ordinal: int, k: int) -> None:
        last = tail.last_header
        if last is None or last.magic < 2 or last.base_offset < k:
            return  # below K it was there before this copy began (`control.adoption`)
        if last.producer_id in self.request.our_producers and not last.is_control:
            should = sequence_of(last.base_offset - k)
            if off := distance(last.base_sequence, should):
                raise self._k_broken(ordinal, k, off, "the last batch")
        elif last.producer_id not in self.rules.known_producers:
            raise PartitionError(
                f"{self.request.target}: the batch at offset {last.base_offset} was not written "
                "by this flow: somebody "
                "else produces to the target topic; find them, then delete the topic to copy it "
                "anew",
                code="EXTRA_RECORDS",
            )

    def _k_broken(self, ordinal: int, k: int, off: int, witness: str) -> PartitionError:
        at = find_break(
            lambda offset: self._read(self.target, self.request.target, offset),
            low=max(self.there.log_start, k),
            high=self.there.log_end,
            k=k,
            producers=self.request.our_producers,
        )
        end = self.there.log_end
        said = f"{witness} is at ordinal {ordinal - 1 + off}, the log holds {ordinal}"
        if off > 0:
            where = f"somewhere below offset {end}"
            if at is not None and at.distance > 0:
                lost = upstream_range(self.request.runs, at.offset - k, at.distance)
                where = (
                    f"before offset {at.offset}: upstream records {lost} of {self.request.source} "
                    "are not on "
                    "the target"
                )
            return PartitionError(
                f"{self.request.target}: {off} records are missing {where} ({said}); delete the "
                "target topic to "
                "copy it anew, or restore them by hand",
                code="GAP_WRITTEN",
            )
        where = f"below offset {end}" if at is None else f"from offset {at.offset} on"
        return PartitionError(
            f"{self.request.target}: {-off} records {where} were not written by this flow, or "
            f"twice ({said}); find "
            "the other producer, then delete the target topic to copy it anew",
            code="EXTRA_RECORDS",
        )

    # -- a topic that others may write to
    # ----------------------------------------------------------------

    def shared(self) -> StartPoint:
        if not self.request.runs:
            return self._first()
        ours = find_our_end(self.request, self.there, self.producer, self.target, self.rules)
        run = run_at(self.request.runs, ours.ordinal)
        if run is None:
            raise CorruptData(
                f"{self.request.target}: the offset map does not reach ordinal {ours.ordinal}",
                code="STATE_CORRUPT",
            )
        upstream = run.upstream_of(ours.ordinal)
        if ours.foreign is not None and holds_records(
            lambda offset: self._read(self.source, self.request.source, offset),
            low=max(upstream, self.here.log_start),
            high=self.here.high_watermark,
            read_committed=self.rules.read_committed,
        ):
            raise PartitionError(
                f"{self.request.target}: others have written from offset {ours.foreign} on, so "
                "the copy had ended; "
                f"upstream records [{upstream}, {self.here.high_watermark}) of "
                f"{self.request.source} "
                "came later and are not copied",
                code="TAKEN_OVER",
            )
        upstream = self._check_source(upstream, ours.ordinal)
        epoch = self._check_last(ours)
        if ours.foreign is not None:
            upstream = max(upstream, self.here.high_watermark)  # markers, nothing that is copied
        return StartPoint(
            ordinal=ours.ordinal,
            upstream=upstream,
            k=self.there.log_end - ours.ordinal,
            last_fetched_epoch=epoch,
            is_protected=self.producer is not None,
            last_timestamp=-1 if self.producer is None else self.producer.last_timestamp,
            taken_over=ours.foreign is not None,
            jumps=with_jumps(self.request.runs, ours.jumps, ours.ordinal),
        )

    def _check_last(self, ours: OurEnd) -> int:
        """The tail check of a shared topic, where others may lie between our records: the last one
        only. Returns the source epoch of that record.
        """
        run = run_at(self.request.runs, ours.ordinal - 1)
        if run is None or ours.downstream <= self.there.log_start:
            return -1
        offset, upstream = ours.downstream - 1, run.upstream_of(ours.ordinal - 1)
        raw = self._read(self.target, self.request.target, offset)
        there = record_before(raw, ours.downstream, self.request.our_producers)
        here = self._source_record(upstream)
        if there is None or here is None:
            return -1
        if same_record(here[0], there[0], compare_timestamp=there[1]):
            return here[1]
        raise PartitionError(
            f"{self.request.target}: the record at offset {offset}, our last one, is not upstream "
            f"record {upstream} of {self.request.source}, as the offset map says: the source's log "
            "was written anew, or the target's",
            code="DIVERGED",
        )

    # -- both
    # --------------------------------------------------------------------------------------------

    def _target_tail(self) -> TargetTail:
        records: list[Record] = []
        tail = TargetTail(records=(), last_header=None, is_log_append_time=False)
        offset = tail_start(self.there)
        for _ in range(MAX_TAIL_READS):
            if offset >= self.there.log_end:
                break
            raw = self._read(self.target, self.request.target, offset)
            tail = read_tail(raw, self.there.log_end)
            if tail.last_header is None:
                break  # cleaned: nothing is left up to the end
            records += (record for record in tail.records if record.offset >= offset)
            offset = tail.last_header.next_offset
        return TargetTail(
            records=tuple(records[-TAIL_RECORDS:]),
            last_header=tail.last_header,
            is_log_append_time=tail.is_log_append_time,
        )

    def _read(self, view: LogView, tp: TopicPartition, offset: int) -> memoryview:
        found = view.read({tp: offset}).get(tp)
        if found is None:
            raise view.problems.get(tp) or PartitionError(
                f"{tp} cannot be read at {offset}", code="NO_LEADER", fate=Fate.RETRIABLE
            )
        return found.records

    def _tail_checked(
        self, tail: TargetTail, runs: Sequence[Run], k: int, ordinal: int, upstream: int
    ) -> Place:
        if not tail.records:
            return Place(upstream, -1)
        first = run_at(runs, tail.records[0].offset - k) or runs[0]
        low = first.upstream_of(max(first.ordinal, tail.records[0].offset - k))
        known = self._source_records(low, upstream)
        prints = self.request.fingerprints
        found = self._compare(tail, runs, k, known, prints)
        if found.holds:
            return Place(upstream, found.leader_epoch)
        for count in range(len(runs) - 1, max(0, len(runs) - 4), -1):
            # the newest rows may announce what was never written
            earlier, fewer = without_newest(runs, prints, count)
            if self._compare(tail, earlier, k, known, fewer).holds:
                right = continued(earlier, runs[count].ordinal)
                return Place(right.upstream_of(ordinal), -1, (right,))
        around = self._source_records(
            max(self.here.log_start, upstream - NEIGHBOURHOOD), upstream + NEIGHBOURHOOD
        )
        place = search(tail, around)
        if place is not None:
            return Place(place + 1, around[place][1], found_by_content(tail, around, place, k))
        parting = find_parting(
            Logs(
                runs=runs,
                k=k,
                low=max(runs[0].ordinal, self.there.log_start - k),
                high=found.differing[-1][0] - k,
                compare_timestamp=not tail.is_log_append_time,
                source_start=self.here.log_start,
                target_at=self._target_record,
                source_at=self._source_record,
            )
        )
        raise diverged(
            parting,
            source=self.request.source,
            target=self.request.target,
            upstream=upstream,
            downstream=k + ordinal,
        )

    def _target_record(self, offset: int) -> Record | None:
        raw = self._read(self.target, self.request.target, offset)
        found = read_tail(raw, self.there.log_end, keep=None).records
        return next((record for record in found if record.offset == offset), None)

    def _source_record(self, offset: int) -> Known | None:
        if not self.here.log_start <= offset < self.here.high_watermark:
            return None
        return source_records(self._read(self.source, self.request.source, offset))[0].get(offset)

    def _compare(
        self,
        tail: TargetTail,
        runs: Sequence[Run],
        k: int,
        known: Mapping[int, tuple[Record, int]],
        fingerprints: Mapping[int, int],
    ) -> Comparison:
        return compare(
            tail,
            runs,
            known,
            k=k,
            source_log_start=self.here.log_start,
            fingerprints=fingerprints,
        )

    def _source_records(self, low: int, high: int) -> dict[int, tuple[Record, int]]:
        out: dict[int, tuple[Record, int]] = {}
        offset = max(low, self.here.log_start)
        for _ in range(MAX_TAIL_READS):
            if offset >= min(high, self.here.high_watermark):
                break
            raw = self._read(self.source, self.request.source, offset)
            part, after = source_records(raw)
            if after <= offset:
                break
            out |= part
            offset = after
        return out

    def _check_source(self, upstream: int, ordinal: int) -> int:
        if upstream > self.here.log_end:
            raise PartitionError(
                f"{self.request.source}: the source's log ends at {self.here.log_end}, but "
                f"records up to {upstream} were "
                f"copied: the source lost [{self.here.log_end}, {upstream}), which the target "
                "still has",
                code="SOURCE_DIVERGED",
            )
        if upstream < self.here.log_start and ordinal > 0:
            lost = f"[{upstream}, {self.here.log_start})"
            if not self.request.accept_source_loss:
                raise PartitionError(
                    f"{self.request.source}: the source deleted upstream offsets {lost} before "
                    "they were copied; "
                    "to go on behind them set twinlog.source.loss=accept",
                    code="SOURCE_TRUNCATED",
                )
        return max(upstream, self.here.log_start)

    def _point(self, ordinal: int, place: Place, k: int, tail: TargetTail) -> StartPoint:
        timestamp = -1
        if self.producer is not None:
            timestamp = self.producer.last_timestamp
        elif self.may_ask is False and tail.last_header is not None:
            timestamp = tail.last_header.max_timestamp
        return StartPoint(
            ordinal=ordinal,
            upstream=place.upstream,
            k=k,
            last_fetched_epoch=place.leader_epoch,
            is_protected=self.producer is not None,
            last_timestamp=timestamp,
            jumps=place.corrected,
        )
