"""Hosts and ports, in the notations of people and Java."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

MAX_PORT: Final = 65_535
IO_ERRORS: Final = (OSError, ValueError, OverflowError)
"""All errors of socket calls. Python raises UnicodeError for a name that cannot be encoded,
ValueError for a NUL in a name, and OverflowError for a port out of range. Brokers can advertise
such addresses.
"""
IoError = OSError | ValueError | OverflowError
_HOST_PORT: Final = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")
"""Java's `Utils.HOST_PORT_PATTERN`: a listener-like prefix passes (PLAINTEXT://host:port)."""


class Address(NamedTuple):
    """A host and port; port 0 means none, or any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address | None:
    """Parse `host:port` or `[::1]:port` like Java does, or return None."""
    found = _HOST_PORT.fullmatch(text)
    if found is None or not found[1] or int(found[2]) > MAX_PORT:
        return None
    return Address(found[1], int(found[2]))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach it. No other name than localhost is recognized."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
