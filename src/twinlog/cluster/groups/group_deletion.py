"""Deletes groups without members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka.protocol.admin import DeleteGroupsRequest

from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.errors import TwinlogError
from twinlog.wire.error_codes import GROUP_ID_NOT_FOUND


def delete_groups(
    coordinators: Coordinators, names: Iterable[str]
) -> dict[str, TwinlogError | None]:
    """Delete groups. Returns None for each deleted or missing group, or the error, for example
    because it has members.
    """

    def ask(node: int, some: Sequence[str]) -> dict[str, TwinlogError | bool]:
        answer = coordinators.client.attempt(node, DeleteGroupsRequest(groups_names=list(some)))
        out: dict[str, TwinlogError | bool] = {}
        for one in answer.results:
            name, code = str(one.group_id), int(one.error_code)
            is_gone = code in (0, GROUP_ID_NOT_FOUND)
            out[name] = True if is_gone else coordinators.error(code, "deleting", name, "DELETE")
        return out

    found = coordinators.ask(names, ask, doing="deleting")
    return {name: one if isinstance(one, TwinlogError) else None for name, one in found.items()}
