"""Where `listeners` of an mm2.properties says that HTTP is served.

MirrorMaker 2 serves its REST interface there; here it is the address of monitoring and REST, unless
the command line names one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from twinlog.addresses import MAX_PORT, Address
from twinlog.config.rest import rest_config
from twinlog.config.values.origin import Settings
from twinlog.config.values.types import to_list
from twinlog.config.values.warnings import ConfigWarning, WarningCode, warning

EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 (an empty host is Connect's word for it)
EVERY_ADDRESSES: Final = (EVERY_ADDRESS, "::", "0")
_LISTENER: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[^\[\]:/]*):(?P<port>\d+)/?", re.IGNORECASE
)


def http_listener(raw: Settings) -> Address | None:
    """The first `http://` one; None where the file has none."""
    setting = raw.get("listeners")
    entries = [] if setting is None else to_list(setting)
    for found in filter(None, map(_matched, entries)):
        if found["scheme"].lower() == "http":
            host = found["host"].strip("[]") or EVERY_ADDRESS
            return Address(host=host, port=int(found["port"]))
    return None


def audit_listeners(raw: Settings) -> Iterator[ConfigWarning]:
    """MirrorMaker 2 reads the key only where its REST interface is on, so a wrong one stops
    nothing.
    """
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
    served = http_listener(raw)
    if served is not None and served.host in EVERY_ADDRESSES and not rest_config(raw).is_guarded:
        message = (
            f"/metrics, /healthz and /readyz are served at port {served.port} of every address, "
            f"without a password; write http://127.0.0.1:{served.port}, or the address of the "
            "network that may read names of topics and groups"
        )
        yield warning(WarningCode.INSECURE, raw["listeners"], message)


def _matched(entry: str) -> re.Match[str] | None:
    found = _LISTENER.fullmatch(entry)
    return found if found is not None and int(found["port"]) <= MAX_PORT else None
