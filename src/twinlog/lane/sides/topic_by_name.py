"""Tracks whether a name still means the same target topic, for brokers that do not accept topic
IDs.

Before Kafka 4.1 (KIP-516 for Produce), a broker appends to whichever topic has the name. A topic
can be deleted and created again within tens of milliseconds, and a broker that does not know a
producer accepts its first batch with any sequence. So a batch is sent only while there is evidence
that the topic is still the same: metadata, or the response to an earlier batch. The age of the
evidence counts from the request, because the process may have been frozen before it read the
response.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

SEEN_WITHIN_S: Final = 0.02
"""Time for which evidence is valid. Deleting and re-creating a topic took at least 73 ms."""

SLOW_ANSWERS: Final = 3
"""After this many late metadata responses, the next response is used, however late it is."""


@dataclass(slots=True)
class TopicByName:
    """Evidence that a copy's target topic is still the same. Times are monotonic, in seconds."""

    _seen_at: float = -math.inf
    _sent_at: deque[float] = field(default_factory=deque)
    """Send times of the batches in flight, oldest first."""
    _flights_s: deque[float] = field(default_factory=lambda: deque(maxlen=2))
    """Round-trip times of the last two batches. The shorter one is used, because the longer one may
    be due to a local stall.
    """
    _asked_since: float | None = None
    _slow_answers: int = 0

    def on_sent(self, now: float) -> None:
        """Store the time at which a batch was sent."""
        self._sent_at.append(now)

    def on_answered(self, now: float, *, is_ours: bool) -> None:
        """Process the response to the oldest batch in flight. `is_ours`: the response shows that
        the batch was appended to the expected topic.
        """
        sent_at = self._sent_at.popleft()
        self._flights_s.append(now - sent_at)
        if is_ours:
            self._seen_at = max(self._seen_at, sent_at)

    def on_disconnected(self) -> None:
        """Forget the evidence and the batches in flight, which get no response."""
        self._sent_at.clear()
        self._seen_at = -math.inf

    def is_fresh(self, now: float) -> bool:
        """Return True if the evidence is recent enough to send a batch."""
        if now - self._seen_at <= SEEN_WITHIN_S:
            return True
        if not self._sent_at:
            return False
        # with a batch in flight, the newest evidence is at least one round trip old
        return now - self._sent_at[0] <= SEEN_WITHIN_S + min(self._flights_s, default=0.0)

    def wants_metadata(self, now: float, asked_at: float) -> bool:
        """Return True if newer metadata is needed to send a batch. `asked_at`: time at which the
        last metadata of the topic was requested.
        """
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

    def on_same_topic_id(self, asked_at: float) -> None:
        """Store as evidence that metadata, which was requested at `asked_at`, had the same topic
        ID.
        """
        self._seen_at = max(self._seen_at, asked_at)
