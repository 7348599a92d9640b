"""What a flow writes for clients of MirrorMaker 2: heartbeats and offset syncs.

MirrorMaker 2 runs a herder for every pair of clusters that is enabled *or* emits heartbeats, which
is the default. So with only A->B enabled, a B->A herder writes heartbeats into A, and their copies
in B show that A is alive. Twinlog runs only enabled flows. A heartbeat of a pair that is not
enabled is therefore written by a flow that connects to the cluster anyway: the first flow into it,
or else the first flow out of it. No heartbeats are written into a cluster without flows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from twinlog.config.flow.precedence import candidate_flows, flow_settings
from twinlog.config.flow.schema import FlowConfig, HeartbeatConfig, OffsetSyncsConfig
from twinlog.config.flow.values import FlowValues
from twinlog.config.values.origin import Settings
from twinlog.model import Flow


def own_heartbeat(values: FlowValues, flow: Flow) -> tuple[HeartbeatConfig, ...]:
    """Return the heartbeat of an enabled flow, written to its target."""
    found = _heartbeat(values, flow, into_target=True)
    return () if found is None else (found,)


def read_offset_syncs(values: FlowValues) -> OffsetSyncsConfig | None:
    """Return the configuration of offset syncs, or None if they are disabled."""
    if not values.boolean("emit.offset-syncs.enabled"):
        return None
    return OffsetSyncsConfig(
        on_target=values.choice_or("offset-syncs.topic.location", "source") == "target",
        lag_max=values.number("offset.lag.max"),
        replication_factor=values.replicas_or_none("offset-syncs.topic.replication.factor"),
    )


def with_lone_heartbeats(
    raw: Settings, flows: Sequence[FlowConfig], aliases: Sequence[str], nearby: Collection[str]
) -> tuple[FlowConfig, ...]:
    """Return the flows with the heartbeats of pairs that are not enabled.

    `nearby` are the clusters of --clusters: MirrorMaker 2 would run no herder for others.
    """
    out = {config.flow: config for config in flows}
    for pair in candidate_flows(aliases):
        if pair in out or (nearby and pair.target not in nearby):
            continue
        for writer, into_target in _writers(tuple(out), pair.target):
            found = _heartbeat(FlowValues(flow_settings(raw, pair)), pair, into_target=into_target)
            if found is not None:
                config = out[writer]
                out[writer] = replace(config, heartbeats=(*config.heartbeats, found))
            break
    return tuple(out.values())


def _writers(flows: Sequence[Flow], cluster: str) -> Iterator[tuple[Flow, bool]]:
    yield from ((flow, True) for flow in flows if flow.target == cluster)
    yield from ((flow, False) for flow in flows if flow.source == cluster)


def _heartbeat(values: FlowValues, pair: Flow, *, into_target: bool) -> HeartbeatConfig | None:
    beats, interval = values.rounds("emit.heartbeats")
    if not beats:
        return None
    return HeartbeatConfig(
        source_alias=values.text_or("source.cluster.alias", pair.source),
        target_alias=values.text_or("target.cluster.alias", pair.target),
        into_target=into_target,
        interval_seconds=interval,
        replication_factor=values.replicas_or_none("heartbeats.topic.replication.factor"),
    )
