"""Upstream records that a copy leaves out since somebody wants it: by exact offsets, for ever.

For the copy such a record is one that the source's cleaner took before it was read: the next record
gets its ordinal, and the offset map has a gap there, announced before the data. What holds for a
compacted source holds for it, whoever dies where and whatever arrives late. So what is skipped is
decided by its offset alone, never by how the record looks today: every later look at the same log
leaves out the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """[first, next) of upstream offsets."""

    first: int
    next: int
    is_batch: bool = False
    """It cannot be decoded: its bytes are not checked."""

    def __str__(self) -> str:
        if self.next == self.first + 1:
            return str(self.first)
        return f"[{self.first}, {self.next})"

    def covers(self, offset: int) -> bool:
        """Whether a record of this offset is left out."""
        return self.first <= offset < self.next


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """Where a partition has stopped because of one record, or of one batch."""

    skip: Skip
    """What would be left out."""
    topic_id: str
    """Of the upstream topic: another one of its name has other records."""


def skipped(skips: Iterable[Skip], offset: int) -> Skip | None:
    """What leaves out the record of this offset; None: nothing does."""
    return next((one for one in skips if one.covers(offset)), None)
