"""Leader election: membership of a group, of which the group leader leads the flow.

    JOINING --> LEADING | STANDBY --> ... --> LEFT

*Problem.* Several processes may run a flow, and one of them must lead it. If it dies, another one
must take over within seconds, without a coordination service beside Kafka. Kafka's own group
protocol elects a leader among the members of a group, and notices that a member is dead. The leader
sends its metadata to the standbys as their assignment, so they know who leads. It stays leader
through a rebalance, because the coordinator keeps a leader that rejoins in time.

*What this cannot give.* At no moment can a process be sure that it alone leads: it may be frozen
between a check of `is_leading` and the action that follows. So leadership only decides who tries to
write. Whether a write counts is decided by generations (`mirror.state.generations`), which fence
the writes of older leaders. Two rules keep the time short in which two processes act as leaders:

1. *Leadership ends by the local clock*, one session timeout after the last call to which the
   coordinator responded. The time is counted from when that call was *sent*, because the
   coordinator has restarted its own session timeout only later. So a member stops leading before
   the coordinator can have removed it. The clock continues while the machine is suspended
   (`twinlog.clock`).
2. *Heartbeats continue while a JoinGroup waits*, over a second connection. A rebalance waits for a
   dead standby for up to its session timeout. By rule 1, that silence would otherwise end the
   leadership of a healthy process.

*What may die.* A leader that is killed is removed after SESSION_TIMEOUT_MS, and a standby notices
that with its next heartbeat. A leader that ends cleanly leaves the group, so that a standby leads
immediately. A coordinator that dies or freezes is replaced by the cluster, and members look up its
successor. If the cluster is unreachable, the leader stops leading after a session timeout, and no
process leads.

A membership has no thread of its own: between heartbeats it pauses as a `RepeatedJob`, and `_run`
is a generator that yields its pauses.

**Metadata**, with which a member describes itself, is JSON that other members and other releases
read. So each part may be missing, and each reader of a part returns a default if it is.

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
from twinlog.cluster.groups.group_protocol import GroupCalls, GroupSettings, JoinedGroup
from twinlog.cluster.net.retry import DEFAULT_PATIENCE, Backoff, Clock, Patience, is_retriable
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.errors import BrokerRefused, TwinlogError
from twinlog.threads import RepeatedJob
from twinlog.wire.error_codes import ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID

log = logging.getLogger(__name__)


class MemberRole(StrEnum):
    """What a member currently does."""

    JOINING = "joining"
    LEADING = "leading"
    STANDBY = "standby"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipState:
    """The state of a member. `problem` is why it has not joined."""

    role: MemberRole = MemberRole.JOINING
    member_id: str = ""
    generation: int = -1
    leader: bytes = b""
    """Metadata of the leader. Empty while unknown."""
    members: int = 0
    """Number of members. Only the leader knows it; otherwise 0."""
    others: tuple[bytes, ...] = ()
    """Metadata of the standbys. Only the leader knows it."""
    problem: TwinlogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A process's share of the work, which a standby reports to the leader."""

    process: str
    leads: int
    """Number of flows that the process leads."""
    is_ready: bool
    """Whether the process could lead this flow."""


def process_metadata(config: Mapping[str, str] | None = None) -> bytes:
    """Return the metadata of this process, with digests of its configuration by key."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    member = {"host": socket.gethostname(), "pid": os.getpid(), "started": started}
    return with_config(json.dumps(member).encode(), config)


def with_config(metadata: bytes, config: Mapping[str, str] | None) -> bytes:
    """Return the metadata with this configuration, unless it is None."""
    return metadata if config is None else _with_part(metadata, config=dict(config))


def config_of(metadata: bytes) -> Mapping[str, str] | None:
    """Return the digests of the configuration in the metadata, or None."""
    try:
        config = json.loads(metadata)["config"]
    except (ValueError, KeyError, TypeError):
        return None
    return config if isinstance(config, dict) else None


def with_share(metadata: bytes, share: Share) -> bytes:
    return _with_part(metadata, share=[share.process, share.leads, share.is_ready])


def share_of(metadata: bytes) -> Share | None:
    try:
        process, leads, is_ready = json.loads(metadata)["share"]
        return Share(process=str(process), leads=int(leads), is_ready=bool(is_ready))
    except (ValueError, KeyError, TypeError):
        return None


def with_successor(metadata: bytes, process: str) -> bytes:
    """Return a leader's metadata with the process to which it is about to hand over, or empty."""
    return _with_part(metadata, successor=process)


def _with_part(metadata: bytes, **part: object) -> bytes:
    return json.dumps({**json.loads(metadata), **part}).encode()


def successor_of(metadata: bytes) -> str:
    """Return the process to which the leader is about to hand over, or an empty text."""
    try:
        return str(json.loads(metadata).get("successor", ""))
    except (ValueError, AttributeError):
        return ""


def describe_member(metadata: bytes) -> str:
    """Return text like `process 4711 on host-a, since 2026-11-21T04:24:00+00:00`. Unknown metadata
    is returned unchanged.
    """
    if not metadata:
        return "not known yet"
    try:
        member = json.loads(metadata)
        return f"process {member['pid']} on {member['host']}, since {member['started']}"
    except (ValueError, KeyError, TypeError):
        return metadata.decode(errors="replace")


SESSION_TIMEOUT_MS: Final = 10_000
HEARTBEAT_MS: Final = 3_000
"""Kafka recommends at most a third of the session timeout, so that two heartbeats may be lost."""

STANDBY_HEARTBEAT_S: Final = 1.0
"""Short, because a standby learns from its next heartbeat that the leader is dead."""

REBALANCE_TIMEOUT_MS: Final = 60_000
"""Longer than the session timeout, so that a slow rebalance never ends a membership."""

LEAVE_TIMEOUT_S: Final = 2.0
WAIT_STEP_S: Final = 0.5


class Membership:
    """A member of a group, until `leave`."""

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
        # a silent broker must not delay the next attempt for as long as a session
        prompt = replace(settings, request_timeout_ms=session_timeout_ms // 2)
        self._client = ClusterClient(prompt, patience=self._patience)
        group = GroupSettings(
            group_id=group_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        )
        self._calls = GroupCalls(self._client, group)
        self._changed = threading.Condition()
        self._state = MembershipState()
        self._joined: JoinedGroup | None = None
        self._confirmed_at = float("-inf")
        self._left_at: float | None = None
        steps = self._run()
        self._job = RepeatedJob(f"group-{group_id}", lambda: next(steps, 0.0), self._leave_group)

    def start(self) -> None:
        """Join the group, in the background."""
        self._job.start()

    @property
    def state(self) -> MembershipState:
        """The current state. Its role is no longer LEADING once the session may have ended."""
        with self._changed:
            state = self._state
        if state.role is MemberRole.LEADING and self._is_session_over():
            return replace(state, role=MemberRole.JOINING, leader=b"", others=())
        return state

    @property
    def is_leading(self) -> bool:
        """Whether this member leads now, by its own clock."""
        return self.state.role is MemberRole.LEADING

    @property
    def leader_description(self) -> str:
        """Text about the leader, from its metadata."""
        return describe_member(self.state.leader)

    def wait_for(self, predicate: Callable[[MembershipState], bool], *, within_s: float) -> bool:
        """Wait until the state satisfies the predicate. Returns False after a timeout."""
        deadline = self._patience.deadline(within_s)
        with self._changed:
            while not predicate(self.state):
                if deadline.has_passed:
                    return False
                # waits in steps, because no event occurs when the leadership ends by the local
                # clock
                self._changed.wait(min(deadline.left_s, WAIT_STEP_S))
            return True

    @property
    def metadata(self) -> bytes:
        return self._metadata

    def announce(self, metadata: bytes) -> None:
        """Change the metadata of this member. It rejoins with it within a heartbeat."""
        self._metadata = metadata

    @property
    def gone_for_s(self) -> float | None:
        """Seconds since `leave`, or None before it."""
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
        """End a pause, because the cause of a failure may be gone."""
        self._wake.set()
        self._job.run_now()

    def _pause(self, seconds: float) -> None:
        """Pause for this time, or until `retry_now` or `leave`. After `leave` it does not pause."""
        if not self._stop.is_set():
            self._wake.wait(seconds)
            self._wake.clear()

    def _run(self) -> Iterator[float]:
        """Take part in generations until `leave`. Yields the seconds until it is to go on."""
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
        """Take part in one generation: join, sync, then heartbeats until the next one begins."""
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
            # the join was delayed, so the session counted from its sending may be almost over: a
            # heartbeat first, or lanes would be started only to be stopped
            self._heartbeat(joined)
        self._set_joined(joined, leader)
        yield from self._send_heartbeats(joined, leader, metadata)

    def _send_heartbeats(
        self, joined: JoinedGroup, leader: bytes, metadata: bytes
    ) -> Iterator[float]:
        """Send heartbeats until a rebalance begins or the metadata changes. Retriable failures do
        not end it.
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
        """Send a heartbeat. Returns False if a rebalance has begun: the member must rejoin."""
        sent = self._clock()
        try:
            self._calls.heartbeat(joined, timeout_s=self._heartbeat_s)
        except BrokerRefused as error:
            if error.kafka_error != REBALANCE_IN_PROGRESS:
                raise
            # a rebalance is in progress, so the coordinator still has this member
            self._confirmed_at = sent
            return False
        self._confirmed_at = sent
        return True

    def _while_delayed(self) -> bool:
        """Keep leading while a response is delayed. Returns False if the member leaves."""
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
