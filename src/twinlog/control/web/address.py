"""Where HTTP is served: an address and a port, as people write them."""

from __future__ import annotations

from typing import Final, NamedTuple

from twinlog.cluster.net.settings import format_address
from twinlog.errors import TwinlogError, UsageError

OFF: Final = "off"
MAX_PORT: Final = 65_535


class Address(NamedTuple):
    """Where to listen; port 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return format_address(self.host, self.port)


class CannotListen(TwinlogError):
    """The address is taken or not of this machine; the copy does not need it."""

    code = "CANNOT_LISTEN"


def parse_listen(text: str) -> Address | None:
    """`ADDRESS:PORT`, `[::1]:PORT`, or `off` (None); raises UsageError."""
    if text == OFF:
        return None
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # an IPv6 address without brackets: its end may be a port or not
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > MAX_PORT:
        raise UsageError(
            f"--listen: {text!r} is no address: write ADDRESS:PORT, as in 127.0.0.1:9405 or "
            "[::1]:9405, or `off`"
        )
    return Address(host, int(port))
