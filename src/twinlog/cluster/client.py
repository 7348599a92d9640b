"""One Kafka cluster: finds brokers, keeps a connection to each, and retries if that can help.

There are two ways to send a request. `attempt` sends it once, for requests that are not safe to
repeat or that are part of a larger loop. `send` repeats it after a lost connection, so its request
must be idempotent. Error codes inside a response are the caller's responsibility, because only the
caller knows where a message has them. `retrying` is the loop for them.

A broker that mutes the connection (quotas, KIP-219) gets no request until it reads again, and that
time does not count against any limit of a call. `muted_until` shows its end.

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
"""Java's default.api.timeout.ms: how long one call retries before it gives up."""

CALL_PATIENCE: Final = Patience(backoff=Backoff(cap_ms=2_000))
"""For calls with a waiting caller: Java's retry.backoff.max.ms is 1 s."""

ANSWER_TIMEOUT_S: Final = 10.0
"""Limit of silence before a response from memory or an index: by then a frozen broker's partitions
have new leaders. While bytes arrive, as on a slow line, request.timeout.ms is the limit.
"""

METADATA_TIMEOUT_S: Final = 5.0
"""Limit of silence for Metadata, because a frozen broker must not delay the search for leaders."""

REFUSED_FOR_S: Final = 0.3
"""`refused_s` of queries with a waiting caller."""

MISSING_GRACE_S: Final = 3.0
"""A topic that was just created may be unknown to a broker for this long. After that it is
missing.
"""

METADATA_WITHOUT_CREATION: Final = 4
"""The first version with a flag against creating the requested topics."""


class Silent(NamedTuple):
    """A broker that let a request time out, and until when it gets no request."""

    until: float
    error: TwinlogError


class ClusterClient:
    """A blocking client of one cluster, for one thread."""

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        patience: Patience = CALL_PATIENCE,
        api_timeout_s: float = API_TIMEOUT_S,
        refused_s: float = math.inf,
        refused_at_first_s: float = math.inf,
    ) -> None:
        """`refused_s`: how long a call retries if no process listens at any address. A cluster that
        restarts is worth waiting for, but an interactive query should fail fast.
        `refused_at_first_s`: the same until the cluster has responded once.
        """
        self.settings = settings
        self.patience = patience
        self.api_timeout_s = api_timeout_s
        self.refused_s = refused_s
        self._refused_at_first_s = min(refused_s, refused_at_first_s)
        self._has_answered = False
        self.leaderless: dict[TopicPartition, float] = {}
        """Partitions that `per_leader` found without a leader, and when it last did."""
        self.silent: dict[int, Silent] = {}
        """Silent brokers, for `per_leader`."""
        self.led: dict[str, TopicMetadata] | None = None
        """Topics with all their leaders, for `per_leader`, if they are kept."""
        self.read_sizes: dict[int, ReadSize] = {}
        """Read sizes by broker, for `raw_log`."""
        self.muted_until = 0.0
        """Monotonic time until which a call waits for a broker that has muted the connection."""
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
        """Return the brokers, and these topics (None: all that may be described; an empty list:
        none).

        With `allow_missing`, a missing or forbidden topic is in the response with its error.
        Otherwise that error is raised once waiting has not helped. The request never creates
        topics.
        """

        def ask() -> ClusterMetadata:
            return self._ask_metadata(topics, allow_missing)

        found = self.retrying(ask, timeout_s=timeout_s)
        if self.led is not None:
            self.led.update((name, one) for name, one in found.topics.items() if one.is_led)
        return found

    def metadata_from(self, node: int, topics: Collection[str] | None) -> ClusterMetadata:
        """Return one broker's metadata of these topics (None: all), queried once. Missing topics
        have errors.

        The result is not stored, because this broker's metadata may be stale.
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
        timeout_s: float | None = None,
        maximum: int | None = None,
        minimum: int | None = None,
    ) -> Any:
        """Return the response of that broker (None: any), repeating the request if a connection
        breaks.
        """

        def ask() -> Any:
            return self.attempt(node, request, maximum=maximum, minimum=minimum)

        return self.retrying(ask, timeout_s=timeout_s)

    def to_controller(
        self,
        request: Message,
        check: Callable[[Message], None],
        *,
        maximum: int | None = None,
        minimum: int | None = None,
    ) -> Any:
        """Return the controller's response, once `check` has found no retriable error in it.

        The controller is looked up again before each retry: NOT_CONTROLLER means that it has moved.
        """

        def ask() -> Any:
            if self._controller not in self._pool.brokers:
                self._ask_metadata([], allow_missing=True)
            known = self._controller if self._controller in self._pool.brokers else None
            self._controller = NO_NODE  # until it has responded
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
        """Send a request once, to that broker or to any (None), and return its response.

        The broker may be silent for `timeout_s` (None: ANSWER_TIMEOUT_S or less).
        """
        with self._asking(node, timeout_s) as (connection, most_s, silent_s):
            return connection.request(
                request, timeout_s=most_s, silent_s=silent_s, maximum=maximum, minimum=minimum
            )

    def attempt_unless(
        self,
        node: int | None,
        request: Message,
        known: bytes,
        *,
        maximum: int | None = None,
        minimum: int | None = None,
    ) -> tuple[bytes, Any]:
        """Like `attempt`, for periodic queries. Returns the response's digest and the response,
        which is not decoded (None) if its digest is the known one.
        """
        with self._asking(node, None) as (connection, most_s, silent_s):
            connection.begin(request, maximum=maximum, minimum=minimum)
            return connection.finish_unless(known, timeout_s=most_s, silent_s=silent_s)

    @contextmanager
    def _asking(
        self, node: int | None, silent_s: float | None
    ) -> Iterator[tuple[Connection, float, float]]:
        most_s = self.settings.request_timeout_ms / 1000
        if self.api_timeout_s < API_TIMEOUT_S:  # the caller has less time than usual
            most_s = min(most_s, self.api_timeout_s)
        if silent_s is None:
            silent_s = min(ANSWER_TIMEOUT_S, most_s)
        connection = self.connection_to(node)
        if muted_s := connection.muted_s:
            self._wait_for(muted_s)
            connection = self.connection_to(node)  # its session may have ended in the meantime
        try:
            yield connection, max(most_s, silent_s), silent_s
        except Disconnected:
            self._pool.failed(connection)
            raise

    def _wait_for(self, muted_s: float) -> None:
        self.muted_until = time.monotonic() + muted_s
        began = self.patience.clock()
        self.patience.sleep(muted_s)
        self._muted_s += self.patience.clock() - began

    def retrying(self, operation: Callable[[], T], *, timeout_s: float | None = None) -> T:
        """Run until it succeeds, fails permanently, or times out."""
        deadline = self.deadline(timeout_s)
        retriable = self.retriable_now()
        return retry(operation, deadline=deadline, retriable=retriable, patience=self.patience)

    def retriable_now(self) -> Callable[[TwinlogError], bool]:
        """Return a predicate that decides whether retrying can help a call that begins now. A
        missing topic counts as missing after a short time.
        """
        refused_s = self.refused_s if self._has_answered else self._refused_at_first_s
        grace, refused = self.deadline(MISSING_GRACE_S), self.deadline(refused_s)

        def retriable(error: TwinlogError) -> bool:
            if isinstance(error, Refused):
                return not refused.has_passed
            return is_retriable(error) and not (error.code == "TOPIC_MISSING" and grace.has_passed)

        return retriable

    def deadline(self, timeout_s: float | None = None) -> Deadline:
        """Return the deadline of a call that begins now. Muted time does not count."""
        seconds = self.api_timeout_s if timeout_s is None else timeout_s
        return Deadline.within(seconds, self.clock)

    def clock(self) -> float:
        """Return monotonic seconds, without the time for which a broker muted the connection."""
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
        if answer.error_code:
            raise error_for(answer.error_code, cluster=self.alias, doing="asking for metadata")
        metadata = decode_metadata(answer)
        self._pool.learn(metadata.brokers)
        self._has_answered = True
        self._controller = metadata.controller
        if not allow_missing:
            for found in metadata.topics.values():
                self._require(found)
        return metadata

    def _require(self, topic: TopicMetadata) -> None:
        if topic.error != NONE:
            raise error_for(
                topic.error,
                cluster=self.alias,
                doing=f"asking for metadata of topic {topic.name}",
                acl=f"DESCRIBE on topic {topic.name}",
            )

    def keep_leaders(self) -> None:
        """Keep leaders from now on, for repeated queries about the same partitions."""
        self.led = {}

    @contextmanager
    def keeping_leaders(self) -> Iterator[None]:
        """Reuse leaders found by earlier queries. A broker that is no longer the leader returns an
        error, and the leaders are then looked up again.
        """
        self.keep_leaders()
        try:
            yield
        finally:
            self.led = None

    def connection_to(self, node: int | None) -> Connection:
        """Return a usable connection, kept for the next request; for None to any broker."""
        if node is None:
            return self._pool.any()
        self._know(node)
        return self._pool.to(node)

    def open_connection(self, node: int) -> Connection:
        """Open a separate connection to that broker for the caller."""
        self._know(node)
        return self._pool.open(node)

    def _know(self, node: int) -> None:
        if node not in self._pool.brokers:
            self._ask_metadata([], allow_missing=True)

    def renew(self, settings: ClusterSettings) -> None:
        """Use these settings for new connections. Open ones stay. Thread-safe."""
        self.settings = settings
        self._pool.renew(settings)

    def close(self) -> None:
        """Close every connection. The next request opens new ones."""
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
    """Return a client for commands: it fails fast if no process listens at any address, but waits
    for a cluster that restarts during the work.
    """
    return ClusterClient(settings, api_timeout_s=api_timeout_s, refused_at_first_s=REFUSED_FOR_S)
