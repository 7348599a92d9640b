"""Leader election: processes are members of a group, and the group's leader leads the flow.

    JOINING --> LEADING | STANDBY --> ... --> LEFT

*Problem.* Several processes may run a flow, and one of them must lead it. If the leader dies,
another process must take over within seconds, without a coordination service besides Kafka. Kafka's
own group protocol elects a leader among the members of a group, and notices that a member is dead.
The leader sends its metadata to the standbys as their assignment, so they know which process leads.
A rebalance does not change the leader, because the coordinator keeps a leader that rejoins in time.

*Limit.* A process can never be sure that no other process leads, because it may be frozen between a
check of `is_leading` and the action that follows. So leadership only determines which process tries
to write. Generations (`mirror.state.generations`) determine which writes are valid, and fence the
writes of older leaders. Two rules keep the time short in which two processes act as leaders:

1. *Leadership ends by the local clock*, one session timeout after the last call to which the
   coordinator responded. The timeout starts when the call is *sent*. The coordinator restarts its
   own session timeout only later, when it receives the call. So a member stops leading before the
   coordinator can have removed it. The clock continues while the machine is suspended
   (`twinlog.clock`).
2. *Heartbeats continue while a JoinGroup waits*, over a second connection. A rebalance waits for a
   dead standby until the standby's session times out. Without heartbeats in this time, rule 1 would
   end the leadership of a healthy process.

*Failures.* If a leader is killed, the coordinator removes it after SESSION_TIMEOUT_MS, and a
standby notices the rebalance with its next heartbeat. A leader that shuts down cleanly leaves the
group, so that a standby leads immediately. If a coordinator dies or freezes, the cluster elects
another one, and members look it up. If the cluster is unreachable, the leader stops leading after a
session timeout, and no process leads.

A membership has no thread of its own. `_run` is a generator that yields the pause before its next
step, and a `RepeatedJob` runs these steps.

**Metadata**, with which a member describes itself, is JSON that members of other releases also
read. So each field may be missing, and each function that reads a field then returns a default.

    host, pid, started    who the process is, for people
    config                digests of its configuration by key (CONFIG_MISMATCH)
    share                 how many flows it leads, so that processes can share them evenly
    successor             the process to which a leader is about to hand over
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from twinlog.clock import boot_clock
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.group_protocol import GroupCalls, JoinedGroup
from twinlog.cluster.net.retry import (
    DEFAULT_PATIENCE,
    Backoff,
    Clock,
    Deadline,
    Patience,
    is_retriable,
)
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.errors import BrokerRefused, TwinlogError
from twinlog.threads import RepeatedJob
from twinlog.wire.error_codes import ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID

log = logging.getLogger(__name__)


class MemberRole(StrEnum):
    """The role of a member in its group."""

    JOINING = "joining"
    LEADING = "leading"
    STANDBY = "standby"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipState:
    """The state of a member. `problem` is the error because of which it has not joined, or None."""

    role: MemberRole = MemberRole.JOINING
    member_id: str = ""
    generation: int = -1
    leader: bytes = b""
    """Metadata of the group's leader. Empty while unknown."""
    members: int = 0
    """Number of members of the group. 0 unless this member is the leader."""
    others: tuple[bytes, ...] = ()
    """Metadata of the standbys. Empty unless this member is the leader."""
    problem: TwinlogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipShare:
    """What a standby reports to the leader: how many flows it leads, and if it is ready to lead
    this flow.
    """

    process: str
    leads: int
    """Number of flows that the process leads."""
    is_ready: bool
    """True if the process is ready to lead this flow."""


def process_metadata(config: Mapping[str, str] | None = None) -> bytes:
    """Return the metadata of this process. `config`: digests of the configuration, by key."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    member = {"host": socket.gethostname(), "pid": os.getpid(), "started": started}
    return with_config(json.dumps(member).encode(), config)


def with_config(metadata: bytes, config: Mapping[str, str] | None) -> bytes:
    """Return the metadata with these digests of the configuration (None: return it unchanged)."""
    return metadata if config is None else _with_part(metadata, config=dict(config))


def config_of(metadata: bytes) -> Mapping[str, str] | None:
    """Return the digests of the configuration in the metadata, or None if it has none."""
    try:
        config = json.loads(metadata)["config"]
    except (ValueError, KeyError, TypeError):
        return None
    return config if isinstance(config, dict) else None


def with_share(metadata: bytes, share: LeadershipShare) -> bytes:
    return _with_part(metadata, share=[share.process, share.leads, share.is_ready])


def share_of(metadata: bytes) -> LeadershipShare | None:
    try:
        process, leads, is_ready = json.loads(metadata)["share"]
        return LeadershipShare(process=str(process), leads=int(leads), is_ready=bool(is_ready))
    except (ValueError, KeyError, TypeError):
        return None


def with_successor(metadata: bytes, process: str) -> bytes:
    """Return a leader's metadata with its successor: the process to which it is about to hand over,
    or an empty text if there is none.
    """
    return _with_part(metadata, successor=process)


def _with_part(metadata: bytes, **part: object) -> bytes:
    return json.dumps({**json.loads(metadata), **part}).encode()


def successor_of(metadata: bytes) -> str:
    """Return the process to which the leader is about to hand over, or an empty text if none."""
    try:
        return str(json.loads(metadata).get("successor", ""))
    except (ValueError, AttributeError):
        return ""


def describe_member(metadata: bytes) -> str:
    """Return text like `process 4711 on host-a, since 2026-11-21T04:24:00+00:00`. Metadata in
    another format is returned as text.
    """
    if not metadata:
        return "not known yet"
    try:
        member = json.loads(metadata)
        return f"process {member['pid']} on {member['host']}, since {member['started']}"
    except (ValueError, KeyError, TypeError):
        return metadata.decode(errors="replace")


def process_of(metadata: bytes) -> tuple[str, int] | None:
    """Return a member's host and process ID, or None if its metadata does not have them."""
    try:
        member = json.loads(metadata)
        return str(member["host"]), int(member["pid"])
    except (ValueError, KeyError, TypeError):
        return None


SESSION_TIMEOUT_MS: Final = 10_000
HEARTBEAT_MS: Final = 3_000
"""Heartbeat interval of a leader. At most a third of the session timeout, as Kafka recommends, so
that two heartbeats may be lost.
"""

STANDBY_HEARTBEAT_S: Final = 1.0
"""Heartbeat interval of a standby. Short, because its next heartbeat shows that the leader died."""

REBALANCE_TIMEOUT_MS: Final = 60_000
"""Time for members to rejoin. It is longer than the session timeout, so that a slow rebalance never
ends a membership.
"""

LEAVE_TIMEOUT_S: Final = 2.0
WAIT_STEP_S: Final = 0.5


class Membership:
    """A member of a group. Joins after `start`, and rejoins after failures until `leave`."""

    def __init__(
        self,
        settings: ClusterSettings,
        group_id: str,
        *,
        metadata: bytes | None = None,
        on_change: Callable[[MembershipState], None] | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        clock: Clock = boot_clock,
        patience: Patience = DEFAULT_PATIENCE,
    ) -> None:
        self._metadata = process_metadata() if metadata is None else metadata
        self._on_change = on_change
        self._session_s = session_timeout_ms / 1000
        self._heartbeat_s = min(HEARTBEAT_MS, session_timeout_ms / 3) / 1000
        self._clock = clock
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._patience = replace(patience, sleep=self._pause)
        self._prompt_patience = replace(self._patience, backoff=Backoff(cap_ms=1_000))
        # a request to a silent broker must time out before the session does
        prompt = replace(settings, request_timeout_ms=session_timeout_ms // 2)
        self._client = ClusterClient(prompt, patience=self._patience)
        self._calls = GroupCalls(self._client, group_id, session_timeout_ms, REBALANCE_TIMEOUT_MS)
        self._changed = threading.Condition()
        self._state = MembershipState()
        self._joined: JoinedGroup | None = None
        self._confirmed_at = float("-inf")
        self._left_at: float | None = None
        steps = self._run()
        self._job = RepeatedJob(f"group-{group_id}", lambda: next(steps, 0.0), self._leave_group)

    def start(self) -> None:
        """Start to join the group, in the background."""
        self._job.start()

    @property
    def state(self) -> MembershipState:
        """The current state. The role is not LEADING if the session may have timed out."""
        with self._changed:
            state = self._state
        if state.role is MemberRole.LEADING and self._is_session_over():
            return replace(state, role=MemberRole.JOINING, leader=b"", others=())
        return state

    @property
    def is_leading(self) -> bool:
        """True if this member leads and, by its own clock, its session has not timed out."""
        return self.state.role is MemberRole.LEADING

    @property
    def leader_description(self) -> str:
        """Text about the leader, from its metadata."""
        return describe_member(self.state.leader)

    def wait_for(self, predicate: Callable[[MembershipState], bool], *, within_s: float) -> bool:
        """Wait until `predicate` is true for the state. Returns False after a timeout."""
        deadline = Deadline.within(within_s, self._patience.clock)
        with self._changed:
            while not predicate(self.state):
                if deadline.has_passed:
                    return False
                # wait in steps, because nothing notifies the condition when the leadership ends by
                # the local clock
                self._changed.wait(min(deadline.left_s, WAIT_STEP_S))
            return True

    @property
    def metadata(self) -> bytes:
        return self._metadata

    def announce(self, metadata: bytes) -> None:
        """Change the member's metadata. The member rejoins with it after at most a heartbeat
        interval.
        """
        self._metadata = metadata

    @property
    def since_leave_s(self) -> float | None:
        """Seconds since the call of `leave`, or None if it was not called."""
        return None if self._left_at is None else self._clock() - self._left_at

    def leave(self) -> None:
        """Leave the group, so that a standby takes over immediately. Returns when the member has
        left, or after a timeout.
        """
        if not self._stop.is_set():
            self._left_at = self._clock()
        self._stop.set()
        self._wake.set()
        self._job.stop()
        self._job.join(3 * LEAVE_TIMEOUT_S)

    def retry_now(self) -> None:
        """Retry without the rest of the pause, because the cause of the failure may be gone."""
        self._wake.set()
        self._job.run_now()

    def _pause(self, seconds: float) -> None:
        """Pause for this time, or until `retry_now` or `leave`. No pause after `leave`."""
        if not self._stop.is_set():
            self._wake.wait(seconds)
            self._wake.clear()

    def _run(self) -> Iterator[float]:
        """Take part in the group until `leave`. Yields the seconds before the next step."""
        failures = 0
        while not self._stop.is_set():
            try:
                yield from self._run_generation()
                failures = 0
            except TwinlogError as error:
                failures += 1
                self._on_failed(error)
                yield self._patience.wait_s(failures)

    def _run_generation(self) -> Iterator[float]:
        """Take part in one generation: join, sync, and send heartbeats until a rebalance."""
        sent = self._clock()
        metadata = self._metadata
        joined = self._calls.join(metadata, self._while_delayed)
        if joined is None:
            return
        self._joined = joined
        if not joined.leads and self._state.role is MemberRole.LEADING:
            self._step_down()
        assignments = dict.fromkeys(joined.members, metadata) if joined.leads else {}
        leader = self._calls.sync(joined, assignments, self._while_delayed)
        if leader is None:
            return
        self._confirmed_at = max(sent, self._confirmed_at)
        if self._clock() - self._confirmed_at >= self._heartbeat_s:
            # the join was delayed, so the session, which began when the join was sent, may be
            # almost over. Send a heartbeat before leading, or lanes would start and be stopped
            # again
            self._heartbeat(joined)
        self._set_joined(joined, leader)
        yield from self._send_heartbeats(joined, leader, metadata)

    def _send_heartbeats(
        self, joined: JoinedGroup, leader: bytes, metadata: bytes
    ) -> Iterator[float]:
        """Send heartbeats until a rebalance begins or the metadata changes. Continues after
        retriable errors.
        """
        failures = 0
        pause_s = self._heartbeat_s if joined.leads else min(self._heartbeat_s, STANDBY_HEARTBEAT_S)
        while not self._stop.is_set():
            yield self._prompt_patience.wait_s(failures) if failures else pause_s
            if self._stop.is_set() or self._metadata is not metadata:
                return
            try:
                is_stable = self._heartbeat(joined)
            except TwinlogError as error:
                if not is_retriable(error):
                    raise
                failures += 1
                self._on_failed(error)
                continue
            if not is_stable:
                return
            failures = 0
            self._set_joined(joined, leader)

    def _set_joined(self, joined: JoinedGroup, leader: bytes) -> None:
        self._set_state(
            MembershipState(
                role=MemberRole.LEADING if joined.leads else MemberRole.STANDBY,
                member_id=joined.member_id,
                generation=joined.generation,
                leader=leader,
                members=len(joined.members),
                others=tuple(
                    metadata
                    for member, metadata in joined.members.items()
                    if member != joined.member_id
                ),
            )
        )

    def _heartbeat(self, joined: JoinedGroup) -> bool:
        """Send a heartbeat. Returns False if a rebalance has begun, so the member must rejoin."""
        sent = self._clock()
        try:
            self._calls.heartbeat(joined, timeout_s=self._heartbeat_s)
        except BrokerRefused as error:
            if error.kafka_error != REBALANCE_IN_PROGRESS:
                raise
            # the coordinator responded, so it has also restarted the session timeout, as after a
            # heartbeat without an error
            self._confirmed_at = sent
            return False
        self._confirmed_at = sent
        return True

    def _while_delayed(self) -> bool:
        """While a response to `join` or `sync` is delayed, send a heartbeat if this member leads
        and one is due. Returns False after `leave`.
        """
        if self._joined is not None and self._state.role is MemberRole.LEADING:
            self._keep_leading(self._joined)
        return not self._stop.is_set()

    def _keep_leading(self, joined: JoinedGroup) -> None:
        if self._clock() - self._confirmed_at < self._heartbeat_s:
            return
        sent = self._clock()
        try:
            self._calls.heartbeat_in_parallel(joined, timeout_s=self._heartbeat_s)
            self._confirmed_at = sent
        except TwinlogError as error:
            number = error.kafka_error if isinstance(error, BrokerRefused) else 0
            if number == REBALANCE_IN_PROGRESS:
                self._confirmed_at = sent
            log.debug("a heartbeat failed while joining the group error=%s", error)
        if self._is_session_over():
            self._step_down()

    def _on_failed(self, error: TwinlogError) -> None:
        log.debug("group membership failed error=%s", error)
        number = error.kafka_error if isinstance(error, BrokerRefused) else 0
        if number == REBALANCE_IN_PROGRESS:
            return
        if number in (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION) or self._is_session_over():
            self._step_down()
        self._set_state(replace(self._state, problem=error))

    def _step_down(self) -> None:
        self._set_state(replace(self._state, role=MemberRole.JOINING, leader=b"", others=()))

    def _leave_group(self) -> None:
        try:
            self._calls.leave(timeout_s=LEAVE_TIMEOUT_S)
        except TwinlogError as error:
            log.debug("leaving the group failed error=%s", error)
        self._calls.close()
        self._client.close()
        self._set_state(MembershipState(role=MemberRole.LEFT))

    def _is_session_over(self) -> bool:
        return self._clock() - self._confirmed_at >= self._session_s

    def _set_state(self, state: MembershipState) -> None:
        with self._changed:
            if state == self._state:
                return
            self._state = state
            self._changed.notify_all()
        if self._on_change is not None:
            self._on_change(state)
