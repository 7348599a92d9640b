"""A flow as its duties see it, read from the two clusters only, for commands that report what
duties would do. It has no leader, and nothing is written through it. A mirror may be running.

The data is read in an order that never claims a position which the copy has not reached
(`mirror.map.translation`, rule A): first both log ends; then the copy position from the logs and
the map; later the map again. A partition without lag then has everything below its earlier end,
including transaction markers after its last record, which are not in the map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from twinlog.cluster.client import ClusterClient
from twinlog.codes import Trait, has
from twinlog.config.flow.schema import FlowConfig, MirrorConfig, PolicyKind
from twinlog.control.check.offline_status import offline_status
from twinlog.control.duties.rounds import LedFlow, PartitionView
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.intents import FlowIntents
from twinlog.model import TopicPartition
from twinlog.survey.discovery import discover
from twinlog.survey.ends import Ends, read_ends
from twinlog.survey.map_reader import read_maps
from twinlog.survey.state_reader import state_rows_if_any


def resting_flow(
    config: MirrorConfig,
    setup: FlowSetup,
    source: ClusterClient,
    target: ClusterClient,
    log_once: Callable[[str], None],
) -> LedFlow:
    """Return the flow's current state. Raises TwinlogError if a cluster cannot be queried."""
    intents = intents_of(setup.name, target)
    flow = replace(setup.config, released=intents.released)
    found = discover(flow, setup.policy, source, target, create=False)
    sources = [plan.source for plan in found.plans]
    here = read_ends(source, sources, isolation=flow.isolation_level)
    there = read_ends(target, [plan.target for plan in found.plans])
    (snapshot,) = offline_status(replace(config, flows=(flow,)))
    views = tuple(_views(flow, found.plans, snapshot, here, there))
    return LedFlow(
        config=flow,
        policy=setup.policy,
        generation=snapshot.generation,
        source=setup.source,
        target=setup.target,
        partitions=lambda: views,
        read_map=lambda: read_maps(target, flow.flow, after=there),
        snapshot=lambda: snapshot,
        intents=lambda: intents,
        log_once=log_once,
    )


def intents_of(flow: str, target: ClusterClient) -> FlowIntents:
    """Return the flow's intents, as its target's state topic has them now."""
    return state_rows_if_any(target).intents(flow)


def _views(
    flow: FlowConfig,
    plans: Iterable[PartitionPlan],
    snapshot: FlowSnapshot,
    here: Ends,
    there: Ends,
) -> Iterable[PartitionView]:
    parts = {TopicPartition(one.topic, one.partition): one for one in snapshot.partitions}
    # if other clients write too, the log end is not the position of the flow's next record
    is_shared = flow.policy.kind is PolicyKind.IDENTITY
    for plan in plans:
        part = parts.get(plan.source)
        known = here[plan.source].end, there[plan.target].end
        ends = tuple(-1 if one is None else one for one in known)
        is_there = part is not None and part.lag == 0 and part.records > 0 and min(ends) >= 0
        reached = ends if is_there and not is_shared and not plan.targets else (-1, -1)
        yield PartitionView(
            source=plan.source,
            target=plan.target,
            source_topic_id=plan.source_topic_id,
            target_topic_id=plan.target_topic_id,
            next_upstream=reached[0],
            next_downstream=reached[1],
            source_end=ends[0],
            is_broken=part is not None and has(part.code, Trait.NO_OFFSETS),
            is_keyed=bool(plan.targets),
        )
