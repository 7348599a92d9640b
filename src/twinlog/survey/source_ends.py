"""The ends of the source's partitions at this moment: how far `--once` copies, and what would be
lost without the source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import LATEST, list_offsets
from twinlog.config.flow.schema import FlowConfig
from twinlog.errors import TwinlogError
from twinlog.mirror.plan import PartitionPlan
from twinlog.model import Isolation, TopicPartition


def with_ends(
    source: ClusterClient, flow: FlowConfig, plans: Iterable[PartitionPlan]
) -> list[PartitionPlan]:
    """The same plans, each with its end."""
    known = list(plans)
    ends = known_ends(source, flow, [plan.source for plan in known])
    # a partition that cannot be asked goes to its lane all the same, which reports why
    return [replace(plan, end=ends[plan.source]) if plan.source in ends else plan for plan in known]


def known_ends(
    source: ClusterClient, flow: FlowConfig, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The end of each as the flow reads it (its last stable offset under read_committed), of those
    that could be asked. Raises TwinlogError where the cluster cannot be.
    """
    return known_offsets(source, partitions, LATEST, isolation=flow.isolation_level)


def known_offsets(
    source: ClusterClient,
    partitions: Iterable[TopicPartition],
    at: int,
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """The offset at `at` (as ListOffsets has it) of each that could be asked. Raises TwinlogError
    where the cluster cannot be.
    """
    found = list_offsets(source, partitions, at, isolation=isolation)
    return {tp: one.offset for tp, one in found.items() if not isinstance(one, TwinlogError)}
