"""The resume point after transformed records, which cannot be compared with their source records.

**Problem.** A raw start compares the target's last records with the source. A transformed record
differs from its source record, and a function may return another result next time. So only the
offset map shows from which source record the last target record was made, and a start must detect
if the map lacks that record.

**Rule.** A transformed copy announces the last record of every batch, before the batch is sent
(`mirror.copy.transformed`). A log ends after a whole batch, so the map must name the last record on
the target, or the one after it. If the map names neither, rows are lost, and the copy stops
(`DIVERGED`). It never continues by a guess. If the map has the last record's fingerprint, the
target's last record must match it.

    ordinal      40   41   42 | 43              the target's log ends after ordinal 42
    runs        (40, 101) (42, 108)             42 is named: resume at 109
    runs        (40, 101) (42, 108) (43, 250)   43 is named: resume at 250; everything from 109 on
                                                was filtered, or 43 was announced and not sent
    runs        (40, 101)                       neither: which source record 42 is, is unknown

The rule is right only if the rows of all records on the target were read. So such a start waits
until no request of an earlier lane can arrive, and then reads the map
(`control.lanes.takes.put_off`).
"""

from __future__ import annotations

from collections.abc import Mapping

from twinlog.errors import PartitionError
from twinlog.mirror.copy.fan_out import next_upstream
from twinlog.mirror.findings import target_error
from twinlog.mirror.map.runs import Spans, is_transformed
from twinlog.mirror.start.divergence import not_disproved_error
from twinlog.mirror.start.request import StartRequest
from twinlog.mirror.start.tail_check import REPLACED, TargetTail
from twinlog.wire.records import fingerprint


def raw_from(spans: Spans, ordinal: int) -> int:
    """Return the ordinal from which on all records before `ordinal` are raw (not transformed): the
    end of the last transformed range in `spans`, or 0.
    """
    return max((following for _, following in spans if following <= ordinal), default=0)


def announced_upstream(request: StartRequest, tail: TargetTail, k: int, ordinal: int) -> int:
    """Return the source offset at which to resume after transformed records.

    Raises DIVERGED if the map does not show that offset.
    """
    if request.lost is not None:
        raise not_disproved_error(request.lost, source=request.source)
    upstream = next_upstream(request.runs, ordinal)
    if upstream is None:
        raise _diverged_error(request, f"the offset map has no row for ordinal {ordinal - 1}")
    if _differs(request.fingerprints, tail, k, ordinal - 1):
        raise _diverged_error(request, f"ordinal {ordinal - 1} is not the record in the offset map")
    return upstream


def after_filtered(request: StartRequest, upstream: int, ordinal: int) -> int:
    """Return the source offset at which to resume after a raw record. It is above `upstream` if a
    transformed copy followed the raw one and has filtered all records that it has read.
    """
    if not is_transformed(request.transformed, ordinal):
        return upstream
    return max(upstream, next_upstream(request.runs, ordinal) or 0)


def _differs(fingerprints: Mapping[int, int], tail: TargetTail, k: int, ordinal: int) -> bool:
    """Return True if the target's record at this ordinal has another fingerprint than the map
    announced.
    """
    known, last = fingerprints.get(ordinal), tail.records[-1] if tail.records else None
    if known is None or last is None or last.offset != k + ordinal or tail.is_log_append_time:
        return False
    # a broker that recompresses replaces invalid UTF-8 in header keys, which changes the
    # fingerprint, so such a record is not compared
    is_rewritten = any(REPLACED.search(key) for key, _ in last.headers)
    return not is_rewritten and fingerprint(last) != known


def _diverged_error(request: StartRequest, why: str) -> PartitionError:
    what = (
        f"it is unknown from which record of {request.source} the last transformed record was "
        f"made, because {why}. Either the offset map lost its newest rows, or another lane wrote"
    )
    return target_error(request.target, what, code="DIVERGED", source=request.source)
