"""Intentional throttling of a flow: its own limit, or a quota of the brokers of one side."""

from __future__ import annotations

from twinlog.control.risk.running_flow import RunningFlow
from twinlog.quantities import duration, size


def throttle_of(run: RunningFlow) -> str:
    """Return a description, or an empty string if the flow is not throttled."""
    return _limit(run) or _quota(run)


def _limit(run: RunningFlow) -> str:
    pacer = run.pacer
    if pacer is None or not pacer.is_binding:
        return ""
    return f"the flow is throttled by its limit of {size(pacer.limit)}/s"


def _quota(run: RunningFlow) -> str:
    lanes = run.lanes()
    mutes = {
        "source": max((lane.throttle.source_ms for lane in lanes), default=0),
        "target": max((lane.throttle.target_ms for lane in lanes), default=0),
    }
    sides = [
        f"the {side}'s brokers (they mute the connection for {duration(ms / 1000)})"
        for side, ms in mutes.items()
        if ms
    ]
    return f"the flow is throttled by a quota of {' and '.join(sides)}" if sides else ""
