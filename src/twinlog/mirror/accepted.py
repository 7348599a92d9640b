"""Records of somebody else in a remote topic of ours that people have accepted: they stay, and the
copy resumes behind them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """All that was not ours at the end of one target log, and what K is behind it.

    K only grows with what is accepted. So a start that finds this K, or a larger one, in the
    offset map need not look at the range again (`mirror.map.accepted_records`).
    """

    ranges: tuple[tuple[int, int], ...]
    """[first, next) of target offsets, rising; records of ours may lie between."""
    k: int
    """Target offset - ordinal of every record of ours behind the last of them."""
    digest: int = 0
    """CRC-32 of where their batches begin, their producer ids and checksums: others at the same
    place are not accepted."""

    @property
    def first(self) -> int:
        return self.ranges[0][0]

    @property
    def offsets(self) -> int:
        return sum(following - first for first, following in self.ranges)

    def __str__(self) -> str:
        return ", ".join(f"[{first}, {following})" for first, following in self.ranges)
