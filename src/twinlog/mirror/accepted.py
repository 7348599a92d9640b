"""Foreign records that an operator accepted: records of other clients in a remote topic. These
records are not deleted, and the copy resumes after them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The foreign records of one target log, up to the log's end, and the value of K after them.

    Accepted records only increase K. So a start that finds this K, or a larger one, in the offset
    map need not check the ranges again (`mirror.map.foreign_records`).
    """

    ranges: tuple[tuple[int, int], ...]
    """Rising ranges [first, next) of target offsets, with records of this flow between them."""
    k: int
    """Target offset minus ordinal, for all of this flow's records after the last range."""
    digest: int = 0
    """CRC-32 of the foreign batches' base offsets, producer IDs and checksums, because an
    acceptance does not cover different records at the same offsets.
    """

    @property
    def first(self) -> int:
        return self.ranges[0][0]

    @property
    def offsets(self) -> int:
        return sum(following - first for first, following in self.ranges)

    def __str__(self) -> str:
        return ", ".join(f"[{first}, {following})" for first, following in self.ranges)
