"""An ACL on topics, with the protocol's numbers, and one config of a topic or broker, as returned
by DescribeConfigs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

ALL: Final = 2
READ: Final = 3
WRITE: Final = 4


class Pattern(IntEnum):
    """Pattern types of ACLs, by their numbers in the protocol."""

    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Permission types of ACLs, by their numbers in the protocol."""

    DENY = 2
    ALLOW = 3


_OPERATIONS: Final = {
    2: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
}


class TopicAcl(NamedTuple):
    """One ACL on a topic, or on all topics with a common prefix."""

    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    """The operation's number in the protocol, which may be unknown to this release."""
    permission: int

    def __str__(self) -> str:
        """Return text like `ALLOW READ on topic A.orders* to User:app`."""
        permission = "ALLOW" if self.permission == Permission.ALLOW else "DENY"
        operation = _OPERATIONS.get(self.operation, f"operation {self.operation}")
        star = "*" if self.pattern == Pattern.PREFIXED else ""
        where = "" if self.host == "*" else f" from {self.host}"
        return f"{permission} {operation} on topic {self.name}{star} to {self.principal}{where}"


class ConfigSource(IntEnum):
    """Sources of config values, by their numbers in the protocol. Newer brokers may add some."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A config entry of a topic or broker. `value` is None if the entry is sensitive."""

    name: str
    value: str | None
    source: int = ConfigSource.DYNAMIC_TOPIC
    is_read_only: bool = False
    is_sensitive: bool = False

    @property
    def is_default(self) -> bool:
        """True if the value is Kafka's default. As in Java's ConfigEntry, a value from the broker's
        file is not a default.
        """
        return self.source == ConfigSource.DEFAULT
