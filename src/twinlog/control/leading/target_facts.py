"""What a flow must know of its target before it writes: its own topics and the rights on them, what
the brokers can do, and when they forget a producer.
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
    """Of one flow."""

    ends: FlowEnds = field(repr=False)
    log_once: Callable[[str], None]
    _capabilities: Capabilities | None = None

    def own_topic(self, target: ClusterClient, name: str, partitions: int) -> int:
        """How many partitions it has; made where it is missing. Raises Unauthorized."""
        ends = self.ends

        def unseen(error: Unauthorized) -> None:
            self.log_once(
                f"{ends.name}: whether {name} has cleanup.policy=compact is not known, and without "
                f"it the flow's state would be deleted in time: {error}"
            )

        count = ensure_compacted_topic(
            target,
            name,
            partitions=partitions,
            replication_factor=ends.config.state_topic_replication_factor,
            on_unseen=unseen,
        )
        # while it is empty it could be started with, and never be started with again
        found = target.metadata([name])
        for right in (Operation.READ, Operation.WRITE):
            is_ours = right is Operation.READ or name == STATE_TOPIC or ends.lanes_are_us
            if is_ours and not may(found, name, right):
                raise denied(ends.config.flow.target, right.name, name)
        return count

    def own_map(self, clients: FlowClients) -> MapReader:
        """The offset map's topic, made where it is missing. Raises Unauthorized."""
        name = map_topic_of(self.ends.config.flow)
        return MapReader(clients.of_map, name, self.own_topic(clients.target, name, MAP_PARTITIONS))

    def capabilities(self, target: ClusterClient) -> Capabilities:
        """Tried once."""
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
                f"{self.ends.name}: what the target can do is not tried, so the guarantee is "
                f"'{UNTRIED.guarantee}' and every partition counts as unprotected: {error}"
            )
            return UNTRIED

    def expiry_ms(self, target: ClusterClient) -> int | None:
        """The smallest expiry of all brokers; the configured one where they may not be asked."""
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
