"""Starts behind records of somebody else that were accepted, in a topic that is else ours alone.

    downstream   70 71 72  [73 74]  75 76        73 and 74 were written by somebody else
    ordinal       0  1  2            3  4        K is 70 before them, 72 behind
    runs         (0, 100, 70)       (3, 103, 75)

Why nothing is lost, doubled or misplaced:

1. What is accepted is exact: all ranges of the log that are not ours, up to its end, and the K
   behind them (`Accepted`). Our batches before, between and behind them must have the sequences of
   one unbroken copy: where one is missing or comes twice, nothing can be accepted.
2. A start looks at the log again. It goes by the acceptance only where the very same ranges lie
   there and nothing else that is foreign; else it is as without, and stops with its code.
3. The next ordinal is that behind our last batch, and the broker's memory of our producer id must
   agree with it. Whose batch it is decides the broker, as ever: a late request of a dead lane is
   the same batch under the same sequence, before or behind the foreign ones.
4. The upstream offset comes from the map, and the last records of ours are compared with the
   source's, as in every start: those of one stretch in which K is the same.
5. The first row of the new term is durable before anything is sent. It holds the run behind each
   range, so K is in the map from then on, and later starts need no acceptance.

If a process dies before that row, the next one finds the acceptance in the state topic and does the
same. If it dies behind it, the map says K. If the log then loses its end, the map's runs above
that are void by its own rules, and K is again what it was.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from twinlog.mirror.accepted import Accepted
from twinlog.mirror.map.runs import DOWNSTREAM, Run, following, k_at
from twinlog.mirror.ports import LogEnds
from twinlog.model import sequence_of
from twinlog.wire.record_batch import BatchHeader, read_headers

MAX_READS: Final = 64
"""Fetches of about 1 MB from the first foreign record on: what is behind more is not accepted."""


@dataclass(frozen=True, slots=True)
class TailStretch:
    """The end of a log, as far back as K is the same."""

    k: int
    low: int
    """Target offset of its first record, or one below all that is ours."""


def last_stretch(runs: Sequence[Run], log_end: int) -> TailStretch:
    """By the map; where nothing was ever accepted, it is all of the log."""
    at, k = max(0, following(runs, log_end, DOWNSTREAM) - 1), k_at(runs, log_end)
    if _k_of(runs[0]) == k:
        return TailStretch(k, 0)
    while _k_of(runs[at - 1]) == k:
        at -= 1
    return TailStretch(k, runs[at].downstream)


def _k_of(run: Run) -> int:
    return run.downstream - run.ordinal


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignWalk:
    """What the log holds from its first foreign record on."""

    ranges: tuple[tuple[int, int], ...]
    foreign: tuple[BatchHeader, ...]
    """The batches in them."""
    jumps: tuple[tuple[int, int], ...]
    """(ordinal, target offset) of the first record of ours behind each range that has one."""
    next_ordinal: int
    end: int

    @property
    def accepted(self) -> Accepted:
        batches = [[one.base_offset, one.producer_id, one.crc] for one in self.foreign]
        return Accepted(
            ranges=self.ranges,
            k=self.end - self.next_ordinal,
            digest=zlib.crc32(json.dumps(batches).encode()),
        )

    def stretch_end(self, there: LogEnds, low: int) -> LogEnds:
        """The log as far as our last records follow one another."""
        begin = max(there.log_start, self.jumps[-1][1] if self.jumps else low)
        first, behind = self.ranges[-1]
        return replace(
            there, log_start=begin, log_end=first if behind == self.end else there.log_end
        )


def walk(
    read: Callable[[int], memoryview], first: int, end: int, *, k: int, producers: frozenset[int]
) -> ForeignWalk | None:
    """[first, end) of a target log, where `first` begins a foreign batch and K was `k` before it.
    None: a record of ours is missing or comes twice, or there is too much to look at.
    """
    ranges: list[tuple[int, int]] = []
    jumps: list[tuple[int, int]] = []
    foreign: list[BatchHeader] = []
    ordinal, reached = first - k, first
    """Everything below `reached` is judged."""
    for header in _batches(read, first, end):
        if header is None:
            return None
        is_ours = header.magic >= 2 and not header.is_control and header.producer_id in producers
        if not is_ours:
            foreign.append(header)
            continue
        if header.base_sequence != sequence_of(ordinal) or header.base_offset <= first:
            return None
        if header.base_offset > reached:
            ranges.append((reached, header.base_offset))
            jumps.append((ordinal, header.base_offset))
        ordinal += header.next_offset - header.base_offset
        reached = header.next_offset
    if reached < end:
        ranges.append((reached, end))
    if not ranges:
        return None
    return ForeignWalk(
        ranges=tuple(ranges),
        foreign=tuple(foreign),
        jumps=tuple(jumps),
        next_ordinal=ordinal,
        end=end,
    )


def _batches(
    read: Callable[[int], memoryview], first: int, end: int
) -> Iterator[BatchHeader | None]:
    """None where the bound came before the end."""
    position = first
    for _ in range(MAX_READS):
        if position >= end:
            return
        before = position
        for header, _at in read_headers(read(position)):
            if header.base_offset >= end:
                return
            if header.next_offset > position:
                position = header.next_offset
                yield header
        if position == before:
            return  # cleaned: nothing lies there
    if position < end:
        yield None


def pending(accepted: Sequence[Accepted], stretch: TailStretch, end: int) -> list[Accepted]:
    """What is accepted and may not be in the map yet, the last in the log first. Of a log that lost
    its end some may be history: only a look at it tells.
    """
    found = [one for one in accepted if one.k > stretch.k and one.ranges[-1][1] <= end]
    return sorted(found, key=lambda one: one.first, reverse=True)
