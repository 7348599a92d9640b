"""Spreads flows over the processes that run them: who leads more hands one over to who leads fewer.

Whoever joins a flow's group first leads it, so a process that comes later leads nothing. Each
process that stands by announces how many flows it leads, and whether it could take one; a leader
that leads at least two more hands over half of the difference, in order: drained, noted as closed,
then it leaves the group for a while. What is moved this way makes the difference smaller each time,
and at one nothing moves, so that two processes lead half of the flows each and stay so.

Nothing is moved in haste: the difference must have stood for `SETTLE_S` and a random bit more (or
two leaders would give one newcomer too much), and twice as long must pass after each time. Only a
process with the same configuration is given anything, and only while it stands by without trouble.

Processes that are started together are the exception: one of them was first, leads nearly all, and
has hardly begun. In its first minute a process waits for `SOON_S` only, and gives all others their
part in one go: six flows of three processes were even after 106 s, and are after 21.

A group's coordinator picks any member when the leader leaves. Where more than one stands by, the
leader first names its successor, and the others stay out of the group for some seconds.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from twinlog.cluster.groups.member import (
    MemberRole,
    Share,
    config_of,
    describe_member,
    share_of,
    successor_of,
    with_share,
    with_successor,
)
from twinlog.cluster.groups.membership import Membership
from twinlog.cluster.net.retry import CHANCE
from twinlog.control.flow.managed_flow import ManagedFlow
from twinlog.control.flow.phases import Phase

log = logging.getLogger(__name__)

SETTLE_S: Final = 30.0
SOON_S: Final = 3.0
"""Instead, while this process is young: longer than it takes a process to say what it leads."""

YOUNG_S: Final = 60.0
"""Spark is up within this time on a slow machine, and a process can be given something."""

TURN_S: Final = 0.5
ANNOUNCE_AFTER: Final = 0.1
"""Of the time to settle: a number that changes again at once is not announced (each announcement
is a rebalance).
"""

OTHERS_LEAVE_WITHIN_S: Final = 8.0
AT_ONCE: Final = 4
ARRIVES_WITHIN: Final = 10
"""Times to settle, until a process that was given a flow announces that it leads it."""

EVEN: Final = 2
"""A smaller difference is none: moving a flow would only turn it round."""


@dataclass(slots=True)
class _Fewer:
    """A process that leads fewer flows than we do, and flows of ours that it stands by for."""

    leads: int
    who: str
    flows: list[ManagedFlow] = field(default_factory=list)


class Sharing:
    """This process's side of it; for the supervisor's thread."""

    def __init__(
        self,
        settle_s: float = SETTLE_S,
        *,
        young_s: float = YOUNG_S,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = CHANCE.random,
    ) -> None:
        self.process = uuid.uuid4().hex[:12]
        more = 1 + chance() / 2
        self._usual_s, self._soon_s = settle_s * more, min(settle_s, SOON_S) * more
        self._clock = clock
        self._young_until = clock() + young_s
        self._next_turn = 0.0
        self._leads = 0
        self._leads_since = clock()
        self._announced_at: dict[str, float] = {}
        self._uneven_since: dict[str, float] = {}
        self._given: dict[str, tuple[int, float]] = {}
        """What a process leads with what we gave it, and how long we count so whatever it says."""

    @property
    def _settle_s(self) -> float:
        """How long a difference must have stood."""
        return self._soon_s if self._clock() < self._young_until else self._usual_s

    def turn(self, flows: Iterable[ManagedFlow], *, can_lead: bool) -> None:
        """Tell the others how we are, and hand over what is too much."""
        now = self._clock()
        if now < self._next_turn:
            return
        self._next_turn = now + TURN_S
        known = list(flows)
        leads = sum(_leads(flow) for flow in known)
        if leads != self._leads:
            self._leads, self._leads_since = leads, now
        for flow in known:
            self._announce(flow, now, can_lead=can_lead)
        moving = [flow for flow in known if flow.offer is not None]
        for flow in moving:
            self._continue_handover(flow, now)
        if not moving:
            self._give(known, now)

    def _announce(self, flow: ManagedFlow, now: float, *, can_lead: bool) -> None:
        membership = flow.setup.membership
        if membership is None:
            return
        announced = membership.metadata
        if successor_of(announced) and flow.offer is None:
            membership.announce(with_successor(announced, ""))  # it came to nothing
            return
        pause_s = self._settle_s * ANNOUNCE_AFTER
        is_due = (
            now - max(self._leads_since, self._announced_at.get(flow.setup.name, 0.0)) >= pause_s
        )
        if flow.run is not None or membership.state.role is not MemberRole.STANDBY or not is_due:
            return
        is_ready = can_lead and flow.trouble.is_standing_by
        share = Share(process=self.process, leads=self._leads, is_ready=is_ready)
        if share_of(announced) != share:
            self._announced_at[flow.setup.name] = now
            membership.announce(with_share(announced, share))

    def _give(self, flows: list[ManagedFlow], now: float) -> None:
        fewer = self._fewer(flows)
        self._uneven_since = {one: self._uneven_since.get(one, now) for one in fewer}
        due = {
            process: found
            for process, found in fewer.items()
            if now - self._uneven_since[process] >= self._settle_s
        }
        part = (self._leads + sum(found.leads for found in due.values())) // (1 + len(due))
        room = AT_ONCE
        for process, found in due.items():
            self._uneven_since[process] = now + self._settle_s
            free = [flow for flow in found.flows if flow.offer is None]
            count = min(part - found.leads, room, len(free))
            if count <= 0:
                continue
            room -= count
            until = now + ARRIVES_WITHIN * self._settle_s
            self._given[process] = (found.leads + count, until)
            for flow in free[-count:]:
                flow.log.news(
                    "handing over to %s, which leads %d flows and this process %d",
                    found.who,
                    found.leads,
                    self._leads,
                )
                self._begin(flow, process, now)

    def _fewer(self, flows: list[ManagedFlow]) -> dict[str, _Fewer]:
        found: dict[str, _Fewer] = {}
        now = self._clock()
        self._given = {one: known for one, known in self._given.items() if known[1] > now}
        for flow in flows:
            membership = flow.setup.membership
            if membership is None or not _may_go(flow, membership):
                continue
            ours = config_of(membership.metadata)
            for other in membership.state.others:
                share = share_of(other)
                if share is None or not share.is_ready or config_of(other) != ours:
                    continue
                leads = max(share.leads, self._given.get(share.process, (0, now))[0])
                if self._leads - leads >= EVEN:
                    one = _Fewer(leads=leads, who=describe_member(other))
                    found.setdefault(share.process, one).flows.append(flow)
        return found

    def _begin(self, flow: ManagedFlow, process: str, now: float) -> None:
        flow.offered(process, now)
        membership = flow.setup.membership
        if membership is not None and len(membership.state.others) > 1:
            membership.announce(with_successor(membership.metadata, process))
        self._continue_handover(flow, now)

    def _continue_handover(self, flow: ManagedFlow, now: float) -> None:
        membership, offer = flow.setup.membership, flow.offer
        if flow.phase is not Phase.HANDING_OVER or membership is None or offer is None:
            return
        others = membership.state.others
        shares = [share_of(other) for other in others]
        if not any(share is not None and share.process == offer.process for share in shares):
            flow.kept()
        elif len(others) == 1 or now - offer.since > OTHERS_LEAVE_WITHIN_S:
            flow.handed_over()


def _leads(flow: ManagedFlow) -> bool:
    membership = flow.setup.membership
    return membership is not None and membership.is_leading


def _may_go(flow: ManagedFlow, membership: Membership) -> bool:
    run = flow.run
    has_lanes = run is not None and not run.is_stopping and run.current is not None
    return has_lanes and flow.phase is Phase.RUNNING and membership.is_leading
