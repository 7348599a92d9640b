"""Kafka's group protocol as four calls of one member: join, sync, heartbeat, leave.

Each call sends its request once, and raises the coordinator's error (BrokerRefused with Kafka's
error number). The coordinator is looked up before the first call, and again after a broker did not
respond or reported that it is not the coordinator.

A coordinator delays its response to JoinGroup and SyncGroup until all members have called. A frozen
broker never responds, although the cluster has made another broker the group's coordinator. So the
coordinator is looked up periodically while a response is delayed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.net.connection import Connection
from twinlog.cluster.net.protocol import Message
from twinlog.errors import BrokerRefused, Disconnected, TwinlogError
from twinlog.wire.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    MEMBER_ID_REQUIRED,
    NOT_COORDINATOR,
    UNKNOWN_MEMBER_ID,
)

log = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "twinlog"
"""The protocol type of Twinlog's groups. Brokers reject consumers that use such a group's ID."""

PROTOCOL_NAME: Final = "leader"
FIND_ONE: Final = 3
"""The last version of FindCoordinator for a single group."""

ANSWER_STEP_S: Final = 0.1
"""Interval in seconds at which a delayed call checks if its result is still wanted."""

LOOK_UP_EVERY_S: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedGroup:
    """One generation of a group, as one member sees it."""

    member_id: str
    generation: int
    leader_id: str
    members: Mapping[str, bytes]
    """Metadata of all members, by member ID. Empty unless this member is the leader."""

    @property
    def leads(self) -> bool:
        return self.leader_id == self.member_id


class GroupCalls:
    """The requests that a group member sends to its coordinator. Not thread-safe."""

    def __init__(
        self,
        client: ClusterClient,
        group_id: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        """The timeouts are those after which the coordinator removes a silent member."""
        self._client, self._group_id = client, group_id
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = ""
        """The member ID that the coordinator has assigned. If empty, `join` gets a new one."""
        self._node: int | None = None
        self._second: Connection | None = None
        self._next_look_up = 0.0

    def join(self, metadata: bytes, is_wanted: Callable[[], bool]) -> JoinedGroup | None:
        """Join the group's next generation. Returns when all members have joined or timed out.

        A new member first gets an ID, and then joins with this ID (KIP-394). While the call waits,
        it calls `is_wanted` several times a second, and returns None if `is_wanted` returns False.
        """
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name=PROTOCOL_NAME, metadata=metadata)
        while True:
            request = JoinGroupRequest(
                group_id=self._group_id,
                session_timeout_ms=self._session_timeout_ms,
                rebalance_timeout_ms=self._rebalance_timeout_ms,
                member_id=self.member_id,
                group_instance_id=None,
                protocol_type=PROTOCOL_TYPE,
                protocols=[protocol],
                reason=None,
            )
            answer = self._delayed_call(request, is_wanted)
            if answer is None:
                return None
            if answer.error_code != MEMBER_ID_REQUIRED:
                break
            self.member_id = str(answer.member_id)
        self.member_id = str(answer.member_id)
        return JoinedGroup(
            member_id=self.member_id,
            generation=int(answer.generation_id),
            leader_id=str(answer.leader),
            members={str(m.member_id): bytes(m.metadata) for m in answer.members},
        )

    def sync(
        self, joined: JoinedGroup, assignments: Mapping[str, bytes], is_wanted: Callable[[], bool]
    ) -> bytes | None:
        """Return this member's assignment in the generation that it has joined, or None if
        `is_wanted` returns False. The leader passes `assignments` for all members, other members an
        empty mapping.
        """
        assignment = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=joined.generation,
            member_id=joined.member_id,
            group_instance_id=None,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL_NAME,
            assignments=[assignment(member_id=m, assignment=a) for m, a in assignments.items()],
        )
        answer = self._delayed_call(request, is_wanted)
        return None if answer is None else bytes(answer.assignment)

    def heartbeat(self, joined: JoinedGroup, *, timeout_s: float) -> None:
        """Send a heartbeat. Raises the coordinator's error."""
        with self._coordinating() as node:
            self._heartbeat(self._client.connection_to(node), joined, timeout_s)

    def heartbeat_in_parallel(self, joined: JoinedGroup, *, timeout_s: float) -> None:
        """Send a heartbeat over a second connection while `join` or `sync` waits on the first."""
        with self._coordinating() as node:
            if self._second is None or not self._second.is_usable():
                self._second = self._client.open_connection(node)
            self._heartbeat(self._second, joined, timeout_s)

    def leave(self, *, timeout_s: float) -> None:
        """Leave the group, so that other members need not wait for the session timeout."""
        if not self.member_id:
            return
        identity = LeaveGroupRequest.MemberIdentity(
            member_id=self.member_id, group_instance_id=None, reason="stopped"
        )
        request = LeaveGroupRequest(
            group_id=self._group_id, member_id=self.member_id, members=[identity]
        )
        with self._coordinating() as node:
            self._check(self._client.attempt(node, request, timeout_s=timeout_s), "leaving")
        self.member_id = ""

    def forget_coordinator(self) -> None:
        """Look up the coordinator again before the next call."""
        self._node = None
        self.close()

    def close(self) -> None:
        if self._second is not None:
            self._second.close()
            self._second = None

    def _heartbeat(self, connection: Connection, joined: JoinedGroup, timeout_s: float) -> None:
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=joined.generation,
            member_id=joined.member_id,
            group_instance_id=None,
        )
        self._check(connection.request(request, timeout_s=timeout_s), "staying in")

    def _delayed_call(self, request: Message, is_wanted: Callable[[], bool]) -> Message | None:
        """Return the response to a request that may be delayed for as long as a rebalance takes, or
        None if `is_wanted` returns False.
        """
        with self._coordinating() as node:
            answer = self._await(node, request, is_wanted)
            if answer is not None and answer.error_code != MEMBER_ID_REQUIRED:
                self._check(answer, "joining")
            return answer

    def _await(self, node: int, request: Message, is_wanted: Callable[[], bool]) -> Message | None:
        connection = self._client.connection_to(node)
        limit_s = (self._rebalance_timeout_ms + self._session_timeout_ms) / 1000
        deadline = self._client.deadline(limit_s)
        connection.begin(request)
        while not deadline.has_passed and not connection.wait_readable(ANSWER_STEP_S):
            if not is_wanted():
                connection.close()  # its response is pending, so it cannot be reused
                return None
            self._check_still_coordinates(node, connection)
        return connection.finish(timeout_s=max(deadline.left_s, 1.0))

    def _check_still_coordinates(self, node: int, connection: Connection) -> None:
        """Raise Disconnected if another broker has become the coordinator."""
        now = self._client.patience.clock()
        if now < self._next_look_up:
            return
        try:
            coordinator = self._find_coordinator()
        except TwinlogError as error:
            log.debug("lookup of the coordinator during a delayed call failed error=%s", error)
            coordinator = node
        self._next_look_up = self._client.patience.clock() + LOOK_UP_EVERY_S
        if coordinator != node:
            connection.close()
            raise Disconnected(
                f"{connection.peer} does not respond, and broker {coordinator} has become the "
                f"coordinator of group {self._group_id}"
            )

    @contextmanager
    def _coordinating(self) -> Iterator[int]:
        """Yield the coordinator's node for one call. If the broker does not respond, or reports
        that it is not the coordinator, the next call looks up the coordinator again.
        """
        try:
            if self._node is None:
                self._node = self._find_coordinator()
                self._next_look_up = self._client.patience.clock() + LOOK_UP_EVERY_S
            yield self._node
        except BrokerRefused as error:
            if error.kafka_error in (NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE):
                self.forget_coordinator()
            raise
        except TwinlogError:
            self.forget_coordinator()
            raise

    def _find_coordinator(self) -> int:
        request = FindCoordinatorRequest(key=self._group_id, key_type=0)
        answer = self._client.attempt(None, request, maximum=FIND_ONE, timeout_s=LOOK_UP_EVERY_S)
        self._check(answer, "looking up the coordinator of")
        return int(answer.node_id)

    def _check(self, answer: Message, doing: str) -> None:
        if code := int(answer.error_code):
            if code == UNKNOWN_MEMBER_ID:
                self.member_id = ""
            raise Coordinators(self._client).error(code, doing, self._group_id, "READ")
