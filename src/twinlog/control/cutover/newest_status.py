"""The status row that the flow's leader wrote last: the only evidence of a lost source's records.
Also the leader itself, and whether its configuration selects the same topics as the command's.

A row is evidence only while its leader runs, because only then does the row describe the moment at
which the source last responded. The row of a leader that has ended proves nothing, because the
source may have accepted more records while no mirror ran. The row's age does not show whether its
leader runs: the clocks of two hosts differ, and a mirror that was just killed leaves a recent row.
So the process that wrote the row must still be the leader of the flow's group. (A group with
members is not enough, because a standby may be alive when the leader is dead.) The row's generation
must be the newest claim, and must not have ended. If the row of such a leader looks old, the
command waits for the next row, which is current whatever its timestamp.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_members import member_data
from twinlog.cluster.groups.membership import config_of, process_of
from twinlog.codes import FlowState
from twinlog.config.effective import differing_keys, digests
from twinlog.control.cutover.scope import CutoverScope
from twinlog.errors import TwinlogError, Unauthorized
from twinlog.mirror.names.naming import STATUS_TOPIC
from twinlog.mirror.state.published import LIVE_MS, PublishedStatus
from twinlog.model import TopicPartition
from twinlog.quantities import count, duration, first_few, plural
from twinlog.survey.state_reader import leader_status

COPIES: Final = frozenset((FlowState.RUNNING, FlowState.THROTTLED, FlowState.PARTLY_FAILED))
"""States of a flow in which each partition is copied unless it has its own code."""
POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestStatus:
    """The newest status row, or why there is none."""

    FIELDS = (
        "problem at_ms=status.at_ms loss_records=status.loss_records loss_ms=status.loss_ms "
        "loss_unknown=status.loss_unknown where=status.where state=status.state"
    )

    status: PublishedStatus | None
    problem: str = ""
    why_ended: str = ""
    """Why the row's leader no longer leads the flow, by the target's group and state topic, or
    empty if it still leads.
    """
    is_new: bool = False
    """True if the row replaced an earlier row while this command ran, at most `lives_ms` ago by
    this host's clock.
    """

    @property
    def is_of_now(self) -> bool:
        """Return True if the leader that wrote the row still runs."""
        status = self.status
        if status is None or self.why_ended:
            return False
        return status.is_current(status.at_ms if self.is_new else now_ms())

    @property
    def recovery_ms(self) -> int | None:
        """Return the flow's recovery point in ms by the leader's clock, or None if unknown. The
        leader queried the source's log ends at that time, and the target has every record below
        them.
        """
        status = self.status
        return None if status is None or status.loss_ms is None else status.at_ms - status.loss_ms

    def missing(self, tp: TopicPartition, upstream: int) -> int | None:
        """Return the number of source offsets at or after `upstream` that are not copied according
        to the row, or None if unknown.
        """
        status = self.status
        if status is None or not self.is_of_now:
            return None
        for row in status.behind:
            if (row.topic, row.partition) == tp:
                return max(0, row.end - upstream)
        # not listed: the partition lacks no record if the listed partitions account for all loss
        known = sum(behind.end - behind.upstream for behind in status.behind)
        is_whole = status.loss_records is not None and known >= status.loss_records
        return 0 if is_whole and not status.loss_unknown else None

    def codes(self, covers: Callable[[str], bool]) -> Iterator[str]:
        """If the row is current, yield a line for each partition of covered topics with a code."""
        for unusual in () if self.status is None or not self.is_of_now else self.status.unusual:
            if unusual.code and covers(unusual.topic):
                yield (
                    f"{unusual.topic}-{unusual.partition}: {unusual.state} {unusual.code}: "
                    f"{unusual.message}"
                )

    def problems(self, covers: Callable[[str], bool]) -> Iterator[str]:
        """Yield reasons why partitions of covered topics are not copied, or might not be copied."""
        status = self.status
        if status is None or not self.is_of_now:
            yield f"no running mirror reports its partitions: {self.line()}"
            return
        yield from self.codes(covers)
        listed = len(status.unusual)
        if status.unusual_partitions > listed and all(unusual.code for unusual in status.unusual):
            more = status.unusual_partitions - listed
            yield f"{plural(more, 'more partition')} with problems: see twinlog status"
        if status.state not in COPIES:
            reason = f": {status.reason}" if status.reason else ""
            yield f"the mirror is {status.state}{reason}"

    def line(self) -> str:
        """Return a sentence on the loss that the row reports, or on why the row proves nothing."""
        status = self.status
        if status is None:
            return f"no mirror has reported what the source had: {self.problem}"
        age = duration(max(0, now_ms() - status.at_ms) / 1000)
        who = f"the mirror on {status.where} reported {age} ago"
        if self.why_ended:
            where = f"of the mirror on {status.where}, {age} ago,"
            return f"{self.why_ended}, so the last report {where} proves nothing"
        if status.loss_records is None:
            return f"{who} that it did not know which records the source had"
        lost = (
            f"{count(status.loss_records)} records of the last "
            f"{duration((status.loss_ms or 0) / 1000)}"
        )
        if status.loss_records == 0:
            lost = f"no record older than {duration((status.loss_ms or 0) / 1000)} at that time"
        unknown = ""
        if status.loss_unknown:
            unknown = f"; for {plural(status.loss_unknown, 'partition')} this was unknown"
        return f"{who} that without the source {lost} would be lost{unknown}"


def newest_status(scope: CutoverScope) -> NewestStatus:
    """Return the newest status row of any age, or the reason why it cannot be read.

    If the flow is led, and the first row that a command reads looks too old, wait for the next row.
    The wait ends after two status intervals of the leader, or after LIVE_MS if that is shorter.
    """
    began, waits = time.monotonic(), scope.seen_row is None
    while True:
        try:
            status = leader_status(scope.target, scope.name)
        except TwinlogError as error:
            return NewestStatus(status=None, problem=str(error))
        if status is None:
            return NewestStatus(status=None, problem=f"{STATUS_TOPIC} has no row of {scope.name}")
        now = time.monotonic()
        if scope.seen_row is None:
            scope.seen_row = status.at_ms, -math.inf  # not new: the first row may be of any age
        elif scope.seen_row[0] != status.at_ms:
            scope.seen_row = status.at_ms, now
        is_new = (now - scope.seen_row[1]) * 1000 <= status.lives_ms
        newest = NewestStatus(status=status, why_ended=_why_ended(scope, status), is_new=is_new)
        is_late = (now - began) * 1000 > min(2 * status.every_ms, LIVE_MS)
        if newest.is_of_now or newest.why_ended or status.state == FlowState.STOPPED:
            return newest
        if is_late or not waits:
            return newest
        time.sleep(POLL_S)


def now_ms() -> int:
    """Return this host's time in ms. The clock of the leader's host may differ by hours."""
    return int(time.time() * 1000)


def _why_ended(scope: CutoverScope, status: PublishedStatus) -> str:
    """Return why the row's leader no longer leads the flow, or an empty text if it does."""
    history = scope.history()
    if history is not None and history.latest is not None:
        if status.generation != history.latest.generation:
            return f"generation {history.latest.generation} has begun since"
        if history.is_closed:
            return f"generation {status.generation} has ended"
    if not scope.is_led():
        return "no mirror leads the flow"
    leader = process_of(leader_metadata(scope))
    if leader is None:
        return "it is unknown which process leads the flow: its group may be rebalancing"
    is_leader = leader == (status.host, status.pid)
    return "" if is_leader else f"{status.where} does not lead the flow any more"


# The mirror that leads the flow now. The leader sends its metadata to all members of the flow's
# group as their assignment (`cluster.groups.membership`). After the leader's death, a standby keeps
# the group active. But the standby leads only after an election, and claims a generation only if it
# can reach the source.

ELECTED_WITHIN_S: Final = 8.0
"""Maximum seconds to wait for a leader while the group rebalances. A leader rejoins at its next
heartbeat.
"""
KEYS: Final = ("topics", "replication.policy.", "source.cluster.alias", "twinlog.rename")
"""Beginnings of the keys that decide which topics a flow copies, and to which names."""
ISOLATION: Final = "isolation.level"


def leader_metadata(scope: CutoverScope) -> bytes:
    """Return the metadata of the process that leads the flow. Waits while the group rebalances. The
    result is empty if there is no leader, or if this user may not see the group's members.
    """
    deadline, groups = time.monotonic() + ELECTED_WITHIN_S, Coordinators(scope.target)
    while True:
        try:
            members = member_data(groups, f"twinlog-{scope.name}")
        except Unauthorized:
            return b""
        leader = next((assignment for _, assignment in members if assignment), b"")
        if leader or not members or time.monotonic() > deadline:
            return leader
        time.sleep(POLL_S)


def other_config(scope: CutoverScope) -> list[str]:
    """Return a list with one message if the mirror that leads the flow has other values of the keys
    that decide which topics are copied, else an empty list. If the mirror copies more topics, a
    promotion of the whole flow includes topics that the command does not check.
    """
    leaders_digests = config_of(leader_metadata(scope))
    if leaders_digests is None:
        return []
    differing = differing_keys(digests(scope.config), leaders_digests)
    keys = [key for key in differing if key.startswith(KEYS) or key.endswith(ISOLATION)]
    problem = (
        f"the mirror that leads the flow has other values of {first_few(keys)}, so it may copy "
        "other topics than this command checks: run this command with the mirror's file, or reload "
        "the mirror"
    )
    return [problem] if keys else []
