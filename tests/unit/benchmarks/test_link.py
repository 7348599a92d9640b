"""The link of `scripts/bench far` delays and throttles the connection, and forwards every byte."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.link import Link, open_link
from twinlog.sandbox.layout import HOST, free_ports

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the link is compiled by cc")

SIZE = 1_000_000


@contextmanager
def connected(link: Link, folder: Path) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield both ends of a connection over the link."""
    near_port, far_port = free_ports(2)
    with (
        socket.create_server((HOST, far_port)) as server,
        open_link(link, near_port, far_port, folder),
        socket.create_connection((HOST, near_port)) as near,
    ):
        far, _ = server.accept()
        with far:
            yield near, far


def all_of(end: socket.socket) -> bytes:
    return b"".join(iter(lambda: end.recv(1 << 16), b""))


def test_each_way_takes_the_delay(tmp_path: Path) -> None:
    with connected(Link(delay_ms=30), tmp_path) as (near, far):
        began = time.monotonic()
        near.sendall(b"there")
        assert far.recv(100) == b"there"
        far.sendall(b"back")
        assert near.recv(100) == b"back"
        assert time.monotonic() - began >= 0.06


@pytest.mark.parametrize(
    ("link", "least_s"),
    [
        (Link(delay_ms=0, mbit=80), 0.1),
        (Link(delay_ms=10, window_kb=100), 0.18),  # ten windows, with nine round trips between them
    ],
)
def test_rate_and_window_are_limited_and_every_byte_arrives(
    link: Link, least_s: float, tmp_path: Path
) -> None:
    sent = bytes(range(250)) * (SIZE // 250)
    with connected(link, tmp_path) as (near, far):
        began = time.monotonic()

        def send() -> None:
            far.sendall(sent)
            far.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        assert all_of(near) == sent
        sender.join()
        assert time.monotonic() - began >= least_s
