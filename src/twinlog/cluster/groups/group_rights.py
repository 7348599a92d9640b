"""Checks permissions on a consumer group, without side effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafka.protocol.admin import DescribeGroupsRequest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import Operation, operations
from twinlog.cluster.net.protocol import Message
from twinlog.errors import Unauthorized
from twinlog.wire.error_codes import GROUP_AUTHORIZATION_FAILED, NONE, error_for, lookup

WITH_OPERATIONS: Final = 3
MISSING_IS_DEAD: Final = 5
"""Later versions return GROUP_ID_NOT_FOUND for a missing group (KIP-1043)."""


def check_group_read(client: ClusterClient, group: str) -> None:
    """Raise Unauthorized if Twinlog's user certainly may not join the group.

    Any broker can be queried, because permissions are checked before the coordinator. Looking up
    the coordinator would create the brokers' offsets topic in a cluster that has none yet. So a
    user that may describe the group but not read it is detected only by luck.
    """
    if unreadable_groups(client, [group]):
        raise error_for(
            GROUP_AUTHORIZATION_FAILED,
            cluster=client.alias,
            doing=f"asking for rights on group {group}",
            acl=f"READ on group {group}",
        )


def unreadable_groups(client: ClusterClient, groups: Sequence[str]) -> list[str]:
    """Return groups that Twinlog's user certainly may not join. Queries any broker, as above."""
    if not groups:
        return []
    request = DescribeGroupsRequest(groups=list(groups), include_authorized_operations=True)
    answer = client.send(None, request, minimum=WITH_OPERATIONS, maximum=MISSING_IS_DEAD)
    return [str(found.group_id) for found in answer.groups if _is_denied(found)]


def _is_denied(found: Message) -> bool:
    code = int(found.error_code)
    if code != NONE:
        return lookup(code).kind is Unauthorized
    rights = operations(found.authorized_operations)
    return rights is not None and Operation.READ not in rights


def may_describe_groups(client: ClusterClient, name: str) -> bool:
    """Return whether Twinlog's user may describe a group of this name, even if it does not exist.
    Queries any broker.
    """
    return not unseen_groups(client, [name])


def unseen_groups(client: ClusterClient, groups: Sequence[str]) -> frozenset[str]:
    """Return groups that Twinlog's user may not describe, whether they exist or not. Queries any
    broker.
    """
    if not groups:
        return frozenset()
    request = DescribeGroupsRequest(groups=list(groups), include_authorized_operations=False)
    answer = client.send(None, request, maximum=MISSING_IS_DEAD)
    denied = (one for one in answer.groups if int(one.error_code) == GROUP_AUTHORIZATION_FAILED)
    return frozenset(str(one.group_id) for one in denied)
