"""Runs of the offset map, as objects or packed as in rows of the map topic, and searches in them.

A partition to which an application commits ten transactions a second gets 860,000 runs a day. A run
takes 185 bytes as an object, and about 7 bytes in a row. So a map in memory has its chunks as
bytes. A search finds the right chunk by the first run of each, and unpacks only this chunk.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Final, NamedTuple, overload


class Run(NamedTuple):
    """Records whose offsets are contiguous on both sides, up to the next run. The first one has the
    ordinal `ordinal` (number of records that the flow wrote before), source offset `upstream`, and
    target offset `downstream`.
    """

    ordinal: int
    upstream: int
    downstream: int

    def upstream_of(self, ordinal: int) -> int:
        return self.upstream + ordinal - self.ordinal

    def downstream_of(self, ordinal: int) -> int:
        return self.downstream + ordinal - self.ordinal

    def continues(self, other: Run) -> bool:
        """Return True if `other`, the run before this one, would have the same offsets for this
        run's records, so that this run adds nothing.
        """
        distance = self.ordinal - other.ordinal
        return (
            self.upstream - other.upstream == distance
            and self.downstream - other.downstream == distance
        )


class MapDigest(NamedTuple):
    """Number of runs of a partition's map, and their SHA-256. Both are the same however the runs
    are divided into chunks (rows of the map topic).
    """

    runs: int
    sha256: str


def digest_of(runs: Iterable[Run]) -> MapDigest:
    """Return the digest of the runs. A run that continues the one before is left out, because only
    the division into chunks causes such runs.
    """
    digest, count = hashlib.sha256(), 0
    last: Run | None = None
    for run in runs:
        if last is not None and run.continues(last):
            continue
        last = run
        count += 1
        digest.update(b"%d %d %d\n" % run)
    return MapDigest(count, digest.hexdigest())


ORDINAL: Final = 0
UPSTREAM: Final = 1
DOWNSTREAM: Final = 2
"""Indexes of the fields of a `Run`. The values of all three fields rise from run to run."""

_FIELD: Final = tuple(itemgetter(field) for field in (ORDINAL, UPSTREAM, DOWNSTREAM))


def deltas_of(runs: Iterable[Run]) -> list[int]:
    """Return the runs as stored in a row: three numbers each, as differences to those of the run
    before.
    """
    out: list[int] = []
    last = Run(0, 0, 0)
    for run in runs:
        out += (now - before for now, before in zip(run, last, strict=True))
        last = run
    return out


def runs_of(deltas: Sequence[int]) -> list[Run]:
    """Return the runs that `deltas_of` encoded. Raises ValueError if a run lacks a number."""
    if len(deltas) % 3:
        raise ValueError(f"{len(deltas)} numbers are not a whole number of runs")
    columns = (accumulate(deltas[field::3]) for field in (ORDINAL, UPSTREAM, DOWNSTREAM))
    return list(map(Run, *columns))


class PackedChunk:
    """The runs of one chunk, as compact JSON."""

    __slots__ = ("_packed", "count", "first", "last_ordinal")

    def __init__(self, deltas: Sequence[int], packed: bytes | None = None) -> None:
        """`deltas`: runs as `deltas_of` returns them. `packed`: the same numbers as compact JSON,
        or None.
        """
        self.first = Run(*deltas[:3])
        self.count = len(deltas) // 3
        self.last_ordinal = sum(deltas[ORDINAL::3])
        self._packed = _pack(deltas) if packed is None else packed

    @classmethod
    def of(cls, runs: Iterable[Run]) -> PackedChunk:
        """Return a chunk of these runs. There must be at least one run."""
        return cls(deltas_of(runs))

    def unpacked(self) -> list[Run]:
        if self.count == 1:
            return [self.first]  # the usual case: a topic without gaps has a single run
        return runs_of(json.loads(self._packed))

    def below(self, ordinal: int) -> PackedChunk:
        """Return a chunk of the runs that begin below `ordinal`. There must be at least one such
        run.
        """
        if self.last_ordinal < ordinal:
            return self
        return PackedChunk.of(run for run in self.unpacked() if run.ordinal < ordinal)


def _pack(deltas: Sequence[int]) -> bytes:
    return json.dumps(deltas, separators=(",", ":")).encode()


class PackedRuns(Sequence[Run]):
    """All runs of a partition, in packed chunks. Immutable."""

    __slots__ = ("_chunks", "_ends", "_open")

    def __init__(self, chunks: Sequence[PackedChunk]) -> None:
        self._chunks = chunks
        self._ends: list[int] | None = None
        self._open: tuple[int, list[Run]] = (-1, [])
        """Index and runs of the last unpacked chunk, because the next search is usually in it."""

    def following(self, value: int, field: int) -> int:
        """Return the index of the first run whose `field` is above `value`."""
        chunks = self._chunks
        # One chunk is the usual case, and every offset of every group is looked up. With this
        # branch and the shortcut in __getitem__, 100,000 lookups take 0.52 s instead of 0.86 s.
        if len(chunks) == 1:
            at = int(chunks[0].first[field] <= value)
        else:
            at = bisect_right(chunks, value, key=lambda chunk: chunk.first[field])
        if not at:
            return 0
        inside = bisect_right(self._unpack_chunk(at - 1), value, key=_FIELD[field])
        return self._begin(at - 1) + inside

    def _begin(self, chunk: int) -> int:
        return self._known_ends()[chunk - 1] if chunk else 0

    def _known_ends(self) -> list[int]:
        if self._ends is None:
            self._ends = list(accumulate(chunk.count for chunk in self._chunks))
        return self._ends

    def _unpack_chunk(self, chunk: int) -> list[Run]:
        at, runs = self._open
        if at != chunk:
            runs = self._chunks[chunk].unpacked()
            self._open = (chunk, runs)
        return runs

    def __len__(self) -> int:
        if len(self._chunks) == 1:
            return self._chunks[0].count
        return self._known_ends()[-1] if self._chunks else 0

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> list[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | list[Run]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        open_chunk, runs = self._open
        if open_chunk == 0 and 0 <= index < len(runs):
            return runs[index]
        count = len(self)
        if index < 0:
            index += count
        if not 0 <= index < count:
            raise IndexError(index)
        chunk = bisect_right(self._known_ends(), index)
        return self._unpack_chunk(chunk)[index - self._begin(chunk)]

    def __iter__(self) -> Iterator[Run]:
        for chunk in self._chunks:
            yield from chunk.unpacked()

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PackedRuns({list(self)!r})"


def k_at(runs: Sequence[Run], log_end: int) -> int:
    """Return K, target offset minus ordinal, at the end of a log to which only this flow writes.

    The ordinal is the number of records that the flow wrote before. K is larger after accepted
    foreign records than before (`mirror.map.foreign_records`).
    """
    run = runs[max(0, following(runs, log_end, DOWNSTREAM) - 1)]
    return run.downstream - run.ordinal


def following(runs: Sequence[Run], value: int, field: int) -> int:
    """Return the index of the first run whose `field` (ORDINAL, UPSTREAM or DOWNSTREAM) is above
    `value`. The run before that one contains `value`.
    """
    if isinstance(runs, PackedRuns):
        return runs.following(value, field)
    return bisect_right(runs, value, key=_FIELD[field])


def run_at(runs: Sequence[Run], ordinal: int) -> Run | None:
    """Return the run that contains this ordinal, or None if the ordinal is below the first run."""
    at = following(runs, ordinal, ORDINAL)
    return runs[at - 1] if at else None


def run_at_upstream(runs: Sequence[Run], upstream: int) -> Run | None:
    """Return the last run that begins at or below this upstream offset, or None if none does."""
    at = following(runs, upstream, UPSTREAM)
    return runs[at - 1] if at else None


def upstream_range(runs: Sequence[Run], ordinal: int, count: int) -> str:
    """Return text for a message: the upstream offsets of `count` records from `ordinal` on, as
    `[first, next)`. If the map does not have them, return the ordinals instead.
    """
    first, last = run_at(runs, ordinal), run_at(runs, ordinal + count - 1)
    if first is None or last is None:
        return f"of ordinals [{ordinal}, {ordinal + count})"
    return f"[{first.upstream_of(ordinal)}, {last.upstream_of(ordinal + count - 1) + 1})"


Spans = Sequence[tuple[int, int]]
"""Ranges [first, next) of ordinals of transformed records."""


def is_transformed(spans: Spans, ordinal: int) -> bool:
    return any(first <= ordinal < following for first, following in spans)
