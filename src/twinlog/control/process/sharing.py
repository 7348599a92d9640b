"""Balances flows over processes: a process that leads more flows hands some over to a process that
leads fewer.

The first process in a flow's group leads the flow, so a process that starts later leads nothing.
Each standby announces how many flows it leads, and whether it can lead another one. A leader that
leads at least two flows more than a standby hands over half of the difference. For each of these
flows, it drains the flow, closes the generation, and leaves the flow's group for a while. Each move
makes the difference smaller, and a difference of one is ignored. So two processes end with half of
the flows each, and no flow moves after that.

A difference must last for `SETTLE_S` plus a random part of it, because otherwise two leaders would
give too many flows to one newcomer. After each move, the next difference must last twice as long.
Flows are only handed to a process with the same configuration, and only while it stands by without
problems.

Processes that start together are an exception, because the first process leads nearly all flows,
and most of them do not copy yet. In its first minute, a process waits only for `SOON_S` and then
hands over flows to all other processes. With this exception, six flows of three processes are
balanced after 21 s instead of 106 s.

When a leader leaves, its group's coordinator picks any member. If there is more than one standby,
the leader first names its successor, and the other standbys stay out of the group for some seconds.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from twinlog.cluster.groups.membership import (
    LeadershipShare,
    MemberRole,
    Membership,
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
"""Seconds that a difference must last for a young process: more than an announcement takes."""

YOUNG_S: Final = 60.0
"""Age in seconds up to which a process is young. Within this time Spark has started even on a slow
machine, so that the process can lead a flow.
"""

TURN_S: Final = 0.5
ANNOUNCE_AFTER: Final = 0.1
"""Fraction of `_settle_s` for which the number of led flows must be stable before it is announced,
because each announcement causes a rebalance.
"""

OTHERS_LEAVE_WITHIN_S: Final = 8.0
AT_ONCE: Final = 4
ARRIVES_WITHIN: Final = 10
"""Multiple of `_settle_s` within which a process announces a flow that was handed over to it."""

LEAST_DIFFERENCE: Final = 2
"""Smallest difference that is balanced. At a difference of one, a move would only reverse it."""


@dataclass(slots=True)
class _LessLoadedPeer:
    """A process that leads fewer flows, and this process's flows that it could take over."""

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
        """By process to which flows were handed over: how many flows it leads including these, and
        the time until which this number overrides its announcements.
        """

    @property
    def _settle_s(self) -> float:
        """Return for how many seconds a difference must last."""
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
        share = LeadershipShare(process=self.process, leads=self._leads, is_ready=is_ready)
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

    def _peers_with_fewer(self, flows: list[ManagedFlow]) -> dict[str, _LessLoadedPeer]:
        by_process: dict[str, _LessLoadedPeer] = {}
        now = self._clock()
        self._given = {group_id: known for group_id, known in self._given.items() if known[1] > now}
        for flow in flows:
            membership = flow.setup.membership
            if membership is None or not _can_hand_over(flow, membership):
                continue
            own_digests = config_of(membership.metadata)
            for other in membership.state.others:
                share = share_of(other)
                if share is None or not share.is_ready or config_of(other) != own_digests:
                    continue
                leads = max(share.leads, self._given.get(share.process, (0, now))[0])
                if self._leads - leads >= LEAST_DIFFERENCE:
                    fewer_process = _LessLoadedPeer(leads=leads, who=describe_member(other))
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


def _can_hand_over(flow: ManagedFlow, membership: Membership) -> bool:
    run = flow.run
    has_lanes = run is not None and not run.is_stopping and run.current is not None
    return has_lanes and flow.phase is Phase.RUNNING and membership.is_leading
