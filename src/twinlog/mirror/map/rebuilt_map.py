"""Rebuilds the offset map of a partition: follows its copy through both logs, and writes the rows.

**The source record of every target record**

Both logs are followed record by record. The ordinal of a target record is the number of records
that the flow wrote before it (`mirror.start_point`).

    source   100 101 102  .  104 105  .   .  108       what a reader sees; dots: markers, aborted
    ordinal    0   1   2      3   4          5         every record that a reader sees, in order

    source   100  -  102  .   -  105  .   .  108       after cleaning: 101 and 104 may have been
    target     a   b   c      d   e          f         records, and b and d are these

Rules:

A. Every source record between the first and the last copied one was copied. The target has it at
   its ordinal, or has no record at that ordinal any more. So if the source lacks no record, each
   record determines the ordinal of the next one.
B. If a target record has no source record, the source's cleaner has removed the source record.
   Between two source records, the number of such target records is at most the number of offsets
   that compaction may have emptied. Markers and aborted records do not count, because they were
   never copied.
C. If several positions are possible, all are followed. If an equal target record is within reach,
   the source record is not assumed to be at a cleaned ordinal. The reason is that a cleaner removes
   the earlier of two records with the same key. So of two equal records, the later one remains in
   both logs.
D. The continuation after a pair of equal records does not depend on how the pair was reached, so
   two paths that meet have the same end.
E. Target records whose source records are gone get the highest upstream offsets that are possible.
   An offset among them is translated to an earlier record than the true one, never to a later one.

A rebuild compares a whole log, so only the part between the last compared records and the furthest
possible match is in memory (`TargetWindow`), with nine bytes per target ordinal. If the target's
cleaner or retention removed the record of an ordinal, the ordinal is marked as absent.

**The rows**

Several rows cannot be written atomically: if the process dies between two rows, the first ones
remain. So a mirror must be able to start from the map after each row. For this, every row but the
last ends with the newest runs of the log. Before these comes a bridge: one run that stands for all
runs that no row contains yet.

    row 0    runs 0..299                  bridge              the last 99 runs     "open": 1
    row 1         runs 300..599              bridge           the last 99 runs     "open": 1
    row n                                           all remaining runs

- After each row, the position after the last record is right, and so are K and the last 99 or more
  records, which the tail check compares. Records under the bridge get the highest possible offsets
  (rule E), so a translation of them skips nothing.
- `"open": 1` means that runs are still missing. If the last row of a partition is open, the command
  rebuilds the partition again in a newer term, whose first row voids the older rows. The last row
  of a complete map has `"open": 0`. Readers of the map ignore the field.
- A repeated row (its response was lost) has the same content. If it arrives after a later chunk, or
  in a later generation, it is void (`offset_map`, rules B and C).
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from twinlog.errors import PartitionError
from twinlog.mirror.map.map_tail import RUNS_PER_CHUNK
from twinlog.mirror.map.offset_map import ChunkRow, PartitionKey, Run, Term

ABSENT: Final = 0
"""The number that stands for an ordinal whose record is gone, where others have the number of their
content (`number_of`).
"""
MAX_HELD: Final = 1 << 22
"""Maximum number of target ordinals in memory (`TargetWindow`). So many take 38 MB."""

_BYTES: Final = 8
_MASK: Final = (1 << 64) - 1


class NumberedRecord(NamedTuple):
    """A record of the target, reduced to its ordinal (number of records that the flow wrote before)
    and a number for its content.
    """

    ordinal: int
    number: int
    """The number for the record's content, from `number_of`."""


def number_of(identity: int) -> int:
    """Return the low 64 bits of `identity`, a hash of a record's content. Return 1 instead of 0,
    because 0 is ABSENT.
    """
    return (identity & _MASK) or 1


class TargetWindow:
    """The content numbers of the target's records by ordinal, from the lowest ordinal that is still
    needed to the log's end.
    """

    def __init__(self, records: Iterator[NumberedRecord], first: int, end: int) -> None:
        self.end = end
        """The ordinal after the log's last record."""
        self._records = records
        self._first = first
        self._numbers = bytearray()
        self._present = bytearray()
        self._waiting: NumberedRecord | None = None

    def number_at(self, ordinal: int) -> int:
        """Return the content number of the record at this ordinal, or ABSENT if the record is
        gone.
        """
        self._fill(ordinal + 1)
        at = (ordinal - self._first) * _BYTES
        return int.from_bytes(self._numbers[at : at + _BYTES], "little")

    def ordinals_of(self, number: int, low: int, high: int) -> list[int]:
        """Return the ordinals in [low, high] whose record has this content number."""
        self._fill(high + 1)
        pattern = number.to_bytes(_BYTES, "little")
        begin = (low - self._first) * _BYTES
        end = (high + 1 - self._first) * _BYTES
        out = []
        at = self._numbers.find(pattern, begin, end)
        while at >= 0:
            if at % _BYTES == 0:
                out.append(self._first + at // _BYTES)
            at = self._numbers.find(pattern, at + 1, end)
        return out

    def absent(self, low: int, high: int) -> int:
        """Return how many ordinals in [low, high] have no record any more."""
        if high < low:
            return 0
        self._fill(high + 1)
        return self._present.count(0, low - self._first, high + 1 - self._first)

    def forget_below(self, ordinal: int) -> None:
        """Drop the records below this ordinal, which are never needed again."""
        count = min(ordinal - self._first, len(self._present))
        if count > 0:
            del self._numbers[: count * _BYTES], self._present[:count]
            self._first += count

    def _fill(self, end: int) -> None:
        if end - self._first > MAX_HELD:
            raise PartitionError(
                f"compaction left a hole of more than {MAX_HELD} offsets, so it is unknown which "
                "records were in the hole",
                code="REBUILD_AMBIGUOUS",
            )
        while self._first + len(self._present) < end:
            next_ordinal = self._first + len(self._present)
            record = self._waiting or next(self._records, None)
            self._waiting = None
            if record is None or record.ordinal >= end:
                self._waiting = record
                count = end - next_ordinal
                self._numbers += bytes(count * _BYTES)
                self._present += bytes(count)
            elif record.ordinal >= next_ordinal:
                gap = record.ordinal - next_ordinal
                self._numbers += bytes(gap * _BYTES) + record.number.to_bytes(_BYTES, "little")
                self._present += bytes(gap) + b"\x01"


MAX_CANDIDATES: Final = 1_000
"""Maximum number of possible positions that a `Follower` follows at the same time."""
FROM_BEGINNING: Final = -1
"""Stands for the first ordinal of a path if it is unknown. It is the ordinal before the first
one.
"""

FORGOTTEN_AT_ONCE: Final = 1 << 12

Pair = tuple[int, int]
"""(upstream offset, ordinal) of one record."""


class Slot(NamedTuple):
    """A source record by offset and content number. The last slot is the log's end instead: its
    `number` is ABSENT.
    """

    holes: int
    """Number of source offsets between the previous slot and this one that have no record now. The
    log cleaner may have removed their records after they were copied.
    """
    offset: int
    number: int


@dataclass(slots=True, kw_only=True)
class RunList:
    """Runs of one partition's map, in 16 bytes each, for a log in which K (target offset minus
    ordinal) is `k`.
    """

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
class FollowedPath:
    """The result of following one path, that is, one way to pair the records of both logs."""

    runs: RunList
    ends: tuple[int, ...]
    """Possible upstream offsets at which the copy resumes. If there is only one, it is certain."""
    equal: int
    """Number of records found equal in both logs. If it is 0, the path proves nothing."""
    differs: Pair | None
    """The pair with the highest ordinal at which no record matched, or None if there is no such
    pair.
    """


_Chain = tuple["_Chain | None", int, int]


class _EqualPair(NamedTuple):
    """A pair of equal records in both logs, and the state of the search after this pair."""

    ordinal: int
    upstream: int
    floating: int = 0
    """Number of source records after the pair whose copies the target's cleaner has removed, at
    unknown ordinals.
    """
    holes: int = 0
    chain: _Chain | None = None


class Follower:
    """Follows one path through both logs. A path is a way to pair their records. Paths that cannot
    be distinguished yet are followed together.
    """

    def __init__(self, window: TargetWindow, k: int, met: set[Pair]) -> None:
        self._window = window
        self._runs = RunList(k=k)
        self._met = met
        """The first pairs of other paths. If this path has one of them, too, it is removed, because
        both paths continue equally (rule D).
        """
        self._ends: dict[int, _Chain | None] = {}
        self._equal = 0
        self._differs: Pair | None = None

    def follow(self, slots: Iterator[Slot], ordinal: int) -> FollowedPath:
        """Follow the path to its end.

        `slots`: the source's records and log end. `ordinal`: that of the first slot's record, or
        FROM_BEGINNING if it is unknown.
        """
        states = [_EqualPair(FROM_BEGINNING, -1)]
        if ordinal != FROM_BEGINNING:
            first = next(slots)
            if first.number == ABSENT or self._window.number_at(ordinal) != first.number:
                self._note(ordinal, first.offset)
                states = []
            else:
                self._equal += 1
                states = [_EqualPair(ordinal, first.offset, 0, 0, (None, ordinal, first.offset))]
        for slot in slots:
            if len(states) == 1 and (straight := self._simple_step(states[0], slot)):
                states[0] = straight
                continue
            states = self._step(states, slot)
            if not states or len(self._ends) > 1:
                break
            if len(states) == 1 and not self._ends:
                self._add_runs(states[0].chain)
                states = [states[0]._replace(chain=None)]
            self._window.forget_below(min(state.ordinal for state in states))
        if len(self._ends) == 1:
            self._add_runs(*self._ends.values())
        return FollowedPath(
            runs=self._runs,
            ends=tuple(sorted(self._ends)),
            equal=self._equal,
            differs=self._differs,
        )

    def _simple_step(self, state: _EqualPair, slot: Slot) -> _EqualPair | None:
        """Return the state after `slot` if its record equals the next target record and no hole is
        before it, else None.

        This is a fast path for the usual case. `_step` would return the same state.
        """
        low = state.ordinal + 1
        if slot.holes or state.holes or state.chain or self._ends or not 0 < low < self._window.end:
            return None
        if slot.number == ABSENT or self._window.number_at(low) != slot.number:
            return None
        self._equal += 1
        self._met.discard((slot.offset, low))
        self._runs.add(low, slot.offset)
        if not low % FORGOTTEN_AT_ONCE:
            self._window.forget_below(low)
        return _EqualPair(low, slot.offset)

    def _step(self, states: list[_EqualPair], slot: Slot) -> list[_EqualPair]:
        following: dict[tuple[int, int, int], _EqualPair] = {}
        for state in states:
            holes = state.holes + slot.holes
            after = [] if slot.number == ABSENT else list(self._next(state, holes, slot))
            # rule C: a record that was found was copied, so the copy does not end before it
            if not any(range_at.floating == 0 for range_at in after):
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
                f"the source records before offset {slot.offset} match more than {MAX_CANDIDATES} "
                "positions of the copy",
                code="REBUILD_AMBIGUOUS",
            )
        return list(following.values())

    def _search_end(self, state: _EqualPair, holes: int, upstream: int) -> None:
        """Add source offset `upstream` to the possible ends of the copy if all remaining target
        records may be copies of records before it.
        """
        left = self._window.end - 1 - state.ordinal
        if state.ordinal == FROM_BEGINNING or not state.floating <= left <= state.floating + holes:
            return
        if self._window.absent(state.ordinal + 1, self._window.end - 1) < state.floating:
            return
        chain = state.chain
        if left:
            chain = (chain, state.ordinal + 1, upstream - left)
        self._ends.setdefault(upstream, chain)

    def _next(self, state: _EqualPair, holes: int, slot: Slot) -> Iterator[_EqualPair]:
        low = state.ordinal + 1 + state.floating
        high = min(low + holes, self._window.end - 1)
        if high < low:
            return
        if not holes:
            seen = self._window.number_at(low)
            if seen in (ABSENT, slot.number):
                self._equal += seen != ABSENT
                yield self._pair(state, low, slot.offset)
            else:
                self._note(low, slot.offset)
            return
        matches = [
            ordinal
            for ordinal in self._window.ordinals_of(slot.number, low, high)
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

    def _pair(self, state: _EqualPair, ordinal: int, upstream: int) -> _EqualPair:
        between = ordinal - state.ordinal - 1
        if state.ordinal == FROM_BEGINNING or not between:
            chain = (state.chain, ordinal, upstream)
        else:
            # rule E: the records between the two pairs get the offsets right before this pair
            chain = (state.chain, state.ordinal + 1, upstream - between)
        return _EqualPair(ordinal, upstream, 0, 0, chain)

    def _note(self, ordinal: int, upstream: int) -> None:
        if self._differs is None or ordinal > self._differs[1]:
            self._differs = (upstream, ordinal)

    def _add_runs(self, chain: _Chain | None) -> None:
        runs = []
        while chain is not None:
            runs.append(chain[1:])
            chain = chain[0]
        for ordinal, upstream in reversed(runs):
            self._runs.add(ordinal, upstream)


NEWEST_RUNS: Final = 99
"""Number of the log's newest runs with which every row but the last ends. Each run has at least one
record, so the tail check can compare 99 records after each row.
"""
RUNS_PER_ROW: Final = RUNS_PER_CHUNK - NEWEST_RUNS - 1
OPEN: Final = "open"


def rows(
    runs: RunList, *, key: PartitionKey, topic: str, term: Term, producers: Iterable[int]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) of each row of the map topic, in the order in which the rows must be
    written. `producers`: all producer IDs under which the flow wrote to the partition.
    """
    producer_ids = sorted(producers)
    begin = chunk = 0
    while begin < len(runs) or chunk < len(producer_ids):
        is_last_part = len(runs) - begin <= RUNS_PER_CHUNK
        portion = list(_part_of_runs(runs, begin))
        row = ChunkRow(
            key=key,
            term=term,
            chunk=chunk,
            topic=topic,
            runs=tuple(portion),
            # a row has only one producer ID, so several IDs need several rows
            producer_id=producer_ids[min(chunk, len(producer_ids) - 1)] if producer_ids else -1,
        )
        chunk += 1
        is_last = is_last_part and chunk >= len(producer_ids)
        yield _marked(*row.encode(), is_open=not is_last)
        if is_last:
            return
        begin += 0 if is_last_part else RUNS_PER_ROW


def _part_of_runs(runs: RunList, begin: int) -> Iterator[Run]:
    if len(runs) - begin <= RUNS_PER_CHUNK:
        yield from (runs[index] for index in range(begin, len(runs)))
        return
    yield from (runs[index] for index in range(begin, begin + RUNS_PER_ROW))
    bridged, newest = runs[begin + RUNS_PER_ROW], runs[len(runs) - NEWEST_RUNS]
    upstream = newest.upstream - (newest.ordinal - bridged.ordinal)
    yield bridged._replace(upstream=upstream)  # the bridge is contiguous with the newest runs
    yield from (runs[index] for index in range(len(runs) - NEWEST_RUNS + 1, len(runs)))


def _marked(key: bytes, value: bytes, *, is_open: bool) -> tuple[bytes, bytes]:
    fields = {**json.loads(value), OPEN: int(is_open)}
    return key, json.dumps(fields, separators=(",", ":")).encode()


class DescribedMaps:
    """Finds out which partitions have a complete map. It does not store their runs. Rows must be
    added in the order of the map topic.
    """

    def __init__(self) -> None:
        self._begins: dict[PartitionKey, int] = {}
        self._adopted: set[PartitionKey] = set()
        self._rebuilt: dict[PartitionKey, tuple[Term, bool]] = {}

    def add(self, key: bytes, value: bytes) -> None:
        row = ChunkRow.decode(key, value)
        if not row.runs:
            return
        begin = row.runs[0].downstream
        self._begins[row.key] = min(begin, self._begins.get(row.key, begin))
        if row.before is not None:
            self._adopted.add(row.key)
        is_open = json.loads(value).get(OPEN)
        term, _ = self._rebuilt.get(row.key, (row.term, False))
        if is_open is not None and row.term >= term:
            self._rebuilt[row.key] = row.term, bool(is_open)

    def is_complete(self, key: PartitionKey, log_start: int) -> bool:
        """Return True if a rebuild of the partition's map was completed, or if its runs reach back
        to the target's log start.

        A copy begins in an empty log. So if records exist before the first run, and MirrorMaker 2
        did not write them, rows were lost, and a surviving lane wrote only its newest chunk again.
        """
        if key in self._rebuilt:
            return not self._rebuilt[key][1]
        return key in self._begins and (key in self._adopted or self._begins[key] <= log_start)
