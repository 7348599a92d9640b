"""Responses on a connection that breaks or gets invalid bytes, and the requests that may be sent
before a response and under a quota.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.certificates import shared_authority
from tests.support.eventually import eventually
from twinlog.cluster.net.connection import Connection
from twinlog.cluster.net.framing import FramePool
from twinlog.cluster.net.hot_connection import READ_AHEAD_BYTES, HotConnection, Traffic
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.cluster.security.tls import wrap_socket
from twinlog.errors import CorruptData, Disconnected


class Peer:
    """The broker's end of a connection with three requests in flight: a, b and c."""

    def __init__(self) -> None:
        ours, self.sock = socket.socketpair()
        settings = ClusterSettings(alias="A", bootstrap=(("127.0.0.1", 1),))
        self.traffic = Traffic()
        connection = Connection(ours, "127.0.0.1", 1, settings)
        self.hot = HotConnection(connection, "us", FramePool(0), self.traffic)
        self.began = time.monotonic()
        for context in "abc":
            self.hot.submit(0, 9, [b"question"], context)
        assert self.hot.flush()

    def answer(self, correlation: int, body: bytes, *, tags: bytes = b"\x00") -> bytes:
        frame = struct.pack(">i", correlation) + tags + body
        return struct.pack(">i", len(frame)) + frame

    def received(self) -> list[tuple[str, bytes]]:
        return [(context, bytes(view)) for context, view in self.hot.receive()]


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.hot.close()
    made.sock.close()


def test_bytes_are_counted_with_headers_and_each_once(peer: Peer) -> None:
    asked, answer = peer.sock.recv(1000), peer.answer(1, b"one" * 100_000)
    sender = threading.Thread(target=peer.sock.sendall, args=(answer,))
    sender.start()
    eventually(peer.received)
    sender.join()
    assert peer.traffic.pop() == Traffic(received=len(answer), sent=len(asked))
    assert peer.traffic.pop() == Traffic()


@pytest.mark.parametrize("cut", [1, 5, 100])
def test_responses_before_the_end_are_returned_before_the_error(peer: Peer, cut: int) -> None:
    first, second = peer.answer(1, b"one"), peer.answer(2, b"two" * 100)
    peer.sock.sendall(first + second[:cut])
    peer.sock.close()
    assert peer.received() == [("a", b"one")]
    for _ in range(2):
        with pytest.raises(Disconnected):
            peer.received()
    assert peer.hot.unanswered() == ["b", "c"]


def test_the_reason_of_a_broken_connection_is_text(peer: Peer) -> None:
    """The reason of a broken connection has no error number in brackets, because text in brackets
    is one of Twinlog's codes.
    """
    peer.sock.close()  # closed with unread requests
    with pytest.raises(Disconnected, match=r"broke: connection reset by peer \[DISCONNECTED\]$"):
        peer.received()
    peer.hot.submit(0, 9, [b"question"], "d")
    with pytest.raises(Disconnected, match=r"broke: broken pipe \[DISCONNECTED\]$"):
        peer.hot.flush()


@pytest.mark.parametrize(
    "nonsense",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 1 << 30),
        struct.pack(">iib", 5, 77, 0),  # the response to another request
        struct.pack(">iib", 5, 2, 9),  # a header that this client cannot read
    ],
)
def test_answers_before_nonsense_are_given_and_nothing_counts_as_answered_by_it(
    peer: Peer, nonsense: bytes
) -> None:
    peer.sock.sendall(peer.answer(1, b"one") + nonsense)
    assert peer.received() == [("a", b"one")]
    with pytest.raises(CorruptData):
        peer.received()
    assert peer.hot.unanswered() == ["b", "c"]


def test_requests_with_undecodable_responses_are_put_back_in_order(peer: Peer) -> None:
    peer.sock.sendall(peer.answer(1, b"") + peer.answer(2, b""))
    assert [context for context, _ in peer.received()] == ["a", "b"]
    peer.hot.mark_unanswered(["a", "b"])
    assert peer.hot.unanswered() == ["a", "b", "c"]


def test_responses_are_whole_whatever_pieces_arrive(peer: Peer) -> None:
    stream = peer.answer(1, b"one") + peer.answer(2, b"") + peer.answer(3, b"three" * 50)
    found = []
    for byte in stream:
        peer.sock.sendall(bytes((byte,)))
        found += peer.received()
    assert found == [("a", b"one"), ("b", b""), ("c", b"three" * 50)]
    assert peer.received() == []


def test_trip_is_the_shortest_response_time(peer: Peer) -> None:
    peer.sock.sendall(peer.answer(1, b""))
    peer.received()
    shortest = peer.hot.trip_s
    assert 0 < shortest < 10
    eventually(lambda: time.monotonic() - peer.began > 2 * shortest)
    peer.sock.sendall(peer.answer(2, b""))
    peer.received()
    assert peer.hot.trip_s == shortest


def may_send(peer: Peer) -> bool:
    return peer.hot.may_send


def test_nothing_is_sent_while_the_broker_says_that_it_does_not_read(peer: Peer) -> None:
    peer.sock.sendall(b"".join(peer.answer(n, b"") for n in (1, 2, 3)))
    assert len(peer.received()) == 3
    assert may_send(peer)
    peer.hot.on_throttled(60_000)
    assert not may_send(peer)
    peer.hot.on_throttled(50)
    assert not may_send(peer)
    eventually(lambda: may_send(peer))


def test_little_is_sent_ahead_before_the_first_response(peer: Peer) -> None:
    assert may_send(peer), "three small requests fit in the buffer of the broker's socket"
    peer.hot.submit(0, 9, [bytes(READ_AHEAD_BYTES)], "d")
    assert not may_send(peer)


def test_a_part_of_the_recent_bytes_is_sent_ahead(peer: Peer) -> None:
    size = 8 * READ_AHEAD_BYTES
    for n in range(4, 8):
        peer.hot.submit(0, 9, [bytes(size)], n)
    peer.sock.sendall(b"".join(peer.answer(n, b"") for n in range(1, 7)))
    assert len(peer.received()) == 6
    assert not may_send(peer), "the last one is more than a quarter of the three before"
    peer.sock.sendall(peer.answer(7, b""))
    peer.received()
    peer.hot.submit(0, 9, [bytes(size // 2)], 8)
    assert may_send(peer)


def test_a_quota_that_binds_lets_one_request_out_at_a_time(peer: Peer) -> None:
    peer.hot.submit(0, 9, [bytes(8 * READ_AHEAD_BYTES)], "d")
    peer.sock.sendall(b"".join(peer.answer(n, b"") for n in range(1, 5)))
    assert len(peer.received()) == 4
    peer.hot.on_throttled(1)
    eventually(lambda: may_send(peer))
    peer.hot.submit(0, 9, [b"small"], "e")
    assert not may_send(peer)


def test_no_response_stays_behind_in_the_buffer_of_tls(tmp_path: Path) -> None:
    """Many responses arrive in two TLS records, and the second begins within a response. All are
    returned together, because the socket does not become readable again for decrypted bytes.
    """
    ours, theirs = socket.socketpair()
    file, issued = tmp_path / "server.pem", shared_authority().issue("broker", hosts=("localhost",))
    file.write_text(issued.key_pem + issued.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with ThreadPoolExecutor() as threads:
        handshake = threads.submit(context.wrap_socket, theirs, server_side=True)
        trusting = SecuritySettings(protocol="SSL", ca_pem=shared_authority().pem)
        secured = wrap_socket(ours, "localhost", trusting)
        broker = handshake.result()
    settings = ClusterSettings(alias="A", bootstrap=(("127.0.0.1", 1),))
    hot = HotConnection(Connection(secured, "127.0.0.1", 1, settings), "us", FramePool(0))
    with closing(hot), broker:
        contexts = list(range(70))
        for context_of_request in contexts:
            hot.submit(0, 9, [b"question"], context_of_request)
        assert hot.flush()
        body = struct.pack(">i", 5 + 8)
        frames = [body + struct.pack(">ib", n + 1, 0) + b"response" for n in contexts]
        begin, rest = b"".join(frames[:63]) + frames[63][:6], frames[63][6:] + b"".join(frames[64:])
        broker.sendall(begin)
        broker.sendall(rest)
        assert [context for context, _ in hot.receive()] == contexts
