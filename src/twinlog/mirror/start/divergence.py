"""Finds where a target log stops being a copy.

- `divergence_error` finds the first copied record whose source record has changed.
- `find_break` finds the first batch whose target offset does not match its sequence. K is target
  offset minus ordinal, and the ordinal of a record is the number of records that the flow wrote
  before (`mirror.start_point`). Before that point, every batch of this flow is at `K + ordinal`.
  After it, all are off by the number of missing or surplus records. A foreign batch is surplus as
  well. So a binary search over batch headers finds the point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from twinlog.errors import PartitionError
from twinlog.mirror import findings
from twinlog.mirror.map.offset_map import run_at, run_at_upstream
from twinlog.mirror.start.both_logs import BothLogs
from twinlog.model import TopicPartition, sequence_of, sequences_ahead
from twinlog.wire.record_batch import BatchHeader, read_headers


class Break(NamedTuple):
    """The first batch of a target log at an offset that does not match its sequence, or of another
    client.
    """

    offset: int
    """Target offset of the batch."""
    distance: int
    """Number of records that are missing before the batch. Negative: number of surplus records. 0:
    the batch is foreign.
    """


def find_break(
    read: Callable[[int], memoryview], *, low: int, high: int, k: int, producers: frozenset[int]
) -> Break | None:
    """Search the target offsets [low, high), and return the first wrong batch, or None if all
    batches are right. `k`: target offset minus ordinal of the flow's records before `low`.

    `read` fetches whole batches from an offset on.
    """
    first: Break | None = None
    while low < high:
        middle = (low + high) // 2
        headers = (header for header, _ in read_headers(read(middle)))
        header = next((header for header in headers if header.next_offset > middle), None)
        if header is None or header.base_offset >= high:
            high = middle  # compaction has removed all batches from here to `high`
            continue
        wrong = _break_of(header, k, producers)
        if wrong is None:
            low = header.next_offset
        else:
            first, high = wrong, min(middle, header.base_offset)
    return first


def _break_of(header: BatchHeader, k: int, producers: frozenset[int]) -> Break | None:
    if header.magic < 2 or header.is_control or header.producer_id not in producers:
        return Break(header.base_offset, 0)
    off = sequences_ahead(header.base_sequence, sequence_of(header.base_offset - k))
    return Break(header.base_offset, off) if off else None


def divergence_error(
    logs: BothLogs,
    ordinals: range,
    *,
    k: int,
    upstream: int,
    downstream: int,
    compare_timestamp: bool,
    was_cut: bool,
) -> PartitionError:
    """Find the first copied record whose source record differs, and return the error for it. All
    pairs of records before it are equal.

    The binary search is by ordinal (number of records that the flow wrote before). `ordinals` ends
    at one whose two records are known to differ. `k`: target offset minus ordinal. `upstream` and
    `downstream`: source and target offset at which the copy would resume without the difference.
    `was_cut`: the source is known to have lost records that were copied.
    """
    request, source_start = logs.request, logs.source_ends.log_start
    low, high = ordinals.start, ordinals.stop

    def upstream_of(ordinal: int) -> int:
        return (run_at(request.runs, ordinal) or request.runs[0]).upstream_of(ordinal)

    if upstream_of(low) < source_start:
        first = run_at_upstream(request.runs, source_start) or request.runs[0]
        low = max(low, min(high, first.ordinal + source_start - first.upstream))
    while low < high:
        middle = (low + high) // 2
        at = upstream_of(middle)
        # records of which one is gone count as equal
        if logs.are_same(at, k + middle, compare_timestamp=compare_timestamp) is False:
            high = middle
        else:
            low = middle + 1
    begin = upstream_of(low)
    if not was_cut:
        # a newer leader epoch that begins at the difference shows that the source was rewritten
        before, now = logs.source_before(begin), logs.source_record(begin)
        was_cut = before is not None and now is not None and before[1] < now[1]
    held = findings.Span(k + low, downstream)
    copied = f"upstream records [{begin}, {upstream})"
    if was_cut:
        return source_diverged_error(
            f"{request.source}: the source's log was truncated at offset {begin} and rewritten: "
            f"{copied} were copied, but the source now has other records at these offsets. "
            f"{request.target} still holds the copies of the old records at target offsets {held}",
            request.target,
            held,
            lost=(begin, upstream),
        )
    return findings.LogFinding(
        code="DIVERGED",
        what=(
            f"{request.target}: according to the offset map, target offsets {held} hold {copied} "
            f"of {request.source}, but the records differ, and no other position nearby matches"
        ),
        target=request.target,
        span=held,
    ).error()


def source_diverged_error(
    what: str, target: TopicPartition, span: findings.Span | None = None, *, lost: tuple[int, int]
) -> PartitionError:
    """Return the error for a source that lost copied records. `lost`: upstream offsets [first,
    next) of these records.

    `span`: target offsets of their copies, or None if unknown.
    """
    error = findings.LogFinding(code="SOURCE_DIVERGED", what=what, target=target, span=span).error()
    error.lost = lost
    return error


def not_disproved_error(lost: tuple[int, int], *, source: TopicPartition) -> PartitionError:
    """Return the error for a source that had lost copied records at an earlier check. `lost`: their
    upstream offsets [first, next).

    A later check may find no difference, because the records that replaced the lost ones may have
    been compacted or deleted. The loss still counts, unless the copied records are found at the
    source again. A copy to a new target topic begins again, and a new generation does not remember
    the loss.
    """
    first, following = lost
    error = PartitionError(
        f"{source}: the source's log was truncated at offset {first} and rewritten. Upstream "
        f"records [{first}, {following}) were copied before, and the target still holds the "
        "copies. Whether the source now has other records at these offsets is unknown",
        code="SOURCE_DIVERGED",
    )
    error.lost = lost
    return error
