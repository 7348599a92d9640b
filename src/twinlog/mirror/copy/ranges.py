"""Ranges of source partitions whose records a transform changes, and the answers to them (ADR 40).

A lane hands out a range, and the application of the transforms answers it. An answer depends only
on the range and the transform, so a range may be handed out again, and the first complete answer
counts.
"""

from __future__ import annotations

from msgspec import Struct


class SourceRange(Struct, frozen=True, kw_only=True):
    """Consecutive batches of a source partition, as fetched."""

    number: int
    """Unique within the lane's process. The answer repeats it."""
    topic: str
    partition: int
    transform: str
    """Digest of the chain of transforms, in hex."""
    first: int
    """Records below this offset are ignored."""
    end: int
    """The offset after the last record or gap of the range."""
    batches: bytes
    """Whole record batches (magic 2), in order, without control batches and aborted ones."""


class RangeFailure(Struct, frozen=True, kw_only=True):
    """A record on which the transform fails."""

    offset: int
    """Its source offset. The answer has no record at or after it."""
    text: str
    """The last line of the traceback, without values."""


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
