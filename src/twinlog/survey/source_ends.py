"""The ends of the source's partitions at this moment: how far `--once` copies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics import admin
from twinlog.config.flow.schema import FlowConfig, IsolationLevel
from twinlog.errors import TwinlogError
from twinlog.mirror.plan import PartitionPlan


def with_ends(
    source: ClusterClient, flow: FlowConfig, plans: Iterable[PartitionPlan]
) -> list[PartitionPlan]:
    """The same plans, each with its end."""
    committed = flow.isolation_level is IsolationLevel.READ_COMMITTED
    isolation = admin.Isolation.READ_COMMITTED if committed else admin.Isolation.READ_UNCOMMITTED
    known = list(plans)
    sources = [plan.source for plan in known]
    ends = admin.list_offsets(source, sources, admin.LATEST, isolation=isolation)
    out = []
    for plan in known:
        end = ends[plan.source]
        # a partition that cannot be asked goes to its lane all the same, which reports why
        out.append(plan if isinstance(end, TwinlogError) else replace(plan, end=end.offset))
    return out
