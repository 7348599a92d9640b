"""Tracks other clients that write to the target partition of a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.mirror.findings import Span

MARK_AFTER: Final = 10_000
"""A row of the map is written for foreign records after this flow's last record if there are at
least this many.
"""


@dataclass(slots=True)
class OtherWriters:
    """Other writers to the target partition of one copy, in a topic that several clients share."""

    has_other_flow: bool
    """Whether another Twinlog flow writes there, so that K changes all the time."""
    unknown: Span | None = None
    """Foreign offsets between this flow's records. Nothing is sent until their writer is known."""
    ordinal: int = -1
    """Ordinal of this flow's first record after the beginning of `unknown`."""
    passed: int = 0
    """Target offset up to which the writers are known."""
    reach: int = -1
    """Target offset up to which only other clients wrote after this flow's last record, at the last
    check.
    """

    def wrote(self, first: int, following: int, ordinal: int) -> None:
        """Note foreign records before the batch of this ordinal, which was just acknowledged."""
        if self.has_other_flow:
            return
        if self.unknown is None:
            self.ordinal = ordinal
        self.unknown = Span(first if self.unknown is None else self.unknown.first, following)

    def mark_above(self, acked: int, *, moves: bool) -> int:
        """Return the target offset of a mark if this flow's last record ends at `acked`.

        If nothing is in flight (`moves`), the mark is set after the foreign records, so that a
        later start need not read them.
        """
        return self.reach if moves and self.reach - acked >= MARK_AFTER else acked
