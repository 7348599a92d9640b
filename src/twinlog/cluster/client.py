"""The client of one Kafka cluster: finds brokers, keeps a connection to each, and retries.

There are three ways to send a request:

| call            | repeated                                             | for                     |
| --------------- | ---------------------------------------------------- | ----------------------- |
| `attempt`       | never                                                | steps of a larger loop  |
| `send`          | after a lost connection                              | idempotent requests     |
| `to_controller` | like `send`, and after retriable errors in responses | changes of topics       |

A response may contain error codes of topics, partitions or groups. Only the function that sends a
request knows which fields these are, so `attempt` and `send` do not check them. The function calls
`check`, which raises the error, and runs request and check within `retrying`. Requests about many
partitions or groups are sent with `logs.per_leader` and `groups.coordinators`, which send one
request to each responsible broker.

If a broker mutes the connection because of a quota (KIP-219), the client sends nothing on it until
the broker reads again (`muted_until`). Time limits of calls do not include this time.

A client is not thread-safe: each thread needs its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Self, TypeVar

from kafka.protocol.metadata import MetadataRequest

from twinlog.cluster.net.connection import Connection
from twinlog.cluster.net.metadata import (
    NO_NODE,
    ClusterMetadata,
    TopicMetadata,
    decode_metadata,
)
from twinlog.cluster.net.pool import ConnectionPool
from twinlog.cluster.net.protocol import Message
from twinlog.cluster.net.read_size import ReadSize
from twinlog.cluster.net.retry import Backoff, Deadline, Patience, is_retriable, retry
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.errors import Disconnected, Refused, TwinlogError
from twinlog.model import TopicPartition
from twinlog.wire.error_codes import NONE, REBOOTSTRAP_REQUIRED, error_for

T = TypeVar("T")

API_TIMEOUT_S: Final = 60.0
"""How long a call retries before it fails, in seconds, as default.api.timeout.ms in Java."""

CALL_PATIENCE: Final = Patience(backoff=Backoff(cap_ms=2_000))
"""Backoff of calls whose caller waits: up to 2 s. (Java's retry.backoff.max.ms is 1 s.)"""

ANSWER_TIMEOUT_S: Final = 10.0
"""Maximum time without a byte from the broker while a response is awaited, in seconds. After this
time, the partitions of a frozen broker have new leaders. While bytes arrive, as on a slow line,
only request.timeout.ms limits the response.
"""

METADATA_TIMEOUT_S: Final = 5.0
"""Like ANSWER_TIMEOUT_S, for Metadata. Shorter, so that the search for leaders is not delayed."""

REFUSED_FOR_S: Final = 0.3
"""How long `prompt_client` retries at first if every address refuses the connection, in seconds.
Short, because the user of a command waits.
"""

MISSING_GRACE_S: Final = 3.0
"""Time after which an unknown topic is reported as missing. Brokers learn of new topics late."""

METADATA_WITHOUT_CREATION: Final = 4
"""The first version of Metadata with a flag that prevents the creation of requested topics."""


class SilentBroker(NamedTuple):
    """Marks a broker that let a request time out. No request is sent to it until `until`
    (monotonic); calls fail with `error` instead.
    """

    until: float
    error: TwinlogError


class ClusterClient:
    """A blocking client of one cluster for one thread."""

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        patience: Patience = CALL_PATIENCE,
        api_timeout_s: float = API_TIMEOUT_S,
        refused_s: float = math.inf,
        refused_at_first_s: float = math.inf,
    ) -> None:
        """`refused_s`: how long a call retries if every address refuses the connection. A mirror
        waits for a cluster that restarts, but an interactive query should fail fast.
        `refused_at_first_s` replaces `refused_s` until the cluster has responded for the first
        time.
        """
        self.settings = settings
        self.patience = patience
        self.api_timeout_s = api_timeout_s
        self.refused_s = refused_s
        self._refused_at_first_s = min(refused_s, refused_at_first_s)
        self._has_answered = False
        self.leaderless: dict[TopicPartition, float] = {}
        """Partitions without a leader, with the monotonic time of the last query (`per_leader`)."""
        self.silent: dict[int, SilentBroker] = {}
        """Brokers that let a request time out, by node. Used by `per_leader`."""
        self.led: dict[str, TopicMetadata] | None = None
        """Topics whose leaders `per_leader` reuses. None until `keep_leaders` is called."""
        self.read_sizes: dict[int, ReadSize] = {}
        """Sizes of the next fetch from each broker, by node. Used by `raw_log`."""
        self.muted_until = 0.0
        """Monotonic time at which the last wait for a muted connection ends."""
        self._muted_s = 0.0
        self._pool = ConnectionPool(settings, patience.clock, api_timeout_s)
        self._controller = NO_NODE

    @property
    def alias(self) -> str:
        return self.settings.alias

    def metadata(
        self,
        topics: Sequence[str] | None = None,
        *,
        allow_missing: bool = True,
        timeout_s: float | None = None,
    ) -> ClusterMetadata:
        """Return the brokers and `topics`. None means all topics that the user may describe, and an
        empty sequence means no topic.

        With `allow_missing`, a missing or forbidden topic is in the result with its error. Without
        `allow_missing`, the call retries and then raises this error. Topics are never created.
        """
        result = self.retrying(
            lambda: self._query_metadata(topics, allow_missing), timeout_s=timeout_s
        )
        if self.led is not None:
            # a topic without a leader is not stored, so that the next call looks it up again; with
            # a stored topic, `per_leader` would give up after an attempt with the former leader
            for name in result.topics:
                self.led.pop(name, None)
            self.led.update((name, topic) for name, topic in result.topics.items() if topic.is_led)
        return result

    def metadata_from(self, node: int, topics: Collection[str] | None) -> ClusterMetadata:
        """Return one broker's metadata of these topics (None: all), with one attempt. A missing
        topic is in the result with its error.

        The client does not store the addresses in the result, because this broker's metadata may be
        stale.
        """
        answer = self.attempt(
            node,
            _metadata_request(topics),
            timeout_s=METADATA_TIMEOUT_S,
            minimum=METADATA_WITHOUT_CREATION,
        )
        return decode_metadata(answer)

    def send(
        self,
        node: int | None,
        request: Message,
        *,
        maximum: int | None = None,
        minimum: int | None = None,
    ) -> Any:
        """Send a request to broker `node`, or to any broker (None), and return the response. The
        request is repeated after a lost connection, so it must be idempotent.
        """
        return self.retrying(lambda: self.attempt(node, request, maximum=maximum, minimum=minimum))

    def to_controller(
        self,
        request: Message,
        check: Callable[[Message], None],
        *,
        maximum: int | None = None,
        minimum: int | None = None,
    ) -> Any:
        """Send a request to the controller, and return the first response in which `check` finds no
        error.

        If the error that `check` raises is retriable, the request is repeated. The controller is
        looked up before each retry, because it may have moved (NOT_CONTROLLER).
        """

        def ask() -> Any:
            if self._controller not in self._pool.brokers:
                self._query_metadata([], allow_missing=True)
            known = self._controller if self._controller in self._pool.brokers else None
            self._controller = NO_NODE  # the controller is unknown until a request to it succeeds
            answer = self.attempt(
                known,
                request,
                maximum=maximum,
                minimum=minimum,
                timeout_s=self.settings.request_timeout_ms / 1000,
            )
            check(answer)
            self._controller = NO_NODE if known is None else known
            return answer

        return self.retrying(ask)

    def attempt(
        self,
        node: int | None,
        request: Message,
        *,
        timeout_s: float | None = None,
        maximum: int | None = None,
        minimum: int | None = None,
    ) -> Any:
        """Send a request once, to broker `node` or to any broker (None), and return the response.

        Raises Disconnected if no byte arrives for `timeout_s` (None: at most ANSWER_TIMEOUT_S).
        """
        with self._connection_for(node, timeout_s) as (connection, most_s, silent_s):
            return connection.request(
                request, timeout_s=most_s, silent_s=silent_s, maximum=maximum, minimum=minimum
            )

    def attempt_unless(
        self,
        node: int | None,
        request: Message,
        known_digest: bytes,
        *,
        maximum: int | None = None,
        minimum: int | None = None,
    ) -> tuple[bytes, Any]:
        """Send a request like `attempt`, for periodic queries whose response rarely changes.
        Returns (digest, response). The response is None, and is not decoded, if its digest is
        `known_digest`.
        """
        with self._connection_for(node, None) as (connection, most_s, silent_s):
            connection.begin(request, maximum=maximum, minimum=minimum)
            return connection.finish_unless(known_digest, timeout_s=most_s, silent_s=silent_s)

    @contextmanager
    def _connection_for(
        self, node: int | None, silent_s: float | None
    ) -> Iterator[tuple[Connection, float, float]]:
        most_s = self.settings.request_timeout_ms / 1000
        # a client with a shorter timeout than usual also applies it to each single request
        if self.api_timeout_s < API_TIMEOUT_S:
            most_s = min(most_s, self.api_timeout_s)
        if silent_s is None:
            silent_s = min(ANSWER_TIMEOUT_S, most_s)
        connection = self.connection_to(node)
        if muted_s := connection.muted_s:
            self.muted_until = time.monotonic() + muted_s
            began = self.patience.clock()
            self.patience.sleep(muted_s)
            self._muted_s += self.patience.clock() - began
            connection = self.connection_to(node)  # the SASL session may have ended during the wait
        try:
            yield connection, max(most_s, silent_s), silent_s
        except Disconnected:
            self._pool.on_broken(connection)
            raise

    def retrying(self, operation: Callable[[], T], *, timeout_s: float | None = None) -> T:
        """Run the operation until it succeeds, fails permanently, or times out."""
        deadline = self.deadline(timeout_s)
        retriable = self.retriable_now()
        return retry(operation, deadline=deadline, retriable=retriable, patience=self.patience)

    def retriable_now(self) -> Callable[[TwinlogError], bool]:
        """Return a predicate that decides whether a retry can help a call that begins now.

        The predicate returns True for errors with the fate RETRIABLE, but for a missing topic only
        for MISSING_GRACE_S, and for refused connections only for `refused_s`.
        """
        refused_s = self.refused_s if self._has_answered else self._refused_at_first_s
        grace, refused = self.deadline(MISSING_GRACE_S), self.deadline(refused_s)

        def retriable(error: TwinlogError) -> bool:
            if isinstance(error, Refused):
                return not refused.has_passed
            return is_retriable(error) and not (error.code == "TOPIC_MISSING" and grace.has_passed)

        return retriable

    def deadline(self, timeout_s: float | None = None) -> Deadline:
        """Return the deadline of a call that begins now. Muted time (KIP-219) does not count."""
        seconds = self.api_timeout_s if timeout_s is None else timeout_s
        return Deadline.within(seconds, self.clock)

    def clock(self) -> float:
        """Return monotonic seconds without the time for which brokers muted connections."""
        return self.patience.clock() - self._muted_s

    def _query_metadata(self, topics: Sequence[str] | None, allow_missing: bool) -> ClusterMetadata:
        answer = self.attempt(
            None,
            _metadata_request(topics),
            timeout_s=min(METADATA_TIMEOUT_S, self.api_timeout_s),
            minimum=METADATA_WITHOUT_CREATION,
        )
        if answer.error_code == REBOOTSTRAP_REQUIRED:
            self.close()
        self.check(answer, "reading metadata")
        metadata = decode_metadata(answer)
        self._pool.learn(metadata.brokers)
        self._has_answered = True
        self._controller = metadata.controller
        for topic in () if allow_missing else metadata.topics.values():
            if topic.error != NONE:
                raise error_for(
                    topic.error,
                    cluster=self.alias,
                    doing=f"reading metadata of topic {topic.name}",
                    acl=f"DESCRIBE on topic {topic.name}",
                )
        return metadata

    def check(self, result: Message, doing: str, *, acl: str | None = None) -> None:
        """Raise the error of a response, or of a part of it that has an `error_code`. Does nothing
        if the code is 0.

        `doing` describes the request in the error's message. `acl` is the permission that the
        request needs.
        """
        if result.error_code:
            detail = getattr(result, "error_message", None)
            raise error_for(
                int(result.error_code), cluster=self.alias, doing=doing, acl=acl, detail=detail
            )

    def keep_leaders(self) -> None:
        """Store leaders from now on, so that repeated queries need no Metadata request."""
        self.led = {}

    @contextmanager
    def keeping_leaders(self) -> Iterator[None]:
        """Reuse leaders of partitions within the block, without a Metadata request. If a broker
        that is no longer the leader returns an error, the leaders are looked up again.
        """
        self.keep_leaders()
        try:
            yield
        finally:
            self.led = None

    def connection_to(self, node: int | None) -> Connection:
        """Return a usable connection to broker `node` (None: any), which later calls reuse."""
        if node is None:
            return self._pool.any_connection()
        self._require_address(node)
        return self._pool.connection_to(node)

    def open_connection(self, node: int) -> Connection:
        """Open a separate connection to broker `node`. The caller must close it."""
        self._require_address(node)
        return self._pool.open(node)

    def _require_address(self, node: int) -> None:
        if node not in self._pool.brokers:
            self._query_metadata([], allow_missing=True)

    def renew(self, settings: ClusterSettings) -> None:
        """Use these settings for new connections. Open connections are not closed. Thread-safe."""
        self.settings = settings
        self._pool.renew(settings)

    def close(self) -> None:
        """Close all connections. The next request opens new ones."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _metadata_request(topics: Collection[str] | None) -> Message:
    topic = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=None if topics is None else [topic(name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )


def prompt_client(
    settings: ClusterSettings, *, api_timeout_s: float = API_TIMEOUT_S
) -> ClusterClient:
    """Return a client for commands. Until the cluster has responded once, calls fail fast if every
    address refuses the connection. After that, calls wait for a cluster that restarts.
    """
    return ClusterClient(settings, api_timeout_s=api_timeout_s, refused_at_first_s=REFUSED_FOR_S)
