"""The source side of a transformed partition: the records that its transforms return (ADR 40).

    log       [100..104] marker [107..110]      the batches of the source
    range     first 100, end 111                passed to the functions, as a lane passes them
    answer    101, 103, 108                     the records that they return
    pieces    [101] [103] [108]                 compared with the target, by the offset map

So a verification runs the functions of the configuration again. Filtered records, and records that
an operator has skipped, are on neither side. If a function now gives another result than for the
copy, the record differs. A record on which a function fails is on neither side with `on-error` skip
and quarantine. With stop the comparison ends at this record.
"""

from __future__ import annotations

import itertools
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from twinlog.errors import PartitionError
from twinlog.mirror.copy.intake import MAGIC_V2
from twinlog.mirror.copy.range_intake import (
    RANGE_BYTES,
    Stretch,
    checked,
    dense_batch,
    dense_batches,
)
from twinlog.mirror.copy.ranges import RangeAnswer
from twinlog.mirror.skips import Skip, skip_at
from twinlog.mirror.verify.side import Piece
from twinlog.model import TopicPartition
from twinlog.wire.record_batch import BatchHeader, read_header, verify_crc
from twinlog.wire.records import Rows, decode_rows

AHEAD: Final = 2
"""Maximum number of ranges per partition that are submitted in advance, in addition to the range
that is being compared.
"""
NO_BYTES: Final = memoryview(b"")


class Functions(Protocol):
    """Runs transforms for a comparison, in a separate application."""

    def offer(self, tp: TopicPartition, stretch: Stretch) -> None:
        """Submit `stretch`, a contiguous part of the source's log, to the transforms. Sets its
        number.
        """

    def answer(self, tp: TopicPartition, stretch: Stretch) -> RangeAnswer:
        """Wait for the transformed records of `stretch`. Raises TwinlogError if none will come."""


@dataclass(slots=True)
class TransformedSource:
    """Transforms the batches of one partition."""

    _tp: TopicPartition
    _functions: Functions
    _skips: Sequence[Skip] = ()
    """Records that an operator has skipped. They are not transformed."""
    _asked: deque[tuple[Stretch, deque[Piece]]] = field(default_factory=deque)
    """Parts of the source's log that are being transformed, each with its markers and aborted
    batches.
    """

    def pieces(self, log: Iterator[Piece], begin: int) -> Iterator[Piece]:
        """Yield the batches that the transforms return for a log from offset `begin` on."""
        stretch, hidden = Stretch(first=begin, epoch=-1), deque[Piece]()
        for piece in log:
            header = piece.header
            if stretch.size and stretch.size + len(piece.data) > RANGE_BYTES:
                yield from self._ask(stretch, hidden)
                stretch, hidden = Stretch(first=stretch.end, epoch=-1), deque()
            stretch.end = header.next_offset
            if piece.hides is not None:
                # without its bytes, which would keep the whole Fetch response in memory
                hidden.append(piece._replace(data=NO_BYTES))
                continue
            if header.magic < MAGIC_V2:
                raise PartitionError(
                    f"{self._tp}: offset {header.base_offset} has a message of an old format, and "
                    "transformed records are compared only with batches of Kafka 0.11 and later"
                )
            for batch in self._without_skips(header, piece.data):
                stretch.add(batch)
        yield from self._ask(stretch, hidden)
        while self._asked:
            yield from self._next()

    def _without_skips(self, header: BatchHeader, batch: memoryview) -> Iterator[memoryview]:
        """Yield the batch, without the records of it that an operator has skipped."""
        skips = [
            skip
            for skip in self._skips
            if skip.first < header.next_offset and header.base_offset < skip.next
        ]
        if any(skip.is_batch for skip in skips):
            return
        verify_crc(batch, 0, header)
        if skips:
            rows = decode_rows(batch)
            yield from dense_batches(
                rows.with_offsets(lambda offset: skip_at(skips, offset) is None)
            )
        else:
            yield batch

    def _ask(self, stretch: Stretch, hidden: deque[Piece]) -> Iterator[Piece]:
        stretch.answer_itself()
        if stretch.answer is None:
            self._functions.offer(self._tp, stretch)
        self._asked.append((stretch, hidden))
        if len(self._asked) > AHEAD:
            yield from self._next()

    def _next(self) -> Iterator[Piece]:
        """Wait for the transformed records of the oldest part in `_asked`, and yield them as
        batches, with the part's markers and aborted batches.
        """
        stretch, hidden = self._asked.popleft()
        while stretch.size:
            answer = stretch.answer or self._functions.answer(self._tp, stretch)
            rest = Stretch(first=stretch.end, epoch=-1)
            if answer.is_part and stretch.first < answer.end < stretch.end:
                rest = stretch.cut(answer.end)
                if rest.size:
                    self._functions.offer(self._tp, rest)
            for batch in _batches(*checked(stretch, answer)):
                while hidden and hidden[0].header.base_offset < batch.header.base_offset:
                    yield hidden.popleft()
                yield batch
            if answer.failure is not None:
                raise PartitionError(
                    f"{self._tp}: the transforms fail at offset {answer.failure.offset}: "
                    f"{answer.failure.text}",
                    code="RECORD_NOT_TRANSFORMED",
                )
            stretch = rest
        yield from hidden


def _batches(offsets: array[int], decoded: list[Rows]) -> Iterator[Piece]:
    """Yield the records in batches without gaps, at their offsets in the source."""
    done = 0
    for rows in decoded:
        own = offsets[done : done + len(rows)]
        gaps = (index for index in range(1, len(own)) if own[index] != own[index - 1] + 1)
        for begin, end in itertools.pairwise((0, *gaps, len(own))):
            batch = dense_batch(rows.slice(begin, end), own[begin])
            yield Piece(read_header(batch), batch)
        done += len(rows)
