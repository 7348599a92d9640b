"""Finds out which connectors the workers of a Kafka Connect cluster run.

A worker runs the connectors that it reported when it joined, and connectors that it was assigned
since. The group has both lists, in Connect's own format (versions 0 to 2 of its protocol):

    metadata    int16 version, string URL, int64 config offset, bytes assignment (since version 1)
    assignment  int16 version, int16 error, string leader, string leader's URL, int64 config offset,
                array of (string connector, array of int32 tasks)      task -1 is the connector
                itself, which a worker keeps without tasks while the connector is stopped
                ... fields of later versions are not needed
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kafka.protocol.admin import DescribeGroupsRequest

from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_rights import MISSING_IS_DEAD
from twinlog.errors import TwinlogError, or_raise
from twinlog.wire.error_codes import GROUP_ID_NOT_FOUND

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">hh")
_CONFIG_OFFSET_BYTES: Final = 8
MAX_CONNECTORS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectGroup:
    """The workers of a Connect cluster, as known to the group's coordinator."""

    members: int
    connectors: frozenset[str] | None
    """Connectors with tasks, running or paused. None if unknown, or if they are being assigned."""

    def may_run(self, connector: str) -> bool:
        """Return whether a worker runs the connector, or may run it."""
        return self.members > 0 and (self.connectors is None or connector in self.connectors)


def connect_group(coordinators: Coordinators, group: str) -> ConnectGroup:
    """Return the state of the group, which has no members if it does not exist. Raises
    Unauthorized and other TwinlogErrors.
    """

    def ask(node: int, names: Sequence[str]) -> dict[str, ConnectGroup | TwinlogError]:
        out: dict[str, ConnectGroup | TwinlogError] = {}
        request = DescribeGroupsRequest(groups=list(names), include_authorized_operations=False)
        for described in coordinators.client.attempt(node, request, maximum=MISSING_IS_DEAD).groups:
            name, code = str(described.group_id), int(described.error_code)
            if code and code != GROUP_ID_NOT_FOUND:
                out[name] = coordinators.error(code, "describing", name)
                continue
            out[name] = group_of(
                (bytes(member.member_metadata or b""), bytes(member.member_assignment or b""))
                for member in described.members
            )
        return out

    return or_raise(coordinators.ask([group], ask, doing="describing")[group])


def group_of(members: Iterable[tuple[bytes, bytes]]) -> ConnectGroup:
    """Return the state of a group with these members, as pairs of metadata and assignment."""
    count, names = 0, set[str]()
    is_known = True
    for metadata, assignment in members:
        count += 1
        try:
            names.update(_names(assignment))
            if had := _assigned_config(metadata):
                names.update(_names(had))
        except (struct.error, UnicodeDecodeError, ValueError):
            is_known = False
    return ConnectGroup(members=count, connectors=frozenset(names) if is_known else None)


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
    for _ in range(2):  # leader and its URL
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


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _INT16.unpack_from(data, at)
    at += _INT16.size
    if at + max(length, 0) > len(data):
        raise ValueError("a string is truncated")
    return data[at : at + max(length, 0)].decode(), at + max(length, 0)
