"""Whether a broker that says who leads has older metadata than one that was asked before.

A broker that was frozen, starved or cut off from the controller answers with what it had. Taken at
its word, a partition goes back to a leader that was replaced: reads end where that one's log ends,
and writes are never acknowledged. A leader's epoch only grows as long as the topic is the same, so
the answer with the newest one counts (as with Java's clients).

- Another topic id: the topic was created again, and its epochs start over.
- No topic ids (before Kafka 2.8), or no epochs: nothing tells which answer is older, each counts.
- A cluster that was restored from a backup has older epochs for good: after OLDER_FOR_S without a
  newer one the older one counts.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from twinlog.cluster.net.metadata import NO_EPOCH
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition

OLDER_FOR_S: Final = 30.0
"""Brokers that are asked in turn for so long are not all behind."""


class _Newest(NamedTuple):
    topic_id: TopicId
    epoch: int
    older_since: float | None
    """Monotonic: since when all answers have been older."""


class NewestEpochs:
    """The newest leader epochs that a cluster's brokers told."""

    def __init__(self) -> None:
        self._newest: dict[TopicPartition, _Newest] = {}

    def is_older(self, tp: TopicPartition, topic_id: TopicId, epoch: int, now: float) -> bool:
        """Whether this epoch, told now (monotonic, s), is one that was replaced; it is kept if not.

        To be called once for each answer.
        """
        if topic_id == NO_TOPIC_ID or epoch == NO_EPOCH:
            self._newest.pop(tp, None)
            return False
        known = self._newest.get(tp)
        if known is not None and known.topic_id == topic_id and epoch < known.epoch:
            since = now if known.older_since is None else known.older_since
            if now - since < OLDER_FOR_S:
                self._newest[tp] = known._replace(older_since=since)
                return True
        self._newest[tp] = _Newest(topic_id, epoch, None)
        return False
