"""Serves `/metrics`, `/healthz` and `/readyz` over HTTP, and nothing else; it cannot be written to.

On this machine alone unless an address is named: whoever reaches it learns the names of topics and
clusters. Where it listens on this machine alone, a request must name this machine as its host: a
page in a browser here may have given its own name our address (DNS rebinding), and would read what
it may not. A few requests at a time, each under one deadline: a reader that hangs, or sends byte by
byte, costs the mirror nothing and keeps nobody out.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from twinlog.cluster.net.settings import format_address
from twinlog.control.watch.monitor import PATHS, Monitor
from twinlog.control.watch.open_requests import AT_ONCE, WITHIN_S, OpenRequests
from twinlog.errors import TwinlogError, UsageError

log = logging.getLogger(__name__)

OFF: Final = "off"
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
    request_queue_size = 128  # with the usual 5, a crowd that connects at once keeps others waiting

    def __init__(self, address: Address, monitor: Monitor) -> None:
        self.monitor = monitor
        self.open = OpenRequests()
        # those whose connection was closed for another one end soon, but not at once
        self._room = threading.BoundedSemaphore(2 * AT_ONCE)
        found = socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
        self.address_family, _, _, _, where = found[0]
        super().__init__(where, _Request)  # type: ignore[arg-type]
        self._own_name = address.host.lower() if _is_loopback(str(where[0])) else None

    def server_bind(self) -> None:
        # not HTTPServer's: it looks the host's name up, which may take seconds
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            self.open.add(request, str(client_address[0]))
            super().process_request(request, client_address)
        except BaseException:  # no thread was started
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def close_request(self, request: Any) -> None:
        self.open.remove(request)
        super().close_request(request)

    def service_actions(self) -> None:
        self.open.close_late()

    def is_named(self, host: str) -> bool:
        """Whether a request may name us so; any name will do where others may reach us."""
        if self._own_name is None:
            return True
        try:
            name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
        except ValueError:
            return False
        return name in (self._own_name, "localhost") or _is_loopback(name)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if isinstance(sys.exception(), OSError):
            log.debug("a request of %s broke off", client_address)  # its reader went away
        else:
            log.exception("a request of %s failed", client_address)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = WITHIN_S
    server_version = "twinlog"
    sys_version = ""

    def do_GET(self) -> None:
        self.server.open.asked(self.connection)
        try:
            path = urlsplit(self.path)
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        if not all(map(self.server.is_named, self._hosts(path.netloc))):
            self.send_error(
                HTTPStatus.MISDIRECTED_REQUEST,
                explain="it is served to this machine alone, as 127.0.0.1 or localhost; name an "
                "address with --listen to serve others",
            )
            return
        answer = self.server.monitor.answer(path.path)
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

    def _hosts(self, in_path: str) -> Iterator[str]:
        yield from self.headers.get_all("Host", ())  # programs may leave it out, browsers do not
        if in_path:
            yield in_path

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        log.debug("monitor: " + format, *args)  # noqa: G003
