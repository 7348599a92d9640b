"""What a connection makes of peers that are silent, gone, or not Kafka at all."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from twinlog.cluster.net.connection import Connection
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.security.security_keys import load_security
from twinlog.errors import CorruptData, Disconnected, TwinlogError, Unreachable

Peer = Callable[[socket.socket], None]


@contextmanager
def peer(behave: Peer) -> Iterator[int]:
    """A server whose connections all behave like this; yields its port."""
    server = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError:
                return
            taken.append(sock)
            behave(sock)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
        for sock in taken:
            sock.close()


def open_to(port: int, *, timeout_s: float = 5.0) -> Connection:
    settings = ClusterSettings(alias="A", bootstrap=(("127.0.0.1", port),))
    return Connection.open("127.0.0.1", port, settings, timeout_s=timeout_s)


def silent(_sock: socket.socket) -> None:
    pass


def closing(sock: socket.socket) -> None:
    sock.recv(1024)
    sock.close()


def saying(data: bytes) -> Peer:
    def behave(sock: socket.socket) -> None:
        sock.recv(1024)
        sock.sendall(data)

    return behave


def api_versions_answer(correlation_id: int) -> bytes:
    """ApiVersions v0 with a single API (18, 0-0); refused as v3, so that the client falls back."""
    body = struct.pack(">ihihhh", correlation_id, 0, 1, 18, 0, 0)
    return struct.pack(">i", len(body)) + body


def old_broker(sock: socket.socket) -> None:
    """Answers v3 with UNSUPPORTED_VERSION in the layout of v0, then v0 properly (KIP-511)."""
    frame = sock.recv(1024)
    (correlation_id,) = struct.unpack_from(">i", frame, 8)
    refusal = struct.pack(">ihihhh", correlation_id, 35, 1, 18, 0, 0)
    sock.sendall(struct.pack(">i", len(refusal)) + refusal)
    frame = sock.recv(1024)
    api_key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
    assert (api_key, version) == (18, 0)
    sock.sendall(api_versions_answer(correlation_id))


@pytest.mark.parametrize(
    ("behave", "expected", "words"),
    [
        (silent, Disconnected, "took too long"),
        (closing, Disconnected, "closed the connection"),
        (saying(b"\x15\x03\x03\x00\x02\x02\x50"), CorruptData, "TLS listener"),
        (saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), CorruptData, "not Kafka's protocol"),
        (saying(struct.pack(">i", -5)), CorruptData, "not Kafka's protocol"),
        (saying(api_versions_answer(999)), CorruptData, "correlation id 999"),
        (saying(struct.pack(">ii", 4, 1)), CorruptData, "cannot be read"),
        (saying(struct.pack(">ib", 1, 0)), CorruptData, "has only 1 bytes"),
    ],
)
def test_peer_that_does_not_speak_kafka(
    behave: Peer, expected: type[TwinlogError], words: str
) -> None:
    with peer(behave) as port, pytest.raises(expected, match=words) as caught:
        open_to(port, timeout_s=0.5)
    assert f"127.0.0.1:{port}" in caught.value.message
    assert "cluster A" in caught.value.message


def claiming(size: int, *, answers_handshake: bool) -> Peer:
    """A broker with SASL whose answer to the handshake, or to the first token, claims that size."""

    def behave(sock: socket.socket) -> None:
        def correlation_id() -> int:
            return int(struct.unpack_from(">i", sock.recv(1024), 8)[0])

        def answer(body: bytes) -> None:
            sock.sendall(struct.pack(">i", len(body)) + body)

        keys = b"".join(struct.pack(">hhh", key, 0, 1) for key in (18, 17, 36))
        answer(struct.pack(">ihi", correlation_id(), 35, 1) + keys[:6])
        answer(struct.pack(">ihi", correlation_id(), 0, 3) + keys)
        if answers_handshake:
            answer(struct.pack(">ihih", correlation_id(), 0, 1, 5) + b"PLAIN")
        correlation_id()
        sock.sendall(struct.pack(">i", size))

    return behave


@pytest.mark.parametrize("answers_handshake", [False, True])
def test_a_peer_costs_no_memory_before_it_has_authenticated_us(answers_handshake: bool) -> None:
    """Four bytes of a stranger, and half a gigabyte was set aside."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    security = load_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{login} required username="u" password="p";',
        },
        where="A",
    )
    with peer(claiming(400 << 20, answers_handshake=answers_handshake)) as port:
        settings = ClusterSettings(alias="A", bootstrap=(("127.0.0.1", port),), security=security)
        with pytest.raises(CorruptData, match="size of 419430400 bytes"):
            Connection.open("127.0.0.1", port, settings, timeout_s=5)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(Unreachable, match="connection refused"):
        open_to(port)


def test_name_that_does_not_exist() -> None:
    settings = ClusterSettings(alias="A", bootstrap=(("no.such.host.invalid", 1),))
    with pytest.raises(Unreachable, match="cannot be resolved"):
        Connection.open("no.such.host.invalid", 1, settings, timeout_s=5)


def test_broker_that_knows_only_old_api_versions() -> None:
    with peer(old_broker) as port, open_to(port) as connection:
        assert connection.api_versions == {18: (0, 0)}


def test_detached_socket_stays_open() -> None:
    with peer(old_broker) as port:
        connection = open_to(port)
        sock = connection.detach()
        connection.close()
        assert not connection.is_open
        with sock:
            assert sock.getpeername()[1] == port


def test_connection_that_was_closed_by_the_peer_is_not_usable() -> None:
    def answering_then_closing(sock: socket.socket) -> None:
        old_broker(sock)
        sock.close()

    with peer(answering_then_closing) as port, open_to(port) as connection:
        assert connection.wait_readable(5.0)
        assert not connection.is_usable()
