"""Transforms in plain Python, record by record. This is a simple, slow oracle with which the
application of the transforms is compared.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from twinlog.mirror.copy.ranges import RangeAnswer, RangeFailure, SourceRange
from twinlog.wire.record_batch import Codec, read_headers
from twinlog.wire.records import Record, decode_batch, encode_batch

__all__ = ["PythonTransformer", "RecordFunction", "records_of", "transformed"]

RecordFunction = Callable[[Record], Record | None]
"""Type of a transform: it returns the record to write, or None to filter it out. It may raise an
exception.
"""

RECORDS: Final = 3
"""Number of records in a batch of an answer. It is small, so that answers have several batches."""


def records_of(one: SourceRange) -> list[Record]:
    """Return the source records in a range."""
    view = memoryview(one.batches)
    return [
        record
        for header, at in read_headers(view)
        for record in decode_batch(view[at : at + header.length])
        if one.first <= record.offset < one.end
    ]


def transformed(
    one: SourceRange,
    function: RecordFunction,
    *,
    codec: Codec = Codec.NONE,
    records: int = RECORDS,
    quarantines: bool = False,
) -> RangeAnswer:
    """Return the answer to a range. `quarantines`: True if failed records go to the dead-letter
    topic.
    """
    kept: list[tuple[int, Record]] = []
    failure: RangeFailure | None = None
    quarantined: list[RangeFailure] = []
    for record in records_of(one):
        try:
            found = function(record)
        except ValueError as error:
            failed = RangeFailure(offset=record.offset, text=f"ValueError: {error}", transform="f")
            if quarantines:
                quarantined.append(failed)
                continue
            failure = failed
            break
        if found is not None:
            kept.append((record.offset, found))
    return RangeAnswer(
        number=one.number,
        batches=tuple(
            bytes(encode_batch([r for _, r in kept[at : at + records]], codec=codec))
            for at in range(0, len(kept), records)
        ),
        offsets=array("q", (offset for offset, _ in kept)).tobytes(),
        end=one.end if failure is None else failure.offset,
        failure=failure,
        quarantined=tuple(quarantined),
    )


@dataclass(slots=True)
class PythonTransformer:
    """Answers ranges when the test requests it: in any order, or never. Until then they are in
    `waiting`.
    """

    function: RecordFunction
    waiting: dict[int, SourceRange] = field(default_factory=dict)
    withdrawn: list[int] = field(default_factory=list)
    quarantines: bool = False
    late: set[int] = field(default_factory=set)
    """Numbers of the ranges that `unanswered` returns, as if their answers were overdue."""
    _answers: list[RangeAnswer] = field(default_factory=list)

    def offer(self, one: SourceRange) -> None:
        assert one.number not in self.waiting, one
        self.waiting[one.number] = one

    def withdraw(self, number: int) -> None:
        self.withdrawn.append(number)
        self.waiting.pop(number, None)

    def answers(self) -> Iterable[RangeAnswer]:
        found, self._answers = self._answers, []
        return found

    def unanswered(self, after_s: float) -> Iterable[SourceRange]:
        return [one for number, one in self.waiting.items() if number in self.late]

    def give(self, *answers: RangeAnswer) -> None:
        """Deliver these answers, even for ranges that were not requested."""
        self._answers += answers

    def answer(self, number: int | None = None) -> None:
        """Answer one waiting range, or all of them, as a task would."""
        for each in list(self.waiting) if number is None else [number]:
            one = self.waiting.pop(each)
            self.give(transformed(one, self.function, quarantines=self.quarantines))
