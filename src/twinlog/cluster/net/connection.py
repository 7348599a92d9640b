"""One blocking connection to one broker.

A connection is opened in the same steps as in Java's client:

    TCP --> TLS --> ApiVersions --> SaslHandshake --> SaslAuthenticate --> requests, one at a time

ApiVersions needs no authentication. Its response has the range of versions that the broker supports
for each request. A request is then sent in the highest version that both sides support. The caller
may narrow the range, because a version may lack a feature (`minimum`) or change the meaning of a
field (`maximum`). If no version fits, Unsupported is raised before anything is sent, so the caller
can continue without the request. Only this negotiation decides which version is sent. The release
of a broker is never used, because other implementations of the protocol have releases of their own.
Whether a target behaves like Apache Kafka is tested with real batches (`survey.capabilities`).

`detach` passes the authenticated socket to the copy loop, which then reads and writes the socket
directly.

A broker that throttles the connection responds with a throttle time, and reads nothing more from
the connection until that time has passed (KIP-219). `muted_s` is the rest of the throttle time. A
request that is sent within the throttle time is answered only after it, so timeouts do not include
the throttle time.

Much of this module explains failures. If a setting is wrong, a broker often just closes the
connection. The cause depends on the step in which this happens, so each step raises its own error
with the configuration key that is probably wrong.
"""

from __future__ import annotations

import hashlib
import math
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Self

from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from twinlog.addresses import IO_ERRORS, MAX_PORT, Address, IoError
from twinlog.cluster.net import framing, protocol
from twinlog.cluster.net.protocol import Message
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.errors import (
    AuthenticationFailed,
    ClusterError,
    CorruptData,
    Disconnected,
    EndpointAway,
    Refused,
    TwinlogError,
    Unreachable,
    Unsupported,
)

NO_SUCH_NAME: Final = (socket.EAI_NONAME, socket.EAI_NODATA)
UNSUPPORTED_SASL_MECHANISM: Final = 33
SESSION_SHARE: Final = 0.9
"""Share of a SASL session's lifetime after which its connection is replaced. (Java authenticates
again after 85 % to 95 % of the lifetime.)
"""


def connect(
    host: str, port: int, settings: ClusterSettings, *, deadline: float, user_timeout_ms: int = 0
) -> socket.socket:
    """Open a TCP connection to the host's first address that accepts it. Raises Unreachable."""
    where = f"{settings.alias} ({Address(host, port)})"
    try:
        if not 0 < port <= MAX_PORT:  # the C library would use the port modulo 65536
            raise OverflowError(f"ports are 1 to {MAX_PORT}")
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except IO_ERRORS as error:
        is_valid = isinstance(error, OSError)
        what = "the name cannot be resolved" if is_valid else "it is not a valid address"
        why = f"{what}: {framing.reason(error)}"
        # if the resolver reports an unknown name, waiting does not help, unlike for a silent
        # resolver
        is_unknown = not is_valid or getattr(error, "errno", None) in NO_SUCH_NAME
        raise (Refused if is_unknown else Unreachable)(f"{where}: {why}", reason=why) from error
    reasons: list[str] = []
    last: IoError | None = None
    kind_of_error: type[Unreachable] = Refused
    for index, (family, kind, transport, _, address) in enumerate(addresses):
        # an address that drops packets must not use up the time of the next addresses
        share = (deadline - time.monotonic()) / (len(addresses) - index)
        sock = None
        try:
            sock = socket.socket(family, kind, transport)
            sock.settimeout(max(share, 0.001))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if user_timeout_ms and hasattr(socket, "TCP_USER_TIMEOUT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, user_timeout_ms)
            sock.connect(address)
        except IO_ERRORS as error:
            if sock is not None:
                sock.close()
            last = error
            why = framing.reason(error)
            reasons.append(why if address[0] == host else f"{address[0]}: {why}")
            if not isinstance(error, ConnectionRefusedError):
                kind_of_error = Unreachable
        else:
            return sock
    why = "; ".join(dict.fromkeys(reasons))
    raise kind_of_error(f"{where}: {why}", reason=why) from last


def renewed(settings: ClusterSettings) -> ClusterSettings:
    """Return the settings with the current content of their key files."""
    if settings.security is None or not settings.security.files:
        return settings
    from twinlog.cluster.security.renewal import current

    return replace(settings, security=current(settings.security))


def secure(
    sock: socket.socket, host: str, port: int, settings: ClusterSettings, *, deadline: float
) -> socket.socket:
    """Start TLS on a new socket if the settings require it, and return the socket to use."""
    if settings.security is None or not settings.security.needs_tls:
        return sock
    from twinlog.cluster.security.tls import wrap_socket

    where = f"{Address(host, port)} of cluster {settings.alias}"
    sock.settimeout(max(deadline - time.monotonic(), 0.001))
    try:
        wrapped: socket.socket = wrap_socket(sock, host, settings.security)
    except TwinlogError as error:
        what = f"{where}: {settings.naming(error.message)}"
        raise type(error)(what, code=error.code, fate=error.fate) from error
    except IO_ERRORS as error:
        raise Disconnected(f"{where}: the TLS handshake failed: {framing.reason(error)}") from error
    return wrapped


def explain_first_answer(error: Disconnected, connection: Connection) -> ClusterError:
    """Return the error to raise if the first response did not arrive: `error`, or the reason that
    TLS gives.

    With TLS 1.3, a broker may reject the client certificate only after the handshake. The first
    read then fails with a TLS error that contains the broker's reason.
    """
    security, cause = connection.settings.security, error.__cause__
    if (
        security is None
        or not isinstance(cause, ssl.SSLError)
        or isinstance(cause, ssl.SSLEOFError)
    ):
        return error
    from twinlog.cluster.security.tls import explain_tls_error

    explained = explain_tls_error(cause, connection.host, security)
    return type(explained)(f"{connection.peer}: {connection.settings.naming(explained.message)}")


def authenticate(connection: Connection, *, deadline: float) -> float | None:
    """Authenticate by SASL if the settings require it. Returns the monotonic time after which the
    session must not be used, or None if the session does not expire.
    """
    security = connection.settings.security
    if security is None or not security.needs_sasl:
        return None
    mechanism = security.sasl_mechanism or "GSSAPI"  # Java's default
    from twinlog.cluster.security import sasl

    _handshake(connection, mechanism, deadline)
    lifetime_ms = 0

    def exchange(token: bytes) -> bytes:
        nonlocal lifetime_ms
        answer = connection.request(
            SaslAuthenticateRequest(auth_bytes=token), timeout_s=deadline - time.monotonic()
        )
        if answer.error_code:
            raise AuthenticationFailed(
                f"the broker refused the login with {mechanism}: "
                f"{answer.error_message or f'error {answer.error_code}'}; "
                f"{sasl.LIKELY_CAUSES.get(mechanism, 'check sasl.jaas.config')}"
            )
        lifetime_ms = int(answer.session_lifetime_ms or 0)
        return bytes(answer.auth_bytes)

    started = time.monotonic()
    try:
        sasl.authenticate(security, exchange)
    except (AuthenticationFailed, EndpointAway) as error:
        why = connection.settings.naming(error.message)
        what = f"{connection.peer}: {why}"
        raise type(error)(what, reason=why, code=error.code, fate=error.fate) from error
    return started + lifetime_ms / 1000 * SESSION_SHARE if lifetime_ms else None


def _handshake(connection: Connection, mechanism: str, deadline: float) -> None:
    answer = connection.request(
        SaslHandshakeRequest(mechanism=mechanism), minimum=1, timeout_s=deadline - time.monotonic()
    )
    if answer.error_code == UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationFailed(
            f"{connection.peer} does not support the SASL mechanism {mechanism}; it offers "
            f"{offered}: set {connection.settings.key('sasl.mechanism')} to one of these"
        )
    if answer.error_code:
        raise AuthenticationFailed(
            f"{connection.peer} rejected the SASL handshake with error {answer.error_code}: the "
            f"listener may not use SASL, check {connection.settings.key('security.protocol')}"
        )


UNSUPPORTED_VERSION: Final = 35
HANDSHAKE_FRAME_BYTES: Final = 1 << 20
"""Maximum size of a response before authentication. A larger frame is not Kafka's protocol."""

DIGEST_BYTES: Final = 16

SILENT_S: Final = 2.0
"""Seconds after which `if_silent` is called if ApiVersions is not answered. Brokers answer it from
memory.
"""


class Connection:
    """A blocking connection to one broker, with one request at a time. Not thread-safe."""

    def __init__(
        self, sock: socket.socket, host: str, port: int, settings: ClusterSettings
    ) -> None:
        self.sock = sock
        self.host = host
        self.port = port
        self.settings = settings
        self.api_versions: dict[int, tuple[int, int]] = {}
        self.session_ends_at: float | None = None
        """Monotonic time after which the connection must not be used, because the broker ends the
        SASL session (KIP-368). None if the session does not expire.
        """
        self.trip_s = math.inf
        """Response time of ApiVersions, which brokers answer from memory: about a round trip."""
        self._muted_until = 0.0
        self._correlation_id = 0
        self._awaited: tuple[int, int, int] | None = None
        self._is_open = True
        self._is_served = False
        """True after a response to a request other than ApiVersions, which needs no login."""
        self._max_frame_bytes = HANDSHAKE_FRAME_BYTES
        """Maximum size of a response. Increased after the login, as the peer is then a broker."""

    @classmethod
    def open(
        cls,
        host: str,
        port: int,
        settings: ClusterSettings,
        *,
        timeout_s: float | None = None,
        user_timeout_ms: int = 0,
        if_silent: Callable[[], None] = lambda: None,
    ) -> Self:
        """Open a connection that is ready for requests. The addresses of the host are tried one
        after the other.

        `if_silent` is called if the first response does not arrive within SILENT_S. It may raise an
        error with the reason. `user_timeout_ms` is TCP_USER_TIMEOUT: if sent data stays
        unacknowledged for this long, the kernel drops the connection and the data that it still
        holds. With 0, the system's default applies.
        """
        if timeout_s is None:
            timeout_s = settings.request_timeout_ms / 1000
        settings = renewed(settings)
        deadline = time.monotonic() + timeout_s
        sock = connect(host, port, settings, deadline=deadline, user_timeout_ms=user_timeout_ms)
        try:
            sock = secure(sock, host, port, settings, deadline=deadline)
            connection = cls(sock, host, port, settings)
            try:
                connection._negotiate(deadline, if_silent)
            except Disconnected as error:
                raise explain_first_answer(error, connection) from error
            connection.session_ends_at = authenticate(connection, deadline=deadline)
            connection._max_frame_bytes = framing.MAX_FRAME_BYTES
        except BaseException:
            sock.close()
            raise
        return connection

    @property
    def peer(self) -> str:
        """The broker's address and the cluster's alias, for messages."""
        return f"broker {Address(self.host, self.port)} of cluster {self.settings.alias}"

    @property
    def muted_s(self) -> float:
        """Seconds until the broker reads from this connection again, or 0 if it is not muted."""
        return max(self._muted_until - time.monotonic(), 0.0)

    def is_usable(self, within_s: float = 0.0) -> bool:
        """Return True if a request can be sent: the connection is open and idle, and its SASL
        session does not end within `within_s`.

        The connection has ended if its socket is readable although no response is awaited.
        """
        if not self._is_open or self._awaited is not None:
            return False
        if self.session_ends_at is not None and time.monotonic() + within_s >= self.session_ends_at:
            return False
        return not self.wait_readable(0.0)

    def version_for(self, api_key: int, maximum: int, minimum: int = 0) -> int:
        """Return the highest version that both sides support. Raises Unsupported if none exists."""
        low, high = self.api_versions.get(api_key, (0, -1))
        version = min(high, maximum)
        if version < max(low, minimum):
            name = protocol.api_name(api_key)
            offered = f"offers {name} v{low}-v{high}" if high >= low else f"does not offer {name}"
            raise Unsupported(
                f"{self.peer} {offered}, but v{minimum}-v{maximum} is needed: "
                "upgrade the brokers, or disable the feature that needs it"
            )
        return version

    def request(
        self,
        request: Message,
        *,
        timeout_s: float | None = None,
        silent_s: float = math.inf,
        maximum: int | None = None,
        minimum: int | None = None,
    ) -> Any:
        """Send a request in the highest version that both sides support, and return the response.

        `timeout_s` limits the time until the response is complete (None: request.timeout.ms).
        `silent_s` limits the time in which no byte of the response arrives.
        """
        self.begin(request, maximum=maximum, minimum=minimum)
        return self.finish(timeout_s=timeout_s, silent_s=silent_s)

    def begin(
        self, request: Message, *, maximum: int | None = None, minimum: int | None = None
    ) -> None:
        """Send a request. `finish` must be called before the next one."""
        low, high = protocol.known_versions(request)
        key = protocol.api_key(request)
        version = self.version_for(
            key,
            high if maximum is None else min(high, maximum),
            low if minimum is None else max(low, minimum),
        )
        self._begin(request, key, version)

    def _begin(self, request: Message, key: int, version: int) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = protocol.encode_request(
            request, version, self._correlation_id, self.settings.client_id
        )
        self._send(frame, (key, version, self._correlation_id))

    def finish(self, *, timeout_s: float | None = None, silent_s: float = math.inf) -> Any:
        """Wait for the response to the request that `begin` sent, and return it."""
        return self._decode(*self._receive_body(timeout_s, silent_s))

    def finish_unless(
        self, known_digest: bytes, *, timeout_s: float | None = None, silent_s: float = math.inf
    ) -> tuple[bytes, Any]:
        """Return (digest, response). The response is None if its digest is `known_digest`."""
        key, version, body = self._receive_body(timeout_s, silent_s)
        digest = hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()
        if digest == known_digest:
            return digest, None
        answer = self._decode(key, version, body)
        # a throttled response gets an empty digest, so that an equal one is decoded as well: its
        # throttle time must be noted again
        return (b"" if self.muted_s else digest), answer

    def _decode(self, key: int, version: int, body: memoryview) -> Message:
        try:
            answer = protocol.decode_response(key, version, body)
        except CorruptData as error:
            raise self._corrupt_error(error) from error
        if throttle_ms := protocol.throttle_ms(answer):
            self._muted_until = time.monotonic() + throttle_ms / 1000
        return answer

    def wait_readable(self, timeout_s: float) -> bool:
        """Return True if a byte or the end of the connection arrives within `timeout_s`."""
        if isinstance(self.sock, ssl.SSLSocket) and self.sock.pending():
            return True
        if self.sock.fileno() < 0:
            return True  # another thread has closed the socket: return, so that the next read fails
        return framing.is_readable(self.sock, timeout_s)

    def detach(self) -> socket.socket:
        """Return the socket, in blocking mode. The caller must close the socket, because this
        object no longer uses or closes it.
        """
        self._is_open = False
        self.sock.settimeout(None)
        return self.sock

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _negotiate(self, deadline: float, if_silent: Callable[[], None]) -> None:
        # brokers support version 3 since Kafka 2.4; an older broker responds with error 35, and the
        # request is then repeated in version 0 (KIP-511)
        for version in (3, 0):
            began = time.monotonic()
            self._begin(protocol.api_versions_request(), protocol.API_VERSIONS, version)
            if not self.wait_readable(min(SILENT_S, deadline - time.monotonic())):
                if_silent()
            key, sent, body = self._receive_body(deadline - time.monotonic())
            self.trip_s = time.monotonic() - began
            answer = self._decode(key, sent, body)
            if answer.error_code != UNSUPPORTED_VERSION:
                break
        if answer.error_code or not answer.api_keys:
            raise Unsupported(
                f"{self.peer} does not report its API versions: error {answer.error_code}"
            )
        self.api_versions = {
            int(api.api_key): (int(api.min_version), int(api.max_version))
            for api in answer.api_keys
        }

    def _send(self, frame: bytes, awaited: tuple[int, int, int]) -> None:
        if self._awaited is not None:
            raise TwinlogError(f"{self.peer}: a request was sent before the previous response")
        self._awaited = awaited
        try:
            self.sock.settimeout(self.settings.request_timeout_ms / 1000)
            self.sock.sendall(frame)
        except IO_ERRORS as error:
            raise self._disconnected_error(framing.reason(error)) from error

    def _receive_body(
        self, timeout_s: float | None, silent_s: float = math.inf
    ) -> tuple[int, int, memoryview]:
        if self._awaited is None:
            raise TwinlogError(f"{self.peer}: no request was sent")
        key, version, correlation_id = self._awaited
        if timeout_s is None:
            timeout_s = self.settings.request_timeout_ms / 1000
        muted_s = self.muted_s
        try:
            frame = framing.receive_frame(
                self.sock,
                time.monotonic() + timeout_s + muted_s,
                self._max_frame_bytes,
                silent_s + muted_s,
            )
            body = protocol.response_body(key, version, frame, correlation_id)
        except framing.ResponseTimeout as error:
            is_allowed = timeout_s >= self.settings.request_timeout_ms / 1000
            limit = self.settings.key("request.timeout.ms") if is_allowed else ""
            raise self._disconnected_error(error.why(timeout_s, silent_s, limit)) from error
        except IO_ERRORS as error:
            raise self._disconnected_error(
                framing.reason(error) + self._login_hint(error)
            ) from error
        except CorruptData as error:
            raise self._corrupt_error(error) from error
        self._awaited = None
        self._is_served = self._is_served or key != protocol.API_VERSIONS
        return key, version, body

    def _login_hint(self, error: IoError) -> str:
        """Return a hint about SASL if the client does not use SASL, and the broker closed the
        connection before the first response that needs a login. Otherwise return an empty text.
        """
        security = self.settings.security
        is_past_login = self._is_served or not self.api_versions
        needs_sasl = security is not None and security.needs_sasl
        if is_past_login or needs_sasl or not isinstance(error, ConnectionError):
            return ""
        protocol_key = self.settings.key("security.protocol")
        return f"; the listener probably requires SASL: check {protocol_key}"

    def _corrupt_error(self, error: CorruptData) -> CorruptData:
        self.close()
        # a peer that has already answered ApiVersions is a broker, so its response was damaged
        other = error.code == "NOT_KAFKA" and not self.api_versions
        code = "NOT_KAFKA" if other else "CORRUPT_ANSWER"
        return CorruptData(f"{self.peer}: {self.settings.naming(error.message)}", code=code)

    def _disconnected_error(self, why: str) -> Disconnected:
        name = protocol.api_name(self._awaited[0]) if self._awaited else "a request"
        self.close()
        what = f"did not respond to {name}: {why}"
        return Disconnected(f"{self.peer} {what}", reason=what)
