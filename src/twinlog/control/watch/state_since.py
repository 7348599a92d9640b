"""Since when a state holds: of a flow, of its partitions, of topics that cannot be mirrored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class StateSince:
    """Remembers the state that was seen last, and when it was seen first."""

    _state: str = ""
    _since_ms: int = 0

    def see(self, state: str, now_ms: int) -> int:
        """The wall clock time in ms since which `state`, which holds now, has held."""
        if state != self._state:
            self._state, self._since_ms = state, now_ms
        return self._since_ms


@dataclass(slots=True)
class FlowSince:
    """Of a flow, over all its runs, and of what no run has."""

    flow: StateSince = field(default_factory=StateSince)
    _topics: dict[str, StateSince] = field(default_factory=dict)

    def see_topic(self, topic: str, code: str, now_ms: int) -> int:
        """Since when (ms) a topic cannot be mirrored for this reason."""
        return self._topics.setdefault(topic, StateSince()).see(code, now_ms)

    def forget_others(self, topics: Iterable[str]) -> None:
        """Only these topics cannot be mirrored now."""
        for topic in self._topics.keys() - set(topics):
            del self._topics[topic]
