"""What the offset map has wrong near its end, and the runs that put it right.

Where it lost its newest rows, it has more wrong than the last records show (`LostRuns`).

An unclean election of the map's topic takes them. The tail check finds the last 100 records, and
what they are; where the map has the oldest of them wrong, it lacks runs before it:

    ordinal    0 ... 49 | 50 .......... 299 | 300 ... 399
               the map  |  it lacks runs    |  the tail, found by content

1. The newest run that is left announced its own first record, and is believed for that.
2. From the tail backwards each record that the source has must be the target's next one, or one
   as many places before it as the source has offsets between; so each pair that is found is found
   from one that is known. As soon as the map agrees, all is known: offsets rise
   on both sides, and the map has no gap before it.
3. Where it cannot be followed, all between it and (1) gets the highest offsets that it can have had
   (rule E of `mirror.map.rebuilt_runs`): a group is set to an earlier record than the true one,
   never a later. If the source has records there, the start says so (`StartPoint.undecided`).

Reads, only where the map has the oldest of the tail wrong: for each 10,000 records 20 fetches of
about 1 MB of each log at most, and as many behind for markers; 32 times.

What may come in between:

- The process dies before the rows are written: the map is as it was, and the next start does the
  same. Rows of more than a chunk are written in order; if only the first are there, the last
  records still differ from the map, so the next start resumes where those end.
- The answer to a row is lost: the lane writes all again under higher chunks (`map_tail`); the late
  row says the same.
- A lane thought dead writes late rows of an older term: these runs are of a newer one, and begin
  before all that such a lane has announced behind the rows that were lost, so they void it. If it
  starts as well, it is refused its generation, or its term is the older one.
- The source has deleted or compacted records: target records between two pairs are passed over, as
  far as the source has offsets for them, and get the highest they can have had; what lies before
  the source's first record as well. None of them has a record at the source that could be skipped.
- The target has deleted records: only what it holds is compared. What its cleaner has removed
  between two others ends the walk (3): which one of the source's records it was is not decided.
- Foreign records: in a topic of ours alone the start has stopped at them before, or they were
  accepted, and nothing before them is compared. In shared topics one record is compared, and
  nothing is found again.
- What was rolled back is left out where its marker lies within 2,000 offsets behind the tail; an
  older open transaction's records are not on the target and end the walk (3).
- A batch is damaged: it ends the walk (3), and keeps nothing from being copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from twinlog.errors import CorruptData
from twinlog.mirror.map.offset_map import Run, run_at
from twinlog.mirror.start.both_logs import BothLogs
from twinlog.mirror.start.divergence import Known
from twinlog.mirror.start.tail_check import TargetTail, same_record
from twinlog.wire.records import Record

PORTION: Final = 10_000
"""Records that are followed at a time, of both logs in memory."""
MOST_PORTIONS: Final = 32

Pair = tuple[int, int]
"""(ordinal, upstream offset) of one record."""


class ResumePoint(NamedTuple):
    """Where a tail check says that the copy resumes."""

    upstream: int
    leader_epoch: int
    """Source leader epoch of the offset before it, -1 when unknown."""
    corrected: tuple[Run, ...] = ()
    """Runs before it that replace what the map says."""
    compared: int = 0
    """How many of the last records are the same on both sides."""
    undecided: tuple[int, int] | None = None
    """Target offsets [first, next) before it of which it is not known which records they are."""


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


class Refound(NamedTuple):
    """What takes the place of the map's runs."""

    runs: tuple[Run, ...]
    undecided: tuple[int, int] | None = None
    """Target offsets [first, next) of which no record could be found."""


class LostRuns:
    """Finds runs before the last records, in a topic that is ours alone; K is the same in all that
    is compared.
    """

    def __init__(self, logs: BothLogs, k: int, *, compare_timestamp: bool) -> None:
        self._logs = logs
        self._runs = logs.request.runs
        self._k = k
        self._own_time = compare_timestamp

    def before(self, found: tuple[Run, ...]) -> Refound:
        """With runs in front of these, which are the target's last records, where the map lacks
        any.
        """
        begin, upstream = found[0].ordinal, found[0].upstream
        if begin <= self._runs[0].ordinal or self._said(begin) == upstream:
            return Refound(found)
        last = run_at(self._runs, begin - 1) or self._runs[0]
        low = max(last.ordinal + 1, self._logs.there.log_start - self._k)
        if low >= begin:
            return Refound(found)
        behind = self._said(low - 1) + 1
        pairs = self._followed_back(low, behind, (begin, upstream))
        oldest, its = pairs[-1]
        if self._said(oldest) == its:
            low, behind = oldest, its  # what the map has before it is right
        runs = self._runs_of(low, pairs[::-1])
        gaps = (its - behind) - (oldest - low)
        if gaps < 0:
            return Refound(found, (self._k + low, self._k + begin))  # repeated records: none fits
        if oldest > low and gaps and self._has_before(its):
            return Refound((*runs, *found[1:]), (self._k + low, self._k + oldest))
        return Refound((*runs, *found[1:]))

    def _has_before(self, upstream: int) -> bool:
        try:
            return self._logs.source_before(upstream) is not None
        except CorruptData:
            return True

    def _said(self, ordinal: int) -> int:
        run = run_at(self._runs, ordinal)
        return -1 if run is None else run.upstream_of(ordinal)

    def _followed_back(self, low: int, behind: int, known: Pair) -> list[Pair]:
        """Pairs, falling, from a known one to `low` or as far as can be; `behind` is the lowest
        upstream offset that `low` can have.
        """
        pairs = [known]
        for _ in range(MOST_PORTIONS):
            ordinal, upstream = pairs[-1]
            gaps = (upstream - behind) - (ordinal - low)
            if ordinal <= low or gaps <= 0 or self._said(ordinal) == upstream:
                break
            begin = max(low, ordinal - PORTION)
            lowest = max(behind, upstream - (ordinal - begin) - gaps)
            try:
                there = self._logs.target_records(self._k + begin, self._k + ordinal)
                here = self._logs.around(upstream, lowest).records
            except CorruptData:
                break
            known = self._k + ordinal, upstream
            some = paired_back(there, here, known, compare_timestamp=self._own_time)
            if not some:
                break
            pairs += [(offset - self._k, at) for offset, at in some]
        return pairs

    def _runs_of(self, low: int, pairs: Sequence[Pair]) -> list[Run]:
        """From `low` on; what lies before a pair and has none itself follows up to it."""
        runs: list[Run] = []
        for ordinal, upstream in pairs:
            run = Run(low, upstream - (ordinal - low), self._k + low)
            if not runs or not run.continues(runs[-1]):
                runs.append(run)
            low = ordinal + 1
        return runs


def paired_back(
    there: Sequence[Record],
    here: Mapping[int, Known],
    known: tuple[int, int],
    *,
    compare_timestamp: bool,
) -> list[tuple[int, int]]:
    """(target offset, upstream offset) of records before a known pair, falling: each record of the
    source is the next one of the target, or one that lies as many places before it as there is room
    at the source. As far as that is so.
    """
    pairs: list[tuple[int, int]] = []
    offset, upstream = known
    left = len(there)
    for at in sorted((at for at in here if at < upstream), reverse=True):
        while left and there[left - 1].offset >= offset:
            left -= 1
        match = next(
            (
                index
                for index in range(left - 1, max(-1, left - 1 - (upstream - at)), -1)
                if offset - there[index].offset <= upstream - at
                and same_record(here[at][0], there[index], compare_timestamp=compare_timestamp)
            ),
            None,
        )
        if match is None:
            break
        left = match
        offset, upstream = there[match].offset, at
        pairs.append((offset, upstream))
    return pairs
