"""How connections fail if a peer is silent, is gone, or is not Kafka."""

from __future__ import annotations

import errno
import socket
import struct
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.support.peers import (
    Peer,
    api_versions_answer,
    closing,
    old_broker,
    peer,
    refusing,
    saying,
    silent,
)
from tests.support.stopwatch import Stopwatch
from twinlog.cluster.client import CALL_PATIENCE, ClusterClient
from twinlog.cluster.net.connection import Connection
from twinlog.cluster.net.metadata import Broker
from twinlog.cluster.net.pool import ConnectionPool
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.security.security_keys import load_security
from twinlog.errors import (
    AuthenticationFailed,
    CorruptData,
    Disconnected,
    EndpointAway,
    Refused,
    TwinlogError,
    Unreachable,
)


def open_to(port: int, *, timeout_s: float = 5.0) -> Connection:
    settings = ClusterSettings(alias="A", bootstrap=(("127.0.0.1", port),))
    return Connection.open("127.0.0.1", port, settings, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("behave", "expected", "words"),
    [
        (silent, Disconnected, "did not respond to ApiVersions: no byte arrived"),
        (closing, Disconnected, "closed the connection"),
        (saying(b"\x15\x03\x03\x00\x02\x02\x50"), CorruptData, "TLS listener"),
        (saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), CorruptData, "like a web server \\(HTTP\\)"),
        (saying(struct.pack(">i", -5)), CorruptData, "does not use Kafka's protocol"),
        (saying(api_versions_answer(999)), CorruptData, "correlation ID 999"),
        (saying(struct.pack(">ii", 4, 1)), CorruptData, "cannot be read"),
        (saying(struct.pack(">ib", 1, 0)), CorruptData, "has only 1 bytes"),
    ],
)
def test_peer_that_does_not_use_kafkas_protocol(
    behave: Peer, expected: type[TwinlogError], words: str
) -> None:
    with peer(behave) as port, pytest.raises(expected, match=words) as caught:
        open_to(port, timeout_s=0.5)
    assert f"127.0.0.1:{port}" in caught.value.message
    assert "cluster A" in caught.value.message


def claiming(size: int, *, answers_handshake: bool) -> Peer:
    """A broker with SASL that announces a response of this size, to the handshake or to the first
    token.
    """

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
def test_a_large_size_before_authentication_allocates_no_memory(answers_handshake: bool) -> None:
    """A peer announces a large response before the authentication, and no memory is allocated for
    it. Otherwise four bytes of any server would make the client allocate half a gigabyte.
    """
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
        with pytest.raises(CorruptData, match="would be 419430400 bytes"):
            Connection.open("127.0.0.1", port, settings, timeout_s=5)


def test_refused_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(Unreachable, match="connection refused"):
        open_to(port)


def test_name_that_does_not_exist() -> None:
    settings = ClusterSettings(alias="A", bootstrap=(("no.such.host.invalid", 1),))
    with pytest.raises(Unreachable, match="cannot be resolved"):
        Connection.open("no.such.host.invalid", 1, settings, timeout_s=5)


IMPOSSIBLE = [
    ("kafka-2..svc", 9092),
    ("a" * 64 + ".svc", 9092),
    ("kafka\0", 9092),
    ("", 9092),
    ("127.0.0.1", 0),
    ("127.0.0.1", -1),
    ("127.0.0.1", 65_536 + 9092),
    ("127.0.0.1", 1 << 70),
]
"""Invalid addresses that a broker may advertise."""


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
@pytest.mark.parametrize(("host", "port"), IMPOSSIBLE)
def test_impossible_address_is_an_error_of_the_connection(
    host: str, port: int, protocol: str
) -> None:
    """An invalid address is reported as an error of the connection, although Python raises
    UnicodeError, ValueError or OverflowError.
    """
    security = load_security({"security.protocol": protocol}, where="A")
    settings = ClusterSettings(alias="A", bootstrap=((host, port),), security=security)
    with ClusterClient(settings, refused_s=0.0) as client, pytest.raises(Refused) as caught:
        client.metadata([])
    assert "not a valid address" in caught.value.message or "resolved" in caught.value.message


def test_port_above_the_range_is_not_taken_modulo_65536() -> None:
    with peer(old_broker) as port, pytest.raises(Refused, match="ports are 1 to 65535"):
        open_to(port + 65_536)


@pytest.mark.parametrize(("host", "port"), IMPOSSIBLE)
def test_impossible_address_of_one_broker_is_an_error_of_that_broker(host: str, port: int) -> None:
    settings = ClusterSettings(alias="A", bootstrap=(("127.0.0.1", 1),))
    pool = ConnectionPool(settings, time.monotonic)
    pool.learn({2: Broker(node=2, host=host, port=port, rack=None)})
    with pytest.raises(Unreachable, match="the cluster advertises this address for broker 2"):
        pool.connection_to(2)


def test_endpoint_of_tokens_that_is_away_is_no_wrong_address_of_a_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker responds, so the message must not advise to check its advertised.listeners."""

    def without_token(*_: object, **__: object) -> Connection:
        raise EndpointAway("broker east:9092 of cluster A: the token endpoint does not respond")

    monkeypatch.setattr(Connection, "open", without_token)
    settings = ClusterSettings(alias="A", bootstrap=(("east", 9092),))
    pool = ConnectionPool(settings, time.monotonic)
    pool.learn({1: Broker(node=1, host="east", port=9092, rack=None)})
    with pytest.raises(EndpointAway) as caught:
        pool.connection_to(1)
    assert caught.value.message.endswith("the token endpoint does not respond")


@pytest.mark.parametrize("accepting", [("west",), ()])
def test_an_address_that_rejects_the_authentication_is_no_reason_to_give_up(
    monkeypatch: pytest.MonkeyPatch, accepting: tuple[str, ...]
) -> None:
    """One broker may have an expired certificate. With a wrong password, two brokers are tried, and
    the first error is raised.
    """
    tried: list[str] = []
    settings = ClusterSettings(alias="A", bootstrap=tuple((one, 1) for one in ("a", "west", "b")))

    def opened(host: str, port: int, *_: object, **__: object) -> Connection:
        tried.append(host)
        if host not in accepting:
            raise AuthenticationFailed(f"rejected by {host}")
        return Connection(socket.socket(), host, port, settings)

    monkeypatch.setattr(Connection, "open", opened)
    monkeypatch.setattr("twinlog.cluster.net.pool.CHANCE.shuffle", lambda _: None)
    pool = ConnectionPool(settings, time.monotonic)
    if accepting:
        assert pool.any_connection().host == "west"
        assert tried == ["a", "west"]
        pool.close()
        return
    with pytest.raises(AuthenticationFailed, match="rejected by a"):
        pool.any_connection()
    assert tried == ["a", "west"]


def test_next_address_of_a_name_is_tried_on_a_host_without_ipv6(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = socket.socket

    def without_ipv6(family: int = -1, *rest: int, **more: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return real(family, *rest, **more)

    with peer(old_broker) as port:
        found = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        monkeypatch.setattr(socket, "socket", without_ipv6)
        with open_to(port) as connection:
            assert connection.api_versions
        del found[1]
        with pytest.raises(Unreachable, match="::1: address family not supported"):
            open_to(port)


def test_connection_that_another_thread_closed_is_an_error_of_the_connection() -> None:
    with peer(old_broker) as port, open_to(port) as connection:
        connection.sock.close()
        assert not connection.is_usable()


def test_broker_that_knows_only_old_api_versions() -> None:
    with peer(old_broker) as port, open_to(port) as connection:
        assert connection.api_versions == {18: (0, 0)}


def test_detached_socket_stays_open() -> None:
    with peer(old_broker) as port:
        connection = open_to(port)
        sock = connection.detach()
        connection.close()
        assert not connection.is_usable()
        with sock:
            assert sock.getpeername()[1] == port


def test_connection_that_was_closed_by_the_peer_is_not_usable() -> None:
    def answering_then_closing(sock: socket.socket) -> None:
        old_broker(sock)
        sock.close()

    with peer(answering_then_closing) as port, open_to(port) as connection:
        assert connection.wait_readable(5.0)
        assert not connection.is_usable()


NODES = 100
STEPS = 20


def slow(step_s: float, steps: int = STEPS) -> Peer:
    """A broker on a slow line. Its Metadata response arrives in 20 parts, of which only the first
    `steps` are sent.
    """

    def behave(sock: socket.socket) -> None:
        def answer(body: bytes) -> bytes:
            (correlation_id,) = struct.unpack_from(">i", sock.recv(1024), 8)
            return struct.pack(">ii", len(body) + 4, correlation_id) + body

        sock.sendall(answer(struct.pack(">hi", 35, 0)))
        apis = struct.pack(">hhh", 18, 0, 0) + struct.pack(">hhh", 3, 4, 4)
        sock.sendall(answer(struct.pack(">hi", 0, 2) + apis))
        broker = struct.pack(">h9sih", 9, b"127.0.0.1", 9092, -1)
        brokers = b"".join(struct.pack(">i", node) + broker for node in range(NODES))
        body = struct.pack(">ii", 0, NODES) + brokers + struct.pack(">hii", -1, 0, 0)
        frame = answer(body)
        size = -(-len(frame) // STEPS)
        with suppress(OSError):
            for at in range(0, steps * size, size):
                time.sleep(step_s)  # the speed of the line
                sock.sendall(frame[at : at + size])

    return behave


IMPATIENT = replace(CALL_PATIENCE, uniform=lambda *_: 1e9)
"""Patience for only one attempt."""


def slow_client(port: int, request_timeout_ms: int) -> ClusterClient:
    settings = ClusterSettings(
        alias="A", bootstrap=(("127.0.0.1", port),), request_timeout_ms=request_timeout_ms
    )
    return ClusterClient(settings, patience=IMPATIENT)


@pytest.fixture
def silent_s(monkeypatch: pytest.MonkeyPatch) -> float:
    """Set the time during which a broker may send nothing of its Metadata response to 0.4 s instead
    of 5 s. Return it.
    """
    monkeypatch.setattr("twinlog.cluster.client.METADATA_TIMEOUT_S", 0.4)
    return 0.4


def test_a_slow_response_is_waited_for_while_bytes_arrive(silent_s: float) -> None:
    with peer(slow(0.05)) as port, slow_client(port, 60_000) as client, Stopwatch() as watch:
        assert len(client.metadata([]).brokers) == NODES
    assert watch.seconds > 2 * silent_s


@pytest.mark.parametrize("steps", [0, STEPS // 2])
def test_frozen_broker_fails_after_the_limit_of_silence(silent_s: float, steps: int) -> None:
    with (
        peer(slow(0.01, steps)) as port,
        slow_client(port, 60_000) as client,
        Stopwatch() as watch,
        pytest.raises(Disconnected) as caught,
    ):
        client.metadata([])
    assert watch.seconds < 10 * silent_s
    what = "1,066 of" if steps else "no byte arrived for"
    assert f"did not respond to Metadata: {what}" in caught.value.message
    assert "0.4 s" in caught.value.message
    assert "request.timeout.ms" not in caught.value.message, "it would not help"


def test_a_slow_response_after_the_timeout_names_the_key(silent_s: float) -> None:
    with (
        peer(slow(0.1)) as port,
        slow_client(port, 1_000) as client,
        pytest.raises(Disconnected) as caught,
    ):
        client.metadata([])
    assert "bytes arrived in 1 s, the limit of A.request.timeout.ms" in caught.value.message


ORIGINS = (
    ("bootstrap.servers", "A.bootstrap.servers", "mm2.properties:3"),
    ("security.protocol", "A.security.protocol", "mm2.properties:4"),
    ("sasl.mechanism", "A.admin.sasl.mechanism", "mm2.properties:5"),
    ("sasl.jaas.config", "A.sasl.jaas.config", "mm2.properties:6"),
    ("ssl.truststore.location", "A.ssl.truststore.location", "mm2.properties:7"),
)


def settings_in_a_file(port: int, mechanism: str | None = None) -> ClusterSettings:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    properties = (
        {"security.protocol": "PLAINTEXT"}
        if mechanism is None
        else {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required "
            'username="u" password="hunter2";',
        }
    )
    security = load_security(properties, where="A")
    return ClusterSettings(
        alias="A", bootstrap=(("127.0.0.1", port),), security=security, origins=ORIGINS
    )


WHERE_PASSWORD = "check user and password in A.sasl.jaas.config (mm2.properties:6)"
OF_THIS_MECHANISM = ", and that the user has credentials of this mechanism on this cluster"


@pytest.mark.parametrize(
    ("mechanism", "error", "said"),
    [
        ("PLAIN", 0, f"refused the login with PLAIN: wrong login; {WHERE_PASSWORD}"),
        ("SCRAM-SHA-256", 0, f"SHA-256: wrong login; {WHERE_PASSWORD}{OF_THIS_MECHANISM}"),
        ("SCRAM-SHA-512", 33, "set A.admin.sasl.mechanism (mm2.properties:5) to one of these"),
        ("PLAIN", 34, "check A.security.protocol (mm2.properties:4)"),
    ],
)
def test_refused_login_names_address_mechanism_line_and_likely_cause(
    mechanism: str, error: int, said: str
) -> None:
    with (
        peer(lambda sock: refusing(sock, error=error)) as port,
        ClusterClient(settings_in_a_file(port, mechanism)) as client,
        pytest.raises(AuthenticationFailed) as caught,
    ):
        client.metadata([])
    assert f"broker 127.0.0.1:{port} of cluster A" in caught.value.message
    assert said in caught.value.message
    assert error == 34 or mechanism in caught.value.message
    assert "hunter2" not in caught.value.message


def test_listener_that_expects_a_login_is_named() -> None:
    """A listener that requires a login closes the connection at the first request after
    ApiVersions. The message must name the key to check.
    """

    def behave(sock: socket.socket) -> None:
        apis = struct.pack(">hi", 0, 1) + struct.pack(">hhh", 3, 4, 4)
        for body in (struct.pack(">hi", 35, 0), apis):
            (correlation_id,) = struct.unpack_from(">i", sock.recv(1024), 8)
            sock.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)
        closing(sock)

    with (
        peer(behave) as port,
        ClusterClient(settings_in_a_file(port), patience=IMPATIENT) as client,
        pytest.raises(Disconnected) as caught,
    ):
        client.metadata([])
    why = "probably requires SASL: check A.security.protocol (mm2.properties:4)"
    assert why in caught.value.message


@pytest.mark.parametrize(
    ("behave", "likely"),
    [
        (None, "probably no broker runs there, or its listener has another port"),
        (closing, "A.security.protocol (mm2.properties:4) does not match its listener"),
    ],
)
def test_unreachable_cluster_names_address_line_and_likely_cause(
    behave: Peer | None, likely: str
) -> None:
    with ExitStack() as stack:
        port = 1 if behave is None else stack.enter_context(peer(behave))
        client = ClusterClient(settings_in_a_file(port), patience=IMPATIENT)
        with client, pytest.raises(Unreachable) as caught:
            client.metadata([])
    assert f"A (127.0.0.1:{port}): " in caught.value.message
    assert "check A.bootstrap.servers (mm2.properties:3) and the network: " in caught.value.message
    assert likely in caught.value.message


def test_keys_in_messages_have_their_name_in_the_file() -> None:
    name = settings_in_a_file(1).naming
    assert name("see ssl.truststore.* and sasl.mechanism.") == (
        "see A.ssl.truststore.* (mm2.properties:7) and A.admin.sasl.mechanism (mm2.properties:5)."
    )
    assert name("set ssl.keystore.location") == "set A.ssl.keystore.location"
    assert name("A.sasl.mechanism; add ssl.truststore.location=FILE") == (
        "A.sasl.mechanism; add ssl.truststore.location=FILE"
    )
