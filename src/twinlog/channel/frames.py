r"""The bytes of the channel: frames, the opening hello, and the driver's address.

    frame      length of the rest (4 bytes, big endian), kind (1 byte), payload
    HELLO      the lane's identity, and the proof that it has that lane's secret; the first frame of
               a lane, of fixed length, so that nothing else is checked before authentication
    MESSAGE    one message of the codec, in either direction
    PING       8 bytes from the lane: its own clock; the driver answers PONG with the same bytes

**Silence.** When the driver gives up a silent lane, it gives the lane's partitions to another one.
So the lane must have stopped sending by then, although the two processes have different clocks and
the network may delay anything. Both therefore count the same 10 s from the same ping:

    lane      ping sent at t1 ------------.                      stops at t1 + 10 s
                                           \                     (it has got the pong)
    driver                                  received at t2 > t1    gives up at t2 + 10 s

A lane counts from the moment it *sent* the newest ping that was answered. The driver counts from
the moment it *received* data, which is later. So the lane stops first, whatever the network delays
and whatever the two clocks show. Both use a clock that also runs while a machine is suspended
(CLOCK_BOOTTIME).
"""

from __future__ import annotations

import hashlib
import hmac
import struct
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
"""Length of every hello, including the kind byte."""
HELLO_BYTES: Final = _LENGTH.size + HELLO_FRAME_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelAddress:
    """The driver's address, and a lane's secret. Without the secret it is part of the Spark job."""

    host: str
    port: int
    token: str = ""
    """The secret of one lane, only in that lane's address."""
    fingerprint: str | None = None
    """SHA-256 of the driver's certificate in hex, or None on loopback, which has no TLS."""

    def __repr__(self) -> str:
        tls = "tls" if self.fingerprint else "plain"
        return f"ChannelAddress({self.host}:{self.port}, {tls}, token=***)"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneIdentity:
    """Which lane this is: lease, lane number, Spark's attempt number and process."""

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
    """Return a proof that only a client with the secret can compute."""
    return hmac.digest(secret.encode("utf-8"), b"twinlog hello" + _packed(identity), "sha256")


def _packed(identity: LaneIdentity) -> bytes:
    return _IDENTITY.pack(identity.lease, identity.lane, identity.attempt, identity.pid)


def read_hello(first: Frame) -> tuple[LaneIdentity, bytes]:
    """Return the identity that a hello claims, and its proof, which the caller must still check."""
    if len(first.payload) != _IDENTITY.size + PROOF_BYTES:
        raise CorruptData("a channel hello of a wrong length", code="CHANNEL_FRAME")
    lease, lane, attempt, pid = _IDENTITY.unpack_from(first.payload)
    identity = LaneIdentity(lease=lease, lane=lane, attempt=attempt, pid=pid)
    return identity, first.payload[_IDENTITY.size :]


def clock_payload(seconds: float) -> bytes:
    return _CLOCK.pack(seconds)


def read_clock(payload: bytes) -> float:
    if len(payload) != _CLOCK.size:
        raise CorruptData("a channel ping of a wrong length", code="CHANNEL_FRAME")
    (seconds,) = _CLOCK.unpack(payload)
    return float(seconds)


class FrameReader:
    """Splits a stream of bytes into frames. Input may come in pieces of any size."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    @property
    def waiting_bytes(self) -> int:
        """Number of bytes fed that are not a whole frame yet."""
        return len(self._buffer)

    def next_frame(self) -> Frame | None:
        """Return the next whole frame, or None until more bytes are fed."""
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
        complete = Frame(bytes(self._buffer[4:5]), bytes(self._buffer[5:end]))
        del self._buffer[:end]
        return complete
