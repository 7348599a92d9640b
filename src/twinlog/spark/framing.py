"""The bytes of the channel: frames, the hello that opens it, and the address that leads to it.

    frame      length of the rest (4 bytes, big endian), kind (1 byte), payload
    HELLO      token, then the lane's identity; the first frame of a lane and of fixed length, so
               that nothing else is looked at before the token is known to be right
    MESSAGE    one message of the codec, either way
    PING       8 bytes from the lane: its own clock; the driver answers PONG with the same bytes

Ping and pong make "last heard" mean one thing at both ends. A lane counts its deadline from the
moment it *sent* the newest ping that was answered; the driver counts from the moment it *received*
it, which is later. So when the driver gives a silent lane up, the lane has given up before,
whatever the network held back and whatever the two clocks say.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from typing import NamedTuple

from twinlog.errors import AuthenticationFailed, CorruptData

HELLO, MESSAGE, PING, PONG = b"H", b"M", b"P", b"Q"

MAX_FRAME_BYTES = 64 << 20
PING_INTERVAL_S = 1.0

_LENGTH = struct.Struct(">I")
_IDENTITY = struct.Struct(">QIIQ")
_CLOCK = struct.Struct(">d")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelAddress:
    """Where the driver listens; travels in the Spark job, and holds no secret but the token."""

    host: str
    port: int
    token: str
    fingerprint: str | None = None
    """SHA-256 of the driver's certificate in hex; None on loopback, where there is no TLS."""

    def __repr__(self) -> str:
        tls = "tls" if self.fingerprint else "plain"
        return f"ChannelAddress({self.host}:{self.port}, {tls}, token=***)"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneIdentity:
    """Which lane of which lease speaks, in Spark's how-manieth attempt, from which process."""

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


def hello_payload(token: str, identity: LaneIdentity) -> bytes:
    return token.encode("ascii") + _IDENTITY.pack(
        identity.lease, identity.lane, identity.attempt, identity.pid
    )


def hello_frame_bytes(token: str) -> int:
    """The length that a hello with a token of this length must have, kind byte included."""
    return 1 + len(token) + _IDENTITY.size


def read_hello(first: Frame, token: str) -> LaneIdentity:
    """The identity in the first frame; AuthenticationFailed unless the token is exactly ours."""
    presented = first.payload[: -_IDENTITY.size]
    # compare_digest first and alone: no branch before it depends on what the peer sent
    same = hmac.compare_digest(presented, token.encode("ascii"))
    if not same or first.kind != HELLO:
        raise AuthenticationFailed("wrong token", code="CHANNEL_TOKEN")
    lease, lane, attempt, pid = _IDENTITY.unpack(first.payload[-_IDENTITY.size :])
    return LaneIdentity(lease=lease, lane=lane, attempt=attempt, pid=pid)


def clock_payload(seconds: float) -> bytes:
    return _CLOCK.pack(seconds)


def read_clock(payload: bytes) -> float:
    if len(payload) != _CLOCK.size:
        raise CorruptData("a channel ping of a wrong length", code="CHANNEL_FRAME")
    (seconds,) = _CLOCK.unpack(payload)
    return float(seconds)


class FrameReader:
    """Cuts a stream of bytes into frames; takes them in pieces of any size."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_frame(self) -> Frame | None:
        """The next whole frame, or None until more bytes are fed."""
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if not 1 <= length <= self.max_frame_bytes:
            raise CorruptData(
                f"a channel frame claims {length} bytes, allowed are 1 to {self.max_frame_bytes}",
                code="CHANNEL_FRAME",
            )
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        found = Frame(bytes(self._buffer[4:5]), bytes(self._buffer[5:end]))
        del self._buffer[:end]
        return found
