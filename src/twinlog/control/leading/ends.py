"""The two clusters of a flow: its configuration, the settings of each of its clients, and the
connections for occasional requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from twinlog.cluster.client import API_TIMEOUT_S, ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.schema import FlowConfig, PolicyKind
from twinlog.mirror.names.naming import ReplicationPolicy

STATE_WITHIN_S: Final = 5.0


@dataclass(slots=True, kw_only=True, eq=False)
class FlowClusters:
    """Settings of one flow and its clients. Sends no requests."""

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
        """Return the settings of all clients: first the driver's, then the lanes'."""
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
    def lanes_share_user(self) -> bool:
        """Return True if lanes connect to the target as the same user as the driver."""
        own_time = self.target.request_timeout_ms
        return replace(self.lane_target, request_timeout_ms=own_time) == self.target


class FlowClients:
    """The driver's clients for both clusters of a flow, opened on first use. Not thread-safe."""

    def __init__(self, ends: FlowClusters) -> None:
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
