"""Hosts and ports, as people and Java write them."""

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
    """Where somebody listens; port 0 is none, or any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address | None:
    """`host:port` or `[::1]:port`, as Java takes it; None where it is none."""
    found = _HOST_PORT.fullmatch(text)
    if found is None or not found[1] or int(found[2]) > MAX_PORT:
        return None
    return Address(found[1], int(found[2]))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it; no other name than localhost is known."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
