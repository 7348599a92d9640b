"""The steps from a host name to an authenticated socket: addresses, TCP, TLS, SASL.

Most of this module explains failures. If a setting is wrong, a broker often just closes the
connection, and this symptom has another cause in each step. So each step raises its own error, with
the key that is probably wrong.
"""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from twinlog.addresses import IO_ERRORS, MAX_PORT, Address, IoError
from twinlog.cluster.net import framing
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.errors import (
    AuthenticationFailed,
    ClusterError,
    Disconnected,
    EndpointAway,
    Refused,
    TwinlogError,
    Unreachable,
)

if TYPE_CHECKING:
    from twinlog.cluster.net.connection import Connection

NO_SUCH_NAME: Final = (socket.EAI_NONAME, socket.EAI_NODATA)
UNSUPPORTED_SASL_MECHANISM: Final = 33
SESSION_SHARE: Final = 0.9
"""Share of a SASL session's lifetime after which its connection is replaced. (Java authenticates
again after 85 % to 95 % of it.)
"""


def connect(
    host: str, port: int, settings: ClusterSettings, *, deadline: float, user_timeout_ms: int = 0
) -> socket.socket:
    """Open a TCP connection to the first address of the name that accepts one."""
    where = f"{settings.alias} ({Address(host, port)})"
    try:
        if not 0 < port <= MAX_PORT:  # the C library would use it modulo 65536
            raise OverflowError(f"ports are 1 to {MAX_PORT}")
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except IO_ERRORS as error:
        is_valid = isinstance(error, OSError)
        what = "the name cannot be resolved" if is_valid else "it is not a valid address"
        why = f"{what}: {framing.reason(error)}"
        # a resolver that reports an unknown name has responded
        is_unknown = not is_valid or getattr(error, "errno", None) in NO_SUCH_NAME
        raise (Refused if is_unknown else Unreachable)(f"{where}: {why}", reason=why) from error
    reasons: list[str] = []
    last: IoError | None = None
    kind_of_error: type[Unreachable] = Refused
    for index, (family, kind, protocol, _, address) in enumerate(addresses):
        # an address that drops packets must not use up the time of the next ones
        share = (deadline - time.monotonic()) / (len(addresses) - index)
        sock = None
        try:
            sock = socket.socket(family, kind, protocol)
            sock.settimeout(max(share, 0.001))
            _set_options(sock, user_timeout_ms)
            sock.connect(address)
        except IO_ERRORS as error:
            if sock is not None:
                sock.close()
            last = error
            reasons.append(_reason(host, str(address[0]), error))
            if not isinstance(error, ConnectionRefusedError):
                kind_of_error = Unreachable
        else:
            return sock
    why = "; ".join(dict.fromkeys(reasons))
    raise kind_of_error(f"{where}: {why}", reason=why) from last


def _reason(host: str, address: str, error: IoError) -> str:
    """Return why this address failed, with the address unless it is the host."""
    what = framing.reason(error)
    return what if address == host else f"{address}: {what}"


def _set_options(sock: socket.socket, user_timeout_ms: int) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if user_timeout_ms and hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, user_timeout_ms)


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
    """Return the error to raise if the first response did not arrive.

    With TLS 1.3, a broker may reject the client certificate only after the handshake. The first
    read then fails with its reason.
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
    """Authenticate by SASL if the settings require it. Returns when to stop using the session
    (monotonic), or None if it has no end.
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
                f"it refused the login by {mechanism}: "
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
            f"{connection.peer} rejected the SASL handshake with error {answer.error_code}: "
            f"check {connection.settings.key('security.protocol')}, the listener may not use SASL"
        )
