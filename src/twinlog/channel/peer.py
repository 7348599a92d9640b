"""The driver's end of the connection to one lane."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from twinlog.channel.codec import MessageCodec
from twinlog.channel.frame_socket import ClosedByPeer, FrameSocket
from twinlog.channel.frames import MESSAGE, PING, PONG, Frame, LaneIdentity
from twinlog.clock import boot_clock
from twinlog.errors import CorruptData


class Peer:
    """An authenticated lane. Any thread may send to it.

    The lock covers reading, too: a TLS connection is one state machine for both directions.
    """

    def __init__(
        self,
        frames: FrameSocket,
        codec: MessageCodec,
        identity: LaneIdentity,
        wake: Callable[[Peer], None],
    ) -> None:
        self.identity = identity
        self.last_heard = boot_clock()
        self.ending: str | None = None
        """Why the connection must be closed, or None. Any thread sets it, the server's processes
        it.
        """
        self._frames = frames
        self._codec = codec
        self._wake = wake
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Peer({self.identity})"

    def fileno(self) -> int:
        return self._frames.fileno()

    @property
    def wants_write(self) -> bool:
        return self._frames.wants_write

    def send(self, message: Any) -> None:
        """Send what the socket accepts now, and the rest later. Does nothing if the lane is gone.

        A lane that reads nothing while more than two full frames wait for it is disconnected.
        """
        payload = self._codec.encode(message)
        with self._lock:
            if self.ending is not None:
                return
            try:
                self._frames.write(MESSAGE, payload)
                self._frames.flush()
            except (ClosedByPeer, CorruptData) as error:
                self.ending = str(error)
        if self.ending is not None or self._frames.wants_write:
            self._wake(self)

    def close(self, reason: str = "closed by the driver") -> None:
        """End the connection. The server's thread closes it and reports the peer as gone."""
        self.ending = self.ending or reason
        self._wake(self)

    def read(self) -> list[Any]:
        """Return the messages that have arrived, and answer pings. Only for the server's thread."""
        with self._lock:
            try:
                self._frames.read()
            except ClosedByPeer as closed:
                self.ending = self.ending or str(closed.args[0])
            else:
                self.last_heard = boot_clock()
            payloads = [each.payload for each in self._frames.frames() if self._is_message(each)]
            self._flush_locked()
        return [self._codec.decode(payload) for payload in payloads]

    def flush(self) -> None:
        with self._lock:
            self._flush_locked()

    def shut(self) -> None:
        """Close the socket. Called by the server's thread only."""
        with self._lock:
            self._frames.close()

    def _is_message(self, received: Frame) -> bool:
        if received.kind == PING:
            self._frames.write(PONG, received.payload)
        return received.kind == MESSAGE

    def _flush_locked(self) -> None:
        try:
            self._frames.flush()
        except ClosedByPeer as closed:
            self.ending = self.ending or str(closed.args[0])
