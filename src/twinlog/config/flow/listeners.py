"""Where `listeners` of an mm2.properties says that HTTP is served.

MirrorMaker 2 serves its REST interface there; here it is the address of monitoring and REST, unless
the command line names one. MirrorMaker 2 reads the key only where its REST interface is on, so a
file with it must run; but nothing is served to others that nobody allowed, so its port is served to
this machine alone then, and a warning says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from twinlog.addresses import MAX_PORT, Address, is_loopback
from twinlog.config.keys.process_keys import CLIENT_CA_FILE, OPEN_MONITORING, TOKENS_FILE
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
    """The first `http://` one, or its port of this machine; None where the file has none."""
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
    """A wrong one stops nothing."""
    setting = raw.get("listeners")
    for entry in [] if setting is None else to_list(setting):
        found = _matched(entry)
        if found is None:
            message = f"{entry!r} is no listener; write http://ADDRESS:PORT"
            yield warning(WarningCode.DEAD_KEY, raw["listeners"], message)
        elif found["scheme"].lower() == "https":
            message = (
                f"nothing is served at {entry}: write http://ADDRESS:PORT, and name the "
                "certificate with twinlog.rest.tls.certificate.file, which makes it https"
            )
            yield warning(WarningCode.DEAD_KEY, raw["listeners"], message)
    named = _named(raw)
    if named is not None and not _may_be_served(named, raw):
        message = (
            f"others reach {named}, and nothing says who may come in, so HTTP is served at "
            f"{Address(THIS_MACHINE, named.port)} in its place; write {OPEN_MONITORING} = true, "
            "which serves /metrics, /healthz and /readyz there to whoever asks, or "
            f"{TOKENS_FILE} or {CLIENT_CA_FILE}, which serve REST and page as well"
        )
        yield warning(WarningCode.LISTEN_UNGUARDED, raw["listeners"], message)


def _matched(entry: str) -> re.Match[str] | None:
    found = _LISTENER.fullmatch(entry)
    return found if found is not None and int(found["port"]) <= MAX_PORT else None
