"""Balances flows over processes: one that leads more flows hands some to one that leads fewer.

The first process in a flow's group leads it, so a process that starts later leads nothing. Each
standby announces how many flows it leads, and whether it could take one. A leader that leads at
least two more hands over half of the difference: it drains the flow, notes its end, and leaves the
group for a while. Each move makes the difference smaller, and a difference of one is ignored. So
two processes end with half of the flows each, and stay so.

A difference must last for `SETTLE_S` and a random part of it (otherwise two leaders would give too
much to one newcomer), and after each move for twice as long. Flows are only handed to a process
with the same configuration, and only while it stands by without problems.

Processes that start together are an exception: the first one leads nearly all flows and has hardly
begun. In its first minute a process waits only for `SOON_S`, and gives all others their part at
once. Six flows of three processes were balanced after 106 s without this, and are after 21 s.

A group's coordinator picks any member when the leader leaves. If there is more than one standby,
the leader first names its successor, and the others stay out of the group for some seconds.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from twinlog.cluster.groups.membership import (
    MemberRole,
    Membership,
    Share,
    config_of,
    describe_member,
    share_of,
    successor_of,
    with_share,
    with_successor,
)
from twinlog.cluster.net.retry import CHANCE
from twinlog.control.flow.managed_flow import ManagedFlow
from twinlog.control.flow.phases import Phase

log = logging.getLogger(__name__)

SETTLE_S: Final = 30.0
SOON_S: Final = 3.0
"""Settle time of a young process. It is longer than a process takes to announce what it leads."""

YOUNG_S: Final = 60.0
"""Age up to which a process is young. Within this time Spark has started even on a slow machine, so
that the process can take a flow.
"""

TURN_S: Final = 0.5
ANNOUNCE_AFTER: Final = 0.1
"""Part of the settle time: a number that changes again soon is not announced, because each
announcement is a rebalance.
"""

OTHERS_LEAVE_WITHIN_S: Final = 8.0
AT_ONCE: Final = 4
ARRIVES_WITHIN: Final = 10
"""Settle times until a process that was given a flow announces that it leads it."""

EVEN: Final = 2
"""Smallest difference that is balanced. With a smaller one, moving a flow would only reverse it."""


@dataclass(slots=True)
class _Fewer:
    """A process that leads fewer flows, and the flows of this process that it stands by for."""

    leads: int
    who: str
    flows: list[ManagedFlow] = field(default_factory=list)


class Sharing:
    """The balancing done by this process. Used in the supervisor's thread."""

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
        """By process: the number of flows that it leads, including those that it was given, and
        until when this number overrides its announcements.
        """

    @property
    def _settle_s(self) -> float:
        """Return how long a difference must last."""
        return self._soon_s if self._clock() < self._young_until else self._usual_s

    def turn(self, flows: Iterable[ManagedFlow], *, can_lead: bool) -> None:
        """Announce how many flows this process leads, and hand over surplus flows."""
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
            self._hand_over(known, now)

    def _announce(self, flow: ManagedFlow, now: float, *, can_lead: bool) -> None:
        membership = flow.setup.membership
        if membership is None:
            return
        announced = membership.metadata
        if successor_of(announced) and flow.offer is None:
            membership.announce(with_successor(announced, ""))  # the handover was cancelled
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

    def _hand_over(self, flows: list[ManagedFlow], now: float) -> None:
        fewer = self._peers_with_fewer(flows)
        self._uneven_since = {flow: self._uneven_since.get(flow, now) for flow in fewer}
        due = {
            process: peer
            for process, peer in fewer.items()
            if now - self._uneven_since[process] >= self._settle_s
        }
        part = (self._leads + sum(peer.leads for peer in due.values())) // (1 + len(due))
        room = AT_ONCE
        for process, peer in due.items():
            self._uneven_since[process] = now + self._settle_s
            free = [flow for flow in peer.flows if flow.offer is None]
            count = min(part - peer.leads, room, len(free))
            if count <= 0:
                continue
            room -= count
            until = now + ARRIVES_WITHIN * self._settle_s
            self._given[process] = (peer.leads + count, until)
            for flow in free[-count:]:
                flow.log.news(
                    "handing this flow over to %s, which leads %d flows; this process leads %d",
                    peer.who,
                    peer.leads,
                    self._leads,
                )
                self._begin(flow, process, now)

    def _peers_with_fewer(self, flows: list[ManagedFlow]) -> dict[str, _Fewer]:
        by_process: dict[str, _Fewer] = {}
        now = self._clock()
        self._given = {group_id: known for group_id, known in self._given.items() if known[1] > now}
        for flow in flows:
            membership = flow.setup.membership
            if membership is None or not _may_go(flow, membership):
                continue
            own_digests = config_of(membership.metadata)
            for other in membership.state.others:
                share = share_of(other)
                if share is None or not share.is_ready or config_of(other) != own_digests:
                    continue
                leads = max(share.leads, self._given.get(share.process, (0, now))[0])
                if self._leads - leads >= EVEN:
                    fewer_process = _Fewer(leads=leads, who=describe_member(other))
                    by_process.setdefault(share.process, fewer_process).flows.append(flow)
        return by_process

    def _begin(self, flow: ManagedFlow, process: str, now: float) -> None:
        flow.on_offered(process, now)
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
            flow.withdraw_offer()
        elif len(others) == 1 or now - offer.since > OTHERS_LEAVE_WITHIN_S:
            flow.on_handed_over()


def _leads(flow: ManagedFlow) -> bool:
    membership = flow.setup.membership
    return membership is not None and membership.is_leading


def _may_go(flow: ManagedFlow, membership: Membership) -> bool:
    run = flow.run
    has_lanes = run is not None and not run.is_stopping and run.current is not None
    return has_lanes and flow.phase is Phase.RUNNING and membership.is_leading
