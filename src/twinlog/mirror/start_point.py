"""Where the copy of a partition resumes, and what a flow decides for all its partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.mirror.map.offset_map import Mark, Run
from twinlog.model import Isolation
from twinlog.wire.recompress import Recompression

EXPIRY_MARGIN_MS: Final = 3_600_000
"""How much earlier than the brokers we take a producer id for forgotten, or a quarter of the expiry
where that is less.

They compare timestamps of records with their clocks, we with ours. A clock of ours that is behind
would take an id for known that is forgotten, one that is ahead only the other way round. With an
hour, clocks may differ by more than any that NTP looks after ever do; what it costs is that records
between 23 and 24 hours old go one batch at a time after trouble.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPoint:
    """Where a partition resumes, found by looking (`position.py`) or handed over by the lane
    before.
    """

    ordinal: int
    upstream: int
    k: int
    last_fetched_epoch: int
    """Source leader epoch of offset `upstream` - 1, -1 when it is not known."""
    is_protected: bool
    """The target lists our producer id for this partition."""
    last_timestamp: int
    """Timestamp of our last record there, in ms; -1 when unknown."""
    taken_over: bool = False
    """Others wrote behind our last record: nothing may follow."""
    lost: tuple[int, int] | None = None
    """[first, next) of the upstream offsets that the source deleted before they were copied, and
    that are passed over since that is accepted, or a group would have passed over them.
    """
    has_company: bool = False
    """Another flow of ours writes to the target partition."""
    target_epoch: int = -1
    """Leader epoch of the target partition that was checked, -1 when unknown."""
    compared: int = -1
    """How many of the last records were found the same at the source; -1: none was checked."""
    jumps: tuple[Run, ...] = ()
    """Runs before `ordinal` that the map has wrong: others wrote between our records, or were
    first.
    """
    undecided: tuple[int, int] | None = None
    """Target offsets [first, next) that the map had wrong, and whose records were not found at the
    source: they are translated to be read again.
    """

    def mark(self, known: Mark | None) -> Mark | None:
        """The mark with which the copy begins; `known`: the map's, from before the look.

        A final one is where this look found our end: an older one says less.
        """
        if self.taken_over:
            return Mark(self.ordinal, self.k + self.ordinal, is_final=True)
        return None if known is None else known._replace(is_final=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRules:
    """What a flow decides for all its partitions."""

    producer_id: int
    isolation: Isolation
    is_ours_alone: bool
    producer_expiry_ms: int | None
    """None: not known, so every partition is unprotected."""
    recompression: Recompression | None = None
    join_bytes: int = 0
    """Batches of a few records are joined up to this size; 0: they stay as they are."""

    @property
    def safe_age_ms(self) -> int | None:
        if self.producer_expiry_ms is None:
            return None
        return self.producer_expiry_ms - min(EXPIRY_MARGIN_MS, self.producer_expiry_ms // 4)

    def known_behind(self, timestamp: int, now_ms: int) -> bool:
        """The target keeps our producer id behind a record of this time."""
        age = self.safe_age_ms
        return age is not None and timestamp > now_ms - age

    def keeps(self, start: StartPoint, now_ms: int) -> bool:
        """The target surely remembers our producer id at this start point."""
        return start.is_protected and self.known_behind(start.last_timestamp, now_ms)
