"""Determines where the branches of a source partition resume, in keyed topics, where every source
partition is copied to every target partition.

The end of each branch is found as in any topic to which other clients may write (`our_end`). Three
things differ from the start of a whole partition:

- Other source partitions write between a branch's batches all the time, which is normal.
- The map has single positions (the last record of each batch, and how far the source was read), not
  every record between them. A log ends after a whole batch, so the end of the log is such a
  position, unless another lane wrote a batch that this map does not announce. In that case the
  batch's last record is searched at the source.
- A branch without a row has written nothing, and begins where the other branches did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from twinlog.errors import CorruptData
from twinlog.mirror.copy.fan_out import is_record, next_upstream, partition_of
from twinlog.mirror.map.offset_map import run_at
from twinlog.mirror.ports import LogView, answer_of
from twinlog.mirror.start.both_logs import NEIGHBOURHOOD
from twinlog.mirror.start.cold_start import check_ids, read_both, with_begin
from twinlog.mirror.start.corrections import ResumePoint
from twinlog.mirror.start.divergence import not_disproved_error
from twinlog.mirror.start.first_start import check_former
from twinlog.mirror.start.our_end import OurEnd, record_before
from twinlog.mirror.start.position import StartSearch
from twinlog.mirror.start.request import StartRequest, StartRules
from twinlog.mirror.start.tail_check import same_record
from twinlog.mirror.start_point import StartPoint


def find_fan_start(
    requests: Sequence[StartRequest],
    source: LogView,
    target: LogView,
    rules: StartRules,
) -> tuple[StartPoint, ...]:
    """Return where each branch resumes. `requests`: one for each branch of the same source
    partition.

    Raises TwinlogError if one branch cannot continue. The other branches then wait for that one,
    because the source is read once for all of them.
    """
    tp = requests[0].source
    requests = _beginning_together(requests)
    source_ids = source.topic_ids({tp.topic})
    target_ids = target.topic_ids({requests[0].target.topic})
    check_ids(requests[0], source_ids, target_ids)
    moment = read_both(requests, source, target, rules.producer_id)
    check_former(requests[0], moment.target_ends, target)
    is_new = all(request.needs_begin_offset for request in requests)
    new = {tp: requests[0].start} if is_new else {}
    begins = source.begins(new, isolation=rules.isolation) if new else {}
    points = []
    for request in requests:
        producer = moment.producer_of(request.target, target)
        branch_request = with_begin(request, new, begins, source)
        search = BranchSearch(
            branch_request,
            answer_of(moment.source_ends, tp, source),
            answer_of(moment.target_ends, branch_request.target, target),
            producer,
            moment.producers is not None,
            source,
            target,
            rules,
        )
        search.branches = len(requests)
        points.append(search.resume())
    return tuple(points)


def _beginning_together(requests: Sequence[StartRequest]) -> Sequence[StartRequest]:
    """Return the requests so that branches without a map row begin where the other branches began
    (`siblings_at`).

    The first rows of all branches state how far the source was read. They are written in the order
    of the branches, not in one batch. If the process died between two of them, a branch has no row.
    Such a branch has written nothing, so it begins where the other branches began.
    """
    firsts = [request.runs[0] for request in requests if request.runs]
    if not firsts or len(firsts) == len(requests):
        return requests
    begins = [first.upstream for first in firsts if not is_record(first)]
    if not begins:
        raise CorruptData(
            f"{requests[0].source}: the offset map has rows for only some of the target "
            "partitions, and these rows do not show where the other target partitions began",
            code="STATE_CORRUPT",
        )
    return [
        request if request.runs else replace(request, siblings_at=min(begins))
        for request in requests
    ]


class BranchSearch(StartSearch):
    branches: int = 0
    """Number of target partitions among which the source partition's records are distributed."""

    def _source_after(self, end: OurEnd) -> ResumePoint:
        before = run_at(self.request.runs, end.ordinal - 1)
        equal = None
        if before is not None and before.ordinal == end.ordinal - 1 and is_record(before):
            equal = self._check_last(end)
        lost = self.request.lost
        if lost is not None and equal is None and before is not None and before.upstream >= lost[0]:
            raise not_disproved_error(lost, source=self.request.source)
        upstream = next_upstream(self.request.runs, end.ordinal)
        return ResumePoint(
            self._check_source(self._searched(end) if upstream is None else upstream), -1
        )

    def _searched(self, end: OurEnd) -> int:
        """Return the upstream offset after the branch's last record. No map row announces that
        record, so it is searched at the source by content.
        """
        before = [run for run in self.request.runs if run.ordinal < end.ordinal]
        offset = end.downstream - 1
        target_record = None
        if before and end.downstream > self.target_ends.log_start:
            raw = self.logs.read_target(offset)
            target_record = record_before(raw, end.downstream, self.request.our_producers)
        if target_record is not None:
            low = before[-1].upstream
            equal = [
                at
                for at, (record, _) in self.logs.source_records(low, low + NEIGHBOURHOOD).items()
                if partition_of(record, self.branches) == self.request.target.partition
                and same_record(record, target_record[0], compare_timestamp=target_record[1])
            ]
            if len(equal) == 1:
                return equal[0] + 1
        raise self._log_error(
            f"it is unknown which record of {self.request.source} this flow's last record (at "
            f"offset {offset}) is, because the offset map has no row for it, and not exactly one "
            "source record is equal",
            code="DIVERGED",
        )
