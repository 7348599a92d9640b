"""The address and port of the HTTP server, as users write them."""

from __future__ import annotations

from typing import Final

from twinlog.addresses import Address, parse_address
from twinlog.config.keys.key_table import CLIENT_CA_FILE, OPEN_MONITORING, TOKENS_FILE
from twinlog.errors import ConfigError, TwinlogError, UsageError

OFF: Final = "off"


class CannotListen(TwinlogError):
    """The address is in use, or not of this machine. Replication works without the server."""

    code = "CANNOT_LISTEN"


class ListenUnguarded(ConfigError):
    """Other machines reach the address, but no key configures authentication."""

    code = "LISTEN_UNGUARDED"

    def __init__(self, address: Address) -> None:
        super().__init__(
            f"{address}: other machines reach this address, but no authentication is set, so "
            f"nothing is served and the mirror does not start; set {TOKENS_FILE} (`twinlog token "
            f"new FILE`) or {CLIENT_CA_FILE}, set {OPEN_MONITORING} = true for metrics and probes "
            f"only, or listen on this machine only: --listen 127.0.0.1:{address.port}"
        )


def parse_listen(text: str) -> Address | None:
    """Parse `ADDRESS:PORT`, `[::1]:PORT`, or `off` (None). Raises UsageError."""
    if text == OFF:
        return None
    address = None if "/" in text else parse_address(text)
    if address is None or (":" in address.host and not text.startswith("[")):
        # without brackets the end of an IPv6 address could be a port
        raise UsageError(
            f"--listen: {text!r} is not an address: write ADDRESS:PORT, such as 127.0.0.1:9405 or "
            "[::1]:9405, or `off`"
        )
    return address
