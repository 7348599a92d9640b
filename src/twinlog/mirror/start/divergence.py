"""Finds where a target log stops being a copy.

- `find_divergence` finds the first copied record whose source record has changed.
- `find_break` finds the first batch whose target offset does not match its sequence. K is target
  offset minus ordinal, and the ordinal of a record is the number of records that the flow wrote
  before (`mirror.start_point`). Before that point, every batch of this flow is at `K + ordinal`.
  After it, all are off by the number of missing or surplus records. A foreign batch is surplus as
  well. So a binary search over batch headers finds the point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twinlog.errors import PartitionError
from twinlog.mirror import findings
from twinlog.mirror.map.offset_map import Run, run_at, run_at_upstream
from twinlog.mirror.start.tail_check import same_record
from twinlog.model import TopicPartition, sequence_of, sequences_ahead
from twinlog.wire.record_batch import BatchHeader, read_headers
from twinlog.wire.records import Record


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
        header = _first_batch(read(middle), middle)
        if header is None or header.base_offset >= high:
            high = middle  # compaction has removed all batches from here to `high`
            continue
        wrong = _break_of(header, k, producers)
        if wrong is None:
            low = header.next_offset
        else:
            first, high = wrong, min(middle, header.base_offset)
    return first


def _first_batch(raw: memoryview, offset: int) -> BatchHeader | None:
    return next((header for header, _ in read_headers(raw) if header.next_offset > offset), None)


def _break_of(header: BatchHeader, k: int, producers: frozenset[int]) -> Break | None:
    if header.magic < 2 or header.is_control or header.producer_id not in producers:
        return Break(header.base_offset, 0)
    off = sequences_ahead(header.base_sequence, sequence_of(header.base_offset - k))
    return Break(header.base_offset, off) if off else None


Known = tuple[Record, int]
"""A source record and the leader epoch of its batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """Access to both logs for the binary search by ordinal (number of records that the flow wrote
    before).
    """

    runs: Sequence[Run]
    k: int
    low: int
    high: int
    """An ordinal at which the two records are known to differ."""
    compare_timestamp: bool
    source_start: int
    was_cut: bool
    """Whether the source is known to have lost records that were copied."""
    target_at: Callable[[int], Record | None]
    source_at: Callable[[int], Known | None]
    """Returns the source's record at an upstream offset, or None if it has none there now."""
    source_before: Callable[[int], Known | None]
    """Returns the source's newest record before an offset, which need not be the previous one."""

    def upstream_of(self, ordinal: int) -> int:
        return (run_at(self.runs, ordinal) or self.runs[0]).upstream_of(ordinal)

    def are_equal(self, ordinal: int) -> bool:
        """Return True if the target record of this ordinal equals its source record, or if one of
        the two is gone.
        """
        target_record = self.target_at(self.k + ordinal)
        source_record = self.source_at(self.upstream_of(ordinal))
        if target_record is None or source_record is None:
            return True
        own_time = self.compare_timestamp
        return same_record(source_record[0], target_record, compare_timestamp=own_time)


class Divergence(NamedTuple):
    """The offsets of the first copied record whose source record differs, and whether the source's
    log shows the cause.
    """

    upstream: int
    downstream: int
    was_rewritten: bool
    """Whether a newer source leader epoch begins at `upstream`: the source was rewritten."""


def find_divergence(logs: Logs) -> Divergence:
    """Find the first copied record whose source record differs, by binary search. All pairs of
    records before it are equal.
    """
    low, high = logs.low, logs.high
    if logs.upstream_of(low) < logs.source_start:
        first = run_at_upstream(logs.runs, logs.source_start) or logs.runs[0]
        low = max(low, min(high, first.ordinal + logs.source_start - first.upstream))
    while low < high:
        middle = (low + high) // 2
        if logs.are_equal(middle):
            low = middle + 1
        else:
            high = middle
    upstream = logs.upstream_of(low)
    if logs.was_cut:
        return Divergence(upstream, logs.k + low, was_rewritten=True)
    before, now = logs.source_before(upstream), logs.source_at(upstream)
    rewritten = before is not None and now is not None and before[1] < now[1]
    return Divergence(upstream, logs.k + low, rewritten)


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
        f"{source}: the source's log was cut at {first} and rewritten: upstream records "
        f"[{first}, {following}) were copied, and it can no longer be seen whether the source has "
        "others there now; the target still holds the copied ones",
        code="SOURCE_DIVERGED",
    )
    error.lost = lost
    return error


def diverged_error(
    divergence: Divergence,
    *,
    source: TopicPartition,
    target: TopicPartition,
    upstream: int,
    downstream: int,
) -> PartitionError:
    """Return the error for this difference. `upstream` and `downstream`: source and target offset
    at which the copy would resume without the difference.
    """
    held = f"target offsets [{divergence.downstream}, {downstream})"
    copied = f"upstream records [{divergence.upstream}, {upstream})"
    if divergence.was_rewritten:
        return source_diverged_error(
            f"{source}: the source's log was cut at {divergence.upstream} and rewritten: "
            f"{copied} were copied, the source now has other records there; {target} still holds "
            f"the old ones at {held}",
            target,
            findings.Span(divergence.downstream, downstream),
            lost=(divergence.upstream, upstream),
        )
    return findings.LogFinding(
        code="DIVERGED",
        what=(
            f"{target}: {held} do not hold {copied} of {source}, as the offset map requires, and "
            "no other position nearby matches"
        ),
        target=target,
        span=findings.Span(divergence.downstream, downstream),
    ).error()
