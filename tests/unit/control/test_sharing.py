"""Which process hands a flow over to which other process, and when, without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from tests.support.driver import HandClock
from twinlog.cluster.groups.membership import (
    LeadershipShare,
    MemberRole,
    MembershipState,
    process_metadata,
    share_of,
    successor_of,
    with_share,
    with_successor,
)
from twinlog.control.flow.managed_flow import ManagedFlow
from twinlog.control.flow.phases import Life, Step
from twinlog.control.leading.lead import StandingBy
from twinlog.control.process.sharing import Sharing
from twinlog.mirror.state.intents import FlowIntents

CONFIG = {"topics": "0011"}


class Group:
    """The state of a group membership, and the process's announcements in the group."""

    def __init__(self, role: MemberRole, others: Sequence[bytes]) -> None:
        self.metadata = process_metadata(CONFIG)
        self.state = MembershipState(role=role, others=tuple(others))

    @property
    def is_leading(self) -> bool:
        return self.state.role is MemberRole.LEADING

    def announce(self, metadata: bytes) -> None:
        self.metadata = metadata


class Run:
    current = object()
    is_stopping = False
    intents = FlowIntents()

    def stop(self) -> None:
        self.is_stopping = True


def standby(
    process: str = "other", leads: int = 0, *, is_ready: bool = True, config: str = "0011"
) -> bytes:
    share = LeadershipShare(process=process, leads=leads, is_ready=is_ready)
    return with_share(process_metadata({"topics": config}), share)


class Process:
    """A process that leads flows. For each flow, the same other processes are standbys."""

    def __init__(self, leads: int, *others: bytes, stands_by_for: int = 0) -> None:
        self.now = 1000.0
        self.sharing = Sharing(30.0, young_s=0.0, clock=lambda: self.now, chance=lambda: 0.0)
        self.flows = [self._flow(n, MemberRole.LEADING, others) for n in range(leads)]
        self.flows += [self._flow(100 + n, MemberRole.STANDBY, ()) for n in range(stands_by_for)]

    def _flow(self, number: int, role: MemberRole, others: Sequence[bytes]) -> ManagedFlow:
        setup: Any = SimpleNamespace(name=f"A{number}->B", membership=Group(role, others))
        flow = ManagedFlow(setup=setup, process=cast("Any", SimpleNamespace(clock=HandClock())))
        if role is MemberRole.LEADING:
            flow.life.take(Step.TRIED)
            flow.life.take(Step.LED)
            flow.generation = cast("Any", SimpleNamespace(run=Run()))
        else:
            flow.trouble.set_up_failed(StandingBy("standing by"))
        return flow

    def others(self, *others: bytes) -> None:
        for flow in self.flows:
            group: Any = flow.setup.membership
            group.state = MembershipState(role=group.state.role, others=others)

    def after(self, seconds: float) -> int:
        """Move the clock, and return the number of flows that are being handed over."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            self.sharing.turn(self.flows, can_lead=True)
        return sum(flow.offer is not None for flow in self.flows)

    def moved(self) -> None:
        """Make another process the leader of the flows that are being handed over."""
        for flow in self.flows:
            if flow.offer is not None:
                flow.offer = flow.generation = None
                flow.life = Life()
                group: Any = flow.setup.membership
                group.state = MembershipState(role=MemberRole.STANDBY)


def test_half_of_the_difference_goes_when_it_has_stood_for_a_while() -> None:
    process = Process(4, standby())
    assert process.after(29) == 0
    assert process.after(2) == 2
    assert [flow.run.is_stopping for flow in process.flows if flow.run] == [
        False,
        False,
        True,
        True,
    ]


def test_a_difference_of_one_is_even() -> None:
    assert Process(2, standby(leads=1)).after(600) == 0
    assert Process(1, standby(leads=0)).after(600) == 0


def test_a_sole_process_keeps_everything() -> None:
    assert Process(4).after(600) == 0


def test_nothing_goes_to_a_process_that_could_not_lead_it() -> None:
    assert Process(4, standby(is_ready=False)).after(600) == 0
    assert Process(4, standby(config="2233")).after(600) == 0
    assert Process(4, process_metadata(CONFIG)).after(600) == 0


def test_a_process_that_comes_and_goes_gets_nothing() -> None:
    process = Process(4, standby())
    for _ in range(20):
        assert process.after(20) == 0
        process.others()
        assert process.after(1) == 0
        process.others(standby())


def test_a_handed_over_flow_counts_before_it_is_announced() -> None:
    process = Process(4, standby())
    assert process.after(31) == 2
    process.moved()
    assert process.after(250) == 0


def test_a_process_that_has_left_gets_no_flow() -> None:
    process = Process(2, standby(), standby("third", leads=1))
    assert process.after(30.5) == 1
    process.others(standby("third", leads=1))
    assert process.after(1) == 0
    assert not any(flow.run.is_stopping for flow in process.flows if flow.run)
    announced = [flow.setup.membership.metadata for flow in process.flows if flow.setup.membership]
    assert [successor_of(metadata) for metadata in announced] == ["", ""]


def test_with_several_standbys_the_successor_is_named_first() -> None:
    process = Process(2, standby(), standby("third", leads=1))
    assert process.after(30.5) == 1
    flow = process.flows[-1]
    assert flow.setup.membership is not None
    assert successor_of(flow.setup.membership.metadata) == "other"
    assert flow.run is not None
    assert not flow.run.is_stopping, "the third is still there"
    process.others(standby())
    process.after(1)
    assert flow.run.is_stopping


def test_a_process_announces_how_many_flows_it_leads() -> None:
    process = Process(2, stands_by_for=1)
    process.after(5)
    membership = process.flows[-1].setup.membership
    assert membership is not None
    announced = share_of(membership.metadata)
    assert announced == LeadershipShare(process=process.sharing.process, leads=2, is_ready=True)


def test_announcements_are_read_back() -> None:
    metadata = standby("p", 3)
    assert share_of(metadata) == LeadershipShare(process="p", leads=3, is_ready=True)
    assert successor_of(with_successor(metadata, "q")) == "q"
    for strange in (b"", b"somebody", b"[]", b'{"share":1}', process_metadata()):
        assert share_of(strange) is None
        assert successor_of(strange) == ""


def test_a_young_process_gives_all_others_their_part_at_once() -> None:
    def young(leads: int) -> Process:
        process = Process(leads, standby("p"), standby("q"))
        process.sharing = Sharing(30.0, clock=lambda: process.now, chance=lambda: 0.0)
        return process

    process = young(6)
    assert process.after(2.5) == 0
    assert process.after(2) == 4
    offers = [flow.offer.process for flow in process.flows if flow.offer is not None]
    assert sorted(offers) == ["p", "p", "q", "q"]
    process.moved()
    process.others(standby("p", leads=2), standby("q", leads=2))
    assert process.after(600) == 0
    late = young(6)
    late.others()
    late.after(60)
    late.others(standby("p"), standby("q"))
    assert late.after(25) == 0, "an old one has time"
