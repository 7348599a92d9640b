"""The life of a flow in one process: phases, and the steps between them.

`-` keeps the phase; a step that is not in the row of a phase raises.

| phase | what is so | steps |
| --- | --- | --- |
| WAITING | nothing runs; the next set-up is tried at its time | tried SETTING_UP, replaced -, removed CLOSED, stopped LEFT |
| SETTING_UP | a set-up is under way in the background | led RUNNING, failed WAITING, given_up LEFT, replaced -, removed -, stopped LEFT |
| RUNNING | its lanes copy, or are coming up | paused PAUSED, offered HANDING_OVER, ends* ENDING |
| PAUSED | it is led, and people do not want it to copy | paused -, resumed RUNNING, ends* ENDING |
| HANDING_OVER | its lanes copy until the other standbys are out of the successor's way | kept RUNNING, handed_over ENDING, paused PAUSED, ends* ENDING |
| ENDING | its lanes drain | rests RESTARTING, closes CLOSING, cut LEFT, ends* - |
| RESTARTING | the end of its generation is being noted; it is set up again then | closed WAITING, cut CLOSED, replaced -, removed -, stopped - |
| CLOSING | the end is being noted, and its group left | closed CLOSED, cut CLOSED, removed -, stopped - |
| CLOSED | it has ended in order, and its group is left | cut -, removed -, stopped - |
| LEFT | it never ran, could not be set up, or its lanes did not drain in time: its group is left with the process | led RUNNING, failed -, given_up -, replaced WAITING, removed CLOSED, cut -, stopped - |

ends*: lost, promoted, done, replaced, removed, stopped. What ends a flow is remembered (`why`) until
it is set up again: so what came while it could not be followed (in a set-up, or while an end is noted)
is followed at once behind the step that ends this. A set-up that ends behind the end of the process
(LEFT, led) ends in order like every other.
"""  # noqa: E501 (a table)

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """Where a flow is; see the table."""

    WAITING = "waiting"
    SETTING_UP = "setting up"
    RUNNING = "running"
    PAUSED = "paused"
    HANDING_OVER = "handing over"
    ENDING = "ending"
    RESTARTING = "restarting"
    CLOSING = "closing"
    CLOSED = "closed"
    LEFT = "left"


class Step(StrEnum):
    """What happens to a flow."""

    TRIED = "tried"
    FAILED = "failed"
    """The set-up; it is tried again."""
    GIVEN_UP = "given up"
    """Nor is it tried again."""
    LED = "led"
    PAUSED = "paused"
    RESUMED = "resumed"
    OFFERED = "offered"
    """To a process that leads fewer flows."""
    KEPT = "kept"
    """That process has gone."""
    HANDED_OVER = "handed over"
    LOST = "lost"
    """Another process may lead it."""
    PROMOTED = "promoted"
    """Nothing is to be copied any more."""
    DONE = "done"
    """`--once`: nothing is left that could be copied."""
    REPLACED = "replaced"
    """Its configuration changed."""
    REMOVED = "removed"
    """The configuration does not have it any more."""
    STOPPED = "stopped"
    """The process ends."""
    RESTS = "rests"
    """No lane is left, and it is to be set up again."""
    CLOSES = "closes"
    """No lane is left, and this is the end."""
    CLOSED = "closed"
    """The end was noted, or could not be."""
    CUT = "cut"
    """The time for an end in order is over."""


ENDS: Final = frozenset(
    {
        Step.HANDED_OVER,
        Step.LOST,
        Step.PROMOTED,
        Step.DONE,
        Step.REPLACED,
        Step.REMOVED,
        Step.STOPPED,
    }
)
"""Steps that are remembered: why a flow ends."""

_END_RUNS: Final = dict.fromkeys(ENDS - {Step.HANDED_OVER}, Phase.ENDING)
_ANYWAY: Final = (Step.REPLACED, Step.REMOVED, Step.STOPPED)
"""May come at any time; in this order they are followed."""

_ENDS_WHAT_WAS_UNDER_WAY: Final = frozenset({Step.LED, Step.FAILED, Step.GIVEN_UP, Step.CLOSED})

STEPS: Final[Mapping[Phase, Mapping[Step, Phase]]] = {
    Phase.WAITING: {
        Step.TRIED: Phase.SETTING_UP,
        Step.REPLACED: Phase.WAITING,
        Step.REMOVED: Phase.CLOSED,
        Step.STOPPED: Phase.LEFT,
    },
    Phase.SETTING_UP: {
        Step.LED: Phase.RUNNING,
        Step.FAILED: Phase.WAITING,
        Step.GIVEN_UP: Phase.LEFT,
        Step.REPLACED: Phase.SETTING_UP,
        Step.REMOVED: Phase.SETTING_UP,
        Step.STOPPED: Phase.LEFT,
    },
    Phase.RUNNING: _END_RUNS | {Step.PAUSED: Phase.PAUSED, Step.OFFERED: Phase.HANDING_OVER},
    Phase.PAUSED: _END_RUNS | {Step.PAUSED: Phase.PAUSED, Step.RESUMED: Phase.RUNNING},
    Phase.HANDING_OVER: _END_RUNS
    | {
        Step.KEPT: Phase.RUNNING,
        Step.PAUSED: Phase.PAUSED,
        Step.HANDED_OVER: Phase.ENDING,
    },
    Phase.ENDING: _END_RUNS
    | {
        Step.RESTS: Phase.RESTARTING,
        Step.CLOSES: Phase.CLOSING,
        Step.CUT: Phase.LEFT,
    },
    Phase.RESTARTING: dict.fromkeys(_ANYWAY, Phase.RESTARTING)
    | {Step.CLOSED: Phase.WAITING, Step.CUT: Phase.CLOSED},
    Phase.CLOSING: {
        Step.CLOSED: Phase.CLOSED,
        Step.CUT: Phase.CLOSED,
        Step.REMOVED: Phase.CLOSING,
        Step.STOPPED: Phase.CLOSING,
    },
    Phase.CLOSED: dict.fromkeys((Step.CUT, Step.REMOVED, Step.STOPPED), Phase.CLOSED),
    Phase.LEFT: {
        Step.LED: Phase.RUNNING,
        Step.FAILED: Phase.LEFT,
        Step.GIVEN_UP: Phase.LEFT,
        Step.REPLACED: Phase.WAITING,
        Step.REMOVED: Phase.CLOSED,
        Step.CUT: Phase.LEFT,
        Step.STOPPED: Phase.LEFT,
    },
}

LED: Final = frozenset({Phase.RUNNING, Phase.PAUSED, Phase.HANDING_OVER, Phase.ENDING})
"""It has a run that turns."""

OVER: Final = frozenset({Phase.CLOSED, Phase.LEFT})


class IllegalStep(Exception):
    """Nothing that happens outside leads here: a mistake of this program."""


class Life:
    """The phase of one flow, and why it ends; for the supervisor's thread."""

    def __init__(self) -> None:
        self.phase = Phase.WAITING
        self.why: frozenset[Step] = frozenset()

    def take(self, step: Step) -> Phase:
        """The phase behind the step. Raises IllegalStep."""
        try:
            phase = STEPS[self.phase][step]
        except KeyError:
            raise IllegalStep(f"a flow that is {self.phase} cannot be {step}") from None
        if step in ENDS:
            self.why |= {step}
            if self.phase is Phase.HANDING_OVER:
                self.why |= {Step.HANDED_OVER}  # the others know of it already
        elif step is Step.CLOSED:
            # a flow that has ended for good says why for as long as it is shown
            kept = ENDS if self.phase is Phase.CLOSING else {Step.REMOVED, Step.STOPPED}
            self.why &= kept - {Step.REPLACED}
        self.phase = phase
        if step in _ENDS_WHAT_WAS_UNDER_WAY:
            for end in (one for one in _ANYWAY if one in self.why):  # it came meanwhile
                self.take(end)
        return self.phase

    def renewed(self) -> None:
        """It has the configuration that replaced the one before."""
        self.why -= {Step.REPLACED}

    @property
    def is_over(self) -> bool:
        return self.phase in OVER

    @property
    def begins_again(self) -> bool:
        """It ends to be set up once more."""
        left = {Step.HANDED_OVER, Step.LOST, Step.PROMOTED, Step.REPLACED}
        return bool(self.why & left) and not self.why & {Step.REMOVED, Step.STOPPED}
