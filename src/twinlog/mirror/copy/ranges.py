"""Ranges of source partitions whose records a transform changes, and the answers to them (ADR 40).

A lane offers a range, and the application of the transforms answers it. An answer needs only the
range and the transform, so a range may be offered again, and the first complete answer counts.
"""

from __future__ import annotations

from msgspec import Struct


class RangeBounds(Struct, frozen=True, kw_only=True):
    """The partition of a range, and its offsets."""

    number: int
    """Number of the range, unique within the lane's process. The answer has the same number."""
    topic: str
    partition: int
    first: int
    """Records below this offset are ignored."""
    end: int
    """The offset after the last record or gap of the range."""

    def overlaps(self, other: RangeBounds) -> bool:
        """Return True if both ranges contain an offset of the same partition. For example, a range
        that one lane has withdrawn overlaps with the range that the next lane offers.
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
    """The record's source offset."""
    text: str
    """Description of the failure without record values, such as the exception's class and line."""
    transform: str = ""
    """Names of the transforms that the record's topic has, for the message."""


class RangeAnswer(Struct, frozen=True, kw_only=True):
    """The records into which a transform turns a range."""

    number: int
    batches: tuple[bytes, ...]
    """Record batches (magic 2), in source order, each with base offset 0 and without a producer."""
    offsets: bytes
    """`array('q')` of the source offset of each record, over all batches."""
    end: int
    """Source offset up to which the answer covers the range: the range's `end`, or the offset of
    `failure`.
    """
    failure: RangeFailure | None = None
    quarantined: tuple[RangeFailure, ...] = ()
    """Records for the dead-letter topic, in source order. They are in none of `batches`."""
    is_part: bool = False
    """Whether the answer ends before its range does, without a failure. The remaining records need
    another answer.
    """
