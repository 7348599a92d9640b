"""The changes that bring a flow from the commands in effect to a wanted state."""

from __future__ import annotations

from collections.abc import Collection

from twinlog.client.steering import Change, Corrupt, FlowSteering
from twinlog.control.web.api.inputs import WantedState
from twinlog.errors import UsageError
from twinlog.mirror.state.intents import IntentKind
from twinlog.quantities import first_few


def declared(steering: FlowSteering, state: WantedState) -> list[Change]:
    """Return a change for the flow's pause, its limit, and each topic that is or should be paused
    or released. Most of them are usually in effect already, and are then not written.

    If a command runs at the same time, the later row counts. The same request again then writes
    what differs. Raises UsageError for a topic that the flow does not mirror; a topic that is
    already paused or released may be gone.
    """
    corrupt: Corrupt = set()
    found = steering.intents(corrupt)
    changes = steering.wanted(IntentKind.PAUSE, [""], is_set=state.paused)
    changes += steering.limit(state.bytes_per_second)
    for kind, names in (
        (IntentKind.PAUSE, {*state.paused_topics}),
        (IntentKind.RELEASE, {*state.released_topics}),
    ):
        known = {*found.topics(kind), *(topic for one, topic in corrupt if one is kind and topic)}
        changes += steering.wanted(kind, sorted(names & known))
        changes += steering.wanted(kind, sorted(known - names), is_set=False)
        if names - known:
            changes += _new(steering, kind, names - known)
    return changes


def _new(steering: FlowSteering, kind: IntentKind, names: Collection[str]) -> list[Change]:
    every = steering.want_topics(kind, [".*"])
    changes = [one for one in every if one.intent.topic in names]
    if missing := {*names}.difference(one.intent.topic for one in changes):
        raise UsageError(
            f"{steering.flow} mirrors no topic named {first_few(sorted(missing))}; names are "
            "whole names here, not regular expressions"
        )
    return changes
