"""A connection before it has shown the token: it gets a TLS handshake and one hello, no more."""

from __future__ import annotations

import logging
import selectors
import socket
import ssl
import time

from twinlog.spark.frame_socket import ClosedByPeer, FrameSocket
from twinlog.spark.framing import hello_frame_bytes

log = logging.getLogger(__name__)

HELLO_WITHIN_S = 10.0
WARN_EVERY_S = 60.0


class Stranger:
    """A connection to the channel whose token is not yet known."""

    def __init__(self, sock: socket.socket, remote: str, token: str) -> None:
        self.frames = FrameSocket(sock, max_frame_bytes=hello_frame_bytes(token))
        self.remote = remote
        self.give_up_at = time.monotonic() + HELLO_WITHIN_S
        self.handshaken = not isinstance(sock, ssl.SSLSocket)

    def shake_hands(self) -> int:
        """Go on with the TLS handshake; returns the selector events to wait for."""
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


class Refusals:
    """One warning a minute at most about connections without our token: anybody can cause them."""

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
            "channel_refused remote=%s count=%d reason=%s; something that is not one of our lanes "
            "connects to the driver's channel [CHANNEL_TOKEN]",
            remote,
            self._unreported,
            why,
        )
        self._unreported = 0
