"""Where the last records of a partition's copy say that it resumes: the map's word, and theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twinlog.mirror.map.offset_map import Run, run_at
from twinlog.mirror.start.both_logs import BothLogs, Near
from twinlog.mirror.start.corrections import (
    LostRuns,
    ResumePoint,
    continued,
    found_by_content,
    found_in_order,
    next_upstream,
    runs_of,
    without_newest,
)
from twinlog.mirror.start.divergence import Known, Logs, diverged, find_parting, not_disproved
from twinlog.mirror.start.tail_check import (
    Comparison,
    TargetTail,
    compare,
    is_void,
    same_record,
    search,
)


class TailCheck:
    """The tail check of one start; `ordinal` is the next one by the target's log end."""

    def __init__(self, logs: BothLogs, tail: TargetTail, k: int, ordinal: int) -> None:
        self._logs = logs
        self._request = logs.request
        self._tail = tail
        self._runs = logs.request.runs
        self._k = k
        self._ordinal = ordinal

    def resume_point(self) -> ResumePoint:
        """Where the source is read on, by the map or, where the records speak against it, by them.

        Three answers: the records are those that the map says (`ResumePoint.compared` of them),
        they are others (DIVERGED, SOURCE_DIVERGED), or there is none that could be compared: the
        target deleted its tail, or the source did. Then K, the producer state and the map are what
        there is, and they are right unless one of them lost its end as well: a start refuses
        nothing that is only old.
        """
        logs, lost = self._logs, self._request.lost
        upstream = next_upstream(self._runs, self._ordinal, logs.here.log_start)
        known = logs.sources(self._tail, self._runs, self._k)
        found = self._compare(self._runs, known, self._request.fingerprints)
        if found.holds:
            if lost is not None and not found.proves(self._ordinal):
                raise not_disproved(lost, source=self._request.source)
            epoch = found.epoch_before(self._ordinal, upstream)
            accepted = ResumePoint(upstream, epoch, compared=found.equal)
            return accepted if found.proves(self._ordinal) else self._elsewhere(accepted)
        corrected = self._corrected(upstream, known)
        if corrected is not None:
            return corrected
        parting = find_parting(
            Logs(
                runs=self._runs,
                k=self._k,
                low=max(
                    self._runs[0].ordinal, self._request.runs_from, logs.there.log_start - self._k
                ),
                high=found.differing[0][0] - self._k,
                compare_timestamp=not self._tail.is_log_append_time,
                source_start=logs.here.log_start,
                was_cut=upstream > logs.here.log_end or lost is not None,
                target_at=logs.target_record,
                source_at=logs.source_record,
                source_before=logs.source_before,
            )
        )
        raise diverged(
            parting,
            source=self._request.source,
            target=self._request.target,
            upstream=upstream,
            downstream=self._k + self._ordinal,
        )

    def _corrected(self, upstream: int, known: dict[int, Known]) -> ResumePoint | None:
        """What else the last records may be; only with evidence for it, else None.

        The newest rows of a map may announce what was never written, since another lane was first.
        Without them its records follow those before, or fall into a gap of the source where there
        is nothing to compare them with. So such a map counts where the last record is found equal;
        or, where the source has that record no more, when the record that a row announced is not
        the one that lies there (its fingerprint says so), and the last one is nowhere near by.
        """
        gone: ResumePoint | None = None
        runs, prints = self._runs, self._request.fingerprints
        for count in range(len(runs) - 1, max(0, len(runs) - 4), -1):
            dropped = runs[count]
            void = is_void(dropped, self._tail, self._k, prints)
            if void is False:
                break  # it lies where it was announced: that row is right, and so are those before
            earlier, fewer = without_newest(runs, prints, count)
            known |= self._logs.sources(self._tail, earlier, self._k)
            found = self._compare(earlier, known, fewer)
            if not found.holds:
                continue
            right = continued(earlier, dropped.ordinal)
            behind = right.upstream_of(self._ordinal)
            if found.proves(self._ordinal) and dropped.ordinal < self._ordinal:
                epoch = found.epoch_before(self._ordinal, behind)
                return ResumePoint(behind, epoch, (right,), found.equal)
            if void and gone is None and self._request.lost is None:
                gone = ResumePoint(behind, -1, (right,), found.equal)
        return self._near_by(upstream, gone)

    def _elsewhere(self, accepted: ResumePoint) -> ResumePoint:
        """Where the source has no record at the place of the last one, it may have it near by: a
        lane thought dead may have written it with a row that was not read, or is void.
        """
        first, records = self._runs[0].ordinal, self._tail.records
        if not records or records[-1].offset != self._k + self._ordinal - 1:
            return accepted
        if self._ordinal <= first:
            return accepted  # nothing is ours yet: what lies there another mirror wrote
        near = self._logs.around(accepted.upstream)
        around = near.records
        newest = search(self._tail, around)
        if newest is None:
            return self._in_order(near) or accepted
        corrected = found_by_content(self._tail, around, newest, self._k)
        if any(run.ordinal < first for run in corrected):
            return accepted
        return self._found(newest, around, corrected, len(self._tail.records))

    def _found(
        self, newest: int, around: Mapping[int, Known], runs: tuple[Run, ...], compared: int
    ) -> ResumePoint:
        """Behind this source record, by the target's last records, which are these runs. If the map
        has already the first of them wrong, it lacks runs before it as well.
        """
        own_time = not self._tail.is_log_append_time
        refound = LostRuns(self._logs, self._k, compare_timestamp=own_time).before(runs)
        return ResumePoint(newest + 1, around[newest][1], refound.runs, compared, refound.undecided)

    def _near_by(self, upstream: int, gone: ResumePoint | None) -> ResumePoint | None:
        """The only place in the neighbourhood whose records are the last ones of the target; `gone`
        when the last record is nowhere there.
        """
        logs, last = self._logs, self._tail.records[-1]
        if last.offset != self._k + self._ordinal - 1:
            return None  # cleaned: how far the last one that is left lies before the end is unknown
        near = logs.around(upstream)
        around = near.records
        newest = search(self._tail, around)
        if newest is not None:
            corrected = found_by_content(self._tail, around, newest, self._k)
            return self._found(newest, around, corrected, len(self._tail.records))
        if (found := self._in_order(near)) is not None:
            return found
        own_time = not self._tail.is_log_append_time
        if any(same_record(r, last, compare_timestamp=own_time) for r, _ in around.values()):
            return None
        return gone

    def _in_order(self, near: Near) -> ResumePoint | None:
        """By the order of the records behind the newest one that lies where the map says, or of all
        that the source has.
        """
        tail, around, own_time = self._tail, near.records, not self._tail.is_log_append_time
        start, behind = self._logs.here.log_start, list(tail.records)
        after = start - 1 if near.low <= start else None
        for at, record in enumerate(tail.records, 1):
            run = run_at(self._runs, record.offset - self._k)
            upstream = -1 if run is None else run.upstream_of(record.offset - self._k)
            if record.offset < tail.whole_from or upstream not in around:
                continue
            if not same_record(around[upstream][0], record, compare_timestamp=own_time):
                break
            after, behind = upstream, list(tail.records[at:])
        if after is None or not behind:
            return None
        pairs = found_in_order(behind, around, after, compare_timestamp=own_time)
        if pairs is None:
            return None
        newest = pairs[-1][1]
        return self._found(newest, around, runs_of(pairs, self._k), len(pairs))

    def _compare(
        self, runs: Sequence[Run], known: Mapping[int, Known], fingerprints: Mapping[int, int]
    ) -> Comparison:
        return compare(self._tail, runs, known, k=self._k, fingerprints=fingerprints)
