"""Tracks other clients that write to a target partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.mirror.findings import Span

MARK_AFTER: Final = 10_000
"""Minimum number of foreign records after this flow's last one to write a row of the map for them.
"""


@dataclass(slots=True)
class Company:
    """Other writers, as known to one copy in a topic that this flow shares."""

    is_ours: bool
    """Whether another Twinlog flow writes there, so that K moves all the time."""
    unknown: Span | None = None
    """Target offsets between this flow's records. Nothing is sent until their writer is known."""
    ordinal: int = -1
    """Ordinal of this flow's first record after the beginning of `unknown`."""
    passed: int = 0
    """Target offset up to which the writers were checked."""
    reach: int = -1
    """Target offset up to which only others wrote after this flow's last record, when it was
    checked.
    """

    def wrote(self, first: int, following: int, ordinal: int) -> None:
        """Note foreign records before the batch of this ordinal, which was just acknowledged."""
        if self.is_ours:
            return
        if self.unknown is None:
            self.ordinal = ordinal
        self.unknown = Span(first if self.unknown is None else self.unknown.first, following)

    def mark_above(self, acked: int, *, moves: bool) -> int:
        """Return how far a mark may reach if this flow's last record ends at `acked`.

        If nothing is in flight (`moves`), the mark covers the foreign records, so that a later
        start need not read them.
        """
        return self.reach if moves and self.reach - acked >= MARK_AFTER else acked
