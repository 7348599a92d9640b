"""Transforms in plain Python, record by record: what the application of the transforms must answer.

Nothing of it is fast, and nothing clever: it is the oracle of the tests.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from twinlog.mirror.copy.ranges import RangeAnswer, RangeFailure, SourceRange
from twinlog.wire.record_batch import Codec, read_headers
from twinlog.wire.records import Record, decode_batch, encode_batch

__all__ = ["PythonTransformer", "RecordFunction", "records_of", "transformed"]

RecordFunction = Callable[[Record], Record | None]
"""Returns the record as it is written, or None if it is filtered. It may raise."""

RECORDS: Final = 3
"""Records of a batch in an answer, so that answers have several."""


def records_of(one: SourceRange) -> list[Record]:
    """The records that a range asks for."""
    view = memoryview(one.batches)
    return [
        record
        for header, at in read_headers(view)
        for record in decode_batch(view[at : at + header.length])
        if one.first <= record.offset < one.end
    ]


def transformed(
    one: SourceRange, function: RecordFunction, *, codec: Codec = Codec.NONE, records: int = RECORDS
) -> RangeAnswer:
    """The answer to a range."""
    kept: list[tuple[int, Record]] = []
    failure: RangeFailure | None = None
    for record in records_of(one):
        try:
            found = function(record)
        except ValueError as error:
            failure = RangeFailure(offset=record.offset, text=f"ValueError: {error}")
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
    )


@dataclass(slots=True)
class PythonTransformer:
    """Ranges wait in `waiting` until the test has them answered, in any order, or never."""

    function: RecordFunction
    waiting: dict[int, SourceRange] = field(default_factory=dict)
    withdrawn: list[int] = field(default_factory=list)
    silence_s: float = 0.0
    """How long it says that nothing was answered."""
    late: set[int] = field(default_factory=set)
    """The ranges of which it says that later ones were answered long ago."""
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

    def silent_s(self) -> float:
        return self.silence_s if self.waiting else 0.0

    def overtaken(self, after_s: float) -> Collection[int]:
        return self.late & self.waiting.keys()

    def give(self, *answers: RangeAnswer) -> None:
        """These answers arrive, whatever was asked."""
        self._answers += answers

    def answer(self, number: int | None = None) -> None:
        """A task answers one range, or all of them."""
        for each in list(self.waiting) if number is None else [number]:
            self.give(transformed(self.waiting.pop(each), self.function))
