"""HTTP: authentication and TLS (the keys `twinlog.rest.*`), and the address in `listeners`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from twinlog.addresses import MAX_PORT, Address, is_loopback
from twinlog.config.keys import key_table as keys
from twinlog.config.values.origin import Settings, refuse
from twinlog.config.values.types import to_boolean, to_choice, to_list, trimmed
from twinlog.config.values.warnings import ConfigWarning, WarningCode, warning


class RestRole(StrEnum):
    """Role of a client. OPERATE includes the permissions of READ."""

    READ = "read"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestConfig:
    """Authentication and TLS of a process's HTTP server. A value is None if its key is not set."""

    tokens_file: Path | None = None
    monitoring_is_open: bool = False
    """True if probes and scrapes need no token."""
    certificate_file: Path | None = None
    private_key_file: Path | None = None
    client_ca_file: Path | None = None
    client_role: RestRole = RestRole.READ
    """Role of a client with a certificate and without a token."""

    @property
    def is_guarded(self) -> bool:
        """Return True if clients must authenticate."""
        return self.tokens_file is not None or self.client_ca_file is not None

    @property
    def may_serve_others(self) -> bool:
        """Return True if HTTP may be served at an address that other hosts can reach."""
        return self.is_guarded or self.monitoring_is_open


OPEN: Final = RestConfig()
"""The configuration if no key is set: clients do not authenticate."""


def rest_config(raw: Settings) -> RestConfig:
    """Return the HTTP configuration. Raises ConfigError if a key needs a key that is not set."""

    def path(key: str) -> Path | None:
        setting = raw.get(key)
        if setting is None:
            return None
        value = trimmed(setting.value)
        if not value:
            raise refuse(setting, "has no file", "write its path, or remove the line")
        return Path(value)

    for key, needed in (
        (keys.PRIVATE_KEY_FILE, keys.CERTIFICATE_FILE),
        (keys.CLIENT_CA_FILE, keys.CERTIFICATE_FILE),
        (keys.CLIENT_ROLE, keys.CERTIFICATE_FILE),
        (keys.CLIENT_ROLE, keys.CLIENT_CA_FILE),
    ):
        if key in raw and needed not in raw:
            what = f"has no effect without {needed}"
            raise refuse(raw[key], what, "set it as well", missing_key=needed)
    is_open = keys.OPEN_MONITORING in raw and to_boolean(raw[keys.OPEN_MONITORING])
    role = RestRole.READ
    if keys.CLIENT_ROLE in raw:
        role = RestRole(to_choice(raw[keys.CLIENT_ROLE], [role.value for role in RestRole]))
    return RestConfig(
        tokens_file=path(keys.TOKENS_FILE),
        monitoring_is_open=is_open,
        certificate_file=path(keys.CERTIFICATE_FILE),
        private_key_file=path(keys.PRIVATE_KEY_FILE),
        client_ca_file=path(keys.CLIENT_CA_FILE),
        client_role=role,
    )


# The HTTP address in `listeners` of an mm2.properties. MirrorMaker 2 serves its REST API at this
# address. Twinlog serves monitoring and REST there, unless the command line sets an address.
# MirrorMaker 2 reads the key only if its REST API is enabled, so the key must not prevent a start.
# If other hosts could reach the address and no authentication is configured, Twinlog warns and
# serves only 127.0.0.1 at the same port.

EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 (an empty host is Connect's word for it)
THIS_MACHINE: Final = "127.0.0.1"
_LISTENER: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[^\[\]:/]*):(?P<port>[0-9]{1,9})/?",
    re.IGNORECASE,
)


def http_listener(raw: Settings) -> Address | None:
    """Return the first `http://` address in `listeners`, or None. If the address is unprotected,
    its host is replaced by 127.0.0.1.
    """
    listener = _named(raw)
    if listener is None or _may_be_served(listener, raw):
        return listener
    return Address(host=THIS_MACHINE, port=listener.port)


def _may_be_served(address: Address, raw: Settings) -> bool:
    return is_loopback(address.host) or rest_config(raw).may_serve_others


def _named(raw: Settings) -> Address | None:
    for _, match in _listeners(raw):
        if match is not None and match["scheme"].lower() == "http":
            host = match["host"].strip("[]") or EVERY_ADDRESS
            return Address(host=host, port=int(match["port"]))
    return None


def audit_listeners(raw: Settings) -> Iterator[ConfigWarning]:
    """Yield warnings about invalid or unprotected listeners, which do not stop the mirror."""
    for entry, match in _listeners(raw):
        if match is None:
            message = f"{entry!r} is not a listener; write http://ADDRESS:PORT"
            yield warning(WarningCode.DEAD_KEY, raw["listeners"], message)
        elif match["scheme"].lower() == "https":
            message = (
                f"nothing is served at {entry}: write http://ADDRESS:PORT, and set "
                "twinlog.rest.tls.certificate.file, which makes it https"
            )
            yield warning(WarningCode.DEAD_KEY, raw["listeners"], message)
    named = _named(raw)
    if named is not None and not _may_be_served(named, raw):
        message = (
            f"other hosts can reach {named} and no authentication is configured, so HTTP is served "
            f"at {Address(THIS_MACHINE, named.port)} instead; write {keys.OPEN_MONITORING} = true "
            "to serve /metrics, /healthz and /readyz without authentication, or "
            f"{keys.TOKENS_FILE} or {keys.CLIENT_CA_FILE} to serve REST and the web page as well"
        )
        yield warning(WarningCode.LISTEN_UNGUARDED, raw["listeners"], message)


def _listeners(raw: Settings) -> Iterator[tuple[str, re.Match[str] | None]]:
    """Yield the entries of `listeners`, each with its match, or None if it is invalid."""
    for entry in to_list(raw["listeners"]) if "listeners" in raw else ():
        match = _LISTENER.fullmatch(entry)
        yield entry, match if match is not None and int(match["port"]) <= MAX_PORT else None
