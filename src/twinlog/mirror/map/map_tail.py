"""The end of a partition's offset map, as the lane that holds its term writes it.

Runs are announced in the order of their batches and gathered in chunks. A batch waits until its
runs are durable. One Fetch response from a half-compacted topic may announce a hundred thousand
runs, so a chunk is full at a fixed number of runs, durable or not: rows stay small, and several are
written one after the other.

    closed      full, being written      open
    [chunk 3]   [chunk 4]  [chunk 5]     [chunk 6: grows with each announced run]
    durable     |<- batches of these runs wait ->|

A tail survives its lane: it is handed over with the partition, and the next lane continues the open
chunk under the same term. After a cold start, a new term begins a new tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from twinlog.mirror.map.offset_map import ChunkRow, Mark, PartitionKey, Term
from twinlog.mirror.map.runs import Run, run_at

RUNS_PER_CHUNK: Final = 400
"""Runs in a full chunk: about 4 KB of JSON, which are rewritten with each additional run."""

MOVED_TOGETHER: Final = 64
"""Number of moved runs that make a row due. A row is also due every few seconds, for the mark."""

CLOSED_KEPT: Final = 2
"""Number of durable chunks to remember. A copy that is handed over may end in one of them."""


@dataclass(slots=True)
class _Full:
    """A chunk that gets no more runs."""

    chunk: int
    runs: list[Run]
    transform: str
    is_sent: bool = False


class HandedRuns(NamedTuple):
    """What the next holder of the term continues with."""

    chunk: int
    runs: tuple[Run, ...]
    durable_ordinal: int


@dataclass(slots=True)
class MapTail:
    """The announced runs of a partition, and how many of them are durable."""

    key: PartitionKey
    topic: str
    term: Term
    chunk: int
    runs: list[Run]
    """Runs of the open chunk."""
    producer_id: int = -1
    mark: Mark | None = None
    fingerprint: int | None = None
    durable_ordinal: int = -1
    """Runs up to this ordinal are in the map topic. Batches of later runs wait."""
    dirty: bool = False
    writing: int = 0
    """Number of this tail's rows that are in flight."""
    transform: str = ""
    """Digest of the transform of the open chunk, and of all that is announced from now on."""
    _unwritten: int = 0
    """Number of runs that were moved since the last row."""
    _full: list[_Full] = field(default_factory=list)
    """Full chunks that are not known to be durable, in order."""
    _closed: list[_Full] = field(default_factory=list)
    """The last full chunks that are durable."""

    @classmethod
    def beginning(  # noqa: PLR0913 (keyword-only)
        cls,
        *,
        key: PartitionKey,
        topic: str,
        term: Term,
        runs: Sequence[Run],
        producer_id: int,
        mark: Mark | None,
        fingerprint: int | None = None,
        dirty: bool,
        transform: str = "",
        earlier: str = "",
    ) -> Self:
        """Create the tail of a new term. Its first chunks contain these runs, the last of which is
        the position.

        `earlier`: the transform of the runs before the position. If it is another one, the position
        begins a chunk, because a chunk has a single transform.
        """
        tail = cls(
            key=key,
            topic=topic,
            term=term,
            chunk=0,
            runs=[],
            producer_id=producer_id,
            mark=mark,
            fingerprint=fingerprint,
            dirty=dirty,
            transform=transform if len(runs) == 1 else earlier,
        )
        for run in runs[:-1]:
            tail._append(run)
        if tail.transform != transform:
            tail._full.append(_Full(tail.chunk, tail.runs, tail.transform))
            tail.chunk, tail.runs, tail.transform = tail.chunk + 1, [], transform
        tail._append(runs[-1])
        return tail

    def announce(self, run: Run, fingerprint: int | None, *, always: bool = False) -> None:
        """Add the run that a batch begins which is about to be sent. `always`: even if it adds
        nothing new.
        """
        if self.runs and run.continues(self.runs[-1]) and not always:
            # the position was announced without a record, and so without a fingerprint, which the
            # batch that begins there has
            is_noted = run.ordinal == self.runs[-1].ordinal and self.fingerprint is None
            if not is_noted or fingerprint is None:
                return
        if self.runs and run.ordinal == self.runs[-1].ordinal:
            self.runs[-1] = run  # no record was written for the announced run, so it is replaced
        else:
            self._append(run)
        self.durable_ordinal = min(self.durable_ordinal, run.ordinal - 1)
        self.fingerprint = fingerprint
        self.dirty = True

    def _append(self, run: Run) -> None:
        if len(self.runs) < RUNS_PER_CHUNK:
            self.runs.append(run)
            return
        full = _Full(self.chunk, self.runs, self.transform)
        if self.durable_ordinal >= self.runs[-1].ordinal:
            self._close([full])
        else:
            self._full.append(full)
        self.chunk, self.runs = self.chunk + 1, [run]

    def _close(self, durable: Iterable[_Full]) -> None:
        self._closed = [*self._closed, *durable][-CLOSED_KEPT:]

    def _chunks(self) -> list[list[Run]]:
        """Return all remembered runs of this transform, from durable, full and open chunks."""
        full = (*self._closed, *self._full)
        return [*(entry.runs for entry in full if entry.transform == self.transform), self.runs]

    def shift(self, run: Run, distance: int) -> None:
        """Shift the target offsets of this run and of all later announced runs.

        Their upstream offsets stay true, so no batch waits for the row. If several flows write to a
        topic, nearly every batch moves, so one row is written for many of them.
        """
        if self.runs and self.runs[0].ordinal < run.ordinal:
            self._moved_in_open_chunk(run, distance)
        else:
            self._rebuild(run, distance)  # if this fails, the next start finds it

    def insert(self, run: Run) -> bool:
        """Announce a run before runs that were already announced. Returns False if its chunk is no
        longer remembered.
        """
        return self._rebuild(run, 0)

    def _rebuild(self, run: Run, distance: int) -> bool:
        known = [old_run for chunk in self._chunks() for old_run in chunk]
        if run.ordinal < known[0].ordinal:
            return False
        later = [
            old_run._replace(downstream=old_run.downstream + distance)
            for old_run in known
            if old_run.ordinal > run.ordinal
        ]
        before = [old_run for old_run in known if old_run.ordinal < run.ordinal]
        self.chunk += 1  # a new key, because the first run of a chunk never changes
        self._full = [full for full in self._full if full.transform != self.transform]
        self._closed, self.runs = [], []
        for old_run in (*before, run, *later):
            self._append(old_run)
        self.durable_ordinal = min(self.durable_ordinal, run.ordinal - 1)
        self.fingerprint = None
        self.dirty = True
        return True

    def _moved_in_open_chunk(self, run: Run, distance: int) -> None:
        later = [
            each._replace(downstream=each.downstream + distance)
            for each in self.runs
            if each.ordinal > run.ordinal
        ]
        self.runs = [each for each in self.runs if each.ordinal < run.ordinal]
        for each in (run, *later):
            self._append(each)
        self._unwritten += 1
        self.fingerprint = None
        if later or self._full or self._unwritten >= MOVED_TOGETHER:
            self.dirty = True

    def next_row(self) -> tuple[ChunkRow, Run] | None:
        """Return a row to write now and the last run in it, or None if nothing is to be written."""
        if not self.dirty:
            return None
        for full in self._full:
            if not full.is_sent:
                full.is_sent = True
                self.writing += 1
                return self._row(full.chunk, full.runs, None, full.transform), full.runs[-1]
        self.dirty, self._unwritten = False, 0
        self.writing += 1
        row = self._row(self.chunk, self.runs, self.fingerprint, self.transform)
        return row, self.runs[-1]

    def _row(
        self, chunk: int, runs: Sequence[Run], fingerprint: int | None, transform: str
    ) -> ChunkRow:
        return ChunkRow(
            key=self.key,
            term=self.term,
            chunk=chunk,
            topic=self.topic,
            runs=tuple(runs),
            mark=self.mark,
            fingerprint=fingerprint,
            producer_id=self.producer_id,
            transform=transform,
        )

    def on_durable(self, run: Run) -> None:
        """Note that the row that ends with this run is in the map topic, as are all before it."""
        self.writing -= 1
        for full in list(self._full):
            if full.runs[-1] != run and full.runs[-1].ordinal >= run.ordinal:
                break
            self._full.remove(full)
            self._close([full])
        if self._is_announced(run):
            self.durable_ordinal = max(self.durable_ordinal, run.ordinal)

    def _is_announced(self, run: Run) -> bool:
        """Return False if another run replaced this one after its row was sent."""
        for runs in (*(full.runs for full in self._full), self.runs):
            held = run_at(runs, run.ordinal)
            if held is not None and held.ordinal == run.ordinal:
                return held == run
        return True

    def on_refused(self) -> None:
        """Note that a row was rejected: it is not in the topic, or will be written again."""
        self.writing -= 1
        for full in self._full:
            full.is_sent = False
        self.dirty = True

    def on_lost(self) -> None:
        """Note that the outcome of a row is unknown and that it may still arrive, so other keys are
        used from now on (rule D).
        """
        self.writing -= 1
        for full in self._full:
            self.chunk += 1
            full.chunk, full.is_sent = self.chunk, False
        self.chunk += 1
        self.dirty = True

    def write_again(self) -> None:
        """Write the remembered rows again unchanged, because acknowledged rows may be lost."""
        self._full = [*self._closed, *self._full]
        self._closed = []
        for full in self._full:
            full.is_sent = False
        self.dirty = True

    def note(self, mark: Mark) -> None:
        """Note how far the copy got. The mark is written with the next row, or in its own row."""
        if mark != self.mark:
            self.mark = mark
            self.dirty = True

    def hand_over(self, acked_ordinal: int) -> HandedRuns | None:
        """Return what a drained copy hands over, or None if the runs at its end are no longer
        remembered.

        Runs above its end were announced for batches that were never sent. If they fill chunks of
        their own, a chunk above all of these repeats the one in which the copy ends, and voids
        them. A later reader of these records may find different ones. So the next holder writes its
        row before anything else, as if nothing were durable.
        """
        chunks = self._chunks()
        at = next(
            (n for n in reversed(range(len(chunks))) if chunks[n][0].ordinal < acked_ordinal), 0
        )
        runs = tuple(run for run in chunks[at] if run.ordinal < acked_ordinal)
        is_alone = len(chunks) == 1 and not self._closed and not self._full
        if not runs and not is_alone:
            return None
        runs = runs or tuple(self.runs[:1])
        is_open = at == len(chunks) - 1
        is_whole = is_open and len(runs) == len(self.runs)
        durable = min(self.durable_ordinal, runs[-1].ordinal) if is_whole else -1
        return HandedRuns(self.chunk if is_open else self.chunk + 1, runs, durable)


def first_runs(
    known_runs: Iterable[Run],
    open_from: int,
    corrected: Sequence[Run],
    position: Run,
    *,
    begins_chunk: bool = False,
) -> list[Run]:
    """Return the runs of a new term's first row (rule C of `mirror.map.offset_map`).

    These are the valid part of the map's newest chunk, which begins at ordinal `open_from` (-1:
    there is none), then the corrections of the map, then the position. The position is left out if
    it adds nothing, unless it begins a chunk (`MapTail.beginning`).
    """
    merged = [*corrected, position]
    cut = merged[0].ordinal
    runs = [run for run in known_runs if 0 <= open_from <= run.ordinal < cut] + merged
    is_needed = begins_chunk or len(runs) == 1 or not position.continues(runs[-2])
    return runs if is_needed else runs[:-1]
