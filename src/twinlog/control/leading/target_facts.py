"""Facts about the target that a flow needs before it writes: its own topics and the permissions on
them, the brokers' capabilities, and when brokers drop producer IDs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import Operation
from twinlog.cluster.topics.internal_log import ensure_compacted_topic
from twinlog.cluster.topics.producer_expiry import producer_expiry
from twinlog.control.leading.ends import FlowClients, FlowEnds
from twinlog.errors import Unauthorized
from twinlog.flow_log import FlowLog
from twinlog.mirror.map.offset_map import MAP_PARTITIONS
from twinlog.mirror.names.naming import STATE_TOPIC, map_topic_of
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
