"""Notifications to systemd, which are datagrams on a socket. The test reads them from its own
socket.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.snapshots import flow
from twinlog.control.watch.service import ServiceNotifier, reloading


@contextmanager
def manager(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(address)
        sock.setblocking(False)
        yield sock


def received(sock: socket.socket) -> list[str]:
    out: list[str] = []
    while True:
        try:
            out += sock.recv(4096).decode().splitlines()
        except BlockingIOError:
            return out


def environment(address: str, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": address, **more}


def test_ready_comes_once_and_the_status_when_it_changes(tmp_path: Path) -> None:
    stop = threading.Event()
    with manager(str(tmp_path / "notify")) as sock:
        notifier = ServiceNotifier(environment(str(tmp_path / "notify")), os.getpid(), stop)
        assert received(sock) == []
        notifier.update([flow(state="STARTING")])
        assert received(sock) == ["READY=1", "STATUS=A->B STARTING"]
        notifier.update([flow(state="STARTING")])
        assert received(sock) == []
        notifier.update([flow(state="RUNNING")])
        assert received(sock) == ["STATUS=A->B RUNNING"]


def test_stopping_comes_once(tmp_path: Path) -> None:
    stop = threading.Event()
    with manager(str(tmp_path / "notify")) as sock:
        notifier = ServiceNotifier(environment(str(tmp_path / "notify")), os.getpid(), stop)
        notifier.update([flow()])
        stop.set()
        notifier.update([flow()])
        notifier.update([flow()])
        notifier.stopping()
        assert received(sock) == ["READY=1", "STATUS=A->B RUNNING", "STOPPING=1"]


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"WATCHDOG_USEC": "30000000"}, True),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, True),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, False),
        ({"WATCHDOG_USEC": "0"}, False),
        ({}, False),
    ],
)
def test_the_watchdog_is_fed_by_each_report_where_it_is_on(
    tmp_path: Path, more: dict[str, str], wanted: bool
) -> None:
    with manager(str(tmp_path / "notify")) as sock:
        notifier = ServiceNotifier(
            environment(str(tmp_path / "notify"), **more), os.getpid(), threading.Event()
        )
        for _ in range(3):
            notifier.update([flow()])
        notifier.on_turn()  # a turn without a new report
        assert received(sock).count("WATCHDOG=1") == (4 if wanted else 0)


def test_an_abstract_address() -> None:
    name = f"twinlog-test-{os.getpid()}"
    with manager(f"\0{name}") as sock:
        notifier = ServiceNotifier(environment(f"@{name}"), os.getpid(), threading.Event())
        notifier.update([flow()])
        assert "READY=1" in received(sock)


def test_a_service_manager_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    gone = environment(str(tmp_path / "gone"))
    notifier = ServiceNotifier(gone, os.getpid(), threading.Event())
    notifier.update([flow()])
    notifier.stopping()


def test_without_a_service_manager_nothing_is_sent() -> None:
    notifier = ServiceNotifier({"WATCHDOG_USEC": "1000"}, os.getpid(), threading.Event())
    notifier.update([flow()])
    notifier.stopping()


def test_a_reload_is_reported_with_its_time_and_its_end(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with manager(address) as sock:
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        with reloading(environment(address)):
            states = received(sock)
        assert states[0] == "RELOADING=1"
        key, _, value = states[1].partition("=")
        assert key == "MONOTONIC_USEC"
        assert before <= int(value) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        assert received(sock) == ["READY=1"]


def test_a_reload_that_fails_ends_too_and_without_a_manager_nothing_is_reported(
    tmp_path: Path,
) -> None:
    address = str(tmp_path / "notify")
    with manager(address) as sock:
        with pytest.raises(ValueError, match="no number"), reloading(environment(address)):
            raise ValueError("no number")
        assert received(sock)[-1] == "READY=1"
        with reloading({}):
            pass
        assert received(sock) == []
