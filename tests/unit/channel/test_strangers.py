"""Connections to the channel that are not from lanes. They do not end anything, do not keep lanes
out, and cost little.
"""

from __future__ import annotations

import os
import queue
import resource
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import pytest

from tests.support.eventually import PATIENCE_S, eventually
from twinlog.channel import server as channel_stranger
from twinlog.channel.client import ChannelClient
from twinlog.channel.codec import Message, MessageCodec
from twinlog.channel.frames import HELLO, HELLO_BYTES, LaneIdentity, frame
from twinlog.channel.server import (
    ChannelEvent,
    ChannelServer,
    LaneConnected,
    LaneGone,
    LaneMessage,
)

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER option with which close() sends a reset."""


class Note(Message, frozen=True, kw_only=True):
    text: str


CODEC = MessageCodec((Note,))
LANE = LaneIdentity(lease=1, lane=0, attempt=0, pid=1)

SECRETS: dict[ChannelServer, tuple[str, ...]] = {}

both_kinds = pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])


@contextmanager
def listening(*, tls: bool) -> Iterator[tuple[ChannelServer, queue.Queue[ChannelEvent]]]:
    events: queue.Queue[ChannelEvent] = queue.Queue()
    host = "0.0.0.0" if tls else "127.0.0.1"  # noqa: S104
    server = ChannelServer(CODEC, events.put, host=host, advertised_host="127.0.0.1")
    SECRETS[server] = server.secrets.open(LANE.lease, 2)
    server.start()
    try:
        yield server, events
    finally:
        server.close()


def connect(server: ChannelServer, identity: LaneIdentity = LANE) -> ChannelClient:
    address = replace(server.address, token=SECRETS[server][identity.lane])
    return ChannelClient.connect(address, identity, CODEC)


def dial(server: ChannelServer) -> socket.socket:
    return socket.create_connection((server.address.host, server.address.port), timeout=PATIENCE_S)


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    sock.close()


def assert_lanes_are_heard(
    server: ChannelServer, events: queue.Queue[ChannelEvent], identity: LaneIdentity = LANE
) -> None:
    client = connect(server, identity)
    try:
        client.send(Note(text="here"))
        found = [events.get(timeout=PATIENCE_S) for _ in range(2)]
    finally:
        client.close()
    assert isinstance(found[0], LaneConnected)
    assert isinstance(found[1], LaneMessage)
    assert isinstance(events.get(timeout=PATIENCE_S), LaneGone)


@both_kinds
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n"])
def test_resets_of_strangers_end_nothing(tls: bool, sent: bytes) -> None:
    with listening(tls=tls) as (server, events):
        for _ in range(400):
            sock = dial(server)
            if sent:
                sock.sendall(sent)
            reset(sock)
        assert_lanes_are_heard(server, events)
        eventually(lambda: len(server._unauthenticated) == 0)


def test_resets_in_the_middle_of_a_handshake_end_nothing() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with listening(tls=True) as (server, events):
        for _ in range(100):
            sock = context.wrap_socket(dial(server), do_handshake_on_connect=False)
            sock.setblocking(False)
            with suppress(ssl.SSLWantReadError):  # the handshake may not be complete yet
                sock.do_handshake()
            reset(sock)
        assert_lanes_are_heard(server, events)


@both_kinds
def test_silent_connections_lock_no_lane_out(tls: bool) -> None:
    with listening(tls=tls) as (server, events), ExitStack() as stack:
        crowd = [
            stack.enter_context(dial(server))
            for _ in range(2 * channel_stranger.MAX_UNAUTHENTICATED)
        ]
        assert_lanes_are_heard(server, events)
        of_one = channel_stranger.MAX_OF_ONE_ADDRESS
        eventually(lambda: len(server._unauthenticated) <= of_one)
        crowd[0].settimeout(20)
        assert crowd[0].recv(1) == b""  # the oldest connection was closed to make room


def test_one_address_gets_only_its_share_of_connections() -> None:
    left = channel_stranger.UnauthenticatedPeers()
    others = [stranger(f"10.0.0.{number}") for number in range(4)]
    for one in others:
        assert left.add(one) == []
    crowd = [stranger("10.9.9.9") for _ in range(channel_stranger.MAX_OF_ONE_ADDRESS + 1)]
    dropped = [one for each in crowd for one in left.add(each)]
    assert dropped == crowd[:1]
    assert all(one in left for one in others)
    for one in (*others, *crowd):
        left.pop(one)
        one.frames.close()


def stranger(host: str) -> channel_stranger.UnauthenticatedPeer:
    near, far = socket.socketpair()
    far.close()
    return channel_stranger.UnauthenticatedPeer(near, host, 1)


def test_an_unauthenticated_connection_buffers_no_more_bytes_than_a_hello() -> None:
    left, right = socket.socketpair()
    with left, right:
        one = channel_stranger.UnauthenticatedPeer(left, "here", 1)
        right.sendall(bytes(100_000))
        one.read()
        assert one.frames.reader.waiting_bytes == HELLO_BYTES < 200
        assert len(left.recv(1 << 20)) == 100_000 - HELLO_BYTES


@both_kinds
def test_data_sent_with_the_hello_is_read_after_authentication(tls: bool) -> None:
    """A lane sends data together with its hello. The data may be only in the TLS buffer, which no
    selector shows, but the driver must read it after the authentication.
    """
    with listening(tls=tls) as (server, events):
        client = connect(server)
        for number in range(50):
            client.send(Note(text=str(number)))
        assert isinstance(events.get(timeout=PATIENCE_S), LaneConnected)
        for number in range(50):
            found = events.get(timeout=PATIENCE_S)
            assert isinstance(found, LaneMessage)
            assert found.message.text == str(number)
        client.close()


def test_without_descriptors_it_waits_and_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(tls=False) as (server, events), ExitStack() as stack:
        stack.enter_context(dial(server))  # an unknown client that is closed to make room
        eventually(lambda: len(server._unauthenticated) == 1)
        noted: list[str] = []
        monkeypatch.setattr(server._rejections, "note", lambda why, _: noted.append(why))
        waiting = [stack.enter_context(socket.socket()) for _ in range(30)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))

        taken: list[int] = []

        def is_noted() -> bool:
            return "Too many open files" in " ".join(noted)

        def crowd() -> bool:
            """Occupy all descriptors again, because other threads of this process close some."""
            if is_noted():
                return True
            with suppress(OSError):
                while True:
                    taken.append(os.dup(0))
            for _ in range(3 if waiting else 0):
                waiting.pop().connect((server.address.host, server.address.port))
            return is_noted()

        def is_let_in() -> bool:
            """Return True if one more client is accepted. Another thread may have used the free
            descriptor already.
            """
            if not len(server._unauthenticated) and taken:
                os.close(taken.pop())
            return len(server._unauthenticated) >= 1

        try:
            eventually(crowd)
            eventually(is_let_in)
            began, before = time.monotonic(), len(noted)
            time.sleep(2.5)  # a loop that spins would note thousands of errors in this time
            assert len(noted) - before < 5 * (time.monotonic() - began), noted
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for descriptor in taken:
                os.close(descriptor)
        assert_lanes_are_heard(server, events)


def test_an_error_on_one_connection_ends_only_that_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Even an unexpected error on one connection ends only this connection. Other lanes are still
    served.
    """
    with listening(tls=False) as (server, events):
        client = connect(server)
        connected = events.get(timeout=PATIENCE_S)
        assert isinstance(connected, LaneConnected)

        def fails() -> list[object]:
            raise RuntimeError("a bug of ours")

        monkeypatch.setattr(connected.peer, "_codec", Failing(fails))
        client.send(Note(text="x"))
        gone = events.get(timeout=PATIENCE_S)
        assert isinstance(gone, LaneGone)
        assert "a bug of ours" in gone.reason
        assert "internal error in the channel" in caplog.text
        client.close()
        assert_lanes_are_heard(server, events, replace(LANE, lane=1))


class Failing:
    def __init__(self, how: Callable[[], list[object]]) -> None:
        self._how = how

    def decode(self, _data: bytes) -> object:
        return self._how()


def test_a_hello_of_a_wrong_length_is_refused_at_its_first_bytes() -> None:
    with listening(tls=False) as (server, events):
        with dial(server) as sock:
            sock.sendall(frame(HELLO, bytes(500))[:4])
            sock.settimeout(20)
            assert sock.recv(1) == b""
        assert events.empty()
