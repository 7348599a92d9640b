"""The settings of one Kafka cluster: plain values that are sent to lanes as JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from twinlog.addresses import MAX_PORT, Address, parse_address
from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.errors import ConfigError

DEFAULT_REQUEST_TIMEOUT_MS: Final = 30_000
"""Java's request.timeout.ms."""


_SECURITY_KEY: Final = re.compile(r"(?<![\w.])(?:ssl|sasl|security)(?:\.[a-z]+)++(?:\.\*)?+(?!=)")
"""A key of TLS or SASL in a message. `key=` is an option of a login module, so it is no match."""

_ALSO_IN: Final = {
    "sasl.oauthbearer.token.endpoint.url": "sasl.jaas.config",
    "sasl.jaas.config": "sasl.oauthbearer.client.credentials.*",
}
"""Keys that may contain what another key usually does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """One cluster: its alias, its bootstrap addresses, and its security settings."""

    alias: str
    bootstrap: tuple[tuple[str, int], ...]
    security: SecuritySettings | None = None
    """None: plain text without authentication."""
    client_id: str = "twinlog"
    request_timeout_ms: int = DEFAULT_REQUEST_TIMEOUT_MS

    file: str = ""
    """File whose keys have no alias prefix, as in MirrorMaker 1; for messages."""

    origins: tuple[tuple[str, str, str], ...] = field(default=(), compare=False)
    """For each key from a file: its name for a client, its name in the file, and file and line."""

    @property
    def addresses(self) -> str:
        """The bootstrap addresses as a user wrote them, for messages."""
        return ",".join(str(Address(*one)) for one in self.bootstrap)

    @property
    def is_of_dataframes(self) -> bool:
        """Whether the cluster is named by its first address, as DataFrames do."""
        return self.alias in self.addresses.split(",")

    def key(self, name: str) -> str:
        """Return the name of a key for messages.

        A key from a file has its name in that file, and file and line. A key that is not set has
        the alias as prefix, or `kafka` (DataFrames), or is `bootstrap.servers in
        consumer.properties` (MirrorMaker 1). `ssl.*` means all keys with that prefix.
        """
        for one in (name, _ALSO_IN.get(name, name)):
            start = one.removesuffix("*")
            for key, written, location in self.origins:
                if key == one:
                    return f"{written} ({location})"
                if start != one and key.startswith(start):
                    ours = written.removesuffix(key) + one if written.endswith(key) else written
                    return f"{ours} ({location})"
        if self.file:
            return f"{name} in {self.file}"
        return f"{'kafka' if self.is_of_dataframes else self.alias}.{name}"

    def naming(self, text: str) -> str:
        """Return the text with each key of TLS and SASL in it replaced by its name in `key`."""
        return _SECURITY_KEY.sub(lambda found: self.key(found[0]), text)


def parse_bootstrap(text: str, key: str = "bootstrap.servers") -> tuple[tuple[str, int], ...]:
    """Return the addresses of a `host:port,[::1]:port` list. `key` names it in errors."""
    addresses = tuple(_address(part.strip(), key) for part in text.split(",") if part.strip())
    if not addresses:
        raise ConfigError(f"{key} contains no broker: write host:port, separated by commas")
    return addresses


def _address(text: str, key: str) -> Address:
    found = parse_address(text)
    if found is None or not found.port:
        raise ConfigError(
            f"{key}: {text!r} is not an address: write host:port, as in kafka1:9092, with a port "
            f"within 1-{MAX_PORT}"
        )
    return found
