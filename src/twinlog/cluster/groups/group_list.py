"""Lists groups of every kind, and deletes groups without members. All brokers are queried, because
each lists those it coordinates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest

from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_protocol import PROTOCOL_TYPE
from twinlog.cluster.groups.group_rights import MISSING_IS_DEAD
from twinlog.cluster.net.protocol import Message
from twinlog.errors import TwinlogError
from twinlog.wire.error_codes import GROUP_ID_NOT_FOUND

EMPTY: Final = "Empty"
DEAD: Final = "Dead"
CONSUMERS: Final = frozenset({"", "consumer", "streams"})
"""Protocol types with consumer offsets. The empty type is a group without members that only has
offsets. Kafka Streams applications are `consumer` in the older protocol, `streams` in their own
(KIP-1071).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group, as its coordinator lists it."""

    name: str
    protocol_type: str
    state: str
    """Kafka's term, such as `Stable` or `Empty`. Empty if the broker is too old to report it."""
    kind: str
    """`classic`, `consumer`, `share`, .. Empty before Kafka 4."""

    @property
    def has_offsets(self) -> bool:
        """Whether it commits offsets like consumers."""
        return self.protocol_type in CONSUMERS and not self.is_share

    @property
    def is_share(self) -> bool:
        """Whether its members share partitions record by record (KIP-932)."""
        return self.kind.lower() == "share"

    @property
    def why_left_alone(self) -> str:
        """Why the group has no offsets to translate. Empty if it can have offsets, or is one of
        Twinlog's own groups.
        """
        if self.has_offsets or self.is_share or self.protocol_type == PROTOCOL_TYPE:
            return ""
        kind = self.protocol_type or self.kind
        return f"groups of kind {kind!r} have no consumer offsets"

    @property
    def is_active(self) -> bool:
        """Whether it has members, or may have some."""
        return self.state not in (EMPTY, DEAD)


def list_groups(coordinators: Coordinators) -> dict[str, Group]:
    """Return all groups that Twinlog's user may see. Raises if a broker does not respond.

    Without DESCRIBE on the cluster, these are the groups that the user may describe.
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
    """Describe groups whose state ListGroups does not return."""

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
    """Delete groups. Returns None for each deleted or missing group, or the error, for example
    because it has members.
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
