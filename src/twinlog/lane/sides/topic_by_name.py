"""Whether a name still means the topic that we copy to, where Produce takes no topic ids.

Before Kafka 4.1 (KIP-516 for Produce) a broker appends to whatever has the name. A topic can be
deleted and created again within tens of milliseconds, and a broker that never heard of a producer
takes its first batch under any sequence. So a batch goes out only while something says that the
topic is still the same: metadata, or an answer to an earlier batch. Both count from the moment at
which they were asked for. When the answer was read proves nothing: the process may
have been frozen in between.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

SEEN_WITHIN_S: Final = 0.02
"""For how long it is still the same. Deleting and creating again took 73 ms at least."""

SLOW_ANSWERS: Final = 3
"""So many answers to metadata are too old when they come; then the network is as slow as that."""


@dataclass(slots=True)
class TopicByName:
    """What one copy knows of its target topic; times are of a monotonic clock, in seconds."""

    _seen_at: float = -math.inf
    _sent_at: deque[float] = field(default_factory=deque)
    """Of the batches in flight, oldest first."""
    _flights_s: deque[float] = field(default_factory=lambda: deque(maxlen=2))
    """Of the last batches: the shorter one counts, as the longer one may be a stall of ours."""
    _asked_since: float | None = None
    _slow_answers: int = 0

    def on_sent(self, now: float) -> None:
        """A batch goes out."""
        self._sent_at.append(now)

    def on_answered(self, now: float, *, is_ours: bool) -> None:
        """The oldest batch in flight was answered: appended to our topic, or not."""
        sent_at = self._sent_at.popleft()
        self._flights_s.append(now - sent_at)
        if is_ours:
            self._seen_at = max(self._seen_at, sent_at)

    def on_disconnected(self) -> None:
        """What was in flight has no answer."""
        self._sent_at.clear()
        self._seen_at = -math.inf

    def is_fresh(self, now: float) -> bool:
        """What we know is young enough to send a batch by it."""
        if now - self._seen_at <= SEEN_WITHIN_S:
            return True
        if not self._sent_at:
            return False
        # a pipeline is as old as its flights are long
        return now - self._sent_at[0] <= SEEN_WITHIN_S + min(self._flights_s, default=0.0)

    def wants_metadata(self, now: float, asked_at: float) -> bool:
        """True until metadata that was asked for at `asked_at` is young enough."""
        if self._asked_since is None:
            self._asked_since = now
        if asked_at < self._asked_since:
            return True
        if now - asked_at > SEEN_WITHIN_S and self._slow_answers < SLOW_ANSWERS:
            self._slow_answers += 1
            self._asked_since = now
            return True
        self._asked_since, self._slow_answers = None, 0
        return False

    def on_same(self, asked_at: float) -> None:
        """Metadata that was asked for then has our topic's id."""
        self._seen_at = max(self._seen_at, asked_at)
