"""The newest runs of a partition's offset map, which the lane that copies the partition writes.

Runs are announced in the order of their batches and gathered in chunks, each of which is one row of
the map topic (`offset_map`). A batch waits until its runs are durable. One Fetch response from a
half-compacted topic may begin a hundred thousand runs. So a chunk is closed at a fixed number of
runs, even if they are not durable yet. Rows therefore stay small, and the rows of several chunks
are written one after the other.

    closed      full, being written      open
    [chunk 3]   [chunk 4]  [chunk 5]     [chunk 6: grows with each announced run]
    durable     |<- batches of these runs wait ->|

A tail can outlive its lane: it is handed over with the partition, and the next lane continues the
open chunk under the same term. A cold start begins a new term (`offset_map.Term`), and with it a
new tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from twinlog.mirror.map.offset_map import ChunkRow, Mark, PartitionKey, Term
from twinlog.mirror.map.runs import Run, run_at

RUNS_PER_CHUNK: Final = 400
"""Number of runs in a full chunk, whose row is about 4 KB of JSON. It is small, because the whole
row is written again when runs are added.
"""

SHIFTS_PER_ROW: Final = 64
"""If the target offsets of runs change (`MapTail.shift`), a row is written after this many changes,
or earlier with the next mark.
"""

CLOSED_KEPT: Final = 2
"""Number of durable full chunks to keep in memory, because a copy that is handed over may end in
one of them.
"""


@dataclass(slots=True)
class _Full:
    """A full chunk of the offset map, which gets no more runs."""

    chunk: int
    runs: list[Run]
    transform: str
    is_sent: bool = False


class HandedRuns(NamedTuple):
    """The open chunk of a term, as one lane hands it over to the next."""

    chunk: int
    runs: tuple[Run, ...]
    durable_ordinal: int


@dataclass(slots=True)
class MapTail:
    """The newest announced runs of a partition in one term (`offset_map.Term`), and which of them
    are durable.
    """

    key: PartitionKey
    topic: str
    term: Term
    chunk: int = 0
    runs: list[Run] = field(default_factory=list)
    """Runs of the open chunk."""
    producer_id: int = -1
    mark: Mark | None = None
    fingerprint: int | None = None
    durable_ordinal: int = -1
    """Runs up to this ordinal (count of this flow's records before the run) are in the map topic.
    Batches in which later runs begin must wait.
    """
    dirty: bool = False
    writing: int = 0
    """Number of rows of this tail that are in flight."""
    transform: str = ""
    """Digest of the transform of the open chunk and of all later chunks."""
    _unwritten: int = 0
    """Number of runs whose target offset was shifted since the last row was written."""
    _full: list[_Full] = field(default_factory=list)
    """Full chunks that are not known to be durable, in ascending order of ordinals."""
    _closed: list[_Full] = field(default_factory=list)
    """The newest full chunks that are durable, at most CLOSED_KEPT."""

    def begin(self, runs: Sequence[Run], earlier: str = "") -> Self:
        """Put `runs` (see `first_runs`) into the first chunks of a new term, and return this tail.

        `earlier`: digest of the transforms of the runs before the last one. If it differs from
        `transform`, the last run, which is then the copy's position, begins a new chunk, because
        all runs of a chunk have the same transform.
        """
        transform = self.transform
        self.transform = transform if len(runs) == 1 else earlier
        for run in runs[:-1]:
            self._append(run)
        if self.transform != transform:
            self._full.append(_Full(self.chunk, self.runs, self.transform))
            self.chunk, self.runs, self.transform = self.chunk + 1, [], transform
        self._append(runs[-1])
        return self

    def announce(self, run: Run, fingerprint: int | None, *, always: bool = False) -> None:
        """Add a run that begins in the batch that is queued next. `fingerprint`: that of the run's
        first record, or None if unknown. `always`: add the run even if it continues the last run.
        """
        if self.runs and run.continues(self.runs[-1]) and not always:
            # A position is announced as a run without a fingerprint, because its record is not read
            # yet. The batch that begins there has the fingerprint, so the same run is announced
            # again.
            is_noted = run.ordinal == self.runs[-1].ordinal and self.fingerprint is None
            if not is_noted or fingerprint is None:
                return
        if self.runs and run.ordinal == self.runs[-1].ordinal:
            # the announced run of this ordinal is replaced, because no record was written for it
            self.runs[-1] = run
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
        """Return the runs of each chunk in memory that has the transform of the open chunk, in
        ascending order.
        """
        full = (*self._closed, *self._full)
        return [*(entry.runs for entry in full if entry.transform == self.transform), self.runs]

    def shift(self, run: Run, distance: int) -> None:
        """Announce `run` with its actual target offset, and raise the target offsets of all later
        announced runs by `distance`.

        Upstream offsets stay the same, so no batch waits for the row. If several flows write to a
        topic, nearly every batch gets a higher offset than planned, so one row is written for many
        of them.
        """
        if not self.runs or self.runs[0].ordinal >= run.ordinal:
            # if the run's chunk is no longer in memory, the next start corrects the map
            self.insert(run, distance)
            return
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
        if later or self._full or self._unwritten >= SHIFTS_PER_ROW:
            self.dirty = True

    def insert(self, run: Run, distance: int = 0) -> bool:
        """Announce a run whose ordinal is below those of runs that were already announced. Return
        False if the chunk for it is no longer in memory. `distance`: see `shift`.
        """
        known = [old_run for chunk in self._chunks() for old_run in chunk]
        if run.ordinal < known[0].ordinal:
            return False
        later = [
            old_run._replace(downstream=old_run.downstream + distance)
            for old_run in known
            if old_run.ordinal > run.ordinal
        ]
        before = [old_run for old_run in known if old_run.ordinal < run.ordinal]
        self.chunk += 1  # a new key is needed, because the first run of a chunk must not change
        self._full = [full for full in self._full if full.transform != self.transform]
        self._closed, self.runs = [], []
        for old_run in (*before, run, *later):
            self._append(old_run)
        self.durable_ordinal = min(self.durable_ordinal, run.ordinal - 1)
        self.fingerprint = None
        self.dirty = True
        return True

    def next_row(self) -> tuple[ChunkRow, Run] | None:
        """Return (the next row to write, the last run of this row), or None if no row is to be
        written.
        """
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
        """Process the acknowledgement of the row whose last run is `run`: it and all earlier rows
        are in the map topic.
        """
        self.writing -= 1
        for full in list(self._full):
            if full.runs[-1] != run and full.runs[-1].ordinal >= run.ordinal:
                break
            self._full.remove(full)
            self._close([full])
        if self._is_announced(run):
            self.durable_ordinal = max(self.durable_ordinal, run.ordinal)

    def _is_announced(self, run: Run) -> bool:
        """Return False if another run of the same ordinal has replaced `run` after its row was
        sent. Then the row does not make the new run durable. Else return True.
        """
        for runs in (*(full.runs for full in self._full), self.runs):
            held = run_at(runs, run.ordinal)
            if held is not None and held.ordinal == run.ordinal:
                return held == run
        return True

    def on_refused(self) -> None:
        """Process the rejection of a row: all rows that are not durable are written again."""
        self.writing -= 1
        for full in self._full:
            full.is_sent = False
        self.dirty = True

    def on_lost(self) -> None:
        """Process the loss of a row's response. The row may still arrive, so all runs that are not
        durable are written in rows with new keys (rule D of `offset_map`).
        """
        self.writing -= 1
        for full in self._full:
            self.chunk += 1
            full.chunk, full.is_sent = self.chunk, False
        self.chunk += 1
        self.dirty = True

    def write_again(self) -> None:
        """Write all rows in memory again unchanged, because a new leader of the map's partition may
        have lost acknowledged rows.
        """
        self._full = [*self._closed, *self._full]
        self._closed = []
        for full in self._full:
            full.is_sent = False
        self.dirty = True

    def note(self, mark: Mark) -> None:
        """Set the mark (`offset_map.Mark`). If it has changed, a row is written, even without a new
        run.
        """
        if mark != self.mark:
            self.mark = mark
            self.dirty = True

    def hand_over(self, acked_ordinal: int) -> HandedRuns | None:
        """Return the runs that a drained copy hands over to the next lane, or None if the runs at
        its position are no longer in memory. `acked_ordinal`: number of records that are on the
        target.

        Runs at or above `acked_ordinal` were announced for batches that were never sent. If they
        fill chunks of their own, the chunk in which the copy ends is repeated under a higher
        number, which voids these chunks. The source may return different records when the next lane
        reads them again. So the next lane writes the row of the handed chunk before it sends a
        batch, as if no run were durable.
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
    """Return the runs of a new term's first row. That row is the term's cut: it voids older rows
    from its first run on (rule C of `mirror.map.offset_map`).

    First come the valid runs of the map's newest chunk, which begins at ordinal `open_from` (-1: no
    chunk is repeated). Then come `corrected`, which replace runs of the map, and `position`, where
    the copy resumes. `position` is omitted if it continues the run before it, unless `begins_chunk`
    (`MapTail.begin`).
    """
    merged = [*corrected, position]
    cut = merged[0].ordinal
    runs = [run for run in known_runs if 0 <= open_from <= run.ordinal < cut] + merged
    is_needed = begins_chunk or len(runs) == 1 or not position.continues(runs[-2])
    return runs if is_needed else runs[:-1]
