"""Connections before authentication: a TLS handshake and one hello each, no more.

Any client can open them. So they are limited in number, time and bytes, and if there are too many,
the oldest are closed. A lane sends its hello immediately, so a client that opens many silent
connections loses those, and does not block lanes.
"""

from __future__ import annotations

import logging
import selectors
import socket
import ssl
import time
from typing import Final

from twinlog.channel.frame_socket import ClosedByPeer, FrameSocket
from twinlog.channel.frames import HELLO_BYTES, HELLO_FRAME_BYTES

log = logging.getLogger(__name__)

HELLO_WITHIN_S = 10.0
WARN_EVERY_S = 60.0

MAX_STRANGERS: Final = 512
"""Maximum number of unauthenticated connections, which is more than a start of lanes opens."""

MAX_OF_ONE_ADDRESS: Final = 128
"""Maximum number from one address, which may be a machine with many lanes. If it is exceeded, only
connections from the same address are closed.
"""


class Stranger:
    """An unauthenticated connection to the channel."""

    def __init__(self, sock: socket.socket, host: str, port: int) -> None:
        self.frames = FrameSocket(sock, max_frame_bytes=HELLO_FRAME_BYTES)
        self.host = host
        self.remote = f"{host}:{port}"
        self.give_up_at = time.monotonic() + HELLO_WITHIN_S
        self.handshaken = not isinstance(sock, ssl.SSLSocket)

    def read(self) -> None:
        """Read what has arrived of a hello. Data after it is read only after authentication."""
        self.frames.read_first(HELLO_BYTES - self.frames.reader.waiting_bytes)

    def shake_hands(self) -> int:
        """Continue the TLS handshake. Returns the selector events to wait for."""
        sock = self.frames.socket
        if isinstance(sock, ssl.SSLSocket) and not self.handshaken:
            try:
                sock.do_handshake()
            except ssl.SSLWantReadError:
                return selectors.EVENT_READ
            except ssl.SSLWantWriteError:
                return selectors.EVENT_WRITE
            except OSError as error:
                raise ClosedByPeer(f"TLS handshake: {error}") from None
            self.handshaken = True
        return selectors.EVENT_READ


class Strangers:
    """All unauthenticated connections, oldest first."""

    def __init__(self) -> None:
        self._all: dict[Stranger, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, stranger: Stranger) -> bool:
        return stranger in self._all

    def add(self, stranger: Stranger) -> list[Stranger]:
        """Add a connection. Returns the connections that must be closed because of it."""
        self._all[stranger] = None
        of_one = [other for other in self._all if other.host == stranger.host]
        surplus = of_one[: max(0, len(of_one) - MAX_OF_ONE_ADDRESS)]
        rest = [other for other in self._all if other not in surplus]
        return [*surplus, *rest[: max(0, len(rest) - MAX_STRANGERS)]]

    def discard(self, stranger: Stranger) -> None:
        self._all.pop(stranger, None)

    def oldest(self, count: int) -> list[Stranger]:
        return list(self._all)[:count]

    def late(self) -> list[Stranger]:
        """Return the connections whose time for a hello has expired."""
        now = time.monotonic()
        return [stranger for stranger in self._all if stranger.give_up_at < now]


class Refusals:
    """Limits warnings about connections without a valid token to one a minute, because any client
    can cause them.
    """

    def __init__(self) -> None:
        self._quiet_until = 0.0
        self._unreported = 0

    def note(self, why: str, remote: str) -> None:
        self._unreported += 1
        now = time.monotonic()
        if now < self._quiet_until:
            return
        self._quiet_until = now + WARN_EVERY_S
        log.warning(
            "connections to the driver's channel were refused (%d, the last from %s): %s; the "
            "client is not one of Twinlog's lanes [CHANNEL_TOKEN]",
            self._unreported,
            remote,
            why,
        )
        self._unreported = 0
