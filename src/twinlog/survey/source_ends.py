"""Reads the current ends of the source's partitions: how far `--once` copies, and what would be
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
    """Return the plans, each with its end."""
    known = list(plans)
    ends = known_ends(source, flow, [plan.source for plan in known])
    # a partition that cannot be queried still goes to its lane, which reports why
    return [replace(plan, end=ends[plan.source]) if plan.source in ends else plan for plan in known]


def known_ends(
    source: ClusterClient, flow: FlowConfig, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the end of each partition that could be queried, as the flow reads it (the last stable
    offset under read_committed).

    Raises TwinlogError if the cluster cannot be queried.
    """
    return known_offsets(source, partitions, LATEST, isolation=flow.isolation_level)


def known_offsets(
    source: ClusterClient,
    partitions: Iterable[TopicPartition],
    at: int,
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """Return the offset at `at` (as in ListOffsets) for each partition that could be queried.

    Raises TwinlogError if the cluster cannot be queried.
    """
    found = list_offsets(source, partitions, at, isolation=isolation)
    return {tp: one.offset for tp, one in found.items() if not isinstance(one, TwinlogError)}
