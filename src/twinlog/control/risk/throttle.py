"""What holds a flow back on purpose: a limit of its own, or a quota of the brokers of one side."""

from __future__ import annotations

from twinlog.control.risk.running_flow import RunningFlow
from twinlog.quantities import duration, size


def throttle_of(run: RunningFlow) -> str:
    """In words; empty where nothing does."""
    return _limit(run) or _quota(run)


def _limit(run: RunningFlow) -> str:
    pacer = run.pacer
    if pacer is None or not pacer.is_binding:
        return ""
    return f"the flow's limit of {size(pacer.limit)}/s holds it back"


def _quota(run: RunningFlow) -> str:
    lanes = run.lanes()
    mutes = {
        "source": max((lane.throttle.source_ms for lane in lanes), default=0),
        "target": max((lane.throttle.target_ms for lane in lanes), default=0),
    }
    sides = [
        f"the {side}'s brokers (for {duration(ms / 1000)} they read no request)"
        for side, ms in mutes.items()
        if ms
    ]
    return f"a quota of {' and '.join(sides)} holds it back" if sides else ""
