"""Identities of consecutive target ordinals, read ahead as far as needed.

A rebuild compares a whole log, so only the part between the last compared records and the furthest
possible match is in memory: nine bytes per ordinal. An ordinal whose record was removed by the
target's cleaner or retention is absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from twinlog.errors import PartitionError

ABSENT: Final = 0
"""No record has this identity (`number_of`)."""
MAX_HELD: Final = 1 << 22
"""Maximum number of ordinals in memory, which take 38 MB."""

_BYTES: Final = 8
_MASK: Final = (1 << 64) - 1


class Numbered(NamedTuple):
    """A record of the target."""

    ordinal: int
    number: int
    """Its identity (`mirror.start.alignment.identity`), never ABSENT."""


def number_of(identity: int) -> int:
    """Return an identity as it is stored here."""
    return (identity & _MASK) or 1


class TargetWindow:
    """The target's records by ordinal, from one ordinal to the log's end."""

    def __init__(self, records: Iterator[Numbered], first: int, end: int) -> None:
        self.end = end
        """The ordinal after the last one."""
        self._records = records
        self._first = first
        self._numbers = bytearray()
        self._present = bytearray()
        self._waiting: Numbered | None = None

    def at(self, ordinal: int) -> int:
        """Return the identity at this ordinal, or ABSENT."""
        self._fill(ordinal + 1)
        at = (ordinal - self._first) * _BYTES
        return int.from_bytes(self._numbers[at : at + _BYTES], "little")

    def offsets_of(self, number: int, low: int, high: int) -> list[int]:
        """Return the ordinals in [low, high] with this identity."""
        self._fill(high + 1)
        pattern = number.to_bytes(_BYTES, "little")
        begin = (low - self._first) * _BYTES
        end = (high + 1 - self._first) * _BYTES
        out = []
        at = self._numbers.find(pattern, begin, end)
        while at >= 0:
            if at % _BYTES == 0:
                out.append(self._first + at // _BYTES)
            at = self._numbers.find(pattern, at + 1, end)
        return out

    def absent(self, low: int, high: int) -> int:
        """Return the number of ordinals in [low, high] without a record."""
        if high < low:
            return 0
        self._fill(high + 1)
        return self._present.count(0, low - self._first, high + 1 - self._first)

    def forget_below(self, ordinal: int) -> None:
        """Drop everything below this ordinal, because it is never needed again."""
        count = min(ordinal - self._first, len(self._present))
        if count > 0:
            del self._numbers[: count * _BYTES], self._present[:count]
            self._first += count

    def _fill(self, end: int) -> None:
        if end - self._first > MAX_HELD:
            raise PartitionError(
                f"compaction left a hole of more than {MAX_HELD} offsets: it is undecided "
                "which records were in it",
                code="REBUILD_AMBIGUOUS",
            )
        while self._first + len(self._present) < end:
            next_ordinal = self._first + len(self._present)
            record = self._waiting or next(self._records, None)
            self._waiting = None
            if record is None or record.ordinal >= end:
                self._waiting = record
                count = end - next_ordinal
                self._numbers += bytes(count * _BYTES)
                self._present += bytes(count)
            elif record.ordinal >= next_ordinal:
                gap = record.ordinal - next_ordinal
                self._numbers += bytes(gap * _BYTES) + record.number.to_bytes(_BYTES, "little")
                self._present += bytes(gap) + b"\x01"
