"""Who leads: one of several members, another one when it leaves, dies, or is not heard any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.support.eventually import eventually
from tests.support.settings import settings_for
from twinlog.cluster.groups.membership import Membership, MembershipState, Role
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

SESSION_MS = 6_000
"""The least that brokers allow (group.min.session.timeout.ms)."""

MEMBER_PROGRAM = """
import sys
from tests.support.settings import settings_for
from twinlog.cluster.groups.membership import Membership
member = Membership(settings_for(sys.argv[1]), sys.argv[2], session_timeout_ms=int(sys.argv[3]))
member.start()
print(member.wait_until_leading(30), flush=True)
sys.stdin.read()
"""

Join = Callable[..., Membership]


def leads(state: MembershipState) -> bool:
    return state.role is Role.LEADING


def stands_by(state: MembershipState) -> bool:
    return state.role is Role.STANDBY


@pytest.fixture
def group() -> str:
    return f"test-{uuid.uuid4()}"


@pytest.fixture
def join(source_cluster: LocalCluster, group: str) -> Iterator[Join]:
    members: list[Membership] = []

    def join_as(name: str = "somebody", **options: object) -> Membership:
        member = Membership(
            settings_for(source_cluster.bootstrap),
            group,
            metadata=name.encode(),
            session_timeout_ms=SESSION_MS,
            **options,  # type: ignore[arg-type]
        )
        member.start()
        members.append(member)
        return member

    yield join_as
    for member in members:
        member.leave()


def test_first_member_leads_and_the_others_see_who_it_is(join: Join) -> None:
    first = join("first")
    assert first.wait_until_leading(30)
    second = join("second")
    assert second.wait_for(stands_by, within_s=30)
    assert second.leader_description == "first"
    assert not second.is_leading
    assert first.is_leading, "a leader goes on leading through a rebalance"
    assert first.wait_for(lambda state: state.members == 2, within_s=30)


def test_leader_never_stops_leading_while_others_come_and_go(join: Join) -> None:
    roles: list[Role] = []
    first = join("first", on_change=lambda state: roles.append(state.role))
    assert first.wait_until_leading(30)
    for _ in range(2):
        other = join("other")
        assert other.wait_for(stands_by, within_s=30)
        other.leave()
    assert first.wait_for(lambda state: state.members == 1, within_s=30)
    assert set(roles[roles.index(Role.LEADING) :]) == {Role.LEADING}


def test_standby_follows_a_leader_that_left(join: Join) -> None:
    first, second = join("first"), None
    assert first.wait_until_leading(30)
    second = join("second")
    assert second.wait_for(stands_by, within_s=30)
    began = time.monotonic()
    first.leave()
    assert time.monotonic() - began < 2
    assert first.state.role is Role.LEFT
    assert second.wait_until_leading(SESSION_MS / 1000), "within a heartbeat, not a session"
    assert second.leader_description == "second"


def test_what_a_leader_announces_reaches_the_standbys_and_it_goes_on_leading(join: Join) -> None:
    roles: list[Role] = []
    first = join("first", on_change=lambda state: roles.append(state.role))
    assert first.wait_until_leading(30)
    second = join("second")
    assert second.wait_for(stands_by, within_s=30)
    first.announce(b"first, with other words")
    assert second.wait_for(lambda state: state.leader == first.metadata, within_s=15)
    assert second.leader_description == "first, with other words"
    assert first.is_leading
    assert set(roles[roles.index(Role.LEADING) :]) == {Role.LEADING}


def test_leaving_while_the_coordinator_holds_the_join_back(join: Join, group: str) -> None:
    """The leader hears of the rebalance with its next heartbeat; leaving must not wait for that."""
    first = join("first")
    assert first.wait_until_leading(30)
    second = join("second")
    time.sleep(0.3)
    began = time.monotonic()
    second.leave()
    assert time.monotonic() - began < 2


def test_silence_ends_the_leading_by_our_own_clock(join: Join) -> None:
    jump = 0.0

    def clock() -> float:
        return time.monotonic() + jump

    member = join("first", clock=clock)
    assert member.wait_until_leading(30)
    jump = SESSION_MS / 1000
    assert not member.is_leading
    assert member.wait_until_leading(30), "the coordinator still knows it: the next heartbeat"


def start_member(bootstrap: str, group: str) -> subprocess.Popen[str]:
    """A leading member in a process of its own."""
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
        assert standby.wait_for(stands_by, within_s=30)
        assert f"process {process.pid}" in standby.leader_description
        os.kill(process.pid, blow)
        began = time.monotonic()
        assert standby.wait_until_leading(2 * SESSION_MS / 1000 + 5)
        assert time.monotonic() - began > 1, "not before the session of the silent one ended"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.faults
def test_lead_that_was_waited_for_does_not_end_before_its_first_heartbeat(
    join: Join, source_cluster: LocalCluster, group: str
) -> None:
    """The join is held back until a dead leader's session ends: that is almost our own session."""
    process = start_member(source_cluster.bootstrap, group)
    process.kill()
    process.communicate()
    time.sleep(SESSION_MS / 4000)
    roles: list[Role] = []
    follower = join("follower")
    assert follower.wait_until_leading(2 * SESSION_MS / 1000 + 5)
    until = time.monotonic() + SESSION_MS / 2000
    while time.monotonic() < until:
        roles.append(follower.state.role)
        time.sleep(0.01)
    assert set(roles) == {Role.LEADING}


@pytest.mark.faults
def test_leader_keeps_leading_while_a_rebalance_waits_for_a_dead_standby(
    join: Join, source_cluster: LocalCluster, group: str
) -> None:
    """A dead standby, a new one: joins are held back until the session of the dead one ends.

    Two jumps of the leader's clock, together longer than its session, fall into that time.
    """
    jump = 0.0
    roles: list[Role] = []

    def clock() -> float:
        return time.monotonic() + jump

    leader = join("leader", clock=clock, on_change=lambda state: roles.append(state.role))
    assert leader.wait_until_leading(30)
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER_PROGRAM, source_cluster.bootstrap, group, str(SESSION_MS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    try:
        assert leader.wait_for(lambda state: state.members == 2, within_s=30)
    finally:
        process.kill()
        process.communicate()
    newcomer = join("newcomer")
    time.sleep(SESSION_MS / 3000 + 0.5)  # the leader hears of the rebalance, and joins again
    for _ in range(2):
        jump += SESSION_MS / 1000 * 0.6
        time.sleep(0.4)
        assert leader.is_leading
    assert newcomer.wait_for(stands_by, within_s=4 * SESSION_MS / 1000)
    assert leader.is_leading
    assert set(roles[roles.index(Role.LEADING) :]) == {Role.LEADING}


@pytest.mark.faults
def test_coordinator_that_died_is_found_again(source3: LocalCluster, group: str) -> None:
    settings = settings_for(source3.bootstrap)
    member = Membership(settings, group, metadata=b"only", session_timeout_ms=SESSION_MS)
    member.start()
    try:
        assert member.wait_until_leading(60)
        for node in list(source3.broker_pids):
            source3.kill(node)
            source3.restart(node)
        eventually(lambda: member.is_leading and member.state.problem is None)
        assert leads(member.state)
    finally:
        member.leave()
