"""Determines whether this process leads a flow, stands by, or is not permitted to join the flow's
group.

A standby compares its configuration with the leader's, because a process with another file would
change the flow when it takes over. The leader's configuration is in its member metadata
(`config.effective`). A difference is only reported; a leader is never affected by another process's
file.
"""

from __future__ import annotations

from typing import Final

from twinlog.cluster.groups.membership import (
    MemberRole,
    Membership,
    MembershipState,
    config_of,
    process_metadata,
    share_of,
    successor_of,
    with_config,
)
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.effective import differing_keys, digests
from twinlog.config.flow.schema import FlowConfig
from twinlog.errors import Fate, NotLeader, TwinlogError, Unauthorized
from twinlog.quantities import first_few

ONCE_WAITS_S: Final = 15.0
"""Seconds that `--once` waits to lead. A killed leader's session ends within this time."""

STANDBY_CHECKS_S: Final = 5.0
STAY_OUT_S: Final = 10.0
"""Seconds for which a process stays out of the group of a flow that goes to another process."""

KEYS_SHOWN: Final = 10


class SetupWaiting(TwinlogError):
    """The flow must not start yet. The set-up is retried soon."""

    code = "STANDBY"
    fate = Fate.RETRIABLE


class StandingBy(SetupWaiting):
    """Another process leads the flow, which is no error."""


class LeaderUnknown(SetupWaiting):
    """The flow's group has not responded, so it is unknown whether another process leads."""


class Fenced(SetupWaiting):
    """The flow was promoted, and must not start until it is demoted."""

    code = "FENCED"


def join_election(
    membership: Membership | None, target: ClusterSettings, config: FlowConfig
) -> Membership:
    """Return a membership of the flow's group with the current configuration in its metadata.
    Raises StandingBy if this process must stay out of the group for now.
    """
    own_digests = digests(config)
    if membership is not None and (gone_s := membership.since_leave_s) is not None:
        if gone_s < STAY_OUT_S:
            raise StandingBy("standing by: another process hands this flow over to a third one")
        membership = None
    if membership is None:
        metadata = process_metadata(own_digests)
        membership = Membership(target, f"twinlog-{config.flow}", metadata=metadata)
        membership.start()
    elif config_of(membership.metadata) != own_digests:
        membership.announce(with_config(membership.metadata, own_digests))
    return membership


def wait_to_lead(membership: Membership, config: FlowConfig, *, once: bool) -> None:
    """Return when this process leads. Otherwise raise the reason. Call again after SetupWaiting."""
    membership.wait_for(_has_news, within_s=ONCE_WAITS_S if once else STANDBY_CHECKS_S)
    state = membership.state
    if state.role is MemberRole.LEADING:
        return
    if state.role is MemberRole.LEFT:
        raise StandingBy("standing by: this process has left the flow's group")
    if state.problem is not None and not state.leader:
        raise state.problem  # the problem keeps this process out of the group
    if not state.leader:  # a dead member's session still lasts, or the coordinator is busy
        raise LeaderUnknown(
            f"standing by: which process leads this flow is unknown: {config.flow.target} "
            "has not responded with the members of its group"
        )
    leader = membership.leader_description
    if _is_for_another(membership.metadata, state):
        membership.leave()  # otherwise the coordinator might choose this process
        raise StandingBy(f"standing by: {leader} hands this flow over to a third process")
    if once:
        raise NotLeader(
            f"another process leads this flow ({leader}); nothing was changed", flow=config.flow
        )
    leaders_digests = config_of(state.leader)
    keys = [] if leaders_digests is None else differing_keys(digests(config), leaders_digests)
    if keys:
        raise StandingBy(
            f"standing by: another process leads this flow ({leader}) with different values of "
            f"{first_few(keys, KEYS_SHOWN)}; give both processes the same file, and reload them",
            code="CONFIG_MISMATCH",
        )
    raise StandingBy(f"standing by: another process leads this flow ({leader})")


def _has_news(state: MembershipState) -> bool:
    has_news = state.role in (MemberRole.LEADING, MemberRole.LEFT) or isinstance(
        state.problem, Unauthorized
    )
    return has_news or bool(successor_of(state.leader))


def _is_for_another(metadata: bytes, state: MembershipState) -> bool:
    """Return True if the leader is about to hand over to another process than this one."""
    successor, share = successor_of(state.leader), share_of(metadata)
    return bool(successor) and (share is None or share.process != successor)
