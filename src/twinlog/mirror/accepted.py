"""Foreign records in a remote topic that an operator accepted: they stay, and the copy resumes
after them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """All foreign records at the end of one target log, and K after them.

    Accepted records only increase K. So a start that finds this K, or a larger one, in the offset
    map need not check the ranges again (`mirror.map.foreign_records`).
    """

    ranges: tuple[tuple[int, int], ...]
    """[first, next) of target offsets, in rising order. This flow's records may be in between."""
    k: int
    """Target offset - ordinal of every record of this flow after the last range."""
    digest: int = 0
    """CRC-32 of the base offsets, producer IDs and checksums of their batches. Different records at
    the same offsets are not accepted.
    """

    @property
    def first(self) -> int:
        return self.ranges[0][0]

    @property
    def offsets(self) -> int:
        return sum(following - first for first, following in self.ranges)

    def __str__(self) -> str:
        return ", ".join(f"[{first}, {following})" for first, following in self.ranges)
