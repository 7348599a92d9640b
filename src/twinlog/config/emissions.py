"""What a flow writes for MirrorMaker 2's readers: heartbeats and offset syncs.

MirrorMaker 2 runs a herder for every pair of clusters that is enabled *or* emits heartbeats, which
by default all do; so with A->B alone a B->A herder beats into A, and the heartbeats that come from
there to B show that A is alive. Twinlog runs enabled flows only. So a heartbeat of a pair that is
not enabled is written by a flow that enters the cluster anyway: the first into it, or else the
first out of it. Into a cluster that no flow enters nothing is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from twinlog.config.keys import DEFINITIONS
from twinlog.config.origin import Setting, Settings, refuse
from twinlog.config.resolve import candidate_flows, flow_settings
from twinlog.config.schema import FlowConfig, HeartbeatConfig, OffsetSyncsConfig
from twinlog.config.values import to_boolean, to_choice, to_number, trimmed
from twinlog.model import Flow

_BEATS: Final = "emit.heartbeats.enabled"
_BEATS_INTERVAL: Final = "emit.heartbeats.interval.seconds"
_BEATS_REPLICAS: Final = "heartbeats.topic.replication.factor"
_SYNCS: Final = "emit.offset-syncs.enabled"
_SYNCS_LOCATION: Final = "offset-syncs.topic.location"
_SYNCS_REPLICAS: Final = "offset-syncs.topic.replication.factor"
_LAG_MAX: Final = "offset.lag.max"


def own_heartbeat(settings: Settings, flow: Flow) -> tuple[HeartbeatConfig, ...]:
    """The heartbeat of an enabled flow, into its target."""
    found = _heartbeat(settings, flow, into_target=True)
    return () if found is None else (found,)


def read_offset_syncs(settings: Settings) -> OffsetSyncsConfig | None:
    """None where they are turned off."""
    if not to_boolean(_setting(settings, _SYNCS)):
        return None
    location = _setting(settings, _SYNCS_LOCATION)
    return OffsetSyncsConfig(
        on_target=to_choice(location, DEFINITIONS[_SYNCS_LOCATION].choices) == "target",
        lag_max=_number(settings, _LAG_MAX),
        replication_factor=_replicas(settings, _SYNCS_REPLICAS),
    )


def with_lone_heartbeats(
    raw: Settings, flows: Sequence[FlowConfig], aliases: Sequence[str], nearby: Collection[str]
) -> tuple[FlowConfig, ...]:
    """The flows, with the heartbeats of pairs that are not enabled.

    `nearby` are the clusters of --clusters: for others MirrorMaker 2 would run no herder.
    """
    out = {config.flow: config for config in flows}
    for pair in candidate_flows(aliases):
        if pair in out or (nearby and pair.target not in nearby):
            continue
        for writer, into_target in _writers(tuple(out), pair.target):
            found = _heartbeat(flow_settings(raw, pair), pair, into_target=into_target)
            if found is not None:
                config = out[writer]
                out[writer] = replace(config, heartbeats=(*config.heartbeats, found))
            break
    return tuple(out.values())


def _writers(flows: Sequence[Flow], cluster: str) -> Iterator[tuple[Flow, bool]]:
    yield from ((flow, True) for flow in flows if flow.target == cluster)
    yield from ((flow, False) for flow in flows if flow.source == cluster)


def _heartbeat(settings: Settings, pair: Flow, *, into_target: bool) -> HeartbeatConfig | None:
    interval = _number(settings, _BEATS_INTERVAL)
    if interval == 0:
        raise refuse(
            settings[_BEATS_INTERVAL], "an interval of 0 cannot be kept", "write at least 1"
        )
    if interval < 0 or not to_boolean(_setting(settings, _BEATS)):
        return None  # MM2 turns a negative interval into "never"
    return HeartbeatConfig(
        source_alias=_text(settings, "source.cluster.alias", pair.source),
        target_alias=_text(settings, "target.cluster.alias", pair.target),
        into_target=into_target,
        interval_seconds=interval,
        replication_factor=_replicas(settings, _BEATS_REPLICAS),
    )


def _replicas(settings: Settings, name: str) -> int | None:
    if name not in settings:
        return None
    number = _number(settings, name)
    if number == 0 or number < -1:
        raise refuse(
            settings[name],
            f"{number} replicas are none",
            "write at least 1, or -1 for the broker's default",
        )
    return number


def _number(settings: Settings, name: str) -> int:
    return to_number(_setting(settings, name), width=DEFINITIONS[name].kind.value, low=None)


def _text(settings: Settings, name: str, default: str) -> str:
    return trimmed(settings[name].value) if name in settings else default


def _setting(settings: Settings, name: str) -> Setting:
    default = DEFINITIONS[name].default or ""
    return settings.get(name) or Setting(key=name, value=default, file="<default>")
