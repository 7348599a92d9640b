"""One cluster as a lane uses it: the leaders, and an open connection to every leader that is
needed.

Leaders and connections come from background jobs. The loop uses only what they have already found.
After a failure, a broker is tried again with a growing pause, and metadata is read again.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from twinlog.clock import Clock, GrowingPause
from twinlog.cluster.client import CALL_PATIENCE, ClusterClient
from twinlog.cluster.net.connection import Connection
from twinlog.cluster.net.framing import FramePool
from twinlog.cluster.net.hot_connection import HotConnection, Traffic
from twinlog.cluster.net.metadata import NO_EPOCH, ClusterMetadata
from twinlog.cluster.net.retry import CHANCE
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.errors import Disconnected, TwinlogError
from twinlog.lane.messages import UnreachableCluster
from twinlog.lane.sides.background import JobKind, LaneJobs
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION

# Metadata may be older than what another broker returned before, for example from a broker that was
# frozen or cut off from the controller. If the lane used such metadata, reads would end at the end
# of a replaced leader's log, and writes would never be acknowledged. A leader epoch only grows, so
# the newest one counts, as in Java's clients, except:
# - If the topic ID is another one, the topic was re-created, and its epochs start over.
# - Without topic IDs (before Kafka 2.8) or epochs, every response counts.
# - A cluster that was restored from a backup has older epochs permanently. They count after
#   OLDER_FOR_S without a newer one.

OLDER_FOR_S: Final = 30.0
"""If the brokers, which are queried in turn, return older epochs for this long, the older epochs
count, because not all brokers can be stale.
"""


class _NewestEpoch(NamedTuple):
    topic_id: TopicId
    epoch: int
    older_since: float | None
    """Monotonic time since which all responses have been older, or None."""


class NewestEpochs:
    """The newest leader epoch of each partition that any broker has returned."""

    def __init__(self) -> None:
        self._newest: dict[TopicPartition, _NewestEpoch] = {}

    def is_older(self, tp: TopicPartition, topic_id: TopicId, epoch: int, now: float) -> bool:
        """Return True if a newer epoch of this partition is known. Otherwise store `epoch` and
        return False.

        Must be called once for each response. `now`: monotonic time in seconds.
        """
        if topic_id == NO_TOPIC_ID or epoch == NO_EPOCH:
            self._newest.pop(tp, None)
            return False
        known = self._newest.get(tp)
        if known is not None and known.topic_id == topic_id and epoch < known.epoch:
            since = now if known.older_since is None else known.older_since
            if now - since < OLDER_FOR_S:
                self._newest[tp] = known._replace(older_since=since)
                return True
        self._newest[tp] = _NewestEpoch(topic_id, epoch, None)
        return False


CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_WITHIN_S: Final = 10.0
"""A broker must respond to a Produce within request.timeout.ms plus this time, in seconds."""

CHECK_EVERY_S: Final = 0.05
"""Interval at which connections are checked for timeouts, in seconds."""

SUSPECT_AFTER_S: Final = 5.0
"""Time without a response after which the leaders of the broker's partitions are queried. A broker
that the cluster has fenced (9 s without a heartbeat, by default) will not respond, and its
partitions have other leaders.
"""

DOUBT_S: Final = 30.0
"""After a connection broke, the leaders of the broker's partitions are queried for this long. The
cluster notices a dead broker within 9 s by default, and partitions that have nothing to send would
otherwise not find their new leaders.
"""

DOUBT_EVERY_S: Final = 2.0
_NODE_BITS: Final = 32
LEADERLESS_PAUSE_S: Final = 3.0
"""Longest pause between queries while partitions have no leader. It is shorter than the pause for
an unreachable cluster.
"""


def connection_key(node: int, number: int) -> int:
    """Return the key of a connection to broker `node` in `ClusterSide.connections`. `number`: 0 for
    the first connection, from 1 on for further ones.
    """
    return node | number << _NODE_BITS


def node_of(key: int) -> int:
    """Return the node ID of the broker to which the connection with this key belongs."""
    return key & ((1 << _NODE_BITS) - 1)


class Leader(NamedTuple):
    node: int
    epoch: int


@dataclass(slots=True)
class _Pause:
    pause: GrowingPause = field(default_factory=lambda: GrowingPause(first_s=0.05, most_s=30.0))
    until: float = 0.0

    def grow(self, now: float, most_s: float | None = None) -> None:
        longest = self.pause.next_s(most_s)
        self.until = now + CHANCE.uniform(longest / 2, longest)

    def reset(self) -> None:
        self.pause.reset()
        self.until = 0.0


@dataclass(slots=True, kw_only=True)
class ClusterSide:
    """Leaders of one cluster, and connections that never block (`HotConnection`). Used by the
    loop's thread only.
    """

    settings: ClusterSettings
    background: LaneJobs
    selector: selectors.BaseSelector
    pool: FramePool
    """Buffers for responses, which all connections to this cluster share."""
    clock: Clock
    user_timeout_ms: int = 0
    """TCP_USER_TIMEOUT, after which the kernel drops a connection with unacknowledged data, or 0
    for the kernel's default.
    """
    leaders: dict[TopicPartition, Leader] = field(default_factory=dict)
    leaderless: dict[TopicPartition, float] = field(default_factory=dict)
    """Partitions that the cluster reports as leaderless, each with the time of the first report."""
    unreached: dict[int, float] = field(default_factory=dict)
    """Brokers to which no connection can be opened, each with the time of the first failure."""
    topic_ids: dict[str, TopicId] = field(default_factory=dict)
    metadata_requested_at: dict[str, float] = field(default_factory=dict)
    """By topic, the monotonic time at which the newest metadata was requested that shows the
    topic's ID, or that it does not exist.
    """
    names: dict[bytes, str] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    """Topics that did not exist at their last query."""
    connections: dict[int, HotConnection] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    """Bytes sent and received on all hot connections."""
    problem: UnreachableCluster | None = None
    """Why the cluster cannot be reached, or None if it can."""
    on_connected: Callable[[int], None] = lambda _node: None
    on_leaders: Callable[[], None] = lambda: None
    before_sending: Callable[[], None] = lambda: None
    """Called before any byte is sent. Raises if the lane must not send any more."""
    _clients: list[ClusterClient] = field(default_factory=list)
    """All blocking clients. There are as many as jobs have ever run at the same time."""
    _idle: list[ClusterClient] = field(default_factory=list)
    _brokers: dict[int, tuple[str, int]] = field(default_factory=dict)
    _broken: dict[int, Disconnected] = field(default_factory=dict)
    _unwritten: set[int] = field(default_factory=set)
    """Brokers whose sockets have accepted only a part of a request."""
    _connecting: set[int] = field(default_factory=set)
    _node_pause: dict[int, _Pause] = field(default_factory=dict)
    _wanted_topics: set[str] = field(default_factory=set)
    _queried_before: set[str] = field(default_factory=set)
    """Topics whose last query failed or found a partition without a leader. Only these topics are
    not queried again before the pause ends.
    """
    _answered_topics: set[str] = field(default_factory=set)
    _doubtful: dict[int, float] = field(default_factory=dict)
    """By broker whose connection broke, the time until which the leaders of its partitions are
    queried.
    """
    _next_doubtful_query: float = 0.0
    _muted: list[float] = field(default_factory=list)
    """Times at which throttling brokers will read from their connections again."""
    _muted_until: float = 0.0
    _longest_mute_ms: int = 0
    _next_check: float = 0.0
    _next_suspicion: float = 0.0
    _refreshing: bool = False
    _queried_at: float = 0.0
    _newest: NewestEpochs = field(default_factory=NewestEpochs)
    _refused: dict[TopicPartition, Leader] = field(default_factory=dict)
    """Leaders that were forgotten since metadata last had a leader of their partition."""
    _queries_another: bool = False
    """True if the next query must go to another broker, because the last one may have stale
    metadata.
    """
    _refresh_pause: _Pause = field(default_factory=_Pause)

    @contextmanager
    def borrowed_client(self) -> Iterator[ClusterClient]:
        """Lend a blocking client to one job. The client that was used last is preferred, because it
        has the most metadata.
        """
        try:
            client = self._idle.pop()
        except IndexError:
            patience = replace(CALL_PATIENCE, sleep=self.background.pause)
            client = ClusterClient(self.settings, patience=patience)
            self._clients.append(client)
            client.renew(self.settings)  # settings may have changed while the client was created
        try:
            yield client
        finally:
            if self.background.is_closed:
                client.close()
            self._idle.append(client)

    def renew(self, security: SecuritySettings | None) -> None:
        """Use these settings for new connections. Connections that brokers have refused are retried
        immediately.
        """
        if security == self.settings.security:
            return
        self.settings = replace(self.settings, security=security)
        for client in self._clients:
            client.renew(self.settings)
        for pause in (self._refresh_pause, *self._node_pause.values()):
            pause.reset()

    # -- leaders

    def need_topics(self, topics: Iterable[str]) -> None:
        """Query the leaders of these topics with the next refresh."""
        self._wanted_topics |= set(topics)

    def query_another_broker(self, topics: Iterable[str]) -> None:
        """Query the leaders of these topics from another, random broker.

        The broker that was queried until now may be the only one with stale metadata.
        """
        self.need_topics(topics)
        self._queries_another = True

    def forget_leader(self, tp: TopicPartition) -> None:
        """Forget this partition's leader, because that broker reported that it does not lead the
        partition.
        """
        if (led := self.leaders.pop(tp, None)) is not None:
            self._refused[tp] = led
        self._wanted_topics.add(tp.topic)

    def tick(self) -> None:
        """Start a metadata query if one is due. Called by the loop on every turn."""
        if self._doubtful:
            self._query_doubtful()
        if not self._wanted_topics or self._refreshing:
            return
        waits = self.clock.monotonic() < self._refresh_pause.until
        topics = sorted(
            self._wanted_topics - self._queried_before if waits else self._wanted_topics
        )
        if not topics:
            return
        self._refreshing = True
        self._queried_at = self.clock.monotonic()
        another, self._queries_another = self._queries_another, False

        def read() -> tuple[list[str], ClusterMetadata]:
            with self.borrowed_client() as client:
                if another:
                    client.close()  # so that the client begins with a random broker
                return topics, client.metadata(topics)

        self.background.submit(JobKind.METADATA, read, self._on_metadata, self._on_metadata_failed)

    def _query_doubtful(self) -> None:
        now = self.clock.monotonic()
        if now < self._next_doubtful_query:
            return
        self._next_doubtful_query = now + DOUBT_EVERY_S
        for node, until in list(self._doubtful.items()):
            if node in self.connections or node not in self._brokers or now > until:
                del self._doubtful[node]
            else:
                self._query_leaders_of(node)

    def _on_metadata(self, answer: tuple[list[str], ClusterMetadata]) -> None:
        topics, metadata = answer
        self._refreshing = False
        self.problem = None
        self._brokers = {
            node: (broker.host, broker.port) for node, broker in metadata.brokers.items()
        }
        self._answered_topics |= set(topics)
        self._queried_before -= set(topics)
        unsure: set[str] = set()  # topics with an error, or without a leader
        now = self.clock.monotonic()
        for topic in topics:
            known = metadata.topics.get(topic)
            self._wanted_topics.discard(topic)
            is_missing = known is not None and known.error == UNKNOWN_TOPIC_OR_PARTITION
            (self.missing.add if is_missing else self.missing.discard)(topic)
            if known is None or known.error == UNKNOWN_TOPIC_OR_PARTITION:
                self.topic_ids.pop(topic, None)
                self.metadata_requested_at[topic] = self._queried_at
            if known is None or known.error:
                unsure.add(topic)
                self._forget_leaderless(topic)  # the next search reports the topic's error
                continue
            self.metadata_requested_at[topic] = self._queried_at
            self.topic_ids[topic] = known.topic_id
            self.names[known.topic_id.raw] = topic
            for partition in known.partitions:
                tp = TopicPartition(topic, partition.number)
                if self._newest.is_older(tp, known.topic_id, partition.leader_epoch, now):
                    unsure.add(topic)  # a newer epoch is known, so another broker must be queried
                    self._queries_another = True
                elif partition.leader not in self._brokers:
                    self.leaders.pop(tp, None)
                    self.leaderless.setdefault(tp, now)
                    unsure.add(topic)
                else:
                    self.leaderless.pop(tp, None)
                    led = self.leaders[tp] = Leader(partition.leader, partition.leader_epoch)
                    if self._refused.pop(tp, None) == led:
                        # this metadata or the broker itself is stale; a pause lets it catch up
                        unsure.add(topic)
                        self._queries_another = True
        # topics without a leader must not slow down queries for the leaders of other topics
        self._wanted_topics |= unsure
        self._queried_before |= unsure
        # a broker that is no longer listed may have led topics that are not in this query
        gone = [tp for tp, led in self.leaders.items() if led.node not in self._brokers]
        for tp in gone:
            self.forget_leader(tp)
        if unsure or gone:
            self._refresh_pause.grow(now, LEADERLESS_PAUSE_S)
        else:
            self._refresh_pause.reset()
        self.on_leaders()

    def _forget_leaderless(self, topic: str) -> None:
        for tp in [tp for tp in self.leaderless if tp.topic == topic]:
            del self.leaderless[tp]

    def _on_metadata_failed(self, error: TwinlogError) -> None:
        self._refreshing = False
        self._queried_before |= self._wanted_topics
        self.problem = UnreachableCluster(code=error.code, message=error.message)
        self._refresh_pause.grow(self.clock.monotonic())

    # -- connections

    def connection_to(self, node: int) -> HotConnection | None:
        """Return the open connection to a broker, or None while it is being opened or closed."""
        connection = self.connections.get(node)
        if connection is None:
            self._connect(node)
        elif connection.is_ending:
            return None  # the loop drops the connection after its last response
        return connection

    def _connect(self, node: int) -> None:
        pause = self._node_pause.setdefault(node, _Pause())
        address = self._brokers.get(node_of(node))
        if node in self._connecting or self.clock.monotonic() < pause.until or address is None:
            return
        self._connecting.add(node)
        host, port = address

        def open_connection() -> HotConnection:
            connection = Connection.open(
                host,
                port,
                self.settings,
                timeout_s=CONNECT_TIMEOUT_S,
                user_timeout_ms=self.user_timeout_ms,
            )
            return HotConnection(connection, self.settings.client_id, self.pool, self.traffic)

        def on_opened(connection: HotConnection) -> None:
            self._connecting.discard(node)
            pause.reset()
            self.problem = None
            self.unreached.pop(node, None)
            self.connections[node] = connection
            self.selector.register(connection, selectors.EVENT_READ, (self, node))
            self.on_connected(node)

        def on_failed(error: TwinlogError) -> None:
            self._connecting.discard(node)
            now = self.clock.monotonic()
            pause.grow(now)
            if node != node_of(node):
                return  # only the first connection shows if a broker can be reached
            self.unreached.setdefault(node, now)
            if not self.connections:  # otherwise, other brokers can be reached
                self.problem = UnreachableCluster(code=error.code, message=error.message)
            self._query_leaders_of(node)

        self.background.submit(JobKind.CONNECTION, open_connection, on_opened, on_failed)

    def on_throttled(self, connection: HotConnection, ms: int) -> None:
        """Store that the broker will not read from this connection for `ms`, because of a quota."""
        connection.on_throttled(ms)
        self._longest_mute_ms = max(self._longest_mute_ms, ms)
        if ms > 0:
            self._muted.append(self.clock.monotonic() + ms / 1000)

    def muted_ms(self) -> int:
        """Return the longest time in ms for which a broker, because of a quota, will read nothing
        from a connection of this lane.

        A mute that has begun since the last call counts with its full duration, even if it has
        already ended.
        """
        now = self.clock.monotonic()
        longest_ms, self._longest_mute_ms = self._longest_mute_ms, 0
        # a broker reports a long mute only once, with the response before the mute
        self._muted_until = max(
            self._muted_until,
            now + longest_ms / 1000,
            *(client.muted_until for client in self._clients),
        )
        return max(0, int(1000 * (self._muted_until - now)))

    def muted_s(self) -> float:
        """Return the time in seconds until the first muted connection may send again, or 0 if none
        is muted.
        """
        if not self._muted:
            return 0.0
        now = self.clock.monotonic()
        self._muted = [until for until in self._muted if until > now]
        return min(self._muted, default=now) - now

    def broken_connections(self) -> Iterator[tuple[int, Disconnected]]:
        """Yield (key, error) for each connection that must be closed: it broke while sending, its
        broker stopped responding, or its authenticated session (SASL) expires soon.
        """
        yield from list(self._broken.items())
        now = self.clock.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + CHECK_EVERY_S
        for node, connection in list(self.connections.items()):
            waited = now - (connection.waiting_since or now)
            within = ANSWER_WITHIN_S + self.settings.request_timeout_ms / 1000
            if connection.is_ending and not connection.in_flight:
                why = f"the SASL session with {connection.peer} expires; connecting again"
                yield node, Disconnected(why)
                continue
            if waited > within or (waited > SUSPECT_AFTER_S and node_of(node) not in self._brokers):
                why = f"{connection.peer} has not responded for {waited:.0f} s"
                if waited > within:
                    why += f", longer than {self.settings.key('request.timeout.ms')} allows"
                yield node, Disconnected(why)
            elif waited > SUSPECT_AFTER_S and now >= self._next_suspicion:
                self._next_suspicion = now + SUSPECT_AFTER_S / 2
                self._query_leaders_of(node)

    def _query_leaders_of(self, node: int) -> None:
        self._wanted_topics |= {tp.topic for tp, led in self.leaders.items() if led.node == node}

    def is_warm(self, topics: Iterable[str]) -> bool:
        """Return True if the leaders of these topics are known and connected. Opens missing
        connections.

        Partitions without a leader are ignored, and so are partitions whose leader is unreachable
        while other brokers are reachable. The other partitions must not wait for them.
        """
        wanted = set(topics)
        nodes = {led.node for tp, led in self.leaders.items() if tp.topic in wanted}
        missing = {node for node in nodes if self.connection_to(node) is None}
        if missing and len(missing) < len(nodes):
            missing -= self.unreached.keys()
        return not missing and wanted <= self._answered_topics

    def is_sound(self, tp: TopicPartition) -> bool:
        """Return True if the partition's leader is connected and responds in time."""
        leader = self.leaders.get(tp)
        connection = None if leader is None else self.connections.get(leader.node)
        if connection is None:
            return False
        since = connection.waiting_since
        return since is None or self.clock.monotonic() - since < SUSPECT_AFTER_S / 2

    def drop(self, node: int) -> list[object]:
        """Close the connection with this key, and return the contexts of its unanswered requests
        (`HotConnection.submit`).
        """
        self._broken.pop(node, None)
        connection = self.connections.pop(node, None)
        if connection is None:
            return []
        self.selector.unregister(connection)
        self._unwritten.discard(node)
        unanswered = connection.unanswered()
        connection.close()
        self._doubtful[node] = self.clock.monotonic() + DOUBT_S
        self._query_leaders_of(node)
        return unanswered

    def flush(self, node: int, connection: HotConnection) -> None:
        """Send as many buffered bytes as the socket accepts. If some remain, select the connection
        for writing.
        """
        self.before_sending()
        try:
            done = connection.flush()
        except Disconnected as error:
            # the caller may be in the middle of a request, so the loop drops the connection later
            self._broken[node] = error
            return
        if done == (node not in self._unwritten):
            return  # the selector is already right, usually because every flush sends everything
        (self._unwritten.discard if done else self._unwritten.add)(node)
        events = selectors.EVENT_READ if done else selectors.EVENT_READ | selectors.EVENT_WRITE
        self.selector.modify(connection, events, (self, node))

    def close(self) -> None:
        for node in list(self.connections):
            self.drop(node)
        # a client that a job still uses is closed by `borrowed_client`, or ends with the process
        while self._idle:
            self._idle.pop().close()
