"""How to reach one Kafka cluster: plain values that travel to lanes as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.errors import ConfigError

DEFAULT_REQUEST_TIMEOUT_MS: Final = 30_000
"""Java's request.timeout.ms."""

MAX_PORT: Final = 65_535


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
        return ",".join(format_address(host, port) for host, port in self.bootstrap)


def format_address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_bootstrap(text: str, key: str = "bootstrap.servers") -> tuple[tuple[str, int], ...]:
    """The addresses of a `host:port,[::1]:port` list; `key` names it in the error."""
    addresses = tuple(_parse_address(part.strip(), key) for part in text.split(",") if part.strip())
    if not addresses:
        raise ConfigError(f"{key} names no broker: write host:port, separated by commas")
    return addresses


def _parse_address(text: str, key: str) -> tuple[str, int]:
    # Java lets a listener-like prefix pass (PLAINTEXT://host:port)
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise ConfigError(f"{key}: {text!r} is no address: write host:port, as in kafka1:9092")
    if not 0 < int(port) <= MAX_PORT:
        raise ConfigError(f"{key}: {text!r} has port {port}, which is not within 1-{MAX_PORT}")
    return host, int(port)
