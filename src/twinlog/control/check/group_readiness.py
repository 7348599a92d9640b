"""Finds which groups of a flow's source are ready to move to its target, and where each group would
resume. Only reads.

A group is ready if it has no members on either side, and if each of its committed offsets has an
exact counterpart on the target. A group that moves although it is not ready would read records
again, or find no offset to resume from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from twinlog.cluster.client import prompt_client
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import Group, list_groups
from twinlog.cluster.groups.group_members import GroupSide, group_sides
from twinlog.cluster.groups.group_offsets import GroupOffsets
from twinlog.cluster.groups.share_groups import offsets_of
from twinlog.config.flow.schema import MirrorConfig
from twinlog.control.check.offline_status import idle_flow_interface
from twinlog.control.duties.rounds import LedFlow
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.groups.counterparts import (
    NOTHING_COMMITTED,
    Counterpart,
    CounterpartFinder,
    why_no_counterpart,
)
from twinlog.control.groups.left_out import (
    hidden_groups_line,
    lists_groups,
    other_flows,
    skipping_groups,
)
from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition
from twinlog.quantities import first_few, plural, total
from twinlog.survey.ends import known_ends

BY_KEY: Final = "records are partitioned by key there, so offsets cannot be translated"
NOT_REACHED: Final = "the copy has not reached it"
BY_MM2: Final = "MirrorMaker 2 copied these records, so the group would read some of them again"

Offsets: TypeAlias = Mapping[str, GroupOffsets | TwinlogError]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A committed offset of a group, and its counterpart on the target."""

    FIELDS = "topic partition offset end to_topic to_offset why_not lag is_exact"

    topic: str
    """Source topic. `partition` and `offset` also belong to the source."""
    partition: int
    offset: int
    end: int | None
    """End of the source's log."""
    to_topic: str | None
    to_offset: int | None
    """The counterpart's offset on the target, or None if there is no counterpart."""
    why_not: str
    """Why the counterpart is not exact; empty if it is exact."""

    @property
    def is_exact(self) -> bool:
        return not self.why_not

    @property
    def lag(self) -> int | None:
        """Return the number of offsets that the group has not read yet, or None if unknown."""
        return None if self.end is None else max(0, self.end - self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReadiness:
    """One group on both sides, with the reasons why it is not ready to move, if any."""

    FIELDS = (
        "group is_share is_ready why_not state=source_side.state members "
        "source=source_side.as_json target=target_side.as_json lag offsets=committed"
    )

    group: str
    is_share: bool
    source_side: GroupSide
    """State and members of the group on the source."""
    target_side: GroupSide
    """State and members of the group on the target."""
    committed: tuple[CommittedOffset, ...]
    why_not: tuple[str, ...]
    """Why the group is not ready to move; empty if it is ready."""

    @property
    def is_ready(self) -> bool:
        return not self.why_not

    @property
    def lag(self) -> int | None:
        """Return the group's lag, summed over its partitions, or None if it is unknown for all
        partitions.
        """
        return total(committed.lag for committed in self.committed)

    @property
    def members(self) -> list[dict[str, Any]]:
        return [member._asdict() for member in self.source_side.members or ()]


@dataclass(slots=True, kw_only=True)
class FlowGroups:
    """The selected groups of a flow's source."""

    FIELDS = "flow groups left_out notes"

    flow: str
    groups: list[GroupReadiness] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: int = 0
    """Number of source groups excluded by `groups` and `groups.exclude`."""

    def note(self, line: str) -> None:
        """Add a note about a failed query, once."""
        if line not in self.notes:
            self.notes.append(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSurvey:
    """The groups of one flow, as both clusters report them."""

    led: LedFlow
    selected: tuple[Group, ...]
    left_out: int
    offsets: Offsets
    counterparts: Mapping[TopicPartition, Counterpart]
    without_counterpart: Mapping[TopicPartition, str]
    """Source partitions whose committed offset has no counterpart, with the reason."""
    there: Mapping[str, Group]
    """Groups of the target, by name."""
    there_client: Coordinators


def ready_groups(config: MirrorConfig, group_ids: Iterable[str] = ()) -> Iterator[FlowGroups]:
    """Yield the groups of each flow, or only those in `group_ids`. Raises TwinlogError if a cluster
    of a flow cannot be queried.
    """
    names = frozenset(group_ids)
    for flow in config.flows:
        yield _groups_of_flow(flow_setup(flow), names)


def _groups_of_flow(setup: FlowSetup, names: frozenset[str]) -> FlowGroups:
    out = FlowGroups(flow=setup.name)
    with prompt_client(setup.source) as source, prompt_client(setup.target) as target:
        led = idle_flow_interface(setup, source, target, out.note)
        coordinators = Coordinators(source)
        survey = survey_groups(led, coordinators, Coordinators(target), names)
        if not survey.selected and not lists_groups(source):
            out.note(hidden_groups_line(setup.config))
        tps = {tp for _, of_group in _read(survey.offsets) for tp in of_group}
        ends = known_ends(source, led.config, tps)
        remotes = {view.source.topic: view.target.topic for view in led.partitions()}
        others = other_flows(led.config, target, remotes.values())
        for line in skipping_groups(led.config, remotes, others, dict(_read(survey.offsets))):
            out.note(line)
        selected = {group.name: group for group in survey.selected}
        of_source = group_sides(coordinators, selected, selected)
        of_target = group_sides(survey.there_client, survey.there, selected)
    out.left_out = survey.left_out
    for group in survey.selected:
        sides = of_source.of(group.name), of_target.of(group.name)
        out.groups.append(readiness(group, survey, ends, *sides))
    return out


def survey_groups(
    led_flow: LedFlow,
    source_groups: Coordinators,
    target_groups: Coordinators,
    names: frozenset[str] = frozenset(),
) -> GroupSurvey:
    """Return the selected groups, their offsets, and the counterparts on the target."""
    groups = [
        group
        for group in list_groups(source_groups).values()
        if group.has_offsets or group.is_share
    ]
    selects = led_flow.config.groups.selects
    selected = sorted(
        (group for group in groups if selects(group.name) and (not names or group.name in names)),
        key=lambda group: group.name,
    )
    consumers = [group.name for group in selected if not group.is_share]
    offsets = offsets_of(
        source_groups, consumers, [group.name for group in selected if group.is_share]
    )
    tps = {tp for _, of_group in _read(offsets) for tp in of_group}
    finder = CounterpartFinder(led_flow, source_groups.client, target_groups.client)
    counterparts = finder.find(tps, finder.views()) if tps else {}
    return GroupSurvey(
        led=led_flow,
        selected=tuple(selected),
        left_out=sum(not selects(group.name) for group in groups),
        offsets=offsets,
        counterparts=counterparts,
        without_counterpart=_without_counterpart(tps, counterparts, led_flow),
        there=list_groups(target_groups),
        there_client=target_groups,
    )


def readiness(
    group: Group,
    survey: GroupSurvey,
    ends: Mapping[TopicPartition, int],
    source_side: GroupSide,
    target_side: GroupSide,
) -> GroupReadiness:
    offsets = survey.offsets[group.name]
    config = survey.led.config.flow
    why_not: list[str] = []
    if source_side.is_active:
        why_not.append(f"it is active on {config.source}: {source_side.who}")
    if target_side.is_active:
        why_not.append(f"it is active on {config.target}: {target_side.who}")
    elif target_side.state is None:
        why_not.append(f"unknown whether it is active on {config.target}: {target_side.problem}")
    committed: tuple[CommittedOffset, ...] = ()
    if isinstance(offsets, TwinlogError):
        why_not.append(str(offsets))
    elif not offsets:
        why_not.append(NOTHING_COMMITTED)
    else:
        committed = tuple(_committed_offsets(offsets, survey, ends))
        why_not += _reason_lines(committed)
    return GroupReadiness(
        group=group.name,
        is_share=group.is_share,
        source_side=source_side,
        target_side=target_side,
        committed=committed,
        why_not=tuple(why_not),
    )


def _without_counterpart(
    tps: Iterable[TopicPartition],
    counterparts: Mapping[TopicPartition, Counterpart],
    led_flow: LedFlow,
) -> dict[TopicPartition, str]:
    mirrored, intents = {view.source: view for view in led_flow.partitions()}, led_flow.intents()
    keyed = {view.source for view in mirrored.values() if view.is_keyed}
    missing = (tp for tp in tps if tp not in counterparts or not counterparts[tp].runs)
    return {
        tp: BY_KEY if tp in keyed else why_no_counterpart(tp, mirrored.get(tp), intents)
        for tp in missing
    }


def _committed_offsets(
    offsets: GroupOffsets, survey: GroupSurvey, ends: Mapping[TopicPartition, int]
) -> Iterator[CommittedOffset]:
    for tp, committed in sorted(offsets.items()):
        to_topic, to_offset, why_not = None, None, survey.without_counterpart.get(tp, "")
        if not why_not:
            counterpart = survey.counterparts[tp]
            translation = counterpart.translate(committed.offset)
            to_topic, to_offset = counterpart.target.topic, translation.offset
            why_not = "" if translation.is_exact else _why_not_exact(counterpart, committed.offset)
        yield CommittedOffset(
            topic=tp.topic,
            partition=tp.partition,
            offset=committed.offset,
            end=ends.get(tp),
            to_topic=to_topic,
            to_offset=to_offset,
            why_not=why_not,
        )


def _why_not_exact(counterpart: Counterpart, offset: int) -> str:
    if offset > counterpart.copied_to:
        return f"{NOT_REACHED} ({plural(offset - counterpart.copied_to, 'offset')} before it)"
    return BY_MM2


def _reason_lines(committed: Iterable[CommittedOffset]) -> Iterator[str]:
    """Yield one line for each reason, with its partitions."""
    by_reason: dict[str, list[str]] = {}
    for offset in committed:
        if reason := offset.why_not:
            if reason.startswith(NOT_REACHED):
                reason = NOT_REACHED
            by_reason.setdefault(reason, []).append(f"{offset.topic}-{offset.partition}")
    for reason, names in by_reason.items():
        yield f"{plural(len(names), 'partition')} ({first_few(names)}): {reason}"


def _read(offsets: Offsets) -> Iterator[tuple[str, GroupOffsets]]:
    for name, of_group in offsets.items():
        if not isinstance(of_group, TwinlogError):
            yield name, of_group
