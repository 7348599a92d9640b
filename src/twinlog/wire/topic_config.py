"""One config of a topic or broker, as returned by DescribeConfigs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ConfigSource(IntEnum):
    """Where a value comes from, with the protocol's numbers; newer brokers have others."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One config entry; a sensitive one has no value."""

    name: str
    value: str | None
    source: int = ConfigSource.DYNAMIC_TOPIC
    is_read_only: bool = False
    is_sensitive: bool = False

    @property
    def is_default(self) -> bool:
        """Like Java's ConfigEntry: a value from the broker's own file is not a default."""
        return self.source == ConfigSource.DEFAULT
