"""A repeated request with the same bytes is answered without parsing it, with the same response.
This applies to connections that close after a response and to those that stay open.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pytest

from tests.support.certificates import shared_authority
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.rest import rest_of
from tests.support.snapshots import flow, partition
from twinlog.addresses import Address
from twinlog.cli.main import run
from twinlog.config.load import load
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web import connection
from twinlog.control.web.api import app, leaders
from twinlog.control.web.front import Front

FLOWS = "/api/v1/flows"


class Server(NamedTuple):
    """The address of a server, and the TLS context of its clients."""

    address: Address
    tls: ssl.SSLContext | None


@pytest.fixture
def monitor() -> Monitor:
    monitor = Monitor()
    monitor.update([flow(partition(lag=7))])
    return monitor


@pytest.fixture
def token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["token", "new", str(tmp_path / "tokens"), "--name", "a", "--role", "read"]) == 0
    return capsys.readouterr().out.strip()


@pytest.fixture(params=["plain", "TLS"])
def rest(
    request: pytest.FixtureRequest,
    monitor: Monitor,
    token: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Server]:
    """A server that caches its responses for a minute if nothing changes."""
    monkeypatch.setattr(leaders, "GIVES_UP_S", 0.5)
    monkeypatch.setattr(leaders, "WAITED_S", 0.05)
    monkeypatch.setattr(leaders, "RETRY_INTERVAL_S", 60.0)
    monkeypatch.setattr(app, "KEPT_S", 60.0)
    tls, more = None, ""
    if request.param == "TLS":
        made, certificate = shared_authority().issue("localhost"), tmp_path / "server.pem"
        certificate.write_text(made.pem + made.key_pem)
        more = f"twinlog.rest.tls.certificate.file = {certificate}\n"
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.load_verify_locations(cadata=shared_authority().pem)
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:1\n"
        f"A->B.enabled = true\ntwinlog.rest.tokens.file = {tmp_path / 'tokens'}\n{more}"
    )
    with rest_of(load(file, environment={}), file, monitor) as served:
        server = Server(served.address, tls)
        # the cluster is not queried again during the test
        eventually(
            lambda: b"could not be queried" in asked(server, get(token)), what="its target is away"
        )
        yield server


@pytest.fixture
def parsed(rest: Server, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list of the requests that were parsed, in order, as method and path."""
    calls, paths = Front.__call__, []

    async def counted(self: Front, scope: Any, *given: Any, **more: Any) -> None:
        paths.append(f"{scope['method']} {scope['path']}")
        await calls(self, scope, *given, **more)

    monkeypatch.setattr(Front, "__call__", counted)
    return paths


def get(
    token: str, *lines: str, path: str = FLOWS, method: str = "GET", closes: bool = True
) -> bytes:
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}"]
    if closes:
        head.append("Connection: close")
    return "\r\n".join((*head, *lines, "", "")).encode()


@contextmanager
def connected(rest: Server) -> Iterator[socket.socket]:
    with ExitStack() as stack:
        client = stack.enter_context(socket.create_connection(rest.address, timeout=60))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if rest.tls is not None:
            client = rest.tls.wrap_socket(client, server_hostname="localhost")
            stack.enter_context(client)
        yield client


def next_answer(reader: BinaryIO) -> bytes:
    """Return the next of several responses on a connection. It ends after as many bytes as its
    content-length header says.
    """
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = reader.readline()
        assert line, head
        head += line
    length = re.search(rb"content-length: (\d+)", head)
    return head + (reader.read(int(length[1])) if length else b"")


def asked(rest: Server, *pieces: bytes) -> bytes:
    """Send the pieces with pauses between them. Return all bytes until the server closes the
    connection.
    """
    with connected(rest) as client:
        for number, piece in enumerate(pieces):
            if number:
                client.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    client.recv(1)
                client.settimeout(60)
            client.sendall(piece)
        answer = b""
        while part := client.recv(65_536):
            answer += part
    return answer


def warmed(rest: Server, wanted: bytes) -> bytes:
    """Repeat the request until it is cached, and return the last response. The first response is
    created, the second is repeated, and the third is found by the request's bytes.
    """
    return [asked(rest, wanted) for _ in range(3)][-1]


def without_date(answer: bytes) -> list[bytes]:
    return [line for line in answer.split(b"\r\n") if not line.startswith(b"date: ")]


def test_the_same_request_gets_the_same_answer_and_is_not_parsed(
    rest: Server, token: str, parsed: list[str]
) -> None:
    first = asked(rest, get(token))
    warmed(rest, get(token))
    parsed.clear()
    again = [asked(rest, get(token)) for _ in range(5)]
    assert not parsed
    assert all(without_date(one) == without_date(first) for one in again)
    assert first.startswith(b"HTTP/1.1 200 ")
    assert b"\r\ndate: " in again[0]


def test_another_request_is_parsed(rest: Server, token: str, parsed: list[str]) -> None:
    warmed(rest, get(token))
    parsed.clear()
    assert asked(rest, get("wrong")).startswith(b"HTTP/1.1 401 ")
    assert asked(rest, get(token, "Origin: http://elsewhere")).startswith(b"HTTP/1.1 403 ")
    assert asked(rest, get(token, path=f"{FLOWS}?a=1")).startswith(b"HTTP/1.1 400 ")
    head = asked(rest, get(token, method="HEAD"))
    assert head.startswith(b"HTTP/1.1 200 ")
    assert head.endswith(b"\r\n\r\n")
    assert len(parsed) == 4


def test_numbers_that_changed_are_shown_at_once(rest: Server, token: str, monitor: Monitor) -> None:
    assert b'"lag":7' in warmed(rest, get(token))
    monitor.update([flow(partition(lag=8))])
    assert b'"lag":8' in asked(rest, get(token))


def test_a_token_that_was_removed_is_out_at_its_next_request(
    rest: Server, token: str, tmp_path: Path
) -> None:
    warmed(rest, get(token))
    (tmp_path / "tokens").write_text("")
    assert asked(rest, get(token)).startswith(b"HTTP/1.1 401 ")


def test_a_request_in_pieces_is_answered(rest: Server, token: str, parsed: list[str]) -> None:
    whole = get(token)
    warmed(rest, whole)
    parsed.clear()
    assert asked(rest, whole[:20], whole[20:]).startswith(b"HTTP/1.1 200 ")
    assert parsed


def test_a_body_that_comes_later_is_waited_for(rest: Server, token: str) -> None:
    with_body = get(token, "Content-Length: 2")
    for _ in range(4):
        assert asked(rest, with_body, b"{}").startswith(b"HTTP/1.1 200 ")


def test_of_two_requests_in_one_piece_one_is_answered(rest: Server, token: str) -> None:
    for _ in range(4):
        answer = asked(rest, get(token) * 2)
        assert answer.count(b"HTTP/1.1 200 ") == 1


def test_a_connection_carries_many_requests_known_ones_and_others(
    rest: Server, token: str, parsed: list[str]
) -> None:
    same = get(token, closes=False)
    with connected(rest) as client, client.makefile("rb") as reader:

        def answer(request: bytes) -> bytes:
            client.sendall(request)
            return next_answer(reader)

        first, *_ = (answer(same) for _ in range(3))
        parsed.clear()
        for _ in range(3):
            assert without_date(answer(same)) == without_date(first)
            assert answer(get(token, path="/healthz", closes=False)).endswith(b"true}\n")
            assert answer(get(token, path="/nothing", closes=False)).startswith(b"HTTP/1.1 404 ")
        assert parsed == ["GET /healthz", "GET /nothing"] * 3
        assert b"\r\nConnection: close\r\n" in answer(get(token))
        assert client.recv(1) == b""
    assert b"connection: " not in first.lower()


def test_requests_in_one_piece_are_all_answered_in_their_order(rest: Server, token: str) -> None:
    flows, health = get(token, closes=False), get(token, path="/healthz", closes=False)
    for _ in range(4):
        with connected(rest) as client, client.makefile("rb") as reader:
            client.sendall(flows + flows + health + flows)
            found = [next_answer(reader) for _ in range(4)]
            assert [b'"flows":' in one for one in found] == [True, True, False, True]
            client.sendall(flows)
            assert b'"flows":' in next_answer(reader)


def test_a_client_that_reads_late_gets_every_answer(
    rest: Server, token: str, monitor: Monitor
) -> None:
    """A client sends many requests and reads the responses late. The server must stop reading its
    requests in the meantime, and the client must still get every response.
    """
    monitor.update([flow(partition(), reason="x" * 20_000)])
    same, many = get(token, f"X-Long: {'x' * 3000}", closes=False), 5_000
    with connected(rest) as client, client.makefile("rb") as reader:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        client.sendall(same)
        assert next_answer(reader)
        sent, rest_of_one = 0, same

        def send_until_it_blocks(within_s: float) -> None:
            # by the thread that also reads, because two threads cannot share a TLS connection
            nonlocal sent, rest_of_one
            client.settimeout(within_s)
            with suppress(TimeoutError, BlockingIOError, ssl.SSLWantWriteError):
                while sent < many:
                    rest_of_one = rest_of_one[client.send(rest_of_one) :]
                    if not rest_of_one:
                        sent, rest_of_one = sent + 1, same
            client.settimeout(PATIENCE_S)

        send_until_it_blocks(1)  # if no byte can be sent for a second, the server no longer reads
        assert sent < many
        for _ in range(many):
            assert b'"flows":' in next_answer(reader)
            send_until_it_blocks(0)
    assert sent == many


def test_so_many_requests_are_known_and_no_longer_ones() -> None:
    known = connection.Repeats()

    def keep(request: bytes) -> None:
        answer = b"answer " + request
        known.keep(request, connection.Repeat(answer, is_current=lambda: True, closes=False))

    keep(b"x" * (connection.LONGEST_REPEAT + 1))
    assert known.find(b"x" * (connection.LONGEST_REPEAT + 1)) is None
    for number in range(connection.REPEATS_AT_MOST + 1):
        keep(b"%d" % number)
    last = known.find(b"%d" % connection.REPEATS_AT_MOST)
    assert last is not None
    assert last.answer == b"answer %d" % connection.REPEATS_AT_MOST
    found = [known.find(b"%d" % number) for number in range(connection.REPEATS_AT_MOST)]
    assert found == [None] * connection.REPEATS_AT_MOST
