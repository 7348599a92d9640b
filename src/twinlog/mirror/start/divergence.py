"""Where two logs part: the first record of ours whose source record is another one now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twinlog.errors import PartitionError
from twinlog.mirror import findings
from twinlog.mirror.map.offset_map import Run, run_at, run_at_upstream
from twinlog.mirror.start.tail_check import same_record
from twinlog.model import TopicPartition
from twinlog.wire.records import Record

Known = tuple[Record, int]
"""A source record and its leader epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """Both logs as the search looks at them, by ordinal."""

    runs: Sequence[Run]
    k: int
    low: int
    high: int
    """An ordinal that is known to differ."""
    compare_timestamp: bool
    source_start: int
    was_cut: bool
    """The source is known to have lost records that were copied."""
    target_at: Callable[[int], Record | None]
    source_at: Callable[[int], Known | None]
    """The record at an upstream offset, None where there is none now."""
    source_before: Callable[[int], Known | None]
    """The newest one before it that is still there: compaction may have left a gap."""

    def upstream_of(self, ordinal: int) -> int:
        return (run_at(self.runs, ordinal) or self.runs[0]).upstream_of(ordinal)

    def same(self, ordinal: int) -> bool:
        """Records that one side does not have any more count as equal: nothing is known of them."""
        there, here = self.target_at(self.k + ordinal), self.source_at(self.upstream_of(ordinal))
        if there is None or here is None:
            return True
        return same_record(here[0], there, compare_timestamp=self.compare_timestamp)


class Divergence(NamedTuple):
    """The first difference, and whether the source's own log shows why."""

    upstream: int
    downstream: int
    was_rewritten: bool
    """A newer leader epoch of the source begins there: its log was cut and written again."""


def find_parting(logs: Logs) -> Divergence:
    """Binary search: what was copied before the first difference is equal."""
    low, high = logs.low, logs.high
    if logs.upstream_of(low) < logs.source_start:
        first = run_at_upstream(logs.runs, logs.source_start) or logs.runs[0]
        low = max(low, min(high, first.ordinal + logs.source_start - first.upstream))
    while low < high:
        middle = (low + high) // 2
        if logs.same(middle):
            low = middle + 1
        else:
            high = middle
    upstream = logs.upstream_of(low)
    if logs.was_cut:
        return Divergence(upstream, logs.k + low, was_rewritten=True)
    before, here = logs.source_before(upstream), logs.source_at(upstream)
    rewritten = before is not None and here is not None and before[1] < here[1]
    return Divergence(upstream, logs.k + low, rewritten)


def source_diverged(
    what: str, target: TopicPartition, span: findings.Span | None = None, *, lost: tuple[int, int]
) -> PartitionError:
    """The source lost [first, next) of what was copied; `span`: where the target has it, where that
    is known.
    """
    error = findings.LogFinding(code="SOURCE_DIVERGED", what=what, target=target, span=span).error()
    error.lost = lost
    return error


def not_disproved(lost: tuple[int, int], *, source: TopicPartition) -> PartitionError:
    """It was found that the source lost records, and now nothing is left that could say so.

    A later look may see less: what took their place was compacted or deleted. That the source's log
    was cut is history, which nothing takes back but the copied records themselves, found again at
    the source. A new target topic begins again; a new generation looks afresh.
    """
    first, following = lost
    error = PartitionError(
        f"{source}: the source's log was cut at {first} and rewritten: upstream records "
        f"[{first}, {following}) were copied, and whether the source has others there now cannot "
        "be seen any more; the target still holds what was copied",
        code="SOURCE_DIVERGED",
    )
    error.lost = lost
    return error


def diverged(
    parting: Divergence,
    *,
    source: TopicPartition,
    target: TopicPartition,
    upstream: int,
    downstream: int,
) -> PartitionError:
    """What to tell of it; `upstream` and `downstream` are where the copy would have continued."""
    held = f"target offsets [{parting.downstream}, {downstream})"
    copied = f"upstream records [{parting.upstream}, {upstream})"
    if parting.was_rewritten:
        return source_diverged(
            f"{source}: the source's log was cut at {parting.upstream} and rewritten: "
            f"{copied} were copied, the source has others there now; {target} still holds the "
            f"old ones at {held}",
            target,
            findings.Span(parting.downstream, downstream),
            lost=(parting.upstream, upstream),
        )
    return findings.LogFinding(
        code="DIVERGED",
        what=(
            f"{target}: {held} do not hold {copied} of {source}, as the offset map says, and no "
            "other place near by fits"
        ),
        target=target,
        span=findings.Span(parting.downstream, downstream),
    ).error()
