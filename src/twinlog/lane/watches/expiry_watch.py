"""Watches for how long the target remembers a producer ID while a lane copies.

`producer.id.expiration.ms` can be changed while brokers run. If it is lowered, brokers forget IDs
earlier than the driver found when it claimed its generation, and a partition whose ID is already
forgotten would count as protected. Brokers expire IDs every ten minutes (by default), so one check
per minute is early enough. The first check is made immediately, because the value may have been
lowered days ago, and earlier lanes do not pass on what they have found. If Twinlog's user is not
permitted to read broker configs, the driver's value stays in effect. The driver has read it, or it
comes from the configuration.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.topics.cluster_info import producer_expiry
from twinlog.errors import TwinlogError, Unauthorized, Unsupported
from twinlog.lane.lane_partition import LaneEvents
from twinlog.lane.ports import LanePorts
from twinlog.lane.sides.background import JobKind

log = logging.getLogger(__name__)

CHECK_EVERY_S: Final = 60.0


@dataclass(slots=True, kw_only=True)
class ExpiryWatch:
    """Queries the target's `producer.id.expiration.ms` periodically, in the background."""

    ports: LanePorts
    expiry_ms: int | None
    """The current expiry. If it is None, no partition is protected and brokers are not queried."""
    events: LaneEvents
    _next: float = 0.0
    _is_checking: bool = False

    def poll(self) -> None:
        """Begin a check if one is due. Called about once a second."""
        now = self.ports.clock.monotonic()
        if self.expiry_ms is None or self._is_checking or now < self._next:
            return
        self._next, self._is_checking = now + CHECK_EVERY_S, True
        self.ports.background.submit(JobKind.WATCH, self._check, self._on_expiry, self._on_failed)

    def _check(self) -> int | None:
        with self.ports.target.borrowed_client() as client:
            return producer_expiry(client)

    def _on_expiry(self, expiry_ms: int | None) -> None:
        self._is_checking = False
        if expiry_ms is None or expiry_ms == self.expiry_ms:
            return
        log.info("producer.id.expiration.ms is %d now, it was %s", expiry_ms, self.expiry_ms)
        self.expiry_ms = expiry_ms
        self.events.on_expiry_changed(expiry_ms)

    def _on_failed(self, error: TwinlogError) -> None:
        self._is_checking = False
        if isinstance(error, (Unauthorized, Unsupported)):
            self._next = float("inf")
        log.debug("the expiry of producer ids cannot be read error=%s", error)
