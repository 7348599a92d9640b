"""Checks whether a group that moved to the target now would skip records.

Offsets on the target are queried before those on the source. A sync that sets an offset in between
can therefore not make the target look ahead, because commits only move forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import Group, list_groups
from twinlog.cluster.groups.group_offsets import GroupOffsets
from twinlog.cluster.groups.share_groups import offsets_of
from twinlog.control.check.group_readiness import GroupSurvey, Offsets, survey_groups
from twinlog.control.compare.groups import why_left_alone
from twinlog.control.duties.rounds import LedFlow
from twinlog.control.verify.result import VerifiedFlow, VerifiedGroup
from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition


def offsets_there(there: Coordinators, selects: Callable[[str], bool]) -> Offsets:
    """Return the offsets of the target's groups that a flow would set."""
    found = [one for one in list_groups(there).values() if selects(one.name)]
    return offsets_of(
        there,
        [one.name for one in found if one.has_offsets and not one.is_share],
        [one.name for one in found if one.is_share],
        furthest=True,
    )


def verify_groups(
    led: LedFlow,
    here: Coordinators,
    there: Coordinators,
    before: Offsets,
    out: VerifiedFlow,
) -> None:
    """Verify every offset of a selected group that has a counterpart on the target. `before` is the
    result of `offsets_there`, queried earlier.
    """
    survey = survey_groups(led, here, there)
    for group in survey.selected:
        theirs = before.get(group.name, {})
        ours = survey.offsets[group.name]
        for problem in (theirs, ours):
            if isinstance(problem, TwinlogError):
                out.leave_out(f"group {group.name} is not compared: {problem}")
        if not isinstance(theirs, TwinlogError) and not isinstance(ours, TwinlogError):
            out.groups += _of_group(group, survey, ours, theirs)


def _of_group(
    group: Group, survey: GroupSurvey, ours: GroupOffsets, theirs: GroupOffsets
) -> Iterator[VerifiedGroup]:
    why = why_left_alone(group, survey.there.get(group.name))
    for tp, committed in sorted(ours.items()):
        if tp in survey.without_counterpart or tp not in survey.counterparts:
            continue
        counterpart = survey.counterparts[tp]
        stands = theirs.get(counterpart.target)
        yield VerifiedGroup(
            group=group.name,
            source=tp,
            target=TopicPartition(*counterpart.target),
            committed=committed.offset,
            wanted=counterpart.translate(committed.offset).offset,
            stands=None if stands is None else stands.offset,
            left_alone=why,
        )
