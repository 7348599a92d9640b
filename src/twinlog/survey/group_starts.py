"""Where the source's consumer group stands: partitions that were never copied begin there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import fetch_offsets
from twinlog.config.flow.schema import FlowConfig
from twinlog.errors import or_raise
from twinlog.mirror.plan import PartitionPlan


def with_group_starts(
    flow: FlowConfig, source: ClusterClient, plans: Iterable[PartitionPlan]
) -> list[PartitionPlan]:
    """The plans with the offsets of the flow's group, where it has one and stands somewhere.

    Raises TwinlogError when they cannot be read: a copy must not begin at another place.
    """
    group = flow.source_group.group_id
    known = list(plans)
    if not group or not known:
        return known
    offsets = or_raise(fetch_offsets(Coordinators(source), [group])[group])
    return [
        replace(plan, begin_at=offsets[plan.source].offset) if plan.source in offsets else plan
        for plan in known
    ]
