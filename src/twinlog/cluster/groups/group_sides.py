"""The state and members of groups on one cluster, for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import DEAD, Group
from twinlog.cluster.groups.group_members import Member, group_members, named
from twinlog.cluster.groups.group_rights import unseen_groups
from twinlog.errors import TwinlogError
from twinlog.wire.error_codes import GROUP_AUTHORIZATION_FAILED, error_for


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSide:
    """The state and members of one group."""

    state: str | None
    """Kafka's term, `Dead` if the group does not exist, or None if the user may not describe it."""
    members: tuple[Member, ...] | None
    """None if they are unknown."""
    problem: str = ""
    """Why state or members are unknown, or empty."""
    is_active: bool = False
    """Whether it has members, or may have some."""

    @property
    def who(self) -> str:
        """The members as text, or why they are unknown."""
        return self.problem if self.members is None else named(self.members)

    def as_json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "members": None if self.members is None else len(self.members),
            "problem": self.problem,
        }


NOT_THERE: Final = GroupSide(state=DEAD, members=())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSides:
    """Groups of one cluster."""

    found: Mapping[str, Group]
    members: Mapping[str, tuple[Member, ...] | TwinlogError] = field(default_factory=dict)
    unseen: Mapping[str, TwinlogError] = field(default_factory=dict)
    """Groups that the user may not describe, whether they exist or not."""

    def of(self, name: str) -> GroupSide:
        """Return the group with this name."""
        group = self.found.get(name)
        if group is None:
            why = self.unseen.get(name)
            unseen = GroupSide(state=None, members=None, problem=str(why))
            return NOT_THERE if why is None else unseen
        members = self.members.get(name, ())
        if isinstance(members, TwinlogError):
            return GroupSide(
                state=group.state, members=None, problem=str(members), is_active=group.is_active
            )
        return GroupSide(state=group.state, members=members, is_active=group.is_active)


def group_sides(
    coordinators: Coordinators, found: Mapping[str, Group], wanted: Iterable[str]
) -> GroupSides:
    """Return the groups that are `wanted`. `found` are all groups that the cluster lists, without
    those that Twinlog's user may not describe.
    """
    names = list(wanted)
    active = [found[name] for name in names if name in found and found[name].is_active]
    client = coordinators.client
    unseen = unseen_groups(client, [name for name in names if name not in found])
    return GroupSides(
        found=found,
        members=group_members(coordinators, active),
        unseen={
            name: error_for(
                GROUP_AUTHORIZATION_FAILED,
                cluster=client.alias,
                doing=f"describing group {name}",
                acl=f"DESCRIBE on group {name}",
            )
            for name in sorted(unseen)
        },
    )
