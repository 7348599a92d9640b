"""Serves HTTP in a separate thread. The constructor binds the address, so that a wrong address is
reported immediately. The server's modules are loaded when the first client connects, or
LOADS_AFTER_S after the start.

The server processes a few requests at a time, each with a deadline. So a client that hangs or sends
byte by byte does not slow the mirror or block other clients.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twinlog.addresses import Address, is_loopback
from twinlog.config.rest import OPEN, RestConfig
from twinlog.control.watch.monitor import Monitor
from twinlog.control.web.address import CannotListen, ListenUnguarded
from twinlog.control.web.front import Front, LoadApi
from twinlog.control.web.open_requests import IDLE_S, OpenRequests
from twinlog.control.web.tokens import Tokens
from twinlog.errors import ConfigError
from twinlog.threads import lower_priority

if TYPE_CHECKING:
    from uvicorn import Server

BACKLOG: Final = 128
"""Maximum connections that wait to be accepted. With fewer, a burst would delay other clients."""
LONGEST_HEADER: Final = 16_384
NICE: Final = 5
"""Niceness: lanes have priority if all cores are busy, but a probe gets a quarter of their
share.
"""
LOADS_AFTER_S: Final = 10.0
"""Seconds after which the server is loaded. This takes 0.4 s of CPU, which the mirror needs during
its start: on two cores the start took 0.3 s longer. An earlier client triggers the load.
"""
WAITS_S: Final = 0.1
"""Maximum seconds of one wait for a client, because each wait delays the mirror's shutdown."""
ENDS_WITHIN_S: Final = 1
"""Seconds for pending responses at shutdown."""


class WebServer:
    """One listening socket and its thread."""

    def __init__(
        self,
        monitor: Monitor,
        address: Address,
        rest_config: RestConfig = OPEN,
        load_api: LoadApi | None = None,
    ) -> None:
        """Bind the address. Raises CannotListen, ListenUnguarded if other machines reach it and no
        key of `rest_config` allows that, and ConfigError for unusable files.
        `load_api` loads the application for `/api/v1` and Connect's paths, or is None.
        """
        self._tls = _tls(rest_config)
        tokens = None if rest_config.tokens_file is None else Tokens(rest_config.tokens_file)
        self._socket, is_local = _bound(address, rest_config)
        host, port = self._socket.getsockname()[:2]
        self.address = Address(str(host), int(port))
        self.open_requests = OpenRequests()
        self.front = Front(
            monitor=monitor,
            rest_config=rest_config,
            tokens=tokens,
            own_name=address.host.lower() if is_local else None,
            load_api=load_api,
        )
        self._stop = threading.Event()
        self._server: Server | None = None
        self._died: Callable[[Exception], None] | None = None
        self._thread = threading.Thread(target=self._run, name="twinlog-web", daemon=True)

    @property
    def line(self) -> str:
        """Return the address and the paths served, for the log."""
        return f"{self.origin} serves {', '.join(self.front.served_paths)}"

    @property
    def origin(self) -> str:
        """Return the server's URL without a path."""
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{self.address}"

    def start(self, died: Callable[[Exception], None] | None = None) -> None:
        """Start the thread. If the server fails, the socket is closed, and `died` is called in that
        thread with the error. Without `died` the error ends the thread.
        """
        self._died = died
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self.front.stop()
        if self._server is not None:
            self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            if self._died is None:
                raise
            self.front.stop()
            self._socket.close()
            self._died(error)

    def _await_client(self) -> None:
        until = time.monotonic() + LOADS_AFTER_S
        with selectors.DefaultSelector() as clients:
            clients.register(self._socket, selectors.EVENT_READ)
            while time.monotonic() < until and not self._stop.is_set():
                if clients.select(WAITS_S):
                    return

    def _serve(self) -> None:
        lower_priority(NICE)
        self._await_client()
        if self._stop.is_set():
            return
        import uvicorn

        from twinlog.control.web.connection import Handshake, RegisteredConnection, Repeats

        front, requests = self.front, self.open_requests
        config = uvicorn.Config(
            app=_placeholder_app,
            lifespan="off",
            ws="none",
            loop="asyncio",
            proxy_headers=False,  # X-Forwarded-For is not trusted
            server_header=False,
            headers=[("Server", "twinlog")],
            timeout_keep_alive=IDLE_S,
            log_config=None,
            log_level="critical",  # anyone could fill the log with invalid requests
            access_log=False,
            h11_max_incomplete_event_size=LONGEST_HEADER,
            timeout_graceful_shutdown=ENDS_WITHIN_S,
        )
        bound, tls, repeats = self._socket, self._tls, Repeats()

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                # replaces uvicorn's, which does not limit TLS handshakes and logs its own lines
                import asyncio

                loop = asyncio.get_running_loop()
                plain = partial(
                    RegisteredConnection, config, self.server_state, front, requests, repeats
                )
                server = await loop.create_server(
                    plain if tls is None else partial(Handshake, plain, tls, requests),
                    sock=bound,
                    backlog=BACKLOG,
                )
                self.servers = [server]
                self.started = True

            async def on_tick(self, counter: int) -> bool:
                requests.close_late()
                return await super().on_tick(counter)

        self._server = server = Server(config)
        if not self._stop.is_set():  # else `close` was called during loading
            server.run(sockets=[bound])


async def _placeholder_app(scope: Any, receive: Any, send: Any) -> None:
    """Do nothing. uvicorn needs an application, but each connection sets its own."""


def _bound(address: Address, rest_config: RestConfig) -> tuple[socket.socket, bool]:
    """Return a listening socket, and True if only this machine reaches it."""
    is_local = False
    try:
        addresses = socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
        family, _, _, _, where = addresses[0]
        is_local = is_loopback(str(where[0]))
        if not is_local and not rest_config.may_serve_others:
            raise ListenUnguarded(address)
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(where)
            bound.listen(BACKLOG)  # clients wait until the event loop starts
        except OSError:
            bound.close()
            raise
    except (OSError, UnicodeError) as error:  # the name is too long or malformed
        if not is_local and not rest_config.may_serve_others:
            raise ListenUnguarded(address) from error  # a name that does not resolve yet
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotListen(
            f"{address}: cannot serve metrics and REST ({reason}); replication continues without "
            "them, and binding is retried every second; --listen ADDRESS:PORT sets another address"
        ) from error
    return bound, is_local


def _tls(rest_config: RestConfig) -> ssl.SSLContext | None:
    """Return the TLS context, or None without a certificate. Raises ConfigError on bad files."""
    if rest_config.certificate_file is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    at = rest_config.certificate_file
    try:
        context.load_cert_chain(at, rest_config.private_key_file, password=_no_password)
        if rest_config.client_ca_file is not None:
            at = rest_config.client_ca_file
            context.load_verify_locations(at)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:  # ssl.SSLError is one
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{at}: cannot be used for HTTPS ({reason}); files must be PEM, and a key must match "
            "its certificate and have no password"
        ) from error
    return context


def _no_password() -> str:
    """Raise instead of prompting for a key's password on the terminal of a service."""
    raise ValueError("the key has a password")
