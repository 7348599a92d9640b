"""Throttles the producers of a flow's source by a quota, and later removes the quota.

The quota is the default of users (`producer_byte_rate`), which applies to every user without a
quota of its own. Brokers keep it until it is removed. So before the quota is set, a row
(`mirror.state.held_producers`) is written to the state topic of the target. It states that the
quota belongs to this flow. What may fail:

- If the process dies after writing the row, before setting the quota, there is a row without a
  quota. A row without a visible quota may also mean that a broker has stale metadata. So the next
  process removes the quota in any case, and clears the row.
- If the process dies after setting the quota, the flow's next leader finds the row and decides
  again. Without a mirror, `twinlog flow unthrottle` removes the quota.
- If the process dies after removing the quota, before clearing the row, there is again a row
  without a quota.
- If a response is lost, the step is repeated. Every step can be repeated.
- If the target is unavailable, this process removes the quotas that it has set, or knows from the
  row (`remove_quota`). It clears the row when the target is available again.
- If the state topic is deleted, the quotas that this process knows still count as its own.
- A process that has lost leadership may set the quota once more. The leader reads the row in its
  next round.
- If another client has set a default quota of users, nothing is set. If another client changes this
  flow's quota, it belongs to that client and is left alone. If two flows have the same source, the
  second flow finds the quota of the first flow, and sets none.
"""

from __future__ import annotations

import time
from enum import Enum

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append_rows, read_to_end
from twinlog.cluster.topics.quotas import producer_quota, set_producer_quota
from twinlog.errors import BrokerRefused, Unauthorized
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.state.held_producers import HeldProducers, held_producers, is_held_row
from twinlog.model import TopicPartition
from twinlog.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION

_HOME = TopicPartition(STATE_TOPIC, 0)
_MOST_RATES = 16


class RemovalResult(Enum):
    """The result of removing a quota."""

    NOTHING = "there was no quota"
    REMOVED = "the quota was removed"
    CHANGED = "another client has changed the quota, so Twinlog does not remove it"


class ProducerHold:
    """The producer quota that one flow sets on its source. Not thread-safe."""

    def __init__(
        self,
        flow: str,
        source: ClusterClient,
        target: ClusterClient,
        held_producers: HeldProducers | None = None,
    ) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._position = 0
        self.last_row = held_producers
        """The flow's row that was read last or is about to be written, or None if there is none."""
        self._is_over = False
        self._let_go: HeldProducers | None = None
        """The row whose quota was removed from the source, or None. The row itself may still be in
        the state topic.
        """

    def read(self) -> HeldProducers | None:
        """Return the flow's row in the state topic, or None."""
        topic = self._target.metadata([STATE_TOPIC]).topics.get(STATE_TOPIC)
        if topic is None or topic.error == UNKNOWN_TOPIC_OR_PARTITION:
            return None
        try:
            for row in read_to_end(self._target, STATE_TOPIC, 0, self._position):
                if row.key is not None and is_held_row(row.key, self._flow):
                    self.last_row = held_producers(row.key, row.value)
                self._position = row.offset + 1
        except BrokerRefused:
            self._position = 0  # read from the start, as the log was truncated or replaced
            raise
        return self.last_row

    def set_quota(self, rate: int) -> float | None:
        """Set the quota to `rate` bytes per second, and return None. If another client has set a
        quota, change nothing and return that quota.
        """
        held = self.read() or self.last_row
        rates = () if held is None else held.rates
        now = producer_quota(self._source)
        if now is not None and now not in rates:
            return now
        if now != rate and not self._is_over:
            self._write((*rates, rate)[-_MOST_RATES:])
            if not self._is_over:
                set_producer_quota(self._source, rate)
        return None

    def prevent_set_quota(self) -> None:
        """Prevent a blocked `set_quota` from setting a quota later. Any thread can call it."""
        self._is_over = True

    def remove_quota(self) -> RemovalResult:
        """Remove the quota that this process has set or has read from the row. The target is not
        used, because it may be down, so the row remains.
        """
        known = self.last_row
        if known is None or known == self._let_go:
            return RemovalResult.NOTHING
        freed = self._remove(known)
        self._let_go = known
        return freed

    def remove_quota_and_row(self) -> RemovalResult:
        """Remove the flow's quota from the source, and clear the flow's row in the state topic."""
        freed = self.remove_quota()
        held = self.read()
        if held is None:
            self.last_row = None
            return freed
        if held != self._let_go:
            freed = self._remove(held)
        self._write(())
        return freed

    def _remove(self, held: HeldProducers) -> RemovalResult:
        now = producer_quota(self._source)
        if now is not None and now not in held.rates:
            return RemovalResult.CHANGED
        try:
            set_producer_quota(self._source, None)
        except Unauthorized:
            if now is not None:
                # without a quota the error is ignored, because a user who is not permitted to
                # remove a quota cannot have set one
                raise
        return RemovalResult.REMOVED

    def _write(self, rates: tuple[int, ...]) -> None:
        row = HeldProducers(flow=self._flow, rates=rates, at_ms=int(time.time() * 1000))
        if rates:
            self.last_row = row
        append_rows(self._target, _HOME, [row.encode()])
        if not rates:
            self.last_row = None
