"""Parses and formats hosts and ports, in the same format as Java."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

MAX_PORT: Final = 65_535
IO_ERRORS: Final = (OSError, ValueError, OverflowError)
"""All errors that socket calls raise. Brokers can advertise invalid addresses, for which Python
raises UnicodeError (a name that cannot be encoded), ValueError (a NUL) or OverflowError (a port).
"""
IoError = OSError | ValueError | OverflowError
_HOST_PORT: Final = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]{1,9})")
"""Java's `Utils.HOST_PORT_PATTERN`, which accepts a listener's prefix (PLAINTEXT://host:port)."""


class Address(NamedTuple):
    """A host and port. Port 0 means that the port is missing, or that any free port is used."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address | None:
    """Return the address in text like `host:port` or `[::1]:port`, or None if Java rejects it."""
    match = _HOST_PORT.fullmatch(text)
    if match is None or not match[1] or int(match[2]) > MAX_PORT:
        return None
    return Address(match[1], int(match[2]))


def is_loopback(host: str) -> bool:
    """Return True for a loopback address and for `localhost`. Other names are not resolved."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
