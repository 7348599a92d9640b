"""Duty: writes MirrorMaker 2's heartbeats to one cluster of a flow.

Each cluster of the flow has a duty of its own. So an outage of one cluster does not stop the
heartbeats into the other cluster.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.internal_log import append_rows
from twinlog.cluster.topics.topic_admin import ensure_mm2_topic
from twinlog.config.flow.schema import HeartbeatConfig
from twinlog.control.duties.rounds import Duty, LedFlow, NotPermitted
from twinlog.errors import TwinlogError, Unauthorized
from twinlog.mirror.names.naming import HEARTBEATS_TOPIC
from twinlog.model import TopicPartition
from twinlog.wire.mm2_records import Heartbeat

GIVES_UP_S: Final = 10.0
"""Time limit of a write in seconds. A heartbeat that arrives much later is useless."""


def heartbeats(flow: LedFlow, *, into_target: bool) -> Duty | None:
    """Return the duty that writes heartbeats to one cluster, or None if none are configured. The
    target gets the heartbeats of this flow and of disabled flows. The source gets those of flows
    that are not enabled, and the flow copies them to the target.
    """
    beats = [beat for beat in flow.config.heartbeats if beat.into_target is into_target]
    cluster = flow.target if into_target else flow.source
    return Heartbeats(flow, cluster, beats) if beats else None


class Heartbeats(Duty):
    """Writes heartbeats to one cluster; a rejection is logged once."""

    ends_once = False
    interval_s: float = 0.0

    def __init__(
        self, flow: LedFlow, cluster: ClusterSettings, beats: Sequence[HeartbeatConfig]
    ) -> None:
        self._flow = flow
        self._client = ClusterClient(cluster, api_timeout_s=GIVES_UP_S)
        self._clients = (self._client,)
        self._due = dict.fromkeys(beats, 0.0)
        self.interval_s = float(min(beat.interval_seconds for beat in beats))
        self._has_topic = False

    @property
    def name(self) -> str:
        return f"heartbeats into {self._client.alias}"

    def round(self) -> None:
        now = time.monotonic()
        # rounds are not exact to the millisecond, so a heartbeat may be half a second early
        due = [beat for beat, at in self._due.items() if at <= now + 0.5]
        try:
            self._write(due)
        except Unauthorized as error:
            line = f"no heartbeats into {self._client.alias}: {error}"
            hint = "or set emit.heartbeats.enabled=false"
            raise NotPermitted(f"{line}; {hint}", flow=self._flow.name) from error
        except TwinlogError:
            self._has_topic = False  # create the topic again: it may have been deleted
            raise
        for beat in due:
            self._due[beat] = now + beat.interval_seconds

    def _write(self, due: Sequence[HeartbeatConfig]) -> None:
        if not self._has_topic:
            replicas = next(iter(self._due)).replication_factor
            ensure_mm2_topic(self._client, HEARTBEATS_TOPIC, replicas)
            self._has_topic = True
        now_ms = int(time.time() * 1000)
        beats = [
            Heartbeat(
                source_alias=beat.source_alias,
                target_alias=beat.target_alias,
                timestamp_ms=now_ms,
            )
            for beat in due
        ]
        rows = [(beat.key(), beat.value()) for beat in beats]
        append_rows(self._client, TopicPartition(HEARTBEATS_TOPIC, 0), rows, now_ms)
