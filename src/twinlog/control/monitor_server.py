"""Serves `/metrics`, `/healthz` and `/readyz` over HTTP, and nothing else; it cannot be written to.

On this machine alone unless an address is named: whoever reaches it learns the names of topics and
clusters. A few requests at a time, each under a deadline: a reader that hangs costs the mirror
nothing.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from twinlog.cluster.settings import format_address
from twinlog.control.monitor import PATHS, Monitor
from twinlog.errors import TwinlogError, UsageError

log = logging.getLogger(__name__)

OFF: Final = "off"
AT_ONCE: Final = 16
REQUEST_TIMEOUT_S: Final = 10.0
MAX_PORT: Final = 65_535


class Address(NamedTuple):
    """Where to listen; port 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return format_address(self.host, self.port)


class CannotListen(TwinlogError):
    """The address is taken or not of this machine; the copy goes on without."""

    code = "CANNOT_LISTEN"


def parse_listen(text: str) -> Address | None:
    """`ADDRESS:PORT`, `[::1]:PORT`, or `off` (None); raises UsageError."""
    if text == OFF:
        return None
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # an IPv6 address without brackets: its end may be a port or not
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > MAX_PORT:
        raise UsageError(
            f"--listen: {text!r} is no address: write ADDRESS:PORT, as in 127.0.0.1:9405 or "
            "[::1]:9405, or `off`"
        )
    return Address(host, int(port))


class MonitorServer:
    """One listening socket and its threads."""

    def __init__(self, monitor: Monitor, address: Address) -> None:
        """Listens from now on; raises CannotListen."""
        try:
            self._server = _Server(address, monitor)
        except OSError as error:
            reason = error.strerror or str(error)
            raise CannotListen(
                f"{address}: metrics are not served there ({reason}); the copy goes on; name "
                "another place with --listen ADDRESS:PORT"
            ) from error
        host, port = self._server.server_address[:2]
        self.address = Address(str(host), int(port))
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},  # how long closing may take
            name="twinlog-monitor",
            daemon=True,
        )

    @property
    def line(self) -> str:
        """What people are told."""
        return f"http://{self.address} serves {', '.join(PATHS)}"

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: Address, monitor: Monitor) -> None:
        self.monitor = monitor
        self._places = threading.BoundedSemaphore(AT_ONCE)
        found = socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
        self.address_family, _, _, _, where = found[0]
        super().__init__(where, _Request)  # type: ignore[arg-type]

    def server_bind(self) -> None:
        # not HTTPServer's: it looks the host's name up, which may take seconds
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if isinstance(sys.exception(), OSError):
            log.debug("a request of %s broke off", client_address)  # its reader went away
        else:
            log.exception("a request of %s failed", client_address)


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_TIMEOUT_S
    server_version = "twinlog"
    sys_version = ""

    def do_GET(self) -> None:
        answer = self.server.monitor.answer(urlsplit(self.path).path)
        if answer is None:
            self.send_error(HTTPStatus.NOT_FOUND, explain=f"there are only {', '.join(PATHS)}")
            return
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        log.debug("monitor: " + format, *args)  # noqa: G003
