"""How to reach one Kafka cluster: plain values that travel to lanes as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.addresses import MAX_PORT, Address, parse_address
from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.errors import ConfigError

DEFAULT_REQUEST_TIMEOUT_MS: Final = 30_000
"""Java's request.timeout.ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """One cluster by alias, its first addresses, and how to prove who we are."""

    alias: str
    bootstrap: tuple[tuple[str, int], ...]
    security: SecuritySettings | None = None
    """None is plain text without authentication."""
    client_id: str = "twinlog"
    request_timeout_ms: int = DEFAULT_REQUEST_TIMEOUT_MS

    @property
    def addresses(self) -> str:
        """The bootstrap addresses as a user wrote them, for messages."""
        return ",".join(str(Address(*one)) for one in self.bootstrap)

    @property
    def prefix(self) -> str:
        """What its keys begin with where people wrote them, for messages: the alias; of DataFrames,
        which name a cluster by its first address, `kafka`.
        """
        return "kafka" if self.alias in self.addresses.split(",") else self.alias


def parse_bootstrap(text: str, key: str = "bootstrap.servers") -> tuple[tuple[str, int], ...]:
    """The addresses of a `host:port,[::1]:port` list; `key` names it in the error."""
    addresses = tuple(_address(part.strip(), key) for part in text.split(",") if part.strip())
    if not addresses:
        raise ConfigError(f"{key} names no broker: write host:port, separated by commas")
    return addresses


def _address(text: str, key: str) -> Address:
    found = parse_address(text)
    if found is None or not found.port:
        raise ConfigError(
            f"{key}: {text!r} is no address: write host:port, as in kafka1:9092, with a port "
            f"within 1-{MAX_PORT}"
        )
    return found
