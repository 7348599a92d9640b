"""Chooses the replica from which a partition is read: the leader, or a replica in the local rack
(KIP-392, `client.rack`).

If a partition has a replica in the local rack, its leader returns that replica's ID and no records.
The replica is read for some minutes, and then the leader is queried again. The leader is queried
immediately if the replica does not respond. The same applies to errors that the replica may return
only because it is a follower (it lags, is fenced, or the position is out of its range), and to
damaged records, because the leader's may be sound. A leader that names a replica returns no
records, so after such a failure requests do not contain the rack for some time.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from twinlog.clock import Clock
from twinlog.model import TopicPartition

PREFERRED_FOR_S: Final = 300.0
"""Seconds for which a nearby replica is read, as in Java's consumer (metadata.max.age.ms)."""

AVOIDED_FOR_S: Final = 10.0
"""After a nearby replica failed, the partition is read from its leader for this many seconds."""

CONNECTED_WITHIN_S: Final = 5.0

NO_REPLICA: Final = -1


class NearReplicas:
    """The nearby replicas that leaders have named. Empty if no rack is configured."""

    def __init__(self, rack: str, clock: Clock) -> None:
        self.rack = rack
        self._clock = clock
        self._chosen: dict[TopicPartition, tuple[int, float]] = {}
        """By partition, the nearby replica's node, and since when it is used (monotonic)."""
        self._avoided: dict[TopicPartition, float] = {}

    def broker_to_read(self, tp: TopicPartition, leader: int) -> int:
        """Return the broker from which to read the partition now: a nearby replica, or `leader`."""
        known = self._chosen.get(tp)
        return leader if known is None else known[0]

    def prefer(self, tp: TopicPartition, node: int) -> bool:
        """Read the partition from `node`, the replica that its leader named, and return True.
        Return False if a nearby replica of the partition has failed recently.
        """
        if self.avoids_any((tp,)):
            return False
        self._chosen[tp] = (node, self._clock.monotonic())
        return True

    def avoids_any(self, tps: Container[TopicPartition]) -> bool:
        """Return True if a nearby replica of one of these partitions has failed recently."""
        now = self._clock.monotonic()
        self._avoided = {tp: until for tp, until in self._avoided.items() if until > now}
        return any(tp in tps for tp in self._avoided)

    def is_read(self, tp: TopicPartition, node: int) -> bool:
        """Return True if the partition is read from broker `node` because that is a nearby replica,
        not the leader.
        """
        known = self._chosen.get(tp)
        return known is not None and known[0] == node

    def has_expired(self, tp: TopicPartition) -> bool:
        """Return True if the replica was used for so long that the leader must be queried again."""
        return self._age_s(tp) > PREFERRED_FOR_S

    def cannot_be_reached(self, tp: TopicPartition) -> bool:
        """Return True if connecting to the nearby replica takes too long. Must be called only while
        there is no connection to the replica.
        """
        return self._age_s(tp) > CONNECTED_WITHIN_S

    def _age_s(self, tp: TopicPartition) -> float:
        known = self._chosen.get(tp)
        return 0.0 if known is None else self._clock.monotonic() - known[1]

    def forget(self, tp: TopicPartition) -> None:
        """Read from the leader again."""
        self._chosen.pop(tp, None)

    def avoid(self, tp: TopicPartition) -> None:
        """Read from the leader for AVOIDED_FOR_S, because the replica failed."""
        self._chosen.pop(tp, None)
        self._avoided[tp] = self._clock.monotonic() + AVOIDED_FOR_S
