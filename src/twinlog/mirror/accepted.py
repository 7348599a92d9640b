"""Foreign records that an operator accepted: records of other clients in a remote topic. These
records are not deleted, and the copy resumes after them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The foreign records of one target log, up to the log's end, and K after them (target offset
    minus ordinal, `mirror.start_point`).

    Accepted records only increase K. So if the offset map already has this K or a larger one, a
    start need not check `ranges` again (`mirror.map.foreign_records`).
    """

    ranges: tuple[tuple[int, int], ...]
    """Target offset ranges [first, next) of the foreign records, in ascending order. Between two
    ranges are records of this flow.
    """
    k: int
    """Target offset minus ordinal (number of records that the flow wrote before), the same for all
    of this flow's records after the last range.
    """
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
