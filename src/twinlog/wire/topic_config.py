"""One config of a topic or broker, as returned by DescribeConfigs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ConfigSource(IntEnum):
    """The source of a value, by its number in the protocol. Newer brokers know more sources."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One config entry. A sensitive one has no value."""

    name: str
    value: str | None
    source: int = ConfigSource.DYNAMIC_TOPIC
    is_read_only: bool = False
    is_sensitive: bool = False

    @property
    def is_default(self) -> bool:
        """Whether the value is Kafka's default. As in Java's ConfigEntry, a value from the broker's
        file is not a default.
        """
        return self.source == ConfigSource.DEFAULT
