"""A source partition in memory, and its producers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tests.support.memory_log import MemoryLog
from twinlog.wire.records import Record

__all__ = ["EXPIRY_MS", "HOUR_MS", "MemorySource"]

NOW_MS: Final = 1_800_000_000_000
HOUR_MS: Final = 3_600_000
EXPIRY_MS: Final = 24 * HOUR_MS
"""Time in milliseconds after which the target expires a producer ID."""


@dataclass(slots=True)
class MemorySource:
    """A source log. Record n is at offset n, and has the value u<n> and one of five keys."""

    source: MemoryLog = field(default_factory=MemoryLog)
    now_ms: int = NOW_MS
    written: dict[int, bytes] = field(default_factory=dict)
    """Values of all records that the source ever had, by upstream offset."""
    gone: set[int] = field(default_factory=set)
    """Offsets of records that cannot or must not be copied any more, because they were compacted,
    deleted or aborted.
    """
    _transactions: dict[int, list[int]] = field(default_factory=dict)
    """Offsets of the records in open transactions, by producer ID."""

    def _records(self, count: int, age_ms: int) -> list[Record]:
        begin = self.source.end
        return [
            Record(at, self.now_ms - age_ms + at - begin, b"k%d" % (at % 5), b"u%d" % at)
            for at in range(begin, begin + count)
        ]

    def _wrote(self, records: list[Record]) -> None:
        self.written |= {record.offset: record.value or b"" for record in records}

    def produce(self, number: int) -> bool:
        """Write a batch. Every fourth batch is older than the producer ID expiry."""
        age_ms = 2 * EXPIRY_MS if number % 4 == 0 else 0
        records = self._records(1 + number % 3, age_ms)
        self.source.write(records)
        self._wrote(records)
        return True

    def begin_transaction(self, number: int) -> bool:
        """Write a batch of one of two transactional producers. This begins a transaction if none is
        open.
        """
        producer_id = 100 + number % 2
        records = self._records(1 + number % 2, 0)
        self.source.write(records, producer_id=producer_id)
        self._transactions.setdefault(producer_id, []).extend(r.offset for r in records)
        self._wrote(records)
        return True

    def end_transaction(self, number: int) -> bool:
        """Commit the oldest transaction. Every third time, abort it instead."""
        if not self._transactions:
            return False
        producer_id = next(iter(self._transactions))
        offsets = self._transactions.pop(producer_id)
        commit = number % 3 != 0
        self.source.finish(producer_id, self.now_ms, commit=commit)
        if not commit:
            self.gone.update(offsets)
        return True
