"""The settings of one Kafka cluster, as plain values that are sent to lanes as JSON."""

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
"""Matches a key of TLS or SASL in a message, but not an option of a login module (`key=`)."""

_ALSO_IN: Final = {
    "sasl.oauthbearer.token.endpoint.url": "sasl.jaas.config",
    "sasl.jaas.config": "sasl.oauthbearer.client.credentials.*",
}
"""For some keys, a second key that may contain the value of the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """One cluster: its alias, bootstrap addresses and security settings."""

    alias: str
    bootstrap: tuple[tuple[str, int], ...]
    security: SecuritySettings | None = None
    """The settings of TLS and SASL. None: plain text without authentication."""
    client_id: str = "twinlog"
    request_timeout_ms: int = DEFAULT_REQUEST_TIMEOUT_MS

    file: str = ""
    """The configuration file, for messages. Empty unless its keys lack an alias (MirrorMaker 1)."""

    origins: tuple[tuple[str, str, str], ...] = field(default=(), compare=False)
    """For each key from a file: the client's key, the key in the file, and file and line."""

    @property
    def addresses(self) -> str:
        """The bootstrap addresses as a user wrote them, for messages."""
        return ",".join(str(Address(*address)) for address in self.bootstrap)

    @property
    def is_of_dataframes(self) -> bool:
        """True if the cluster has no name, as for DataFrames, and so has one of its addresses as
        alias.
        """
        return self.alias in self.addresses.split(",")

    def key(self, name: str) -> str:
        """Return a client key under the name that the user knows, for messages.

        A key that is set in a file is shown with its name there, file and line. A key that is not
        set is shown with the alias or `kafka` (DataFrames) as prefix, or as `bootstrap.servers in
        consumer.properties` (MirrorMaker 1). `ssl.*` as `name` means any key with that prefix.
        """
        for client_key in (name, _ALSO_IN.get(name, name)):
            start = client_key.removesuffix("*")
            for key, written, location in self.origins:
                if key == client_key:
                    return f"{written} ({location})"
                if start != client_key and key.startswith(start):
                    key_name = (
                        written.removesuffix(key) + client_key if written.endswith(key) else written
                    )
                    return f"{key_name} ({location})"
        if self.file:
            return f"{name} in {self.file}"
        return f"{'kafka' if self.is_of_dataframes else self.alias}.{name}"

    def naming(self, text: str) -> str:
        """Return the text with each TLS and SASL key replaced by the name that the user knows."""
        return _SECURITY_KEY.sub(lambda match: self.key(match[0]), text)


def parse_bootstrap(text: str, key: str = "bootstrap.servers") -> tuple[tuple[str, int], ...]:
    """Return the addresses in text like `host:port,[::1]:port`. Errors name `key`."""
    addresses = tuple(_address(part.strip(), key) for part in text.split(",") if part.strip())
    if not addresses:
        raise ConfigError(f"{key} has no address: write a list of host:port, separated by commas")
    return addresses


def _address(text: str, key: str) -> Address:
    address = parse_address(text)
    if address is None or not address.port:
        raise ConfigError(
            f"{key}: {text!r} is not an address: write host:port, for example kafka1:9092, with a "
            f"port from 1 to {MAX_PORT}"
        )
    return address
