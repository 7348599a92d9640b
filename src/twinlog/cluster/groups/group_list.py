"""Lists groups of every kind, deletes groups without members, and checks permissions on groups.

All brokers are queried for a list, because each broker lists only the groups that it coordinates.

Permissions are checked without side effects. Any broker can be queried, because a broker checks
permissions before it checks if it is the coordinator. The coordinator is not looked up, because
this has a side effect: if the cluster has no offsets topic, the brokers create it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_protocol import PROTOCOL_TYPE
from twinlog.cluster.net.metadata import Operation, operations
from twinlog.cluster.net.protocol import Message
from twinlog.errors import TwinlogError, Unauthorized
from twinlog.wire.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    GROUP_ID_NOT_FOUND,
    NONE,
    lookup,
)

WITH_OPERATIONS: Final = 3
MISSING_IS_DEAD: Final = 5
"""The last version of DescribeGroups in which a missing group is Dead, not an error (KIP-1043)."""

EMPTY: Final = "Empty"
DEAD: Final = "Dead"
CONSUMERS: Final = frozenset({"", "consumer", "streams"})
"""Protocol types of groups that commit offsets. The empty type is that of a group without members
that only has offsets. Kafka Streams applications have the type `consumer`, or `streams` if they use
their own protocol (KIP-1071).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group, as its coordinator lists it."""

    name: str
    protocol_type: str
    state: str
    """The state in Kafka's terms, such as `Stable`. An empty text if an old broker reports none."""
    kind: str
    """The group type, such as `classic`, `consumer` or `share`. An empty text before Kafka 4."""

    @property
    def has_offsets(self) -> bool:
        """True if the group commits offsets as consumers do."""
        return self.protocol_type in CONSUMERS and not self.is_share

    @property
    def is_share(self) -> bool:
        """True for a share group, whose members share partitions record by record (KIP-932)."""
        return self.kind.lower() == "share"

    @property
    def why_left_alone(self) -> str:
        """Why the group has no offsets to translate. An empty text if the group can have offsets,
        or is one of Twinlog's own groups.
        """
        if self.has_offsets or self.is_share or self.protocol_type == PROTOCOL_TYPE:
            return ""
        kind = self.protocol_type or self.kind
        return f"groups of kind {kind!r} have no consumer offsets"

    @property
    def is_active(self) -> bool:
        """True if the group has members, or if its state does not show that it has none."""
        return self.state not in (EMPTY, DEAD)


def list_groups(coordinators: Coordinators) -> dict[str, Group]:
    """Return all groups that Twinlog's user may see. Raises TwinlogError if a broker fails.

    Without DESCRIBE on the cluster, a user sees only the groups on which it has DESCRIBE.
    """
    client = coordinators.client

    def ask() -> dict[str, Group]:
        out: dict[str, Group] = {}
        for node in client.metadata([]).brokers:
            answer = client.attempt(node, ListGroupsRequest(states_filter=[], types_filter=[]))
            client.check(answer, "listing groups", acl="DESCRIBE on the cluster, or on the groups")
            for listed in answer.groups:
                group = _group(listed, str(listed.group_type or ""))
                out[group.name] = group
                coordinators.learn(group.name, node)
        return out

    groups = client.retrying(ask)
    unknown = [group.name for group in groups.values() if not group.state]
    return groups | _describe_groups(coordinators, unknown)


def _group(group: Message, kind: str) -> Group:
    return Group(
        name=str(group.group_id),
        protocol_type=str(group.protocol_type or ""),
        state=str(group.group_state or ""),
        kind=kind,
    )


def _describe_groups(coordinators: Coordinators, names: Sequence[str]) -> dict[str, Group]:
    """Return groups with the state that DescribeGroups returns. Old brokers do not list states."""

    def ask(node: int, group_ids: Sequence[str]) -> dict[str, Group | TwinlogError]:
        out: dict[str, Group | TwinlogError] = {}
        request = DescribeGroupsRequest(groups=list(group_ids), include_authorized_operations=False)
        for group in coordinators.client.attempt(node, request, maximum=MISSING_IS_DEAD).groups:
            name, code = str(group.group_id), int(group.error_code)
            error = coordinators.error(code, "describing", name) if code else None
            out[name] = error or _group(group, "")
        return out

    described = coordinators.ask(names, ask, doing="describing") if names else {}
    return {name: group for name, group in described.items() if isinstance(group, Group)}


def delete_groups(
    coordinators: Coordinators, names: Iterable[str]
) -> dict[str, TwinlogError | None]:
    """Delete groups. Returns None for each group that was deleted or did not exist. Returns an
    error for the other groups, for example because a group has members.
    """

    def ask(node: int, group_ids: Sequence[str]) -> dict[str, TwinlogError | bool]:
        answer = coordinators.client.attempt(
            node, DeleteGroupsRequest(groups_names=list(group_ids))
        )
        out: dict[str, TwinlogError | bool] = {}
        for result in answer.results:
            name, code = str(result.group_id), int(result.error_code)
            is_gone = code in (0, GROUP_ID_NOT_FOUND)
            out[name] = True if is_gone else coordinators.error(code, "deleting", name, "DELETE")
        return out

    results = coordinators.ask(names, ask, doing="deleting")
    return {
        name: error if isinstance(error, TwinlogError) else None for name, error in results.items()
    }


def check_group_read(client: ClusterClient, group: str) -> None:
    """Raise Unauthorized if a broker reports that Twinlog's user is not permitted to join the
    group.

    Only the coordinator reports which operations are permitted. So a user with DESCRIBE but without
    READ on the group gets an error only if the queried broker happens to be the coordinator.
    """
    if unreadable_groups(client, [group]):
        coordinators, doing = Coordinators(client), "checking permissions on"
        raise coordinators.error(GROUP_AUTHORIZATION_FAILED, doing, group, "READ")


def unreadable_groups(client: ClusterClient, groups: Sequence[str]) -> list[str]:
    """Return the groups for which `check_group_read` would raise Unauthorized."""
    if not groups:
        return []
    request = DescribeGroupsRequest(groups=list(groups), include_authorized_operations=True)
    answer = client.send(None, request, minimum=WITH_OPERATIONS, maximum=MISSING_IS_DEAD)
    return [str(described.group_id) for described in answer.groups if _is_denied(described)]


def _is_denied(group: Message) -> bool:
    code = int(group.error_code)
    if code != NONE:
        return lookup(code).kind is Unauthorized
    rights = operations(group.authorized_operations)
    return rights is not None and Operation.READ not in rights


def hidden_groups(client: ClusterClient, groups: Sequence[str]) -> frozenset[str]:
    """Return the groups that Twinlog's user is not permitted to describe. These groups might not
    exist.
    """
    if not groups:
        return frozenset()
    request = DescribeGroupsRequest(groups=list(groups), include_authorized_operations=False)
    answer = client.send(None, request, maximum=MISSING_IS_DEAD)
    denied = (
        group for group in answer.groups if int(group.error_code) == GROUP_AUTHORIZATION_FAILED
    )
    return frozenset(str(group.group_id) for group in denied)
