"""Reads the members of groups: their client IDs and their hosts.

Each kind of group has a request of its own: classic groups, groups of the newer consumer protocol
(KIP-848) and share groups (KIP-932).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kafka.protocol.admin import DescribeGroupsRequest

from twinlog.cluster.group_messages import ConsumerGroupDescribeRequest, ShareGroupDescribeRequest
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import Group
from twinlog.cluster.groups.group_rights import MISSING_IS_DEAD
from twinlog.cluster.net.protocol import Message
from twinlog.errors import TwinlogError
from twinlog.quantities import first_few
from twinlog.wire.error_codes import GROUP_ID_NOT_FOUND

GROUPS_AT_ONCE: Final = 100
DOING: Final = "listing the members of"


class Member(NamedTuple):
    """One member of a group."""

    client_id: str
    """`client.id` of the member."""
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
        out.update(_described(coordinators, kind, names))
    return out


def named(members: Sequence[Member]) -> str:
    """Return text like `shop-1 at 10.0.0.7, shop-2 at 10.0.0.8 and 3 more`."""
    return first_few(str(one) for one in members) if members else "members unknown"


def _classic(names: Sequence[str]) -> Message:
    return DescribeGroupsRequest(groups=list(names), include_authorized_operations=False)


def _consumer(names: Sequence[str]) -> Message:
    return ConsumerGroupDescribeRequest(group_ids=list(names), include_authorized_operations=False)


def _share(names: Sequence[str]) -> Message:
    return ShareGroupDescribeRequest(group_ids=list(names), include_authorized_operations=False)


_REQUESTS: Final[Mapping[str, tuple[Callable[[Sequence[str]], Message], int | None]]] = {
    "": (_classic, MISSING_IS_DEAD),
    "consumer": (_consumer, None),
    "share": (_share, None),
}
"""The request for each kind of group, and its highest version."""


def _described(
    coordinators: Coordinators, kind: str, names: Sequence[str]
) -> dict[str, Members | TwinlogError]:
    request, maximum = _REQUESTS[kind]

    def ask(node: int, some: Sequence[str]) -> dict[str, Members | TwinlogError]:
        out: dict[str, Members | TwinlogError] = {}
        for start in range(0, len(some), GROUPS_AT_ONCE):
            message = request(some[start : start + GROUPS_AT_ONCE])
            for one in coordinators.client.attempt(node, message, maximum=maximum).groups:
                out[str(one.group_id)] = _of(coordinators, one)
        return out

    return coordinators.ask(names, ask, doing=DOING)


def _of(coordinators: Coordinators, one: Any) -> Members | TwinlogError:
    code = int(one.error_code)
    if code and code != GROUP_ID_NOT_FOUND:
        return coordinators.error(code, DOING, str(one.group_id))
    found = (Member(str(each.client_id), str(each.client_host)) for each in one.members or ())
    return tuple(sorted(found))
