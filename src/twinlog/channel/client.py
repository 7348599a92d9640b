"""The lane's end of the channel: an authenticated connection to the driver, which the
lane polls.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
from typing import Any, Self

from twinlog.addresses import IO_ERRORS
from twinlog.channel.codec import MessageCodec
from twinlog.channel.frames import (
    HELLO,
    MESSAGE,
    PING,
    PING_INTERVAL_S,
    PONG,
    ChannelAddress,
    ClosedByPeer,
    FrameSocket,
    LaneIdentity,
    clock_payload,
    hello_payload,
    read_clock,
)
from twinlog.clock import boot_clock
from twinlog.errors import AuthenticationFailed, Disconnected, TwinlogError, Unreachable


class ChannelClient:
    """The lane's connection to the driver, which never blocks the lane.

    The lane calls `receive` when the socket is readable, and `flush` when it is writable while
    `wants_write`. It calls one of `send`, `flush` and `receive` at least once a second, so that
    pings are sent. `last_heard` is the time by `boot_clock` up to which the driver provably
    received data from this lane (see `frames`).
    """

    def __init__(self, frames: FrameSocket, codec: MessageCodec, *, connected_at: float) -> None:
        self._frames = frames
        self._codec = codec
        self._next_ping = 0.0
        self.last_heard = connected_at

    @classmethod
    def connect(
        cls,
        address: ChannelAddress,
        identity: LaneIdentity,
        codec: MessageCodec,
        *,
        timeout: float = 10.0,
    ) -> Self:
        """Connect, check the driver's certificate, and send the hello (`frames`). Blocks for up to
        `timeout` seconds.

        If the driver rejects the hello, it only closes the connection, so the first `receive`
        raises Disconnected.
        """
        # the driver counts silence from the arrival of the hello, so the lane counts from before it
        # connects
        started = boot_clock()
        frames = FrameSocket(_dial(address, timeout))
        try:
            frames.write(HELLO, hello_payload(address.token, identity))
            frames.flush()
        except ClosedByPeer as closed:
            frames.close()
            raise _unreachable_error(address, closed.args[0]) from None
        return cls(frames, codec, connected_at=started)

    def fileno(self) -> int:
        return self._frames.fileno()

    @property
    def host(self) -> str:
        """Address of this machine from which the lane is connected to the driver."""
        return str(self._frames.socket.getsockname()[0])

    @property
    def wants_write(self) -> bool:
        return self._frames.wants_write

    def receive(self) -> list[Any]:
        """Return all messages that have arrived. Raises Disconnected if the connection has ended.

        Messages that arrived before the connection ended are returned first. The next call raises
        Disconnected.
        """
        try:
            self._ping_when_due()
            self._frames.flush()
            self._frames.read()
        except ClosedByPeer as closed:
            messages = self._take_frames()
            if not messages:
                raise _lost_error(closed.args[0]) from None
            return messages
        return self._take_frames()

    def send(self, message: Any) -> None:
        """Buffer a message, and send as much as the socket accepts now."""
        self._frames.write(MESSAGE, self._codec.encode(message))
        self.flush()

    def flush(self) -> None:
        self._ping_when_due()
        try:
            self._frames.flush()
        except ClosedByPeer as closed:
            raise _lost_error(closed.args[0]) from None

    def close(self) -> None:
        self._frames.close()

    def _ping_when_due(self) -> None:
        now = boot_clock()
        if now >= self._next_ping:
            self._next_ping = now + PING_INTERVAL_S
            self._frames.write(PING, clock_payload(now))

    def _take_frames(self) -> list[Any]:
        messages: list[Any] = []
        for kind, payload in self._frames.frames():
            if kind == PONG:
                self.last_heard = max(self.last_heard, read_clock(payload))
            elif kind == MESSAGE:
                messages.append(self._codec.decode(payload))
        return messages


def _dial(address: ChannelAddress, timeout: float) -> socket.socket:
    try:
        sock = socket.create_connection((address.host, address.port), timeout=timeout)
    except IO_ERRORS as error:
        raise _unreachable_error(address, str(error)) from None
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock if address.fingerprint is None else _secured(sock, address)
    except OSError as error:  # OSError includes ssl.SSLError
        sock.close()
        raise _unreachable_error(address, str(error)) from None
    except TwinlogError:
        sock.close()
        raise


def _secured(sock: socket.socket, address: ChannelAddress) -> ssl.SSLSocket:
    """Make the TLS handshake. Accept only the certificate whose fingerprint the Spark job contains,
    so no certificate authority is needed.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    secured = context.wrap_socket(sock)
    certificate = secured.getpeercert(binary_form=True) or b""
    fingerprint = hashlib.sha256(certificate).hexdigest()
    if not hmac.compare_digest(fingerprint, str(address.fingerprint)):
        secured.close()
        raise AuthenticationFailed(
            f"{address.host}:{address.port} is not the driver of this lease: its certificate has "
            f"the fingerprint {fingerprint}, expected {address.fingerprint}",
            code="CHANNEL_FINGERPRINT",
        )
    return secured


def _unreachable_error(address: ChannelAddress, why: str) -> Unreachable:
    return Unreachable(
        f"the lane cannot reach its driver at {address.host}:{address.port}: {why}; "
        "executors must be able to connect to that address",
        code="CHANNEL_UNREACHABLE",
    )


def _lost_error(why: str) -> Disconnected:
    return Disconnected(f"the channel to the driver is lost: {why}", code="CHANNEL_LOST")
