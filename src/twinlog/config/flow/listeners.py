"""The HTTP address in `listeners` of an mm2.properties.

MirrorMaker 2 serves its REST API there. Twinlog serves monitoring and REST there, unless the
command line sets an address. MirrorMaker 2 reads the key only if its REST API is enabled, so a file
with this key must run. If other hosts could reach the address and no authentication is configured,
Twinlog serves only 127.0.0.1 at that port and warns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from twinlog.addresses import MAX_PORT, Address, is_loopback
from twinlog.config.keys.key_table import CLIENT_CA_FILE, OPEN_MONITORING, TOKENS_FILE
from twinlog.config.rest import rest_config
from twinlog.config.values.origin import Settings
from twinlog.config.values.types import to_list
from twinlog.config.values.warnings import ConfigWarning, WarningCode, warning

EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 (an empty host is Connect's word for it)
THIS_MACHINE: Final = "127.0.0.1"
_LISTENER: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[^\[\]:/]*):(?P<port>\d+)/?", re.IGNORECASE
)


def http_listener(raw: Settings) -> Address | None:
    """Return the first `http://` address, or its port of 127.0.0.1, or None if the file has
    none.
    """
    found = _named(raw)
    if found is None or _may_be_served(found, raw):
        return found
    return Address(host=THIS_MACHINE, port=found.port)


def _may_be_served(address: Address, raw: Settings) -> bool:
    return is_loopback(address.host) or rest_config(raw).may_serve_others


def _named(raw: Settings) -> Address | None:
    setting = raw.get("listeners")
    entries = [] if setting is None else to_list(setting)
    for found in filter(None, map(_matched, entries)):
        if found["scheme"].lower() == "http":
            host = found["host"].strip("[]") or EVERY_ADDRESS
            return Address(host=host, port=int(found["port"]))
    return None


def audit_listeners(raw: Settings) -> Iterator[ConfigWarning]:
    """Yield warnings about invalid listeners; they do not stop the mirror."""
    setting = raw.get("listeners")
    for entry in [] if setting is None else to_list(setting):
        found = _matched(entry)
        if found is None:
            message = f"{entry!r} is not a listener; write http://ADDRESS:PORT"
            yield warning(WarningCode.DEAD_KEY, raw["listeners"], message)
        elif found["scheme"].lower() == "https":
            message = (
                f"nothing is served at {entry}: write http://ADDRESS:PORT, and set "
                "twinlog.rest.tls.certificate.file, which makes it https"
            )
            yield warning(WarningCode.DEAD_KEY, raw["listeners"], message)
    named = _named(raw)
    if named is not None and not _may_be_served(named, raw):
        message = (
            f"other hosts can reach {named} and no authentication is configured, so HTTP is served "
            f"at {Address(THIS_MACHINE, named.port)} instead; write {OPEN_MONITORING} = true to "
            f"serve /metrics, /healthz and /readyz without authentication, or {TOKENS_FILE} or "
            f"{CLIENT_CA_FILE} to serve REST and the web page as well"
        )
        yield warning(WarningCode.LISTEN_UNGUARDED, raw["listeners"], message)


def _matched(entry: str) -> re.Match[str] | None:
    found = _LISTENER.fullmatch(entry)
    return found if found is not None and int(found["port"]) <= MAX_PORT else None
