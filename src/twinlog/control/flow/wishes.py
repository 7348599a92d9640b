"""Writes operators' intents to the state topics of flows, for the command line and REST.

All flows are checked first, and then all intents are written. If a flow cannot be checked, nothing
is written. If the process dies between two flows, the same command writes the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack

from twinlog.client.steering import Change, FlowSteering
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.flow.wiring import flow_setup
from twinlog.errors import UsageError

Ask = Callable[[FlowSteering], list[Change]]


def apply_intents(
    flows: Iterable[FlowConfig],
    ask: Ask,
    *,
    reason: str,
    dry_run: bool,
    nothing: str = "",
    who: str = "",
) -> list[Change]:
    """Write the changes that `ask` returns, and return them; with `dry_run`, only return them.
    `nothing`: the text of the UsageError if no flow has anything to change. `who`: the author of
    the intents; if empty, the user of this process.
    """
    with ExitStack() as stack:
        steerings = []
        for config in flows:
            setup = flow_setup(config)
            steering = FlowSteering(config, setup.source, setup.target, reason, who)
            stack.callback(steering.close)
            steerings.append(steering)
        planned = [(steering, ask(steering)) for steering in steerings]
        if nothing and not any(changes for _, changes in planned):
            raise UsageError(nothing)
        for steering, changes in planned:
            steering.require_no_replay(changes)
        for steering, changes in planned:
            if not dry_run:
                steering.write(changes)
    return [change for _, changes in planned for change in changes]
