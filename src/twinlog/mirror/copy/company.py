"""Who else writes to a target partition, as the copy that writes there knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.mirror.findings import Span

MARK_AFTER: Final = 10_000
"""Records of others behind our last one that are worth a row of the map."""


@dataclass(slots=True)
class Company:
    """Of one copy in a topic that is not ours alone."""

    is_ours: bool
    """A flow of ours writes there, so that K moves all the time."""
    unknown: Span | None = None
    """Target offsets between our records: before it is known who wrote them nothing is sent."""
    ordinal: int = -1
    """Of our first record behind the beginning of those."""
    passed: int = 0
    """Target offset up to which it was looked who wrote."""
    reach: int = -1
    """Target offset up to which others wrote behind our last record, when it was checked."""

    def wrote(self, first: int, following: int, ordinal: int) -> None:
        """Somebody did, before the batch of this ordinal that was just acknowledged."""
        if self.is_ours:
            return
        if self.unknown is None:
            self.ordinal = ordinal
        self.unknown = Span(first if self.unknown is None else self.unknown.first, following)

    def mark_above(self, acked: int, *, moves: bool) -> int:
        """How far a mark may reach whose last record of ours ends at `acked`. With nothing on its
        way it `moves`: a later start need not read what others wrote.
        """
        return self.reach if moves and self.reach - acked >= MARK_AFTER else acked
