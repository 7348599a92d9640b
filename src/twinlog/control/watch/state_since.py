"""Keeps when states of a flow, of its partitions, and of topics that cannot be mirrored began."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class StateSince:
    """Keeps the last state, and the time at which it was first observed."""

    _state: str = ""
    _since_ms: int = 0

    def see(self, state: str, now_ms: int) -> int:
        """Return the wall clock time in ms at which `state`, the current one, began."""
        if state != self._state:
            self._state, self._since_ms = state, now_ms
        return self._since_ms


@dataclass(slots=True)
class FlowSince:
    """When a flow's states began, over all its runs, including states outside runs."""

    flow: StateSince = field(default_factory=StateSince)
    _topics: dict[str, StateSince] = field(default_factory=dict)

    def see_topic(self, topic: str, code: str, now_ms: int) -> int:
        """Return the time (ms) since which a topic cannot be mirrored for this reason."""
        return self._topics.setdefault(topic, StateSince()).see(code, now_ms)

    def keep_only(self, topics: Iterable[str]) -> None:
        """Forget all other topics, because only these cannot be mirrored now."""
        for topic in self._topics.keys() - set(topics):
            del self._topics[topic]
