"""What the offset map has wrong near its end, and the runs that put it right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from twinlog.mirror.map.offset_map import Run, run_at
from twinlog.mirror.start.tail_check import TargetTail, same_record
from twinlog.wire.records import Record


class ResumePoint(NamedTuple):
    """Where a tail check says that the copy resumes."""

    upstream: int
    leader_epoch: int
    """Source leader epoch of the offset before it, -1 when unknown."""
    corrected: tuple[Run, ...] = ()
    """Runs before it that replace what the map says."""
    compared: int = 0
    """How many of the last records are the same on both sides."""


def next_upstream(runs: Sequence[Run], ordinal: int, log_start: int) -> int:
    """Where the source is read on when records below `ordinal` are on the target.

    Right behind the last of them, also where the map announced what follows: what lies between was
    skipped, and is skipped again, but only what is read can be checked by its leader epoch. Where
    the source has that place no more, it is what was announced.
    """
    run, before = run_at(runs, ordinal), run_at(runs, ordinal - 1)
    assert run is not None  # noqa: S101 (the caller has looked)
    announced = run.upstream_of(ordinal)
    if before is None:
        return announced
    behind = before.upstream_of(ordinal - 1) + 1
    return behind if behind >= log_start else announced


def without_newest(
    runs: Sequence[Run], fingerprints: Mapping[int, int], count: int
) -> tuple[Sequence[Run], dict[int, int]]:
    """The first `count` runs, and the fingerprints of records that they announce."""
    dropped = runs[count].ordinal
    return runs[:count], {at: crc for at, crc in fingerprints.items() if at < dropped}


def continued(runs: Sequence[Run], ordinal: int) -> Run:
    """The last run that begins at or before `ordinal`, as a run that begins there."""
    run = run_at(runs, ordinal)
    assert run is not None  # noqa: S101 (the first run begins the partition)
    return Run(ordinal, run.upstream_of(ordinal), run.downstream_of(ordinal))


def found_by_content(
    tail: TargetTail, source: Mapping[int, tuple[Record, int]], newest: int, k: int
) -> tuple[Run, ...]:
    """Runs of the target's last records, the last of which is upstream record `newest`."""
    found = [record for record in tail.records if record.offset >= tail.whole_from]
    upstream = [offset for offset in sorted(source) if offset <= newest][-len(found) :]
    return runs_of([*zip(found[-len(upstream) :], upstream, strict=True)], k)


def found_in_order(
    records: Sequence[Record],
    source: Mapping[int, tuple[Record, int]],
    after: int,
    *,
    compare_timestamp: bool,
) -> list[tuple[Record, int]] | None:
    """The target's last records with their upstream offsets, of which the one before them has
    `after`; None: they do not follow from there.

    A lane copies each record in its order. So each that the source has behind `after` is one of
    these, up to the last; those that the source has no more are passed over. Nothing is left out.
    """
    pairs: list[tuple[Record, int]] = []
    left = iter(records)
    for offset in sorted(at for at in source if at > after):
        known = source[offset][0]
        same = (r for r in left if same_record(known, r, compare_timestamp=compare_timestamp))
        if (record := next(same, None)) is None:
            return None
        pairs.append((record, offset))
        if record is records[-1]:
            return pairs
    return None


def runs_of(pairs: Sequence[tuple[Record, int]], k: int) -> tuple[Run, ...]:
    """Runs of target records and their upstream offsets."""
    runs: list[Run] = []
    for record, offset in pairs:
        run = Run(record.offset - k, offset, record.offset)
        if not runs or not run.continues(runs[-1]):
            runs.append(run)
    return tuple(runs)
