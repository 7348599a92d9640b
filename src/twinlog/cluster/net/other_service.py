"""What answers at a bootstrap address instead of the Kafka that the settings speak of.

A web server waits for the end of a line that no request of Kafka's has, and a listener without TLS
closes a connection that begins with a handshake: both look like a broker that is away, and would be
asked for a minute. So an address that has never answered is asked once more in the other's words,
over a connection of its own: a broker that is merely slow loses nothing but that.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from twinlog.addresses import IO_ERRORS, Address
from twinlog.cluster.net import dialing
from twinlog.cluster.net.connection import Connection
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.errors import CorruptData, TwinlogError

ANSWER_WITHIN_S: Final = 2.0
"""For one question: whoever does not answer it in this time is not found out."""


def refuse_other_service(host: str, port: int, settings: ClusterSettings) -> None:
    """Raise NOT_KAFKA where the answer proves that something else listens there."""
    where = f"{Address(host, port)} of cluster {settings.alias}"
    security = settings.security
    if security is not None and security.needs_tls and _speaks_kafka(host, port, settings):
        raise CorruptData(
            f"{where} speaks Kafka's protocol without TLS: set {settings.key('security.protocol')} "
            "to PLAINTEXT or SASL_PLAINTEXT, or take the port of its TLS listener",
            code="NOT_KAFKA",
        )
    if _speaks_http(host, port, settings):
        raise CorruptData(
            f"{where} answers as a web server does (HTTP), not as Kafka: is this the right port?",
            code="NOT_KAFKA",
        )


def _speaks_kafka(host: str, port: int, settings: ClusterSettings) -> bool:
    """ApiVersions is answered before any login, so that nothing secret is sent."""
    try:
        Connection.open(
            host, port, replace(settings, security=None), timeout_s=ANSWER_WITHIN_S
        ).close()
    except TwinlogError:
        return False
    return True


def _speaks_http(host: str, port: int, settings: ClusterSettings) -> bool:
    deadline = time.monotonic() + ANSWER_WITHIN_S
    try:
        with dialing.connect(host, port, settings, deadline=deadline) as sock:
            sock.settimeout(ANSWER_WITHIN_S)
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return sock.recv(5) == b"HTTP/"
    except (TwinlogError, *IO_ERRORS):
        return False
