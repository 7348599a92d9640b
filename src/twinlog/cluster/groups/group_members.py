"""Reads the members of groups: their client IDs and their hosts.

There is a separate request for each kind of group: classic groups, groups of the newer consumer
protocol (KIP-848) and share groups (KIP-932).

A group of Kafka Connect workers also shows which connectors each worker runs. The worker's metadata
has the connectors that it ran when it joined, and its assignment the connectors that it was
assigned after it joined. Both are in Connect's own format (versions 0 to 2 of its protocol):

    metadata    int16 version, string URL, int64 config offset, bytes assignment (since version 1)
    assignment  int16 version, int16 error, string leader, string leader's URL, int64 config offset,
                array of (string connector, array of int32 tasks)      task -1 is the connector
                itself, which a worker keeps without tasks while the connector is stopped
                ... fields of later versions are not needed
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from kafka.protocol.admin import DescribeGroupsRequest

from twinlog.cluster.group_messages import ConsumerGroupDescribeRequest, ShareGroupDescribeRequest
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import DEAD, MISSING_IS_DEAD, Group, hidden_groups
from twinlog.cluster.net.protocol import Message
from twinlog.errors import TwinlogError, or_raise
from twinlog.model import batched
from twinlog.quantities import first_few
from twinlog.wire.error_codes import GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND

T = TypeVar("T")

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">hh")
_CONFIG_OFFSET_BYTES: Final = 8
MAX_CONNECTORS: Final = 100_000


MemberData: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Metadata and assignment of each member of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectGroup:
    """The workers of a Connect cluster, as known to the group's coordinator."""

    members: int
    connectors: frozenset[str] | None
    """Connectors with tasks, running or paused. None if unknown, as during an assignment."""

    def may_run(self, connector: str) -> bool:
        """Return True if a worker runs the connector, or if the connectors are unknown."""
        return self.members > 0 and (self.connectors is None or connector in self.connectors)


def connect_group(coordinators: Coordinators, group: str) -> ConnectGroup:
    """Return the state of a group of Connect workers. A group that does not exist has no members.
    Raises Unauthorized and other TwinlogErrors.
    """
    return group_of(member_data(coordinators, group))


def member_data(coordinators: Coordinators, group: str) -> MemberData:
    """Return the metadata and assignment of each member of a classic group. Both are empty while
    the group rebalances. A group that does not exist has no members. Raises TwinlogError.
    """

    def data_of(member: Message) -> tuple[bytes, bytes]:
        return bytes(member.member_metadata or b""), bytes(member.member_assignment or b"")

    described = _describe_members(coordinators, "", [group], data_of, doing="describing")
    return or_raise(described[group])


def group_of(members: MemberData) -> ConnectGroup:
    """Return the state of a group with these members."""
    names, is_known = set[str](), True
    for metadata, assignment in members:
        try:
            names.update(_names(assignment))
            if had := _assigned_config(metadata):
                names.update(_names(had))
        except (struct.error, UnicodeDecodeError, ValueError):
            is_known = False
    return ConnectGroup(members=len(members), connectors=frozenset(names) if is_known else None)


def _assigned_config(metadata: bytes) -> bytes:
    (version,) = _INT16.unpack_from(metadata)
    at = _string(metadata, _INT16.size)[1] + _CONFIG_OFFSET_BYTES
    if version < 1:
        return b""
    (length,) = _INT32.unpack_from(metadata, at)
    at += _INT32.size
    return metadata[at : at + max(length, 0)]


def _names(data: bytes) -> Iterator[str]:
    at = _HEAD.size
    _HEAD.unpack_from(data)
    for _ in range(2):  # the leader and the leader's URL
        at = _string(data, at)[1]
    at += _CONFIG_OFFSET_BYTES
    (count,) = _INT32.unpack_from(data, at)
    at += _INT32.size
    if count > MAX_CONNECTORS:
        raise ValueError("not an assignment of Connect")
    for _ in range(count):
        name, at = _string(data, at)
        (count_of_tasks,) = _INT32.unpack_from(data, at)
        at += _INT32.size
        tasks = struct.unpack_from(f">{max(count_of_tasks, 0)}i", data, at)
        at += _INT32.size * len(tasks)
        if any(task >= 0 for task in tasks):
            yield name


def _string(data: bytes, position: int) -> tuple[str, int]:
    (length,) = _INT16.unpack_from(data, position)
    position += _INT16.size
    if position + max(length, 0) > len(data):
        raise ValueError("a string is truncated")
    return data[position : position + max(length, 0)].decode(), position + max(length, 0)


GROUPS_AT_ONCE: Final = 100


class Member(NamedTuple):
    client_id: str
    host: str
    """The member's address from the broker's view."""

    def __str__(self) -> str:
        return f"{self.client_id or 'a client without an id'} at {self.host.lstrip('/')}"


Members: TypeAlias = tuple[Member, ...]


def group_members(
    coordinators: Coordinators, groups: Iterable[Group]
) -> dict[str, Members | TwinlogError]:
    """Return the sorted members of each group, or an error. A deleted group has no members."""
    by_kind: dict[str, list[str]] = {}
    for group in groups:
        kind = group.kind.lower()
        by_kind.setdefault(kind if kind in _REQUESTS else "", []).append(group.name)
    out: dict[str, Members | TwinlogError] = {}
    for kind, names in by_kind.items():
        described = _describe_members(
            coordinators, kind, names, _member_of, doing="listing the members of"
        )
        out |= {
            name: members if isinstance(members, TwinlogError) else tuple(sorted(members))
            for name, members in described.items()
        }
    return out


def _member_of(member: Message) -> Member:
    return Member(str(member.client_id), str(member.client_host))


def members_text(members: Sequence[Member]) -> str:
    """Return text like `shop-1 at 10.0.0.7, shop-2 at 10.0.0.8 and 3 more`."""
    return first_few(str(member) for member in members) if members else "members unknown"


_BRIEF: Final = {"include_authorized_operations": False}
_REQUESTS: Final[Mapping[str, tuple[Callable[[list[str]], Message], int | None]]] = {
    "": (lambda names: DescribeGroupsRequest(groups=names, **_BRIEF), MISSING_IS_DEAD),
    "consumer": (lambda names: ConsumerGroupDescribeRequest(group_ids=names, **_BRIEF), None),
    "share": (lambda names: ShareGroupDescribeRequest(group_ids=names, **_BRIEF), None),
}
"""For each kind of group, a function that creates the request, and the highest version of it."""


def _describe_members(
    coordinators: Coordinators,
    kind: str,
    names: Sequence[str],
    convert: Callable[[Message], T],
    *,
    doing: str,
) -> dict[str, list[T] | TwinlogError]:
    """Return the converted members of each group, or an error."""
    request, maximum = _REQUESTS[kind]

    def ask(node: int, group_ids: Sequence[str]) -> dict[str, list[T] | TwinlogError]:
        out: dict[str, list[T] | TwinlogError] = {}
        for portion in batched(group_ids, GROUPS_AT_ONCE):
            message = request(list(portion))
            for group in coordinators.client.attempt(node, message, maximum=maximum).groups:
                name, code = str(group.group_id), int(group.error_code)
                out[name] = [convert(member) for member in group.members or ()]
                if code and code != GROUP_ID_NOT_FOUND:
                    out[name] = coordinators.error(code, doing, name)
        return out

    return coordinators.ask(names, ask, doing=doing)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSide:
    """The state and members of a group on one cluster."""

    state: str | None
    """Kafka's state (`Dead`: no such group), or None without permission to describe the group."""
    members: tuple[Member, ...] | None
    """The members, or None if they are unknown."""
    problem: str = ""
    """Why state or members are unknown, or an empty text if both are known."""
    is_active: bool = False
    """True if the group has members, or if its state does not show that it has none."""

    @property
    def who(self) -> str:
        """The members as text, or the reason if they are unknown."""
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
    """Groups of one cluster, with the members of the active ones."""

    groups: Mapping[str, Group]
    members: Mapping[str, tuple[Member, ...] | TwinlogError] = field(default_factory=dict)
    unseen: Mapping[str, TwinlogError] = field(default_factory=dict)
    """The error for each group that may exist, but that this user is not permitted to describe."""

    def of(self, name: str) -> GroupSide:
        group = self.groups.get(name)
        if group is None:
            why = self.unseen.get(name)
            if why is None:
                return NOT_THERE
            return GroupSide(state=None, members=None, problem=str(why))
        members = self.members.get(name, ())
        if isinstance(members, TwinlogError):
            return GroupSide(
                state=group.state, members=None, problem=str(members), is_active=group.is_active
            )
        return GroupSide(state=group.state, members=members, is_active=group.is_active)


def group_sides(
    coordinators: Coordinators, listed_groups: Mapping[str, Group], group_ids: Iterable[str]
) -> GroupSides:
    """Return state and members of the groups `group_ids`. `listed_groups` must contain all groups
    that Twinlog's user may describe.
    """
    names = list(group_ids)
    active = [
        listed_groups[name]
        for name in names
        if name in listed_groups and listed_groups[name].is_active
    ]
    unlisted = [name for name in names if name not in listed_groups]
    unseen = hidden_groups(coordinators.client, unlisted)
    return GroupSides(
        groups=listed_groups,
        members=group_members(coordinators, active),
        unseen={
            name: coordinators.error(GROUP_AUTHORIZATION_FAILED, "describing", name)
            for name in sorted(unseen)
        },
    )
