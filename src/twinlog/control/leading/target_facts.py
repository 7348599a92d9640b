"""The two clusters of a flow with its clients, and facts about the target.

A flow needs these facts before it writes: its own topics and the permissions on them, the brokers'
capabilities, and when brokers drop producer IDs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from twinlog.cluster.client import API_TIMEOUT_S, ClusterClient
from twinlog.cluster.net.metadata import Operation
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.internal_log import ensure_compacted_topic
from twinlog.cluster.topics.producer_expiry import producer_expiry
from twinlog.config.flow.schema import FlowConfig, PolicyKind
from twinlog.errors import Unauthorized
from twinlog.flow_log import FlowLog
from twinlog.mirror.map.offset_map import MAP_PARTITIONS
from twinlog.mirror.names.naming import STATE_TOPIC, ReplicationPolicy, map_topic_of
from twinlog.survey.capabilities import UNTRIED, Capabilities, ensure_probe_topic, probe
from twinlog.survey.map_reader import MapReader
from twinlog.survey.rights import denied, may

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class TargetFacts:
    """Facts about the target of one flow."""

    ends: FlowEnds = field(repr=False)
    log_once: Callable[[str], None]
    _capabilities: Capabilities | None = None

    def own_topic(self, target: ClusterClient, name: str, partitions: int) -> int:
        """Return the topic's partition count, creating it if missing. Raises Unauthorized."""
        ends = self.ends

        def unseen(error: Unauthorized) -> None:
            self.log_once(
                f"{ends.name}: whether {name} has cleanup.policy=compact is unknown, and without "
                f"it the flow's state would be deleted after a time: {error}"
            )

        count = ensure_compacted_topic(
            target,
            name,
            partitions=partitions,
            replication_factor=ends.config.state_topic_replication_factor,
            on_unseen=unseen,
        )
        # while it is empty, a start without a permission would succeed once and then never again
        found = target.metadata([name])
        for right in (Operation.READ, Operation.WRITE):
            is_ours = right is Operation.READ or name == STATE_TOPIC or ends.lanes_are_us
            if is_ours and not may(found, name, right):
                raise denied(ends.config.flow.target, right.name, name)
        return count

    def own_map(self, clients: FlowClients) -> MapReader:
        """Return the reader of the offset map, creating its topic. Raises Unauthorized."""
        name = map_topic_of(self.ends.config.flow)
        return MapReader(clients.of_map, name, self.own_topic(clients.target, name, MAP_PARTITIONS))

    def capabilities(self, target: ClusterClient) -> Capabilities:
        """Return the brokers' capabilities, which are tested once."""
        if self._capabilities is None:
            found = self._capabilities = self._probe(target)
            if found is not UNTRIED and found.missing:
                FlowLog(log, self.ends.name).warning(
                    "the target lacks %s: the guarantee is '%s'",
                    ", ".join(found.missing),
                    found.guarantee,
                )
        return self._capabilities

    def _probe(self, target: ClusterClient) -> Capabilities:
        try:
            ensure_probe_topic(target, self.ends.config.state_topic_replication_factor)
            return probe(target)
        except Unauthorized as error:
            self.log_once(
                f"{self.ends.name}: the target's capabilities are not tested, so the guarantee is "
                f"'{UNTRIED.guarantee}' and every partition counts as unprotected: {error}"
            )
            return UNTRIED

    def expiry_ms(self, target: ClusterClient) -> int | None:
        """Return the smallest expiry of all brokers, or the configured one if it is unreadable."""
        configured = self.ends.config.producer_id_expiration_ms
        try:
            found = producer_expiry(target)
        except Unauthorized as error:
            if configured is None:
                self.log_once(
                    f"{self.ends.name}: {error}: every partition counts as unprotected (slower for "
                    "a minute after trouble); set twinlog.target.producer.id.expiration.ms to the "
                    "brokers' producer.id.expiration.ms"
                )
            return configured
        return configured if found is None else found


STATE_WITHIN_S: Final = 5.0


@dataclass(slots=True, kw_only=True, eq=False)
class FlowEnds:
    """Settings only; no requests are sent."""

    config: FlowConfig
    policy: ReplicationPolicy
    source: ClusterSettings
    target: ClusterSettings
    lane_source: ClusterSettings
    lane_target: ClusterSettings

    @property
    def name(self) -> str:
        return str(self.config.flow)

    def clusters(self) -> tuple[ClusterSettings, ...]:
        """The settings of all clients: the admin's, and those of the lanes."""
        return self.source, self.target, self.lane_source, self.lane_target

    @property
    def is_identity(self) -> bool:
        return self.config.policy.kind is PolicyKind.IDENTITY

    @property
    def refresh_s(self) -> float:
        return float(self.config.refresh.interval_seconds)

    @property
    def refresh_enabled(self) -> bool:
        return self.config.refresh.enabled

    @property
    def lanes_are_us(self) -> bool:
        """Return True if lanes connect to the target as the same user."""
        own_time = self.target.request_timeout_ms
        return replace(self.lane_target, request_timeout_ms=own_time) == self.target


class FlowClients:
    """Clients that are opened on first use; not thread-safe."""

    def __init__(self, ends: FlowEnds) -> None:
        self._ends = ends
        self._open: dict[str, ClusterClient] = {}

    @property
    def source(self) -> ClusterClient:
        return self._client("source", self._ends.source)

    @property
    def target(self) -> ClusterClient:
        return self._client("target", self._ends.target)

    @property
    def of_map(self) -> ClusterClient:
        """The target client for the offset map."""
        return self._client("map", self._ends.target)

    @property
    def of_state(self) -> ClusterClient:
        """The target client for the state topic, which is read every second."""
        return self._client("state", self._ends.target, STATE_WITHIN_S)

    def both(self) -> tuple[ClusterClient, ClusterClient]:
        return self.source, self.target

    def _client(
        self, what: str, settings: ClusterSettings, within_s: float = API_TIMEOUT_S
    ) -> ClusterClient:
        if what not in self._open:
            self._open[what] = ClusterClient(settings, api_timeout_s=within_s)
        return self._open[what]

    def close(self) -> None:
        """Close all clients; later uses open new ones."""
        for client in self._open.values():
            client.close()
        self._open = {}
