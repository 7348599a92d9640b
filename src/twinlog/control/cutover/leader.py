"""Finds the mirror that leads a flow now, and checks if that mirror's configuration selects the
same topics as the command's.

The leader sends its metadata to all members of the flow's group as their assignment
(`cluster.groups.membership`). After the leader's death, a standby keeps the group active. But the
standby leads only after an election, and claims a generation only if it can reach the source.
"""

from __future__ import annotations

import time
from typing import Final

from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_members import member_data
from twinlog.cluster.groups.membership import config_of
from twinlog.config.effective import differing_keys, digests
from twinlog.control.cutover.scope import CutoverScope
from twinlog.errors import Unauthorized
from twinlog.quantities import first_few

ELECTED_WITHIN_S: Final = 8.0
"""Maximum seconds to wait for a leader while the group rebalances. A leader rejoins at its next
heartbeat.
"""
POLL_S: Final = 0.5
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
        "other topics than this command checks: use its file, or reload it"
    )
    return [problem] if keys else []
