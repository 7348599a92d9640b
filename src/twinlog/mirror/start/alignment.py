"""Finds which source record a target topic's last record is, if another mirror copied it.

MirrorMaker 2 copies at least once. So the target may have records after the position that
MirrorMaker 2 noted last, some of them twice after a restart. Therefore the end of the target's log
is compared with the source, backwards, record by record, by the same criteria as in `tail_check`:

    source   38 39 40 41 42 43 44            noted: 40
    target   .. 41 42 | 39 40 41 42 43       its last record is 43: the copy resumes at 44

A source position is accepted if all records before it match as well, up to the beginning of the
compared range, or up to a jump back that a restart explains. (In the example, the record before the
jump, 42, is at or after the one that follows it, 39.)

If compaction left holes in one log, as many records of the other log may have no counterpart. In a
topic that is not compacted, holes are transaction markers, and every record has a counterpart.

If several positions match, the lowest is used, so that no record is skipped.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from twinlog.mirror.start.tail_check import comparable_headers
from twinlog.wire.records import Record

MOST_SKIPPED: Final = 200
"""Maximum number of records that one log may lack in one hole of its offsets. The search tries each
number up to this maximum.
"""
BEHIND_A_JUMP: Final = 200_000
"""A match with a jump back is used only if this many more source records contain no match without a
jump.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedPosition:
    """The source position of the target's last record."""

    upstream: int
    """Upstream offset of the last target record whose source record still exists."""
    jumped_back: bool
    """Whether a restart of MirrorMaker 2 wrote some of the last records twice."""


def identity(record: Record, *, with_timestamp: bool) -> int:
    """Return a number that is equal for two records if a consumer gets the same content."""
    timestamp = record.timestamp if with_timestamp else 0
    return hash((timestamp, record.key, record.value, comparable_headers(record.headers)))


@dataclass(slots=True, kw_only=True)
class Alignment:
    """Searches the source position of the target's last records among the source records that were
    read so far. The first of these is before the position that MirrorMaker 2 noted.
    """

    target_offsets: Sequence[int]
    target: Sequence[int]
    """Identities of the target's last records."""
    noted: int
    """An upstream offset that MirrorMaker 2 has certainly copied, or -1 if none is known."""
    source_may_lack: bool
    """Whether the source is compacted, so that offsets without a record may have had one. Otherwise
    such offsets are markers or aborted records.
    """
    target_may_lack: bool
    source_offsets: array[int] = field(default_factory=lambda: array("q"))
    source: array[int] = field(default_factory=lambda: array("q"))
    _suspects: list[tuple[int, int]] = field(default_factory=list)
    """(source index, target index) of matches that end at a jump back which no source record
    explains yet.
    """
    _jumped: AlignedPosition | None = None
    """The lowest position whose match ends at an explained jump back, or None."""
    _jumped_at: int = -1
    _searched: int = -1
    """Index of the last source record that was tried."""

    def add(self, records: Iterable[tuple[int, int]]) -> None:
        """Add source records as (offset, identity), in rising order."""
        for offset, number in records:
            self.source_offsets.append(offset)
            self.source.append(number)

    def search(self, *, is_end: bool, source_end: int) -> AlignedPosition | None:
        """Return the lowest matching position among the added records, or None if there is none
        yet.

        `is_end`: the source has no more records.
        """
        # the last record is tried in a later call, because the hole after it is unknown until then
        known = len(self.source) - (0 if is_end else 1)
        for index in range(self._searched + 1, known):
            self._searched = index
            following = (
                self.source_offsets[index + 1]
                if index + 1 < len(self.source_offsets)
                else source_end
            )
            if following <= self.noted:
                continue
            hole = following - self.source_offsets[index] - 1 if self.source_may_lack else 0
            skipped = self._skipped(index, hole)
            if skipped is None:
                continue
            last = len(self.target) - 1 - skipped
            fits, jumped = self._fits(index, last)
            if fits and not jumped:
                return AlignedPosition(upstream=self.source_offsets[index], jumped_back=False)
            if fits and self._jumped is None:
                self._jumped, self._jumped_at = self._aligned_after_jump(index), index
            elif not fits:
                self._suspects.append((index, last))
        is_far = self._jumped is not None and self._searched - self._jumped_at > BEHIND_A_JUMP
        return self._lowest_jumped() if is_end or is_far else None

    def _aligned_after_jump(self, index: int) -> AlignedPosition:
        return AlignedPosition(upstream=self.source_offsets[index], jumped_back=True)

    def _skipped(self, index: int, hole: int) -> int | None:
        """Return how many of the target's last records have lost their source records in the hole
        after source record `index`. Return None if none of the target records before them equals
        that source record.
        """
        for skipped in range(min(hole, len(self.target) - 1, MOST_SKIPPED) + 1):
            if self.target[-1 - skipped] == self.source[index]:
                return skipped
        return None

    def _lowest_jumped(self) -> AlignedPosition | None:
        # `_suspects` are matches with an unexplained jump; source records that were read later may
        # explain it
        for at, last in self._suspects:
            if self._jumped is not None and at > self._jumped_at:
                break
            if self._fits(at, last)[0]:
                return self._aligned_after_jump(at)
        return self._jumped

    def _fits(self, index: int, last: int) -> tuple[bool, bool]:
        """Return (fits, jumped). `fits`: all records before this pair match, back to the beginning
        of the compared range or to a jump back that a restart of MirrorMaker 2 explains. `jumped`:
        they match only back to such a jump.
        """
        source_at, target_at = index, last
        while source_at > 0 and target_at > 0:
            step = self._step_back(source_at, target_at)
            if step is None:
                explained = self.target[target_at - 1] in self.source[source_at:]
                return explained, explained
            source_at, target_at = source_at - step[0], target_at - step[1]
        return True, False

    def _step_back(self, source_at: int, target_at: int) -> tuple[int, int] | None:
        """Return the distance to the previous equal pair as (number of source records, number of
        target records). Holes of the logs may be between the pairs.

        Return None if there is no such pair. If all remaining target records may have lost their
        source records in a hole, they are all passed, which ends the comparison.
        """
        if self.source[source_at - 1] == self.target[target_at - 1]:
            return 1, 1
        target_hole = self.target_offsets[target_at] - self.target_offsets[target_at - 1] - 1
        if not self.target_may_lack:
            target_hole = 0
        for back in range(1, min(target_hole, source_at - 1, MOST_SKIPPED) + 2):
            if back > source_at:
                break
            before = self.source_offsets[source_at - back]
            source_hole = self.source_offsets[source_at] - before - back
            if not self.source_may_lack:
                source_hole = 0
            for skip in range(min(source_hole, MOST_SKIPPED) + 1):
                if target_at - 1 - skip < 0:
                    return back, target_at
                if self.source[source_at - back] == self.target[target_at - 1 - skip]:
                    return back, skip + 1
        return None
