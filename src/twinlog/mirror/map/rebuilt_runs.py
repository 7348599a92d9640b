"""Follows a copy through both logs, record by record, to find the source record of every target
record.

    source   100 101 102  .  104 105  .   .  108       what a reader sees; dots: markers, aborted
    ordinal    0   1   2      3   4          5         every record that a reader sees, in order

    source   100  -  102  .   -  105  .   .  108       after cleaning: 101 and 104 may have been
    target     a   b   c      d   e          f         records, and b and d are these

Rules:

A. Every source record between the first and the last copied one was copied: it is the record of its
   ordinal, or the target has no record at that ordinal any more. So if the source lacks nothing,
   each record determines the next one's ordinal.
B. A target record without a source record was cleaned at the source. Between two source records
   there are at most as many of these as offsets without a record that compaction may have emptied.
   Offsets of markers and of aborted records were never copied.
C. If several positions are possible, all are followed. A source record that is found by content
   within reach is not assumed to be at a cleaned ordinal: a cleaner removes the earlier of two
   records with the same key, so of two equal records the later one stays, on both sides.
D. The continuation after a pair of equal records does not depend on how the pair was reached: two
   paths that meet end alike.
E. Target records whose source records are gone get the highest offsets that they can have had. A
   translation across them goes to an earlier record than the true one, never to a later one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from twinlog.errors import PartitionError
from twinlog.mirror.map.offset_map import Run
from twinlog.mirror.map.target_window import ABSENT, TargetWindow

MAX_CANDIDATES: Final = 1_000
"""Maximum number of paths that are followed at the same time."""
FROM_BEGINNING: Final = -1
"""The ordinal before the first one: nothing was compared yet."""

FORGOTTEN_AT_ONCE: Final = 1 << 12

Pair = tuple[int, int]
"""(upstream offset, ordinal) of one record."""


class Slot(NamedTuple):
    """A source record, in order. The last slot is no record: its `number` is ABSENT."""

    holes: int
    """Number of offsets since the previous slot that compaction may have emptied."""
    offset: int
    number: int


@dataclass(slots=True, kw_only=True)
class RunList:
    """Runs of one partition, in 16 bytes each."""

    k: int
    ordinals: array[int] = field(default_factory=lambda: array("q"))
    upstreams: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.ordinals)

    def __getitem__(self, index: int) -> Run:
        ordinal = self.ordinals[index]
        return Run(ordinal, self.upstreams[index], self.k + ordinal)

    def add(self, ordinal: int, upstream: int) -> None:
        """Add a run unless it continues the last one."""
        known = self.ordinals
        if not known or upstream - self.upstreams[-1] != ordinal - known[-1]:
            self.ordinals.append(ordinal)
            self.upstreams.append(upstream)


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """The result of one path through both logs."""

    runs: RunList
    ends: tuple[int, ...]
    """Upstream offsets at which the copy may resume. A single one is certain."""
    equal: int
    """Number of records that both logs still have. If it is 0, the path proves nothing."""
    differs: Pair | None
    """The furthest position at which nothing matched."""


_Chain = tuple["_Chain | None", int, int]


class _At(NamedTuple):
    """A pair of equal records, and what followed it."""

    ordinal: int
    upstream: int
    floating: int = 0
    """Number of source records after it whose target records were cleaned, at unknown ordinals."""
    holes: int = 0
    chain: _Chain | None = None


class Follower:
    """Follows one path, or several that cannot be distinguished yet."""

    def __init__(self, window: TargetWindow, k: int, met: set[Pair]) -> None:
        self._window = window
        self._runs = RunList(k=k)
        self._met = met
        """Start pairs of other paths. Pairs that this path meets are removed."""
        self._ends: dict[int, _Chain | None] = {}
        self._equal = 0
        self._differs: Pair | None = None

    def follow(self, slots: Iterator[Slot], ordinal: int) -> Followed:
        """Follow the path from the first slot, which is at this ordinal.

        FROM_BEGINNING: the ordinal of the first slot is unknown.
        """
        states = [_At(FROM_BEGINNING, -1)]
        if ordinal != FROM_BEGINNING:
            first = next(slots)
            if first.number == ABSENT or self._window.at(ordinal) != first.number:
                self._note(ordinal, first.offset)
                states = []
            else:
                self._equal += 1
                states = [_At(ordinal, first.offset, 0, 0, (None, ordinal, first.offset))]
        for slot in slots:
            if len(states) == 1 and (straight := self._simple_step(states[0], slot)):
                states[0] = straight
                continue
            states = self._step(states, slot)
            if not states or len(self._ends) > 1:
                break
            if len(states) == 1 and not self._ends:
                self._settle(states[0].chain)
                states = [states[0]._replace(chain=None)]
            self._window.forget_below(min(state.ordinal for state in states))
        if len(self._ends) == 1:
            self._settle(*self._ends.values())
        return Followed(
            runs=self._runs,
            ends=tuple(sorted(self._ends)),
            equal=self._equal,
            differs=self._differs,
        )

    def _simple_step(self, state: _At, slot: Slot) -> _At | None:
        """Return the state after the next record on both sides, or None unless this is the simple
        case.

        This fast path has the same result as `_step`.
        """
        low = state.ordinal + 1
        if slot.holes or state.holes or state.chain or self._ends or not 0 < low < self._window.end:
            return None
        if slot.number == ABSENT or self._window.at(low) != slot.number:
            return None
        self._equal += 1
        self._met.discard((slot.offset, low))
        self._runs.add(low, slot.offset)
        if not low % FORGOTTEN_AT_ONCE:
            self._window.forget_below(low)
        return _At(low, slot.offset)

    def _step(self, states: list[_At], slot: Slot) -> list[_At]:
        following: dict[tuple[int, int, int], _At] = {}
        for state in states:
            holes = state.holes + slot.holes
            after = [] if slot.number == ABSENT else list(self._next(state, holes, slot))
            if not any(
                range_at.floating == 0 for range_at in after
            ):  # rule C: this record was copied
                self._search_end(state, holes, slot.offset)
            if slot.number == ABSENT:
                self._note(state.ordinal + 1, slot.offset)
            for range_at in after:
                following.setdefault(
                    (range_at.ordinal, range_at.upstream, range_at.floating), range_at
                )
                if not range_at.floating:
                    self._met.discard((range_at.upstream, range_at.ordinal))
        if len(following) > MAX_CANDIDATES:
            raise PartitionError(
                f"more than {MAX_CANDIDATES} positions match before source offset {slot.offset}",
                code="REBUILD_AMBIGUOUS",
            )
        return list(following.values())

    def _search_end(self, state: _At, holes: int, upstream: int) -> None:
        """Note the position if all remaining target records may be before this source offset."""
        left = self._window.end - 1 - state.ordinal
        if state.ordinal == FROM_BEGINNING or not state.floating <= left <= state.floating + holes:
            return
        if self._window.absent(state.ordinal + 1, self._window.end - 1) < state.floating:
            return
        chain = state.chain
        if left:
            chain = (chain, state.ordinal + 1, upstream - left)
        self._ends.setdefault(upstream, chain)

    def _next(self, state: _At, holes: int, slot: Slot) -> Iterator[_At]:
        low = state.ordinal + 1 + state.floating
        high = min(low + holes, self._window.end - 1)
        if high < low:
            return
        if not holes:
            seen = self._window.at(low)
            if seen in (ABSENT, slot.number):
                self._equal += seen != ABSENT
                yield self._pair(state, low, slot.offset)
            else:
                self._note(low, slot.offset)
            return
        matches = [
            ordinal
            for ordinal in self._window.offsets_of(slot.number, low, high)
            if self._window.absent(state.ordinal + 1, ordinal - 1) >= state.floating
        ]
        self._equal += bool(matches)
        for ordinal in matches:
            yield self._pair(state, ordinal, slot.offset)
        if matches:
            return
        if self._window.absent(state.ordinal + 1, high) > state.floating:
            yield state._replace(floating=state.floating + 1, holes=holes)
        else:
            self._note(low, slot.offset)

    def _pair(self, state: _At, ordinal: int, upstream: int) -> _At:
        between = ordinal - state.ordinal - 1
        if state.ordinal == FROM_BEGINNING or not between:
            chain = (state.chain, ordinal, upstream)
        else:
            # rule E: the run continues up to this pair
            chain = (state.chain, state.ordinal + 1, upstream - between)
        return _At(ordinal, upstream, 0, 0, chain)

    def _note(self, ordinal: int, upstream: int) -> None:
        if self._differs is None or ordinal > self._differs[1]:
            self._differs = (upstream, ordinal)

    def _settle(self, chain: _Chain | None) -> None:
        runs = []
        while chain is not None:
            runs.append(chain[1:])
            chain = chain[0]
        for ordinal, upstream in reversed(runs):
            self._runs.add(ordinal, upstream)
