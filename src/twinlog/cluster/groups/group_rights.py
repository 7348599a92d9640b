"""Checks permissions on groups, without side effects.

Any broker can be queried, because a broker checks permissions before it checks if it is the
coordinator. The coordinator is not looked up, because this has a side effect: if the cluster has no
offsets topic, the brokers create it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafka.protocol.admin import DescribeGroupsRequest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.net.metadata import Operation, operations
from twinlog.cluster.net.protocol import Message
from twinlog.errors import Unauthorized
from twinlog.wire.error_codes import GROUP_AUTHORIZATION_FAILED, NONE, lookup

WITH_OPERATIONS: Final = 3
MISSING_IS_DEAD: Final = 5
"""The last version of DescribeGroups in which a missing group is Dead, not an error (KIP-1043)."""


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
