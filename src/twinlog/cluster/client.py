"""The client of one Kafka cluster: finds brokers, keeps a connection to each, and retries.

There are three ways to send a request:

| call            | repeated                                             | for                     |
| --------------- | ---------------------------------------------------- | ----------------------- |
| `attempt`       | never                                                | steps of a larger loop  |
| `send`          | after a lost connection                              | idempotent requests     |
| `to_controller` | the same, and after retriable errors in the response | changes of topics       |

A response may contain error codes of topics, partitions or groups. Only the code of a request knows
where, so `attempt` and `send` do not check them. `check` raises such an error, and `retrying` is
the loop around both.
Requests about many partitions or groups are sent with `logs.per_leader` and `groups.coordinators`,
which send one request to each responsible broker.

A broker that mutes the connection because of a quota (KIP-219) gets no request until it reads
again. That time counts against no limit of a call. `muted_until` is its end.

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
"""How long a call retries before it fails: Java's default.api.timeout.ms."""

CALL_PATIENCE: Final = Patience(backoff=Backoff(cap_ms=2_000))
"""Patience of calls with a waiting caller. (Java's retry.backoff.max.ms is 1 s.)"""

ANSWER_TIMEOUT_S: Final = 10.0
"""How long a broker may be silent before its response. By then, the partitions of a frozen broker
have new leaders. While bytes arrive, as on a slow line, only request.timeout.ms is the limit.
"""

METADATA_TIMEOUT_S: Final = 5.0
"""The same for Metadata: a frozen broker must not delay the search for leaders."""

REFUSED_FOR_S: Final = 0.3
"""`refused_s` for commands, whose user waits."""

MISSING_GRACE_S: Final = 3.0
"""A broker may not know a topic that was just created for this long. After that it is missing."""

METADATA_WITHOUT_CREATION: Final = 4
"""The first version with a flag that prevents creating the requested topics."""


class Silent(NamedTuple):
    """A broker that let a request time out, and until when it gets no further one."""

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
        """`refused_s`: how long a call retries if no process listens at any address. A mirror waits
        for a cluster that restarts, but an interactive query should fail fast.
        `refused_at_first_s`: the same until the cluster has responded once.
        """
        self.settings = settings
        self.patience = patience
        self.api_timeout_s = api_timeout_s
        self.refused_s = refused_s
        self._refused_at_first_s = min(refused_s, refused_at_first_s)
        self._has_answered = False
        self.leaderless: dict[TopicPartition, float] = {}
        """Partitions without a leader, and when `per_leader` last found them so (monotonic)."""
        self.silent: dict[int, Silent] = {}
        """Silent brokers, for `per_leader`."""
        self.led: dict[str, TopicMetadata] | None = None
        """Topics with all their leaders, for `per_leader`; None unless they are kept."""
        self.read_sizes: dict[int, ReadSize] = {}
        """Read sizes by broker, for `raw_log`."""
        self.muted_until = 0.0
        """Until when a call waits for a broker that has muted the connection (monotonic)."""
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
        """Return the brokers and these topics. None means all topics that the user may describe,
        and an empty list none.

        With `allow_missing`, a missing or forbidden topic is in the result with its error.
        Otherwise its error is raised if retrying does not help. Topics are never created.
        """

        def ask() -> ClusterMetadata:
            return self._ask_metadata(topics, allow_missing)

        result = self.retrying(ask, timeout_s=timeout_s)
        if self.led is not None:
            self.led.update((name, topic) for name, topic in result.topics.items() if topic.is_led)
        return result

    def metadata_from(self, node: int, topics: Collection[str] | None) -> ClusterMetadata:
        """Return the metadata of one broker about these topics (None: all), with one attempt.
        Missing topics have errors.

        The result is not stored, because the metadata of this broker may be stale.
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
        """Return the response of that broker, or of any (None). The request is repeated after a
        lost connection, so it must be idempotent.
        """

        def ask() -> Any:
            return self.attempt(node, request, maximum=maximum, minimum=minimum)

        return self.retrying(ask)

    def to_controller(
        self,
        request: Message,
        check: Callable[[Message], None],
        *,
        maximum: int | None = None,
        minimum: int | None = None,
    ) -> Any:
        """Return the controller's response, in which `check` has found no error.

        If the error that `check` raises is retriable, the request is repeated. The controller is
        looked up before each retry, because it may have moved (NOT_CONTROLLER).
        """

        def ask() -> Any:
            if self._controller not in self._pool.brokers:
                self._ask_metadata([], allow_missing=True)
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
        """Send a request once, to that broker or to any (None), and return the response.

        The broker may be silent for `timeout_s` (None: at most ANSWER_TIMEOUT_S).
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
        """Like `attempt`, for periodic queries whose response rarely changes. Returns the digest of
        the response, and the decoded response. A response whose digest is `known_digest` is not
        decoded: then the second value is None.
        """
        with self._connection_for(node, None) as (connection, most_s, silent_s):
            connection.begin(request, maximum=maximum, minimum=minimum)
            return connection.finish_unless(known_digest, timeout_s=most_s, silent_s=silent_s)

    @contextmanager
    def _connection_for(
        self, node: int | None, silent_s: float | None
    ) -> Iterator[tuple[Connection, float, float]]:
        most_s = self.settings.request_timeout_ms / 1000
        # a caller with a shorter timeout than usual waits for no request longer than that
        if self.api_timeout_s < API_TIMEOUT_S:
            most_s = min(most_s, self.api_timeout_s)
        if silent_s is None:
            silent_s = min(ANSWER_TIMEOUT_S, most_s)
        connection = self.connection_to(node)
        if muted_s := connection.muted_s:
            self._wait_for(muted_s)
            connection = self.connection_to(node)  # its SASL session may have ended in the meantime
        try:
            yield connection, max(most_s, silent_s), silent_s
        except Disconnected:
            self._pool.on_broken(connection)
            raise

    def _wait_for(self, muted_s: float) -> None:
        self.muted_until = time.monotonic() + muted_s
        began = self.patience.clock()
        self.patience.sleep(muted_s)
        self._muted_s += self.patience.clock() - began

    def retrying(self, operation: Callable[[], T], *, timeout_s: float | None = None) -> T:
        """Run the operation until it succeeds, fails permanently, or times out."""
        deadline = self.deadline(timeout_s)
        retriable = self.retriable_now()
        return retry(operation, deadline=deadline, retriable=retriable, patience=self.patience)

    def retriable_now(self) -> Callable[[TwinlogError], bool]:
        """Return a predicate that decides whether a retry can help a call that begins now.

        Errors with the fate RETRIABLE are retried until the call's deadline. Two are given up
        earlier: a missing topic after MISSING_GRACE_S, and refused connections after `refused_s`.
        """
        refused_s = self.refused_s if self._has_answered else self._refused_at_first_s
        grace, refused = self.deadline(MISSING_GRACE_S), self.deadline(refused_s)

        def retriable(error: TwinlogError) -> bool:
            if isinstance(error, Refused):
                return not refused.has_passed
            return is_retriable(error) and not (error.code == "TOPIC_MISSING" and grace.has_passed)

        return retriable

    def deadline(self, timeout_s: float | None = None) -> Deadline:
        """Return the deadline of a call that begins now. Time while muted does not count."""
        seconds = self.api_timeout_s if timeout_s is None else timeout_s
        return Deadline.within(seconds, self.clock)

    def clock(self) -> float:
        """Return monotonic seconds without the time for which brokers muted connections."""
        return self.patience.clock() - self._muted_s

    def _ask_metadata(self, topics: Sequence[str] | None, allow_missing: bool) -> ClusterMetadata:
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
        if not allow_missing:
            for topic in metadata.topics.values():
                self._require(topic)
        return metadata

    def _require(self, topic: TopicMetadata) -> None:
        if topic.error != NONE:
            raise error_for(
                topic.error,
                cluster=self.alias,
                doing=f"reading metadata of topic {topic.name}",
                acl=f"DESCRIBE on topic {topic.name}",
            )

    def check(self, result: Message, doing: str, *, acl: str | None = None) -> None:
        """Raise the error in a response, or in one row of it, if there is one.

        `doing` describes the request for the message, and `acl` is the permission that it needs.
        """
        if result.error_code:
            detail = getattr(result, "error_message", None)
            raise error_for(
                int(result.error_code), cluster=self.alias, doing=doing, acl=acl, detail=detail
            )

    def keep_leaders(self) -> None:
        """Reuse leaders from now on, for repeated queries about the same partitions."""
        self.led = {}

    @contextmanager
    def keeping_leaders(self) -> Iterator[None]:
        """Reuse leaders within the block. A broker that is no longer the leader returns an error,
        and the leaders are then looked up again.
        """
        self.keep_leaders()
        try:
            yield
        finally:
            self.led = None

    def connection_to(self, node: int | None) -> Connection:
        """Return a usable connection to that broker, or to any (None). It is kept for reuse."""
        if node is None:
            return self._pool.any_connection()
        self._require_address(node)
        return self._pool.connection_to(node)

    def open_connection(self, node: int) -> Connection:
        """Open a separate connection to that broker, which belongs to the caller."""
        self._require_address(node)
        return self._pool.open(node)

    def _require_address(self, node: int) -> None:
        if node not in self._pool.brokers:
            self._ask_metadata([], allow_missing=True)

    def renew(self, settings: ClusterSettings) -> None:
        """Use these settings for new connections. Open connections are kept. Thread-safe."""
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
    """Return a client for commands. It fails fast if no process listens at any address, but waits
    for a cluster that restarts while the command runs.
    """
    return ClusterClient(settings, api_timeout_s=api_timeout_s, refused_at_first_s=REFUSED_FOR_S)
