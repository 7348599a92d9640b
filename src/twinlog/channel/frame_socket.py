"""A non-blocking socket, plain or TLS, that carries frames. Both ends of the channel use it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

from twinlog.channel.frames import MAX_FRAME_BYTES, Frame, FrameReader, frame
from twinlog.errors import CorruptData

READ_BYTES = 256 << 10
"""Maximum bytes per read from the socket."""

SEND_BYTES = 16 << 10
"""Size of one TLS record. A TLS write that would block must be repeated with at least as many
bytes. With a fixed size per attempt, a buffer that only grows at its end satisfies this.
"""

MAX_UNSENT_BYTES = 2 * MAX_FRAME_BYTES
"""Maximum bytes that may wait for a peer. A peer with more has stopped reading: it is
disconnected.
"""

_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ClosedByPeer(Exception):
    """Raised when the stream has ended. `args[0]` has the reason."""


class FrameSocket:
    """Sends and receives frames without blocking. The owner watches `fileno()` in a selector."""

    def __init__(self, sock: socket.socket, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.reader = FrameReader(max_frame_bytes)
        self._unsent = bytearray()

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def wants_write(self) -> bool:
        return bool(self._unsent)

    def read(self) -> None:
        """Read everything that has arrived. A TLS socket may have bytes that no selector shows."""
        while self.read_first(READ_BYTES):
            pass

    def read_first(self, limit: int) -> bool:
        """Read what has arrived of the first `limit` bytes, and leave the rest in the socket.
        Return False if nothing has arrived.
        """
        try:
            data = self.socket.recv(limit)
        except _WOULD_BLOCK:
            return False
        except OSError as error:  # this includes ssl.SSLError
            raise ClosedByPeer(str(error) or type(error).__name__) from None
        if not data:
            raise ClosedByPeer("the other end closed the connection")
        self.reader.feed(data)
        return True

    def frames(self) -> Iterator[Frame]:
        while (next_frame := self.reader.next_frame()) is not None:
            yield next_frame

    def write(self, kind: bytes, payload: bytes) -> None:
        """Buffer a frame. `flush` sends it."""
        self._unsent += frame(kind, payload)
        if len(self._unsent) > MAX_UNSENT_BYTES:
            raise CorruptData(
                f"{len(self._unsent)} bytes wait for a peer that does not read",
                code="CHANNEL_OVERFLOW",
            )

    def flush(self) -> None:
        """Send as much as the socket accepts now."""
        while self._unsent:
            try:
                sent = self.socket.send(self._unsent[:SEND_BYTES])
            except _WOULD_BLOCK:
                return
            except OSError as error:
                raise ClosedByPeer(str(error) or type(error).__name__) from None
            del self._unsent[:sent]

    def close(self) -> None:
        self.socket.close()
