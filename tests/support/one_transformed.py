"""The copy of one transformed partition without lane and driver. It offers ranges, and accepts
their answers.
"""

from __future__ import annotations

from typing import Any

from tests.support.one_copy import NOW, K, answer, arguments, fetched, sent
from tests.support.python_transformer import PythonTransformer, RecordFunction
from twinlog.mirror.copy.intake import OutBatch
from twinlog.mirror.copy.ranges import RangeAnswer, SourceRange
from twinlog.mirror.copy.transformed import RangeDesk, TransformedCopy
from twinlog.wire.records import Record, decode_batch

__all__ = ["Rig", "odd", "values"]


def odd(record: Record) -> Record | None:
    """Return the record masked if its offset is odd, else None, which filters it out. Raises
    ValueError for the value "poison".
    """
    if record.value == b"poison":
        raise ValueError("cannot be masked")
    return record._replace(value=b"m%d" % record.offset) if record.offset % 2 else None


class Rig:
    """A transformed copy, and an application that runs its transform in the test's process."""

    def __init__(self, function: RecordFunction = odd, **given: Any) -> None:
        self.application = PythonTransformer(function)
        self.desk = RangeDesk(self.application)
        self.copy = TransformedCopy(transform="ab", desk=self.desk, **arguments(**given))

    def fetch(self, *batches: bytes) -> int:
        return self.copy.on_fetched(fetched(*batches), (), NOW)

    @property
    def ranges(self) -> list[SourceRange]:
        return list(self.application.waiting.values())

    def deliver(self, *answers: RangeAnswer) -> None:
        self.application.give(*answers)
        for _ in self.desk.deliver(NOW):
            pass

    def answer(self, number: int | None = None) -> None:
        self.application.answer(number)
        self.deliver()

    def written(self) -> None:
        """Write all announced rows to the map topic."""
        while (row := self.copy.tail.next_row()) is not None:
            self.copy.tail.on_durable(row[1])

    def send(self) -> list[OutBatch]:
        self.written()
        return sent(self.copy)

    def acknowledge(self, *batches: OutBatch) -> None:
        for one in batches:
            self.respond(K + one.ordinal)

    def respond(self, base_offset: int, error: int = 0) -> None:
        answer(self.copy, base_offset, error=error)

    def copied(self) -> list[OutBatch]:
        """Send all batches, acknowledge them, and return them."""
        out: list[OutBatch] = []
        while batches := self.send():
            self.acknowledge(*batches)
            out += batches
        return out


def values(batches: list[OutBatch]) -> list[bytes | None]:
    return [record.value for one in batches for record in decode_batch(one.data)]
