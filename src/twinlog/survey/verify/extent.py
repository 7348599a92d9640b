"""How much a walk has before it: what a progress bar counts."""

from __future__ import annotations

from twinlog.mirror.verify.pairs import Pairs
from twinlog.survey.verify.partition import VerifyTask


def extent(wanted: VerifyTask) -> int:
    """How many offsets of the target a walk passes, by what was asked before it begins."""
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
