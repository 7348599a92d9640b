"""Where HTTP is served: an address and a port, as people write them."""

from __future__ import annotations

from typing import Final

from twinlog.addresses import Address, parse_address
from twinlog.config.keys.process_keys import CLIENT_CA_FILE, OPEN_MONITORING, TOKENS_FILE
from twinlog.errors import ConfigError, TwinlogError, UsageError

OFF: Final = "off"


class CannotListen(TwinlogError):
    """The address is taken or not of this machine; the copy does not need it."""

    code = "CANNOT_LISTEN"


class ListenUnguarded(ConfigError):
    """Others reach the address, and no key says who may come in."""

    code = "LISTEN_UNGUARDED"

    def __init__(self, address: Address) -> None:
        super().__init__(
            f"{address}: others reach this address, and nothing says who may come in, so nothing "
            f"is served and the mirror does not start; set {TOKENS_FILE} (`twinlog token new "
            f"FILE`) or {CLIENT_CA_FILE}, or {OPEN_MONITORING} = true for metrics and probes "
            f"alone, or serve this machine alone: --listen 127.0.0.1:{address.port}"
        )


def parse_listen(text: str) -> Address | None:
    """`ADDRESS:PORT`, `[::1]:PORT`, or `off` (None); raises UsageError."""
    if text == OFF:
        return None
    found = None if "/" in text else parse_address(text)
    if found is None or (":" in found.host and not text.startswith("[")):
        # the end of an IPv6 address without brackets may be a port or not
        raise UsageError(
            f"--listen: {text!r} is no address: write ADDRESS:PORT, as in 127.0.0.1:9405 or "
            "[::1]:9405, or `off`"
        )
    return found
