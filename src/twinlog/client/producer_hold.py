"""Holds the producers of a flow's source back by a quota, and lets them go again.

The quota is the default of users (`producer_byte_rate`): it holds for every user that has no quota
of its own. Brokers keep it until somebody takes it away, so a row in the state topic of the target
says that it is ours, before it is set. For each step:

- the process dies behind the row, before the quota: a row of a quota that is not there. A broker
  that lags says the same of one that was set just now: so who finds it takes the quota away all
  the same, and clears the row;
- behind the quota: the next leader of the flow finds the row and decides again; without a mirror,
  `twinlog flow unthrottle` takes it away;
- behind the removal, before the row is cleared: as behind the row;
- an answer is lost: all steps may be done again;
- the target is away: what this process has set, or read of, it removes all the same (`let_go`),
  and the row is cleared when the target is back;
- the state topic is deleted: what this process knows of is still taken for its own;
- a process that has lost the lead does it once more: the leader reads the row at its next look;
- somebody else has a default quota of users: nothing is set. Somebody changes ours: it is theirs
  from then on, and is left alone. Two flows from one source: the second finds the quota of the
  first, and sets none.
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


class Freed(Enum):
    """What was found where producers were to be let go."""

    NOTHING = "nothing held them"
    REMOVED = "the quota was removed"
    CHANGED = "the quota was changed by somebody else, and left as it is"


class ProducerHold:
    """Of one flow; not for several threads at once."""

    def __init__(
        self,
        flow: str,
        source: ClusterClient,
        target: ClusterClient,
        known: HeldProducers | None = None,
    ) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._position = 0
        self._held = known
        self._is_over = False
        self._let_go: HeldProducers | None = None
        """What was removed, and may still stand in the state topic."""

    @property
    def known(self) -> HeldProducers | None:
        """What was read last, or is about to be set."""
        return self._held

    def read(self) -> HeldProducers | None:
        """What the state topic says now."""
        found = self._target.metadata([STATE_TOPIC]).topics.get(STATE_TOPIC)
        if found is None or found.error == UNKNOWN_TOPIC_OR_PARTITION:
            return None
        try:
            self._read_on()
        except BrokerRefused:
            self._position = 0  # the topic lost its end, or was created again
            raise
        return self._held

    def _read_on(self) -> None:
        for row in read_to_end(self._target, STATE_TOPIC, 0, self._position):
            if row.key is not None and is_held_row(row.key, self._flow):
                self._held = held_producers(row.key, row.value)
            self._position = row.offset + 1

    def hold(self, rate: int) -> float | None:
        """Set the quota; that of somebody else, where there is one, and nothing was changed."""
        held = self.read() or self._held
        ours = () if held is None else held.rates
        now = producer_quota(self._source)
        if now is not None and now not in ours:
            return now
        if now != rate and not self._is_over:
            self._write((*ours, rate)[-_MOST_RATES:])
            if not self._is_over:
                set_producer_quota(self._source, rate)
        return None

    def end(self) -> None:
        """From any thread: what hangs in `hold` sets nothing any more."""
        self._is_over = True

    def let_go(self) -> Freed:
        """Remove what is known to be ours, without the target: it may be what is away."""
        known = self._held
        if known is None or known == self._let_go:
            return Freed.NOTHING
        found = self._remove(known)
        self._let_go = known
        return found

    def free(self) -> Freed:
        """Remove what is ours, and note it; nothing where `let_go` has done it."""
        found = self.let_go()
        held = self.read()
        if held is None:
            self._held = None
            return found
        if held != self._let_go:
            found = self._remove(held)
        self._write(())
        return found

    def _remove(self, held: HeldProducers) -> Freed:
        now = producer_quota(self._source)
        if now is not None and now not in held.rates:
            return Freed.CHANGED
        try:
            set_producer_quota(self._source, None)
        except Unauthorized:
            if now is not None:
                raise  # else it could not be set either
        return Freed.REMOVED

    def _write(self, rates: tuple[int, ...]) -> None:
        now_ms = int(time.time() * 1000)
        row = HeldProducers(flow=self._flow, rates=rates, at_ms=now_ms)
        if rates:
            self._held = row
        append_rows(self._target, _HOME, [row.encode()], now_ms)
        if not rates:
            self._held = None
