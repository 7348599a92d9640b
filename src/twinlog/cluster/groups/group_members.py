"""Reads the members of groups: their client IDs and their hosts.

Each kind of group has a request of its own: classic groups, groups of the newer consumer protocol
(KIP-848) and share groups (KIP-932).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from kafka.protocol.admin import DescribeGroupsRequest

from twinlog.cluster.group_messages import ConsumerGroupDescribeRequest, ShareGroupDescribeRequest
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import DEAD, Group
from twinlog.cluster.groups.group_rights import MISSING_IS_DEAD, hidden_groups
from twinlog.cluster.net.protocol import Message
from twinlog.errors import TwinlogError
from twinlog.quantities import first_few
from twinlog.wire.error_codes import GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, error_for

GROUPS_AT_ONCE: Final = 100
DOING: Final = "listing the members of"


class Member(NamedTuple):
    client_id: str
    host: str
    """Address, as the broker sees it."""

    def __str__(self) -> str:
        return f"{self.client_id or 'a client without an id'} at {self.host.lstrip('/')}"


Members: TypeAlias = tuple[Member, ...]


def group_members(
    coordinators: Coordinators, groups: Iterable[Group]
) -> dict[str, Members | TwinlogError]:
    """Return the sorted members of each group, or the error. A deleted group has none."""
    by_kind: dict[str, list[str]] = {}
    for group in groups:
        kind = group.kind.lower()
        by_kind.setdefault(kind if kind in _REQUESTS else "", []).append(group.name)
    out: dict[str, Members | TwinlogError] = {}
    for kind, names in by_kind.items():
        out.update(_describe_members(coordinators, kind, names))
    return out


def members_text(members: Sequence[Member]) -> str:
    """Return text like `shop-1 at 10.0.0.7, shop-2 at 10.0.0.8 and 3 more`."""
    return first_few(str(member) for member in members) if members else "members unknown"


_BRIEF: Final = {"include_authorized_operations": False}
_REQUESTS: Final[Mapping[str, tuple[Callable[[list[str]], Message], int | None]]] = {
    "": (lambda names: DescribeGroupsRequest(groups=names, **_BRIEF), MISSING_IS_DEAD),
    "consumer": (lambda names: ConsumerGroupDescribeRequest(group_ids=names, **_BRIEF), None),
    "share": (lambda names: ShareGroupDescribeRequest(group_ids=names, **_BRIEF), None),
}
"""The request for each kind of group, and its highest version."""


def _describe_members(
    coordinators: Coordinators, kind: str, names: Sequence[str]
) -> dict[str, Members | TwinlogError]:
    request, maximum = _REQUESTS[kind]

    def ask(node: int, group_ids: Sequence[str]) -> dict[str, Members | TwinlogError]:
        out: dict[str, Members | TwinlogError] = {}
        for start in range(0, len(group_ids), GROUPS_AT_ONCE):
            message = request(list(group_ids[start : start + GROUPS_AT_ONCE]))
            for group in coordinators.client.attempt(node, message, maximum=maximum).groups:
                out[str(group.group_id)] = _members_of(coordinators, group)
        return out

    return coordinators.ask(names, ask, doing=DOING)


def _members_of(coordinators: Coordinators, described: Any) -> Members | TwinlogError:
    code = int(described.error_code)
    if code and code != GROUP_ID_NOT_FOUND:
        return coordinators.error(code, DOING, str(described.group_id))
    members = (
        Member(str(each.client_id), str(each.client_host)) for each in described.members or ()
    )
    return tuple(sorted(members))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSide:
    """The state and members of one group."""

    state: str | None
    """Kafka's term, `Dead` if the group does not exist, or None if the user may not describe it."""
    members: tuple[Member, ...] | None
    """The members, or None if they are unknown."""
    problem: str = ""
    """Why state or members are unknown, or empty."""
    is_active: bool = False
    """Whether it has members, or may have some."""

    @property
    def who(self) -> str:
        """The members as text, or why they are unknown."""
        return self.problem if self.members is None else members_text(self.members)

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
    coordinators: Coordinators, listed: Mapping[str, Group], wanted: Iterable[str]
) -> GroupSides:
    """Return the `wanted` groups. `listed`: all groups that Twinlog's user may describe."""
    names = list(wanted)
    active = [listed[name] for name in names if name in listed and listed[name].is_active]
    client = coordinators.client
    unseen = hidden_groups(client, [name for name in names if name not in listed])
    return GroupSides(
        found=listed,
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
