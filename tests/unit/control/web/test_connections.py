"""Connections with many requests. Each request has its own deadline, and so does the pause between
two requests.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator

import pytest

from tests.support.eventually import eventually
from tests.support.monitor import served
from tests.support.snapshots import flow, partition
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web import open_requests
from twinlog.control.web.open_requests import OpenRequests
from twinlog.control.web.server import WebServer

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def server() -> Iterator[WebServer]:
    monitor = Monitor()
    monitor.update([flow(partition())])
    with served(monitor) as server:
        yield server


def answer(client: socket.socket) -> bytes:
    """Send a probe, and return the response, which ends with a line of JSON."""
    client.sendall(HEALTH)
    text = b""
    while not text.endswith(b"}\n"):
        text += client.recv(65_536)
    return text


def test_one_connection_carries_many_requests(server: WebServer) -> None:
    client = http.client.HTTPConnection(*server.address, timeout=30)
    client.connect()
    first = client.sock
    for path in ("/healthz", "/readyz", "/metrics", "/nothing", "/healthz") * 2:
        client.request("GET", path)
        found = client.getresponse()
        found.read()
        assert found.status == (404 if path == "/nothing" else 200)
        assert client.sock is first, "http.client has opened no other"
    assert len(server.open_requests) == 1
    client.close()
    eventually(lambda: len(server.open_requests) == 0)


def test_a_connection_that_is_idle_is_closed(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_requests, "IDLE_S", 1)
    with socket.create_connection(server.address, timeout=60) as client:
        assert answer(client).startswith(b"HTTP/1.1 200 ")
        assert client.recv(1) == b""
    eventually(lambda: len(server.open_requests) == 0)


def test_a_later_request_that_drips_has_its_own_deadline(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_requests, "WITHIN_S", 1.0)
    with socket.create_connection(server.address, timeout=60) as client:
        for _ in range(3):
            assert answer(client).startswith(b"HTTP/1.1 200 ")
        client.settimeout(0.1)

        def is_closed() -> bool:
            try:
                client.sendall(b"X")
                return client.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        eventually(is_closed)


def test_a_body_that_is_too_long_ends_the_connection(server: WebServer) -> None:
    with socket.create_connection(server.address, timeout=60) as client:
        size = (1 << 20) + 70_000
        head = f"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
        client.sendall(head.encode() + b"x" * size)
        text = b""
        while part := client.recv(65_536):
            text += part
    assert text.startswith(b"HTTP/1.1 413 ")
    assert text.count(b"HTTP/1.1 ") == 1


def test_the_end_of_the_process_does_not_wait_for_idle_connections() -> None:
    with (
        served(Monitor()) as server,
        socket.create_connection(server.address, timeout=60) as client,
    ):
        assert answer(client).startswith(b"HTTP/1.1 200 ")
        server.close()
        assert client.recv(1) == b""


def is_closed(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False


def test_the_longest_idle_connection_is_closed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_requests, "AT_ONCE", 3)
    now = [0.0]
    requests = OpenRequests(clock=lambda: now[0])
    pairs = [socket.socketpair() for _ in range(5)]
    for number, (ours, _) in enumerate(pairs[:3]):
        requests.add(ours, f"10.0.0.{number}")
        requests.on_request(ours)
    for number in (1, 0, 2):
        now[0] += 1
        requests.on_answer(pairs[number][0])
    requests.on_begun(pairs[1][0])  # a further request on the connection that was idle first
    for ours, _ in pairs[3:]:
        requests.add(ours, "10.0.0.9")
    assert [is_closed(peer) for _, peer in pairs] == [True, False, True, False, False]
    for one in (end for pair in pairs for end in pair):
        one.close()
