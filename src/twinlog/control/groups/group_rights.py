"""Reports groups of the source that cannot be translated because a permission is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import list_groups
from twinlog.cluster.groups.group_offsets import GroupOffsets, fetch_offsets
from twinlog.cluster.groups.group_rights import may_describe_groups
from twinlog.cluster.net.metadata import Operation
from twinlog.cluster.topics.cluster_info import describe_cluster
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.duties.rounds import LedFlow
from twinlog.errors import TwinlogError
from twinlog.quantities import first_few, plural

NO_SUCH_GROUP: Final = "twinlog-no-such-group"


def sees_groups(source: ClusterClient) -> bool:
    """Return False if groups may exist although none is listed, because the permission to list them
    is missing.
    """
    rights = describe_cluster(source).operations
    if rights is None or Operation.DESCRIBE in rights:
        return True
    return may_describe_groups(source, NO_SUCH_GROUP)


def unseen_line(flow: FlowConfig) -> str:
    """Return the line for a source on which no group is visible."""
    return (
        f"{flow.flow}: no group of {flow.flow.source} is visible, so none gets checkpoints: grant "
        "DESCRIBE on group * to this user, or on the groups to be translated; or set "
        "emit.checkpoints.enabled=false [GROUP_UNAUTHORIZED]"
    )


def refused_line(flow: FlowConfig, refused: Mapping[str, TwinlogError]) -> str:
    """Return the line for groups whose offsets may not be read."""
    return (
        f"{flow.flow}: offsets of {plural(len(refused), 'group')} of {flow.flow.source} are not "
        f"read ({first_few(sorted(refused))}): {refused[min(refused)]}"
    )


def readable(
    flow: LedFlow, found: Mapping[str, GroupOffsets | TwinlogError]
) -> dict[str, GroupOffsets]:
    """Return the offsets of readable groups. The other groups are logged in one line."""
    refused = {name: one for name, one in found.items() if isinstance(one, TwinlogError)}
    if refused:
        flow.log_once(refused_line(flow.config, refused))
    return {name: one for name, one in found.items() if not isinstance(one, TwinlogError)}


def group_notes(flow: FlowConfig, source: ClusterClient) -> list[str]:
    """Return the notes of `check` on the groups that the flow selects; only reads."""
    if flow.groups.checkpoints_s is None and flow.groups.sync_s is None:
        return []
    offsets = selected_offsets(flow, source)
    if offsets is None:
        return [] if sees_groups(source) else [unseen_line(flow)]
    refused = {name: found for name, found in offsets.items() if isinstance(found, TwinlogError)}
    return [refused_line(flow, refused)] if refused else []


def selected_offsets(
    flow: FlowConfig, source: ClusterClient
) -> Mapping[str, GroupOffsets | TwinlogError] | None:
    """Return the offsets of selected groups, or None if the source lists no groups."""
    coordinators = Coordinators(source)
    groups = list_groups(coordinators)
    chosen = [name for name, one in groups.items() if one.has_offsets and flow.groups.selects(name)]
    return fetch_offsets(coordinators, chosen) if groups else None
