"""A connection of the copy loop: non-blocking, many requests in flight, one buffer per response.

The loop uses `selectors` to find sockets that can be read or written, so no function in this module
blocks. A large response is received directly into the buffer whose slices are later sent to the
target. So Python changes the bytes of a record batch only to rewrite the header of the batch:

    source's socket --> buffer of `FramePool`  --> slices: batches --> target's socket (`sendmsg`)

Brokers answer the requests of a connection in order, so the oldest request in flight belongs to the
next response.

*Quotas.* A broker that throttles the connection responds with the throttle time, and reads nothing
more from the connection for that long (KIP-219). Data that the broker does not read stays in the
two kernels. From there it may arrive after this lane has lost its partitions, or break the
connection after TCP_USER_TIMEOUT. So `may_send` is False while the connection is muted. While a
request is unanswered, `may_send` permits only a part of the bytes that the broker recently accepted
without throttling. `lane.late_requests` has the numbers.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from twinlog.addresses import IO_ERRORS
from twinlog.cluster.net import framing
from twinlog.cluster.net.connection import Connection
from twinlog.cluster.net.framing import FramePool
from twinlog.errors import CorruptData, Disconnected
from twinlog.wire.record_batch import Buffer

SCRATCH_BYTES: Final = 64 * 1024
"""Size of the buffer into which several small responses are read with one system call."""

MAX_PARTS_PER_SEND: Final = 256
"""Maximum number of buffers per `sendmsg`, below IOV_MAX (1024 on Linux)."""

READ_AHEAD_BYTES: Final = 64 * 1024
"""If unanswered requests have fewer bytes than this, the next request may be sent, whatever
UNREAD_SHARE permits. So many bytes fit into the broker's socket buffer (by default
socket.receive.buffer.bytes is 100 KB).
"""

PASSED_S: Final = 10.0
"""Approximate time over which a broker averages a quota (quota.window.num), in seconds."""

UNREAD_SHARE: Final = 4
"""Divisor. While requests are unanswered, the next one may be sent only if their total size is less
than a quarter of R. R is the total size of the requests that the broker has answered in the last
one or two periods of PASSED_S.
"""

QUOTA_BINDS_S: Final = 60.0
"""Time after a mute in which READ_AHEAD_BYTES does not apply, only UNREAD_SHARE, in seconds."""

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhih")


@dataclass(slots=True)
class Traffic:
    """Number of bytes that connections have received and sent, including headers."""

    received: int = 0
    sent: int = 0

    def pop(self) -> Traffic:
        """Return the numbers of bytes since the last call of `pop`."""
        passed = Traffic(self.received, self.sent)
        self.received = self.sent = 0
        return passed


class HotConnection:
    """A non-blocking connection to one broker. Responses arrive in the order of the requests."""

    def __init__(
        self,
        connection: Connection,
        client_id: str,
        pool: FramePool,
        traffic: Traffic | None = None,
    ) -> None:
        self._sock: socket.socket = connection.detach()
        self._sock.setblocking(False)
        self._is_tls = isinstance(self._sock, ssl.SSLSocket)
        self.api_versions = connection.api_versions
        self.peer = f"{connection.host}:{connection.port}"
        self.opened_at = time.monotonic()
        """Monotonic time of opening. Until the connection breaks, the broker has not restarted."""
        self.trip_s = connection.trip_s
        """Shortest response time of this connection, in seconds: about one round trip."""
        self._session_ends_at = connection.session_ends_at
        self._client_id = client_id.encode()
        self._correlation = 0
        self._outgoing: deque[Buffer] = deque()
        self._in_flight: deque[tuple[int, Any, int, float]] = deque()
        self._bytes_in_flight = 0
        self._passed = self._passed_before = 0
        self._passed_since = 0.0
        self._muted_until = 0.0
        self._bound_until = 0.0
        self._scratch = bytearray(SCRATCH_BYTES)
        self._held = 0  # number of bytes in the scratch buffer, from an incomplete frame
        self._failure: Disconnected | CorruptData | None = None
        self._pool = pool
        self._frame: memoryview | None = None
        self._frame_got = 0
        self._last_answer = 0.0
        self._traffic = traffic or Traffic()

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def in_flight(self) -> int:
        """Number of requests without a response."""
        return len(self._in_flight)

    @property
    def is_ending(self) -> bool:
        """True if the connection must not be used for more requests, because its SASL session is
        about to expire (KIP-368).
        """
        return self._session_ends_at is not None and time.monotonic() >= self._session_ends_at

    @property
    def waiting_since(self) -> float | None:
        """Since when a response is awaited (monotonic), or None if no request is in flight."""
        return self._last_answer if self._in_flight else None

    def on_throttled(self, ms: int) -> None:
        """Note the throttle time of the last response, in ms."""
        if ms > 0:
            now = time.monotonic()
            self._last_answer += ms / 1000
            self._muted_until = now + ms / 1000
            self._bound_until = self._muted_until + QUOTA_BINDS_S
            self._passed = self._passed_before = 0

    @property
    def may_send(self) -> bool:
        """True if the broker will probably read another request immediately, so it may be sent."""
        now = time.monotonic()
        if now < self._muted_until:
            return False
        if not self._in_flight:
            return True
        ahead = (self._passed + self._passed_before) // UNREAD_SHARE
        if now >= self._bound_until:
            ahead = max(ahead, READ_AHEAD_BYTES)
        return self._bytes_in_flight < ahead

    def _note_response(self, size: int) -> None:
        """Count the bytes of a request that was answered. `size`: the size of the request."""
        self._bytes_in_flight -= size
        if self._last_answer - self._passed_since > PASSED_S:
            is_old = self._last_answer - self._passed_since > 2 * PASSED_S
            self._passed_before = 0 if is_old else self._passed
            self._passed, self._passed_since = 0, self._last_answer
        self._passed += size

    @property
    def wants_write(self) -> bool:
        return bool(self._outgoing)

    def unanswered(self) -> list[Any]:
        """Return the contexts of the requests in flight, the oldest first."""
        return [context for _, context, _, _ in self._in_flight]

    def submit(self, api_key: int, version: int, parts: Sequence[Buffer], context: object) -> None:
        """Queue a request with header v2. `receive` returns `context` with the response."""
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        head = _HEAD.pack(api_key, version, self._correlation, len(self._client_id))
        head += self._client_id + b"\x00"
        size = len(head) + sum(map(len, parts))
        self._outgoing.append(_SIZE.pack(size) + head)
        self._outgoing.extend(parts)
        now = time.monotonic()
        if not self._in_flight:
            self._last_answer = max(self._last_answer, now)
        self._in_flight.append((self._correlation, context, size, now))
        self._bytes_in_flight += size

    def flush(self) -> bool:
        """Send as much of the queue as the socket accepts. Returns True if nothing remains."""
        out = self._outgoing
        while out:
            try:
                if self._is_tls:
                    sent = self._sock.send(out[0])
                else:
                    count = min(len(out), MAX_PARTS_PER_SEND)
                    sent = self._sock.sendmsg([out[index] for index in range(count)])
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return False
            except IO_ERRORS as error:
                raise self._broken_error(framing.reason(error)) from error
            self._traffic.sent += sent
            while out and sent >= len(out[0]):
                sent -= len(out.popleft())
            if sent:
                out[0] = memoryview(out[0])[sent:]
        return True

    def receive(self) -> list[tuple[Any, memoryview]]:
        """Return the responses that have arrived completely, as (context, body).

        All of them are returned, because a selector does not report bytes that TLS has already
        decrypted. Raises Disconnected or CorruptData. If responses arrived before the failure, they
        are returned first, and the next call raises the error.
        """
        if self._failure is not None:
            raise self._failure
        answers: list[tuple[Any, memoryview]] = []
        try:
            while (self._fill_scratch if self._frame is None else self._fill_frame)(answers):
                pass
        except (Disconnected, CorruptData) as error:
            if not answers:
                raise
            self._failure = error
        return answers

    def mark_unanswered(self, contexts: Iterable[object]) -> None:
        """Count these requests as in flight again, because their responses could not be decoded."""
        self._in_flight.extendleft((-1, context, 0, 0.0) for context in reversed(list(contexts)))

    def _fill_scratch(self, answers: list[tuple[Any, memoryview]]) -> bool:
        got = self._recv(memoryview(self._scratch)[self._held :])
        if got < 0:
            return False
        end, pos = self._held + got, 0
        full = end == SCRATCH_BYTES
        while end - pos >= 4:
            (size,) = _SIZE.unpack_from(self._scratch, pos)
            if not 4 <= size <= framing.MAX_FRAME_BYTES:
                raise CorruptData(f"{self.peer} sent a response with the invalid size {size}")
            frame = self._pool.buffer(size)
            have = min(size, end - pos - 4)
            frame[:have] = memoryview(self._scratch)[pos + 4 : pos + 4 + have]
            pos += 4 + have
            if have < size:
                self._frame, self._frame_got = frame, have
                break
            answers.append(self._answer(frame))
        self._held = end - pos
        if self._held and pos:
            self._scratch[: self._held] = self._scratch[pos:end]
        return full or self._frame is not None or self._is_tls

    def _fill_frame(self, answers: list[tuple[Any, memoryview]]) -> bool:
        frame = self._frame
        if frame is None:
            return False
        got = self._recv(frame[self._frame_got :])
        if got < 0:
            return False
        self._frame_got += got
        if self._frame_got == len(frame):
            self._frame = None
            answers.append(self._answer(frame))
        return True

    def _recv(self, into: memoryview) -> int:
        """Receive bytes into a buffer, and return their number, or -1 if none have arrived."""
        try:
            got = self._sock.recv_into(into)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return -1
        except IO_ERRORS as error:
            raise self._broken_error(framing.reason(error)) from error
        if not got:
            raise self._broken_error("the broker closed the connection")
        self._traffic.received += got
        return got

    def _answer(self, view: memoryview) -> tuple[Any, memoryview]:
        (correlation,) = _SIZE.unpack_from(view, 0)
        if not self._in_flight:
            raise CorruptData(
                f"{self.peer} responded with correlation ID {correlation}, but no request was sent"
            )
        expected, context, size, sent_at = self._in_flight[0]
        self._last_answer = time.monotonic()
        if correlation != expected:
            raise CorruptData(
                f"{self.peer} responded with correlation ID {correlation} instead of {expected}"
            )
        if len(view) < 5 or view[4] != 0:
            raise CorruptData(f"{self.peer} sent a response header with unknown fields")
        self._in_flight.popleft()
        self.trip_s = min(self.trip_s, self._last_answer - sent_at)
        self._note_response(size)
        return context, view[5:]

    def _broken_error(self, reason: str) -> Disconnected:
        return Disconnected(f"the connection to {self.peer} broke: {reason}")

    def close(self) -> None:
        self._sock.close()
