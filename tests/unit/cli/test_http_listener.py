"""After the HTTP thread has died, HTTP is served again: at the same address, after a pause, and
with one log line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from twinlog.addresses import Address
from twinlog.cli.terminal import monitoring
from twinlog.cli.terminal.monitoring import _Listener
from twinlog.control.web.address import CannotListen

NAMED = Address("localhost", 0)


class Server:
    """An HTTP server that dies when the test requests it."""

    address = Address("127.0.0.1", 9405)

    def __init__(self) -> None:
        self.died: Callable[[Exception], None] | None = None
        self.is_closed = False

    def start(self, died: Callable[[Exception], None]) -> None:
        self.died = died

    def die(self) -> None:
        assert self.died is not None
        self.died(RuntimeError("odd"))

    def close(self) -> None:
        self.is_closed = True


class Made:
    """Creates servers: it returns or raises the next of `servers` each time. The last one is
    repeated.
    """

    def __init__(self, *servers: Server | Exception) -> None:
        self._left = list(servers)
        self.addresses: list[Address] = []
        self.served: list[Server] = []
        self.listener = _Listener(self.make, NAMED, self.serve)  # type: ignore[arg-type]
        self._lock = threading.Condition()

    def make(self, address: Address) -> Server:
        self.addresses.append(address)
        one = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        if isinstance(one, Exception):
            raise one
        return one

    def serve(self, server: Server) -> None:
        with self._lock:
            self.served.append(server)
            self._lock.notify_all()

    def wait(self, count: int) -> Server:
        with self._lock:
            assert self._lock.wait_for(lambda: len(self.served) >= count, 10)
            return self.served[-1]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "BINDS_AGAIN_S", 0.01)


def test_a_server_that_dies_repeatedly_is_restarted_less_and_less_often(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(monitoring, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(monitoring, "LONGEST_PAUSE_S", 0.05)
    made = Made(Server())
    made.listener.start()
    for count in range(1, 6):
        made.wait(count).die()
    made.wait(6)
    clock[0] += 0.06  # the server has lived for long, so its death counts as the first one again
    made.wait(6).die()
    made.wait(7)
    made.listener.close()
    pauses = [one.getMessage().split()[5] for one in caplog.records]
    assert pauses == ["0.01", "0.02", "0.04", "0.05", "0.05", "0.01"]


def test_the_configured_name_stays_with_the_port_that_was_bound() -> None:
    made = Made(Server())
    made.listener.start()
    made.wait(1).die()
    made.wait(2)
    made.listener.close()
    assert made.addresses == [NAMED, Address("localhost", 9405)]


def test_whatever_goes_wrong_is_reported_once_and_tried_again(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    taken, odd = CannotListen("taken"), RuntimeError("can't start new thread")
    made = Made(taken, taken, odd, odd, odd, Server())
    made.listener.start()
    made.wait(1)
    made.listener.close()
    lines = [one for one in capsys.readouterr().err.splitlines() if one.startswith("warning: ")]
    assert lines == ["warning: taken [CANNOT_LISTEN]"]
    said = [one.getMessage() for one in caplog.records]
    assert said == ["HTTP is not served yet: can't start new thread"]


def test_a_server_that_cannot_start_leaves_no_socket() -> None:
    class Never(Server):
        def start(self, died: Callable[[Exception], None]) -> None:
            raise RuntimeError("can't start new thread")

    never, server = Never(), Server()
    made = Made(CannotListen("taken"), never, server)
    made.listener.start()
    assert made.wait(1) is server
    made.listener.close()
    assert never.is_closed


def test_a_death_at_the_end_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    made = Made(Server())
    made.listener.start()
    made.listener.close()
    made.wait(1).die()
    assert not caplog.records
    assert made.wait(1).is_closed
