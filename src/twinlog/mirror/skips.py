"""Upstream records that a copy permanently skips at an operator's request, by exact offsets.

The copy treats a skipped record like one that the source's cleaner removed before it was read. The
next record gets the ordinal (count of the flow's records before it) that the skipped one would have
had. The offset map has a gap there, which is announced before the data. So all rules for compacted
sources also apply to skips, including those for crashes and late requests. A skip is decided by the
offset alone, never by the record's current content, so every later start skips the same records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A range of upstream offsets to skip: [first, next)."""

    first: int
    next: int
    is_batch: bool = False
    """Whether the range is a batch that cannot be decoded. Such a batch is skipped as a whole, and
    its bytes are not checked.
    """

    def __str__(self) -> str:
        if self.next == self.first + 1:
            return str(self.first)
        return f"[{self.first}, {self.next})"

    def covers(self, offset: int) -> bool:
        """Return True if the record at this offset is skipped."""
        return self.first <= offset < self.next


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """The record or batch that has stopped a partition."""

    skip: Skip
    """The skip that would let the copy continue after this record or batch."""
    topic_id: str
    """ID of the upstream topic, because a re-created topic has different records."""


def skip_at(skips: Iterable[Skip], offset: int) -> Skip | None:
    """Return the skip that covers this offset, or None."""
    return next((skip for skip in skips if skip.covers(offset)), None)
