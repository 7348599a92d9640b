r"""The bytes of the channel: frames, the opening hello, and the driver's address.

    frame      length of the rest (4 bytes, big endian), kind (1 byte), payload
    HELLO      the lane's identity, and the proof that it has that lane's secret; the first frame of
               a lane, of fixed length, so that nothing else is checked before authentication
    MESSAGE    one message of the codec, in either direction
    PING       8 bytes from the lane: its own clock; the driver answers PONG with the same bytes

**Silence.** When the driver gives up a silent lane, it gives the lane's partitions to another lane.
So the silent lane must have stopped sending before that, although the two processes have different
clocks and the network may delay anything. Both therefore count the same 10 s from the same ping:

    lane      ping sent at t1 ------------.                      stops at t1 + 10 s
                                           \                     (the pong has arrived)
    driver                                  received at t2 > t1    gives up at t2 + 10 s

A lane counts from the moment it *sent* the newest ping that was answered. The driver counts from
the moment it *received* data, which is later. So the lane stops first, whatever the network delays
and whatever the two clocks show. Both use a clock that also runs while a machine is suspended
(CLOCK_BOOTTIME).

`FrameSocket` carries frames over a non-blocking socket, plain or TLS. Both ends use it.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from twinlog.errors import CorruptData

HELLO, MESSAGE, PING, PONG = b"H", b"M", b"P", b"Q"

MAX_FRAME_BYTES = 64 << 20
PING_INTERVAL_S = 1.0

_LENGTH = struct.Struct(">I")
_IDENTITY = struct.Struct(">QIIQ")
_CLOCK = struct.Struct(">d")

PROOF_BYTES: Final = hashlib.sha256().digest_size
HELLO_FRAME_BYTES: Final = 1 + _IDENTITY.size + PROOF_BYTES
"""Length of every hello in bytes, including the byte for the kind of frame."""
HELLO_BYTES: Final = _LENGTH.size + HELLO_FRAME_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelAddress:
    """The driver's address, and a lane's secret. The Spark job has the address, but no secret."""

    host: str
    port: int
    token: str = ""
    """The secret of one lane, or empty in the address that all lanes share."""
    fingerprint: str | None = None
    """SHA-256 of the driver's certificate in hex, or None on loopback, which has no TLS."""

    def __repr__(self) -> str:
        tls = "tls" if self.fingerprint else "plain"
        return f"ChannelAddress({self.host}:{self.port}, {tls}, token=***)"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneIdentity:
    """Identifies a lane by the number of its lease (a Spark job whose tasks are lanes), lane
    number, Spark's attempt number and process ID.
    """

    lease: int
    lane: int
    attempt: int
    pid: int

    def __str__(self) -> str:
        return f"lease {self.lease} lane {self.lane} attempt {self.attempt}"


class Frame(NamedTuple):
    kind: bytes
    payload: bytes


def frame(kind: bytes, payload: bytes) -> bytes:
    length = len(payload) + 1
    if length > MAX_FRAME_BYTES:
        raise CorruptData(
            f"a channel message of {length} bytes is over the limit of {MAX_FRAME_BYTES}",
            code="CHANNEL_FRAME",
        )
    return b"".join((_LENGTH.pack(length), kind, payload))


def hello_payload(secret: str, identity: LaneIdentity) -> bytes:
    return _packed(identity) + hello_proof(secret, identity)


def hello_proof(secret: str, identity: LaneIdentity) -> bytes:
    """Return the proof for a hello, which only a client with the lane's secret can compute."""
    return hmac.digest(secret.encode("utf-8"), b"twinlog hello" + _packed(identity), "sha256")


def _packed(identity: LaneIdentity) -> bytes:
    return _IDENTITY.pack(identity.lease, identity.lane, identity.attempt, identity.pid)


def read_hello(first: Frame) -> tuple[LaneIdentity, bytes]:
    """Return (identity, proof) of a hello. The identity is only claimed until the caller has
    checked the proof.
    """
    if len(first.payload) != _IDENTITY.size + PROOF_BYTES:
        raise CorruptData("the handshake of a channel has a wrong length", code="CHANNEL_FRAME")
    lease, lane, attempt, pid = _IDENTITY.unpack_from(first.payload)
    identity = LaneIdentity(lease=lease, lane=lane, attempt=attempt, pid=pid)
    return identity, first.payload[_IDENTITY.size :]


def clock_payload(seconds: float) -> bytes:
    return _CLOCK.pack(seconds)


def read_clock(payload: bytes) -> float:
    if len(payload) != _CLOCK.size:
        raise CorruptData("a channel ping has a wrong length", code="CHANNEL_FRAME")
    (seconds,) = _CLOCK.unpack(payload)
    return float(seconds)


class FrameReader:
    """Splits a stream of bytes into frames. `feed` adds bytes, which may end within a frame."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    @property
    def waiting_bytes(self) -> int:
        """Number of bytes in the buffer that `next_frame` has not returned yet."""
        return len(self._buffer)

    def next_frame(self) -> Frame | None:
        """Return the next whole frame, or None until more bytes are fed."""
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if not 1 <= length <= self.max_frame_bytes:
            raise CorruptData(
                f"a channel frame has the length {length}; 1 to {self.max_frame_bytes} is allowed",
                code="CHANNEL_FRAME",
            )
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        complete = Frame(bytes(self._buffer[4:5]), bytes(self._buffer[5:end]))
        del self._buffer[:end]
        return complete


READ_BYTES = 256 << 10
"""Maximum bytes per read from the socket."""

SEND_BYTES = 16 << 10
"""Maximum bytes per write: one TLS record. A TLS write that would block must be repeated with at
least as many bytes. With a fixed maximum and a buffer that only grows at its end, this is always
the case.
"""

MAX_UNSENT_BYTES = 2 * MAX_FRAME_BYTES
"""Maximum bytes that wait until the peer reads them. If there are more, the peer has stopped
reading, and is disconnected.
"""

_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ClosedByPeer(Exception):
    """Raised when the connection has ended. `args[0]` has the reason."""


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
        """Read at most `limit` of the bytes that have arrived. Return False if no byte has
        arrived.
        """
        try:
            data = self.socket.recv(limit)
        except _WOULD_BLOCK:
            return False
        except OSError as error:  # OSError includes ssl.SSLError
            raise ClosedByPeer(str(error) or type(error).__name__) from None
        if not data:
            raise ClosedByPeer("the other end closed the connection")
        self.reader.feed(data)
        return True

    def frames(self) -> Iterator[Frame]:
        while (next_frame := self.reader.next_frame()) is not None:
            yield next_frame

    def write(self, kind: bytes, payload: bytes) -> None:
        """Put a frame into the send buffer. `flush` sends it."""
        self._unsent += frame(kind, payload)
        if len(self._unsent) > MAX_UNSENT_BYTES:
            raise CorruptData(
                f"{len(self._unsent)} bytes could not be sent, because the other process does not "
                "read from the connection",
                code="CHANNEL_OVERFLOW",
            )

    def flush(self) -> None:
        """Send as many buffered bytes as the socket accepts now."""
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
