"""One member of a group leads. After it leaves, dies or is silent, another member leads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.support.eventually import PATIENCE_S, eventually
from tests.support.settings import settings_for
from tests.support.stopwatch import Stopwatch
from twinlog.cluster.groups.membership import MemberRole, Membership, MembershipState
from twinlog.cluster.net.retry import Backoff, Patience
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

SESSION_MS = 6_000
LASTING_MS = 300_000
"""Session timeout in milliseconds for sessions that must not end, however long the machine stalls.
"""
"""`SESSION_MS` is the minimum that brokers allow (group.min.session.timeout.ms)."""

MEMBER_PROGRAM = """
import sys
from tests.support.settings import settings_for
from twinlog.cluster.net.retry import Backoff, Patience
from twinlog.cluster.groups.membership import MemberRole
from twinlog.cluster.groups.membership import Membership
member = Membership(settings_for(sys.argv[1]), sys.argv[2], session_timeout_ms=int(sys.argv[3]))
member.start()
print(member.wait_for(lambda state: state.role is MemberRole.LEADING, within_s=300), flush=True)
sys.stdin.read()
"""

Join = Callable[..., Membership]


def leads(state: MembershipState) -> bool:
    return state.role is MemberRole.LEADING


def stands_by(state: MembershipState) -> bool:
    return state.role is MemberRole.STANDBY


@pytest.fixture
def group() -> str:
    return f"test-{uuid.uuid4()}"


@pytest.fixture
def join(source_cluster: LocalCluster, group: str) -> Iterator[Join]:
    members: list[Membership] = []

    def join_as(name: str = "somebody", **options: object) -> Membership:
        options.setdefault("session_timeout_ms", SESSION_MS)
        member = Membership(
            settings_for(source_cluster.bootstrap),
            group,
            metadata=name.encode(),
            **options,  # type: ignore[arg-type]
        )
        member.start()
        members.append(member)
        return member

    yield join_as
    for member in members:
        member.leave()


@pytest.mark.witness("one of several group members leads")
def test_first_member_leads_and_the_others_know_it(join: Join) -> None:
    first = join("first", session_timeout_ms=LASTING_MS)
    assert first.wait_for(leads, within_s=PATIENCE_S)
    second = join("second", session_timeout_ms=LASTING_MS)
    assert second.wait_for(stands_by, within_s=PATIENCE_S)
    assert second.leader_description == "first"
    assert not second.is_leading
    assert first.is_leading, "a leader continues leading through a rebalance"
    assert first.wait_for(lambda state: state.members == 2, within_s=PATIENCE_S)


def test_leader_never_stops_leading_while_others_come_and_go(join: Join) -> None:
    roles: list[MemberRole] = []
    first = join(
        "first", session_timeout_ms=LASTING_MS, on_change=lambda state: roles.append(state.role)
    )
    assert first.wait_for(leads, within_s=PATIENCE_S)
    for _ in range(2):
        other = join("other", session_timeout_ms=LASTING_MS)
        assert other.wait_for(stands_by, within_s=PATIENCE_S)
        other.leave()
    assert first.wait_for(lambda state: state.members == 1, within_s=PATIENCE_S)
    assert set(roles[roles.index(MemberRole.LEADING) :]) == {MemberRole.LEADING}


def test_standby_follows_a_leader_that_left(join: Join) -> None:
    first, second = join("first", session_timeout_ms=LASTING_MS), None
    assert first.wait_for(leads, within_s=PATIENCE_S)
    second = join("second", session_timeout_ms=LASTING_MS)
    assert second.wait_for(stands_by, within_s=PATIENCE_S)
    with Stopwatch() as since:
        first.leave()
    assert since.seconds < 2
    assert first.state.role is MemberRole.LEFT
    with Stopwatch() as since:
        assert second.wait_for(leads, within_s=PATIENCE_S)
    assert since.seconds < SESSION_MS / 1000, "within a heartbeat, not a session"
    assert second.leader_description == "second"


def test_a_leaders_announcement_reaches_the_standbys_and_it_keeps_leading(join: Join) -> None:
    roles: list[MemberRole] = []
    first = join(
        "first", session_timeout_ms=LASTING_MS, on_change=lambda state: roles.append(state.role)
    )
    assert first.wait_for(leads, within_s=PATIENCE_S)
    second = join("second", session_timeout_ms=LASTING_MS)
    assert second.wait_for(stands_by, within_s=PATIENCE_S)
    first.announce(b"first, with other words")
    assert second.wait_for(lambda state: state.leader == first.metadata, within_s=PATIENCE_S)
    assert second.leader_description == "first, with other words"
    assert first.is_leading
    assert set(roles[roles.index(MemberRole.LEADING) :]) == {MemberRole.LEADING}


def test_leaving_while_the_coordinator_holds_the_join_back(join: Join, group: str) -> None:
    """A second member has joined, and the coordinator delays the response to its join until the
    leader's next heartbeat. The second member must be able to leave without waiting for this
    response.
    """
    first = join("first", session_timeout_ms=LASTING_MS)
    assert first.wait_for(leads, within_s=PATIENCE_S)
    second = join("second", session_timeout_ms=LASTING_MS)
    time.sleep(0.3)  # until the coordinator has received the join
    with Stopwatch() as since:
        second.leave()
    assert since.seconds < 2


def test_retry_now_skips_a_retry_pause(group: str) -> None:
    """The coordinator's address does not respond, so the next attempt would be after five minutes.
    `retry_now` makes the member retry immediately. Leaving does not wait for the pause either.
    """
    pauses: list[float] = []

    def longest(_: float, most: float) -> float:
        pauses.append(most)
        return most

    long = Patience(backoff=Backoff(initial_ms=300_000, cap_ms=300_000), uniform=longest)
    member = Membership(settings_for("127.0.0.1:1"), group, patience=long)
    member.start()
    try:
        eventually(lambda: pauses)

        def many() -> bool:
            member.retry_now()
            return len(pauses) > 20

        eventually(many)
    finally:
        with Stopwatch() as since:
            member.leave()
    assert since.seconds < 5, "nor at the end"


@pytest.mark.witness("a leader that gets no responses stops leading by its own clock")
def test_silence_ends_the_leadership_by_the_local_clock(join: Join) -> None:
    jump = 0.0

    def clock() -> float:
        return time.monotonic() + jump

    member = join("first", clock=clock)
    assert member.wait_for(leads, within_s=PATIENCE_S)
    jump = SESSION_MS / 1000
    assert not member.is_leading
    assert member.wait_for(leads, within_s=PATIENCE_S), "its coordinator still knows it"


def start_member(bootstrap: str, group: str) -> subprocess.Popen[str]:
    """Start a member in another process, and wait until it leads."""
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER_PROGRAM, bootstrap, group, str(SESSION_MS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "True"
    return process


@pytest.mark.faults
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_standby_follows_a_leader_that_fell_silent(
    join: Join, source_cluster: LocalCluster, group: str, blow: signal.Signals
) -> None:
    process = start_member(source_cluster.bootstrap, group)
    try:
        standby = join("standby")
        assert standby.wait_for(stands_by, within_s=PATIENCE_S)
        assert f"process {process.pid}" in standby.leader_description
        os.kill(process.pid, blow)
        began = time.monotonic()
        assert standby.wait_for(leads, within_s=PATIENCE_S)
        assert time.monotonic() - began > 1, "not before the session of the silent one ended"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.faults
def test_lead_that_was_waited_for_does_not_end_before_its_first_heartbeat(
    join: Join, source_cluster: LocalCluster, group: str
) -> None:
    """The coordinator delays a follower's join until the dead leader's session ends, for almost a
    session timeout. The follower then leads, and its lead must not end before its first heartbeat.
    """
    process = start_member(source_cluster.bootstrap, group)
    process.kill()
    process.communicate()
    time.sleep(SESSION_MS / 4000)  # so that the dead session ends before most of the new one
    roles: list[MemberRole] = []
    follower = join("follower")
    assert follower.wait_for(leads, within_s=PATIENCE_S)
    until = time.monotonic() + SESSION_MS / 2000
    while time.monotonic() < until:
        roles.append(follower.state.role)
        time.sleep(0.01)
    assert set(roles) == {MemberRole.LEADING}


@pytest.mark.faults
def test_leader_keeps_leading_while_a_rebalance_waits_for_a_dead_standby(
    join: Join, source_cluster: LocalCluster, group: str
) -> None:
    """A standby has died and a new one joins, so the coordinator delays joins until the dead
    standby's session ends. In this time the leader's clock jumps twice, together by more than its
    session timeout. The leader must continue to lead.
    """
    jump = 0.0
    roles: list[MemberRole] = []

    def clock() -> float:
        return time.monotonic() + jump

    leader = join("leader", clock=clock, on_change=lambda state: roles.append(state.role))
    assert leader.wait_for(leads, within_s=PATIENCE_S)
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER_PROGRAM, source_cluster.bootstrap, group, str(SESSION_MS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    try:
        assert leader.wait_for(lambda state: state.members == 2, within_s=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    newcomer = join("newcomer")
    time.sleep(SESSION_MS / 3000 + 0.5)  # for a heartbeat, after which the leader joins again
    for _ in range(2):
        jump += SESSION_MS / 1000 * 0.6
        time.sleep(0.4)  # for one or two heartbeats
        assert leader.is_leading
    assert newcomer.wait_for(stands_by, within_s=PATIENCE_S)
    assert leader.is_leading
    assert set(roles[roles.index(MemberRole.LEADING) :]) == {MemberRole.LEADING}


@pytest.mark.faults
def test_coordinator_that_died_is_found_again(source3: LocalCluster, group: str) -> None:
    settings = settings_for(source3.bootstrap)
    member = Membership(settings, group, metadata=b"only", session_timeout_ms=SESSION_MS)
    member.start()
    try:
        assert member.wait_for(leads, within_s=60)
        for node in list(source3.broker_pids):
            source3.kill(node)
            source3.restart(node)
        eventually(lambda: member.is_leading and member.state.problem is None)
        assert leads(member.state)
    finally:
        member.leave()
