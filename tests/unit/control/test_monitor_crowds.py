"""Clients that keep connections open, or use another host name, over real connections."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.support.dripping import dripping
from tests.support.eventually import eventually
from tests.support.monitor import LOCAL, ask, served
from tests.support.snapshots import flow, partition
from twinlog.addresses import Address
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web import open_requests
from twinlog.control.web.open_requests import OpenRequests
from twinlog.control.web.server import WebServer


def is_healthy(server: WebServer) -> bool:
    try:
        return ask(server.address, "/healthz").status == 200
    except OSError:
        return False


@pytest.mark.parametrize("number", [16, 200])
def test_clients_that_drip_do_not_keep_probes_out(number: int) -> None:
    with served(Monitor()) as server, dripping(server.address, number) as drippers:
        eventually(lambda: drippers.rounds >= 2)
        for _ in range(5):
            # a kubelet tries three times before it kills a pod
            assert any(is_healthy(server) for _ in range(3))
            before = drippers.rounds
            eventually(lambda before=before: drippers.rounds > before)  # type: ignore[misc]


def test_a_request_has_one_deadline_however_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_requests, "WITHIN_S", 1.0)
    with served(Monitor()) as server, dripping(server.address, 1) as drippers:
        # each byte is sent well within the time limit of a byte
        eventually(lambda: drippers.closed >= 2, what="it is closed, again and again")


def test_a_reader_that_takes_nothing_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_requests, "WITHIN_S", 1.0)
    monitor = Monitor()
    monitor.update([flow(*(partition(f"t{n:0200d}", n) for n in range(3_000)))])
    with served(monitor) as server, socket.create_connection(server.address) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        requests = server.open_requests
        eventually(lambda: len(requests) == 1)
        eventually(lambda: len(requests) == 0)
        assert is_healthy(server)


def pairs(number: int) -> Iterator[tuple[socket.socket, socket.socket]]:
    for _ in range(number):
        yield socket.socketpair()


def is_closed(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False


@pytest.fixture
def now() -> list[float]:
    return [0.0]


def test_an_address_takes_places_from_itself_alone(now: list[float]) -> None:
    requests = OpenRequests(clock=lambda: now[0])
    other, others_peer = socket.socketpair()
    requests.add(other, "10.0.0.1")
    made = list(pairs(open_requests.MOST_PER_ADDRESS + 3))
    for ours, _ in made:
        now[0] += 0.01
        requests.add(ours, "10.0.0.2")
    closed = [is_closed(peer) for _, peer in made]
    assert closed == [True] * 3 + [False] * open_requests.MOST_PER_ADDRESS
    assert not is_closed(others_peer)
    for one in (other, others_peer, *(end for pair in made for end in pair)):
        one.close()


def test_an_address_that_reads_no_answer_takes_places_from_itself_alone(now: list[float]) -> None:
    requests = OpenRequests(clock=lambda: now[0])
    other, others_peer = socket.socketpair()
    requests.add(other, "10.0.0.1")  # a probe that has not sent its request yet
    made = list(pairs(open_requests.AT_MOST + 3))
    for ours, _ in made:
        now[0] += 0.01
        requests.add(ours, "10.0.0.2")
        requests.on_request(ours)
    closed = [is_closed(peer) for _, peer in made]
    assert closed.count(False) == open_requests.MOST_IN_USE_PER_ADDRESS
    assert not any(closed[-open_requests.MOST_IN_USE_PER_ADDRESS :])
    assert not is_closed(others_peer)
    for one in (other, others_peer, *(end for pair in made for end in pair)):
        one.close()


def test_a_client_with_a_sent_request_is_kept_before_one_without(now: list[float]) -> None:
    requests = OpenRequests(clock=lambda: now[0])
    made = list(pairs(open_requests.AT_ONCE + 1))
    for number, (ours, _) in enumerate(made):
        now[0] += 0.01
        requests.add(ours, f"10.0.0.{number}")
        if number == 0:
            requests.on_request(ours)
    assert [is_closed(peer) for _, peer in made[:3]] == [False, True, False]
    assert len(requests) == open_requests.AT_ONCE
    for one in (end for pair in made for end in pair):
        one.close()


def test_an_answered_client_is_closed_before_a_new_unread_one(now: list[float]) -> None:
    requests = OpenRequests(clock=lambda: now[0])
    made = list(pairs(open_requests.MOST_PER_ADDRESS + 2))
    for number, (ours, _) in enumerate(made):
        now[0] += 0.01
        requests.add(ours, "10.0.0.1")
        if number in (1, 2):
            requests.on_request(ours)
            requests.on_answer(ours)
        if number == 2:
            requests.on_request(ours)  # the next request on the same connection
    assert [is_closed(peer) for _, peer in made[:4]] == [True, True, False, False]
    for one in (end for pair in made for end in pair):
        one.close()


def answer_to(server: WebServer, request: str) -> int:
    """Send a request that is written by hand, and return the status of the response."""
    with socket.create_connection(server.address) as connection:
        connection.settimeout(30)
        connection.sendall(request.encode())
        return int(connection.makefile("rb").readline().split()[1])


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        (["localhost:9405"], 200),
        (["LOCALHOST."], 200),
        (["127.0.0.1:9405"], 200),
        (["127.3.2.1"], 200),
        (["[::1]:9405"], 200),
        ([], 400),  # HTTP/1.1 requires a Host header
        (["evil.example"], 421),
        (["evil.example:9405"], 421),
        (["localhost.evil.example"], 421),
        (["127.0.0.1.evil.example"], 421),
        (["localhost@evil.example"], 421),
        (["192.0.2.1:9405"], 421),
        (["localhost", "evil.example"], 400),
        (["[::1"], 421),
        ([""], 421),
    ],
)
def test_a_listener_of_this_machine_answers_to_its_own_names(hosts: list[str], status: int) -> None:
    lines = "".join(f"Host: {host}\r\n" for host in hosts)
    with served(Monitor()) as server:
        assert answer_to(server, f"GET /healthz HTTP/1.1\r\n{lines}\r\n") == status


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://evil.example/healthz", 421),
        ("//evil.example/healthz", 404),
        ("http://localhost:9405/healthz", 200),
        ("http://[::1/healthz", 400),
    ],
)
def test_a_host_in_the_target_counts_as_well(target: str, status: int) -> None:
    with served(Monitor()) as server:
        request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert answer_to(server, request) == status


def test_a_listener_for_others_answers_to_any_name() -> None:
    with served(Monitor(), Address("0.0.0.0", 0)) as server:  # noqa: S104
        here = Address(LOCAL.host, server.address.port)
        request = b"GET /healthz HTTP/1.1\r\nHost: mirror.example\r\n\r\n"
        with socket.create_connection(here) as connection:
            connection.sendall(request)
            assert b"200" in connection.makefile("rb").readline()


def test_old_programs_need_not_name_a_host() -> None:
    with served(Monitor()) as server:
        assert answer_to(server, "GET /healthz HTTP/1.0\r\n\r\n") == 200


def test_the_names_of_the_listener_itself_are_known() -> None:
    with served(Monitor(), Address("localhost", 0)) as server:
        assert answer_to(server, "GET /healthz HTTP/1.1\r\nHost: localhost:1\r\n\r\n") == 200


def test_nothing_is_held_for_requests_that_are_over() -> None:
    with served(Monitor()) as server:
        for _ in range(20):
            assert is_healthy(server)
        requests = server.open_requests
        eventually(lambda: len(requests) == 0)
