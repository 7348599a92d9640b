"""Determines where a copy resumes, from the map and from the target's last records.

`position` explains why the map can be ahead of the log or behind it. This module tries the
explanations of a mismatch in this order:

    compare the last 100 records with the map
      |-- equal, and the last one is among them ----> resume by the map
      |-- none differs, but the last is not found --> `_search_nearby`, else resume by the map
      `-- some differ
            |-- without its newest rows the map fits --> `_corrected`
            |-- one position nearby fits --------------> `_near_by`
            `-- neither -------------------------------> DIVERGED or SOURCE_DIVERGED
"""

from __future__ import annotations

from collections.abc import Mapping

from twinlog.mirror.map.offset_map import Run, run_at
from twinlog.mirror.map.runs import ORDINAL, following
from twinlog.mirror.start.both_logs import BothLogs, NearRecords
from twinlog.mirror.start.corrections import (
    LostRuns,
    ResumePoint,
    next_upstream,
    pairs_in_order,
    runs_by_content,
    runs_of,
)
from twinlog.mirror.start.divergence import divergence_error, not_disproved_error
from twinlog.mirror.start.tail_check import (
    Known,
    TargetTail,
    compare,
    is_void,
    same_record,
    search,
)


class TailCheck:
    """The tail check of one start, and the search if it fails. `ordinal`: number of records that
    the flow has written, by the target's log end. `k`: target offset minus ordinal.
    """

    def __init__(self, logs: BothLogs, tail: TargetTail, k: int, ordinal: int) -> None:
        self._logs = logs
        self._request = logs.request
        self._tail = tail
        self._runs = logs.request.runs
        self._k = k
        self._ordinal = ordinal

    def resume_point(self) -> ResumePoint:
        """Return where the copy resumes: by the map or, if the target's last records contradict the
        map, by the content of these records.

        There are three results. First, the last records are those in the map
        (`ResumePoint.compared` has their number). Second, they are different records (DIVERGED,
        SOURCE_DIVERGED). Third, no record can be compared, because the target or the source has
        deleted its tail. In the third case, K, the producer state and the map are the only
        evidence, which is right unless one of them lost its end as well. A start is not refused
        only because records are old.
        """
        logs, lost = self._logs, self._request.lost
        upstream = next_upstream(self._runs, self._ordinal, logs.source_ends.log_start)
        known = logs.sources(self._tail, self._runs, self._k)
        prints = self._request.fingerprints
        comparison = compare(self._tail, self._runs, known, k=self._k, fingerprints=prints)
        if comparison.is_consistent:
            if lost is not None and not comparison.proves(self._ordinal):
                raise not_disproved_error(lost, source=self._request.source)
            epoch = comparison.epoch_before(self._ordinal, upstream)
            accepted = ResumePoint(upstream, epoch, compared=comparison.equal)
            return accepted if comparison.proves(self._ordinal) else self._search_nearby(accepted)
        corrected = self._corrected(upstream, known)
        if corrected is not None:
            return corrected
        kept_from = logs.target_ends.log_start - self._k
        low = max(self._runs[0].ordinal, self._request.runs_from, kept_from)
        raise divergence_error(
            logs,
            range(low, comparison.differing[0][0] - self._k),
            k=self._k,
            upstream=upstream,
            downstream=self._k + self._ordinal,
            compare_timestamp=not self._tail.is_log_append_time,
            was_cut=upstream > logs.source_ends.log_end or lost is not None,
        )

    def _corrected(self, upstream: int, known_records: dict[int, Known]) -> ResumePoint | None:
        """Return a resume point other than the map's if the target's last records prove it, else
        None. `upstream`: the map's resume point.

        The newest rows of a map may announce records that were never written, because another lane
        was first. Without these rows, the records follow the earlier rows, or fall into a gap of
        the source where nothing can be compared. So the shortened map is accepted if the last
        record is found equal. If the source no longer has that record, two conditions must be met.
        First, a row's fingerprint must show that the target has another record than the announced
        one. Second, no source record nearby may equal the last record.
        """
        fallback: ResumePoint | None = None
        runs, prints = self._runs, self._request.fingerprints
        # runs that were announced for records that were never written explain nothing
        written = following(runs, self._ordinal - 1, ORDINAL)
        for count in range(written - 1, max(0, written - 4), -1):
            at = runs[count].ordinal
            void = is_void(runs[count], self._tail, self._k, prints)
            if void is False:
                # the target has the announced record, so this row and all before it are right
                break
            earlier = runs[:count]
            fewer = {ordinal: crc for ordinal, crc in prints.items() if ordinal < at}
            known_records |= self._logs.sources(self._tail, earlier, self._k)
            comparison = compare(self._tail, earlier, known_records, k=self._k, fingerprints=fewer)
            if not comparison.is_consistent:
                continue
            right = Run(at, earlier[-1].upstream_of(at), earlier[-1].downstream_of(at))
            next_offset = right.upstream_of(self._ordinal)
            if comparison.proves(self._ordinal):
                epoch = comparison.epoch_before(self._ordinal, next_offset)
                return ResumePoint(next_offset, epoch, (right,), comparison.equal)
            if void and fallback is None and self._request.lost is None:
                fallback = ResumePoint(next_offset, -1, (right,), comparison.equal)
        return self._near_by(upstream, fallback)

    def _search_nearby(self, accepted: ResumePoint) -> ResumePoint:
        """Return a better resume point near `accepted`, or `accepted` itself if there is none.
        Needed if the source has no record at the offset that the map has for the target's last
        record.

        The reason: a lane that was thought dead may have written that last record, and the map row
        for it was not read, or is void.
        """
        first, records = self._runs[0].ordinal, self._tail.records
        if not records or records[-1].offset != self._k + self._ordinal - 1:
            return accepted
        if self._ordinal <= first:
            return accepted  # another mirror, not this flow, wrote the target's records
        near = self._logs.around(accepted.upstream)
        around = near.records
        newest = search(self._tail, around)
        if newest is None:
            return self._in_order(near) or accepted
        corrected = runs_by_content(self._tail, around, newest, self._k)
        if any(run.ordinal < first for run in corrected):
            return accepted
        return self._resume_after(newest, around, corrected, len(self._tail.records))

    def _resume_after(
        self, newest: int, around: Mapping[int, Known], runs: tuple[Run, ...], compared: int
    ) -> ResumePoint:
        """Return the resume point after source record `newest`, with corrected runs. `runs`: the
        runs of the target's last records, found by their content. `compared`: the number of these
        records.

        If the map is wrong for the first of them, it may also lack runs before it, so these are
        found by content as well (`LostRuns`).
        """
        own_time = not self._tail.is_log_append_time
        refound = LostRuns(self._logs, self._k, compare_timestamp=own_time).before(runs)
        return ResumePoint(newest + 1, around[newest][1], refound.runs, compared, refound.undecided)

    def _near_by(self, upstream: int, fallback: ResumePoint | None) -> ResumePoint | None:
        """Return the only resume point near source offset `upstream` before which the source
        records equal the target's last ones. If there is none, return `fallback` if no nearby
        record equals the target's last one, else None.
        """
        logs, last = self._logs, self._tail.records[-1]
        if last.offset != self._k + self._ordinal - 1:
            # the cleaner removed the last record, so the position cannot be derived from it
            return None
        near = logs.around(upstream)
        around = near.records
        newest = search(self._tail, around)
        if newest is not None:
            corrected = runs_by_content(self._tail, around, newest, self._k)
            return self._resume_after(newest, around, corrected, len(self._tail.records))
        if (upstreams := self._in_order(near)) is not None:
            return upstreams
        own_time = not self._tail.is_log_append_time
        if any(same_record(r, last, compare_timestamp=own_time) for r, _ in around.values()):
            return None
        return fallback

    def _in_order(self, near: NearRecords) -> ResumePoint | None:
        """Match the target's last records with source records in order, and return the resume point
        after them, or None if they do not match. The match begins after the newest record for which
        the map is right. If there is none, it begins at the source's first record.
        """
        tail, around, own_time = self._tail, near.records, not self._tail.is_log_append_time
        start, behind = self._logs.source_ends.log_start, list(tail.records)
        after = start - 1 if near.low <= start else None
        for index, record in enumerate(tail.records, 1):
            run = run_at(self._runs, record.offset - self._k)
            upstream = -1 if run is None else run.upstream_of(record.offset - self._k)
            if record.offset < tail.whole_from or upstream not in around:
                continue
            if not same_record(around[upstream][0], record, compare_timestamp=own_time):
                break
            after, behind = upstream, list(tail.records[index:])
        if after is None or not behind:
            return None
        pairs = pairs_in_order(behind, around, after, compare_timestamp=own_time)
        if pairs is None:
            return None
        newest = pairs[-1][1]
        return self._resume_after(newest, around, runs_of(pairs, self._k), len(pairs))
