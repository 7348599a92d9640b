"""Ranges of source partitions whose records a transform changes, and the answers to them (ADR 40).

A lane hands out a range, and the application of the transforms answers it. An answer depends only
on the range and the transform, so a range may be handed out again, and the first complete answer
counts.
"""

from __future__ import annotations

from msgspec import Struct


class RangeBounds(Struct, frozen=True, kw_only=True):
    """Which records a range has."""

    number: int
    """Unique within the lane's process. The answer repeats it."""
    topic: str
    partition: int
    first: int
    """Records below this offset are ignored."""
    end: int
    """The offset after the last record or gap of the range."""

    def overlaps(self, other: RangeBounds) -> bool:
        """Return whether a record is in both. A range that was withdrawn, and the one that another
        lane has instead, overlap.
        """
        is_same = (self.topic, self.partition) == (other.topic, other.partition)
        return is_same and max(self.first, other.first) < min(self.end, other.end)


class SourceRange(RangeBounds, frozen=True, kw_only=True):
    """Consecutive batches of a source partition, as fetched."""

    transform: str
    """Digest of the chain of transforms, in hex."""
    batches: bytes
    """Whole record batches (magic 2), in order, without control batches and aborted ones."""


class RangeFailure(Struct, frozen=True, kw_only=True):
    """A record on which the transform fails."""

    offset: int
    """Its source offset."""
    text: str
    """The last line of the traceback, without values."""
    transform: str = ""
    """Names of the transforms of its topic."""


class RangeAnswer(Struct, frozen=True, kw_only=True):
    """The records that a transform makes of a range."""

    number: int
    batches: tuple[bytes, ...]
    """Record batches (magic 2), in source order, each with base offset 0 and without a producer."""
    offsets: bytes
    """`array('q')` of the source offset of each record, over all batches."""
    end: int
    """The source position after this answer: the end of the range, or the offset of the failure."""
    failure: RangeFailure | None = None
    quarantined: tuple[RangeFailure, ...] = ()
    """Records for the dead-letter topic, in source order. No batch has them."""
    is_part: bool = False
    """Whether it ends before its range, and without a failure. The remaining records need another
    one.
    """
