"""The progress of several walks that run in parallel."""

from __future__ import annotations

from collections.abc import Sequence

from twinlog.mirror.verify.pairs import Pairs
from twinlog.survey.verify.partition import VerifyTask


class WalkProgress:
    """Progress in offsets of the target. It never decreases, and is complete once each walk has
    ended, even if a walk was restarted, read less than planned, or failed.

    One thread at a time updates it; others may read.
    """

    def __init__(self, wanted: Sequence[VerifyTask], *, is_again: bool = False) -> None:
        self._of_each = [extent(one) for one in wanted]
        self._done = [0] * len(wanted)
        self.is_again = is_again
        """The walks repeat earlier comparisons."""
        self.total = sum(self._of_each)
        self.done = 0

    def reach(self, number: int, offsets: int) -> None:
        """Set the number of offsets that this walk has done."""
        now = min(offsets, self._of_each[number])
        if now > self._done[number]:
            self.done += now - self._done[number]
            self._done[number] = now

    def end(self, number: int) -> None:
        """Mark this walk as ended."""
        self.reach(number, self._of_each[number])


def extent(wanted: VerifyTask) -> int:
    """Return the number of target offsets that a walk will pass, from the bounds known so far."""
    runs, reach = wanted.written.runs, wanted.written.reach
    if not runs:
        return 0
    pairs, there = Pairs(runs), wanted.there
    since = min(wanted.since, wanted.here.end)
    begin = pairs.first_counterpart(max(wanted.here.start, pairs.first.upstream, since))
    end = there.end
    if wanted.until is not None and (reach is None or wanted.until < reach.upstream):
        end = min(end, pairs.first_counterpart(wanted.until))
    return max(0, end - max(begin, there.start))
