"""Reports the state of the process to a service manager: systemd's notifications over
`$NOTIFY_SOCKET`.

- READY=1 with the first report of the supervisor: the configuration is valid and the process works.
  The clusters need not be reachable: a mirror whose cluster is unreachable retries forever, so a
  restart would not help.
- STATUS= has the text for `systemctl status`: the flows and their states.
- WATCHDOG=1 with every turn of the supervisor if systemd requests it, so that systemd replaces a
  process that hangs.
- RELOADING=1 with the time (MONOTONIC_USEC) when a reload of the configuration begins. READY=1 when
  the differences were passed to the supervisor, or if nothing has changed.
- STOPPING=1 when the shutdown begins.

Without a service manager nothing is sent. The protocol is one datagram of `KEY=value` lines
(sd_notify(3)).
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.shown import shown

log = logging.getLogger(__name__)

NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG_USEC: Final = "WATCHDOG_USEC"
WATCHDOG_PID: Final = "WATCHDOG_PID"
SEND_TIMEOUT_S: Final = 1.0
STATUS_FLOWS: Final = 5


class ServiceNotifier:
    """Notifies the service manager of this process."""

    def __init__(self, environment: Mapping[str, str], pid: int, stop: threading.Event) -> None:
        """`environment`: that of the process. `stop` is set when shutdown begins."""
        self._address = environment.get(NOTIFY_SOCKET) or None
        asked = environment.get(WATCHDOG_USEC, "0")
        is_ours = environment.get(WATCHDOG_PID, str(pid)) == str(pid)
        self._wants_watchdog = is_ours and asked.isdigit() and int(asked) > 0
        self._stop = stop
        self._is_ready = self._is_stopping = False
        self._status = ""

    def update(self, flows: list[FlowSnapshot]) -> None:
        """Send the state of the flows after a turn of the supervisor."""
        if self._address is None:
            return
        lines = []
        if not self._is_ready:
            self._is_ready = True
            lines.append("READY=1")
        status = _status(flows)
        if status != self._status:
            self._status = status
            lines.append(
                f"STATUS={shown(status)}"
            )  # systemd would parse a second line as a command
        self._send_turn(lines)

    def on_turn(self) -> None:
        """Send WATCHDOG=1 after a turn of the supervisor without new states."""
        self._send_turn([])

    def _send_turn(self, lines: list[str]) -> None:
        if self._wants_watchdog:
            lines.append("WATCHDOG=1")
        if lines:
            self._send(lines)
        if self._stop.is_set():
            self.stopping()

    def stopping(self) -> None:
        """Report that the process shuts down."""
        if not self._is_stopping:
            self._is_stopping = True
            self._send(["STOPPING=1"])

    def _send(self, lines: list[str]) -> None:
        if self._address is not None:
            _send(self._address, lines)


@contextmanager
def reloading(environment: Mapping[str, str]) -> Iterator[None]:
    """Report the begin and the end of a reload."""
    address = environment.get(NOTIFY_SOCKET)
    if not address:
        yield
        return
    # the clock that systemd.service(5) requires for notify-reload
    now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    _send(address, ["RELOADING=1", f"MONOTONIC_USEC={now_us}"])
    try:
        yield
    finally:
        _send(address, ["READY=1"])


def _send(to: str, lines: list[str]) -> None:
    # "@" represents the zero byte of Linux' abstract addresses
    address = "\0" + to[1:] if to[0] == "@" else to
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.settimeout(SEND_TIMEOUT_S)
            sock.sendto("\n".join(lines).encode(), address)
    except OSError as error:
        # only logged, because replication does not depend on a service manager
        log.info("cannot reach the service manager: %s", error)


def _status(flows: list[FlowSnapshot]) -> str:
    words = [f"{flow.flow} {flow.state}" for flow in flows[:STATUS_FLOWS]]
    more = len(flows) - STATUS_FLOWS
    return ", ".join([*words, f"and {more} more"] if more > 0 else words)
