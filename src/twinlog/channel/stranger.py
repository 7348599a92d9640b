"""Connections before they have shown who they are: a TLS handshake and one hello each, no more.

Anybody can open them. So they are bounded in number, time and bytes, and when there are too many
the oldest makes room: a lane says hello at once, and whoever holds on to silent connections loses
those, and not the lanes their way in.
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
"""No real start of lanes opens so many at once."""

MAX_OF_ONE_ADDRESS: Final = 128
"""Of all lanes on one machine; what is more makes room for itself alone."""


class Stranger:
    """A connection to the channel of which it is not known whose it is."""

    def __init__(self, sock: socket.socket, host: str, port: int) -> None:
        self.frames = FrameSocket(sock, max_frame_bytes=HELLO_FRAME_BYTES)
        self.host = host
        self.remote = f"{host}:{port}"
        self.give_up_at = time.monotonic() + HELLO_WITHIN_S
        self.handshaken = not isinstance(sock, ssl.SSLSocket)

    def read(self) -> None:
        """Take in what has come of a hello: what lies behind it waits until it is known."""
        self.frames.read_first(HELLO_BYTES - self.frames.reader.waiting_bytes)

    def shake_hands(self) -> int:
        """Continue with the TLS handshake; returns the selector events to wait for."""
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
    """All of them, the oldest first."""

    def __init__(self) -> None:
        self._all: dict[Stranger, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, stranger: Stranger) -> bool:
        return stranger in self._all

    def add(self, stranger: Stranger) -> list[Stranger]:
        """One more; returns those that must make room for it."""
        self._all[stranger] = None
        of_one = [one for one in self._all if one.host == stranger.host]
        surplus = of_one[: max(0, len(of_one) - MAX_OF_ONE_ADDRESS)]
        rest = [one for one in self._all if one not in surplus]
        return [*surplus, *rest[: max(0, len(rest) - MAX_STRANGERS)]]

    def discard(self, stranger: Stranger) -> None:
        self._all.pop(stranger, None)

    def oldest(self, count: int) -> list[Stranger]:
        return list(self._all)[:count]

    def late(self) -> list[Stranger]:
        """Those whose time is up."""
        now = time.monotonic()
        return [one for one in self._all if one.give_up_at < now]


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
