"""Compares the offsets of the target's groups with those that the flow's sync would set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import Group
from twinlog.cluster.groups.group_offsets import GroupOffsets
from twinlog.cluster.groups.share_groups import offsets_of
from twinlog.control.check.group_readiness import GroupSurvey, survey_groups
from twinlog.control.compare.deviation import Aspect, Deviation, FlowComparison
from twinlog.control.duties.rounds import LedFlow
from twinlog.errors import TwinlogError

SYNC_OFF: Final = "sync.group.offsets.enabled = false"
ACTIVE_THERE: Final = "it is active on the target, so its own commits count"
AHEAD: Final = "it is ahead on the target: an idle group is never moved back"
OTHER_KIND: Final = "a group of another type has that name on the target"


def compare_groups(
    led: LedFlow,
    here: Coordinators,
    there: Coordinators,
    out: FlowComparison,
    *,
    with_left_alone: bool,
) -> None:
    """Compare every offset of a selected group that has a counterpart on the target."""
    sync_s = led.config.groups.sync_s
    if sync_s is None and not with_left_alone:
        return
    survey = survey_groups(led, here, there)
    off = SYNC_OFF if sync_s is None else ""
    follows = f"it is active on {led.config.flow.source}, and synchronized every {sync_s} s"
    offsets = offsets_of(
        there,
        [one.name for one in survey.selected if not one.is_share],
        [one.name for one in survey.selected if one.is_share],
        furthest=True,
    )
    found: list[Deviation] = []
    for group in survey.selected:
        theirs = offsets.get(group.name, {})
        if isinstance(theirs, TwinlogError):
            out.note(f"group {group.name} is not compared: {theirs}")
            continue
        counterpart = survey.there.get(group.name)
        why = off or why_left_alone(group, counterpart) or (follows if group.is_active else "")
        found += _of_group(group, survey, theirs, why)
    out.add(Aspect.GROUP, len(survey.selected), found)


def why_left_alone(group: Group, there: Group | None) -> str:
    """Return why a group of the target may have other offsets; empty if it is synchronized."""
    if there is None:
        return ""
    if there.is_active:
        return ACTIVE_THERE
    is_same = there.is_share if group.is_share else there.has_offsets
    return "" if is_same else OTHER_KIND


def _of_group(
    group: Group, survey: GroupSurvey, theirs: GroupOffsets, why: str
) -> Iterator[Deviation]:
    ours = survey.offsets[group.name]
    if isinstance(ours, TwinlogError):
        return
    for tp, committed in sorted(ours.items()):
        if tp in survey.without_counterpart or tp not in survey.counterparts:
            continue
        counterpart = survey.counterparts[tp]
        wanted = counterpart.translate(committed.offset).offset
        stands = theirs[counterpart.target].offset if counterpart.target in theirs else None
        if stands == wanted:
            continue
        is_ahead = stands is not None and stands > wanted
        source = f"{committed.offset}, which corresponds to {wanted}"
        target = "none" if stands is None else str(stands)
        left_alone = why or (AHEAD if is_ahead else "")
        partition = str(counterpart.target)
        yield Deviation(Aspect.GROUP, group.name, partition, source, target, left_alone)
