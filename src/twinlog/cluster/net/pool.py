"""The open connections of one client, and the search for a broker that responds.

A client needs one broker to learn about the other brokers. `any_connection` tries the bootstrap
addresses in random order, then addresses that brokers have advertised. Addresses that failed
recently are tried last. If no broker responds, one error contains the reason for each address, so
that the cause can be found without a log. If a broker rejected the authentication and no other
accepts it, the first such error is raised.
"""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from twinlog.addresses import IO_ERRORS, Address
from twinlog.cluster.net.connection import Connection, connect
from twinlog.cluster.net.metadata import Broker
from twinlog.cluster.net.retry import CHANCE, Clock
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
)

log = logging.getLogger(__name__)

MOST_REJECTED: Final = 2
"""Maximum number of addresses that may reject the credentials in one call. If all of them reject a
wrong password, each attempt counts towards a lock-out of the account.
"""
CONNECT_TIMEOUT_S: Final = 10.0
"""Maximum time to connect in seconds, as socket.connection.setup.timeout.ms in Java. A silent
broker must not use up the time of a call.
"""

SESSION_MARGIN_S: Final = 5.0
"""A connection whose SASL session ends within this time is not used for another request."""


class ConnectionPool:
    """The connections of one client: one for each broker, opened on demand."""

    def __init__(self, settings: ClusterSettings, clock: Clock, most_s: float = math.inf) -> None:
        """`most_s`: maximum time to search for a broker that responds, in seconds."""
        self._settings = settings
        self._clock = clock
        self._most_s = most_s
        self.brokers: Mapping[int, Broker] = {}
        self._by_node: dict[int, Connection] = {}
        self._first: Connection | None = None
        self._failed_at: dict[tuple[str, int], float] = {}

    def renew(self, settings: ClusterSettings) -> None:
        """Use these settings for new connections. Thread-safe."""
        self._settings = settings

    def learn(self, brokers: Mapping[int, Broker]) -> None:
        """Store the live brokers, and close connections to other brokers or to old addresses."""
        self.brokers = brokers
        for node, connection in list(self._by_node.items()):
            broker = brokers.get(node)
            if broker is None or (broker.host, broker.port) != (connection.host, connection.port):
                connection.close()
                self._by_node.pop(node, None)

    def on_broken(self, connection: Connection) -> None:
        """Note that this connection broke. Its address is then tried after all other addresses."""
        self._failed_at[connection.host, connection.port] = self._clock()

    def connection_to(self, node: int) -> Connection:
        """Return a usable connection to broker `node`. The pool keeps it for later requests."""
        kept = self._by_node.get(node)
        if kept is not None and kept.is_usable(SESSION_MARGIN_S):
            return kept
        if kept is not None:
            kept.close()
        self._by_node[node] = connection = self.open(node)
        return connection

    def open(self, node: int) -> Connection:
        """Open a separate connection to broker `node`. The caller must close it."""
        broker = self.brokers.get(node)
        if broker is None:
            raise Unreachable(
                f"cluster {self._settings.alias}: broker {node} is not alive: check if it runs",
                code="BROKER_NOT_AVAILABLE",
            )
        try:
            return self._open(broker.host, broker.port)
        except EndpointAway:
            raise  # the broker responds
        except Unreachable as error:
            raise Unreachable(
                f"{error.message} (the cluster advertises this address for broker {node}: "
                "check its advertised.listeners)"
            ) from error

    def any_connection(self) -> Connection:
        """Return a usable connection to any broker. The pool keeps it for later requests."""
        kept = [*self._by_node.values()]
        if self._first is not None:
            kept.append(self._first)
        for connection in sorted(kept, key=lambda connection: connection.muted_s):
            if connection.is_usable(SESSION_MARGIN_S):
                return connection
        failures: dict[str, TwinlogError] = {}
        rejected: list[AuthenticationFailed] = []
        began = self._clock()
        for host, port in self._addresses():
            is_late = self._clock() - began >= self._most_s
            if len(rejected) == MOST_REJECTED or (failures and is_late):
                break
            try:
                self._first = self._open_any_connection(host, port)
            except TwinlogError as error:
                if isinstance(error, AuthenticationFailed):
                    rejected.append(error)  # one broker may have an expired certificate
                elif not (
                    isinstance(error, Unreachable | Disconnected) or error.code == "NOT_KAFKA"
                ):
                    raise
                self._failed_at[host, port] = self._clock()
                failures[str(Address(host, port))] = error
            else:
                self._failed_at.pop((host, port), None)
                return self._first
        raise rejected[0] if rejected else self._error_of_all(failures)

    def _open_any_connection(self, host: str, port: int) -> Connection:
        """Open a connection. As long as no broker of the cluster has responded, raise NOT_KAFKA if
        another service responds at this address.
        """
        if self.brokers:
            return self._open(host, port)

        def probe() -> None:
            refuse_other_service(host, port, self._settings)

        try:
            return self._open(host, port, probe)
        except Unreachable:
            if self._settings.security is not None and self._settings.security.needs_tls:
                probe()
            raise

    def _error_of_all(self, failures: Mapping[str, TwinlogError]) -> TwinlogError:
        """Return one error with the reasons of all addresses. The error is retriable unless another
        service responds at every address.
        """
        settings = self._settings
        reasons: dict[str, list[str]] = {}
        addresses = [str(Address(host, port)) for host, port in settings.bootstrap]
        for address in dict.fromkeys(
            [*(address for address in addresses if address in failures), *failures]
        ):
            failure = failures[address]
            why = failure.reason if isinstance(failure, ClusterError) else ""
            reasons.setdefault(why or failure.message, []).append(address)
        # a DataFrame's cluster has an address as its alias, which the message contains anyway
        name = "Kafka" if settings.is_of_dataframes else settings.alias
        why_all = "; ".join(f"{name} ({', '.join(who)}): {why}" for why, who in reasons.items())
        if all(isinstance(failure, EndpointAway) for failure in failures.values()):
            # brokers respond, but the endpoint that issues OAuth tokens does not
            return EndpointAway(why_all, reason=why_all)
        message = f"{why_all}; check {settings.key('bootstrap.servers')} and "
        if all(failure.code == "NOT_KAFKA" for failure in failures.values()):
            return CorruptData(f"{message}{settings.key('security.protocol')}", code="NOT_KAFKA")
        is_refused = all(isinstance(failure, Refused) for failure in failures.values())
        likely = next(filter(None, map(self._likely_cause, failures.values())), "")
        return (Refused if is_refused else Unreachable)(
            f"{message}the network{likely}", reason=why_all
        )

    def _likely_cause(self, failure: TwinlogError) -> str:
        """Return the most likely cause, or an empty text if the error already contains it."""
        match failure, failure.__cause__:
            case _, socket.gaierror() | ValueError() | OverflowError():
                return ": the name is probably misspelt, or unknown to the DNS of this machine"
            case Unreachable(), ConnectionRefusedError():
                return ": probably no broker runs there, or its listener has another port"
            case Unreachable(), TimeoutError():
                return ": probably a firewall or a network policy drops the packets"
            case Disconnected(), _:
                protocol = self._settings.key("security.protocol")
                return f": probably the broker hangs, or {protocol} does not match its listener"
        return ""

    def _addresses(self) -> list[tuple[str, int]]:
        """Return the configured addresses in random order, then the advertised ones. Addresses that
        failed are moved to the end, in the order of their failures.
        """
        configured = list(dict.fromkeys(self._settings.bootstrap))
        CHANCE.shuffle(configured)
        advertised = [(broker.host, broker.port) for broker in self.brokers.values()]
        addresses = dict.fromkeys([*configured, *advertised])
        return sorted(addresses, key=lambda address: self._failed_at.get(address, float("-inf")))

    def _open(
        self, host: str, port: int, if_silent: Callable[[], None] = lambda: None
    ) -> Connection:
        timeout_s = min(CONNECT_TIMEOUT_S, self._settings.request_timeout_ms / 1000, self._most_s)
        address = Address(host, port)
        log.debug("connecting cluster=%s address=%s", self._settings.alias, address)
        return Connection.open(host, port, self._settings, timeout_s=timeout_s, if_silent=if_silent)

    def close(self) -> None:
        """Close every connection. The next request opens new ones."""
        for node in list(self._by_node):  # a copy, because another thread may change the dict
            if (connection := self._by_node.pop(node, None)) is not None:
                connection.close()
        if self._first is not None:
            self._first.close()
            self._first = None


# The functions below detect another service, or a listener with another security protocol, at a
# bootstrap address. A web server waits for the end of a line, and a listener without TLS closes a
# connection that begins with a TLS handshake. Both look like a broker that is down. So as long as
# no broker has responded, the address is probed over a separate connection.

ANSWER_WITHIN_S: Final = 2.0
"""Time limit of each probe, in seconds. A slower service is not identified."""


def refuse_other_service(host: str, port: int, settings: ClusterSettings) -> None:
    """Raise NOT_KAFKA if a web server, or Kafka without the configured TLS, is at this address."""
    where = f"{Address(host, port)} of cluster {settings.alias}"
    security = settings.security
    if security is not None and security.needs_tls and _speaks_kafka(host, port, settings):
        raise CorruptData(
            f"{where} uses Kafka's protocol without TLS: set {settings.key('security.protocol')} "
            "to PLAINTEXT or SASL_PLAINTEXT, or use the port of its TLS listener",
            code="NOT_KAFKA",
        )
    if _speaks_http(host, port, settings):
        raise CorruptData(
            f"{where} responds like a web server (HTTP), not like Kafka: check the port",
            code="NOT_KAFKA",
        )


def _speaks_kafka(host: str, port: int, settings: ClusterSettings) -> bool:
    """Return True if ApiVersions is answered without TLS. This request contains no secret."""
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
        with connect(host, port, settings, deadline=deadline) as sock:
            sock.settimeout(ANSWER_WITHIN_S)
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return sock.recv(5) == b"HTTP/"
    except (TwinlogError, *IO_ERRORS):
        return False
