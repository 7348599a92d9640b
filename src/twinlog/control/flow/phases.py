"""The life of a flow in one process: phases, and the steps between them.

The reasons for an end (`ENDS`) are stored until the flow is set up again. If a step cannot be
followed immediately (during a set-up, or while an end is noted), it is followed directly after the
set-up or the end. If a set-up completes after the end of the process (LEFT, led), the flow is shut
down cleanly like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """The phase of a flow; see `STEPS`."""

    WAITING = "waiting"
    """Nothing runs; the next set-up is scheduled."""
    SETTING_UP = "setting up"
    """A set-up runs in the background."""
    RUNNING = "running"
    """Its lanes copy, or are starting."""
    PAUSED = "paused"
    """It is led, and an operator has paused it."""
    HANDING_OVER = "handing over"
    """Its lanes copy until other standbys have left the group for the successor."""
    ENDING = "ending"
    """Its lanes drain."""
    RESTARTING = "restarting"
    """The end of its generation is being noted; then it is set up again."""
    CLOSING = "closing"
    """The end is being noted, and its group left."""
    CLOSED = "closed"
    """It was shut down cleanly, and has left its group."""
    LEFT = "left"
    """It never ran, could not be set up, or its lanes did not drain in time; the process leaves its
    group at its end.
    """


class Step(StrEnum):
    """An event in the life of a flow; see `STEPS`."""

    TRIED = "tried"
    FAILED = "failed"
    """The set-up failed and will be retried."""
    GIVEN_UP = "given up"
    """The set-up failed and will not be retried."""
    LED = "led"
    PAUSED = "paused"
    RESUMED = "resumed"
    OFFERED = "offered"
    """The flow is offered to a process that leads fewer flows."""
    KEPT = "kept"
    """The process that the flow was offered to has left."""
    HANDED_OVER = "handed over"
    LOST = "lost"
    """Another process may lead the flow."""
    PROMOTED = "promoted"
    """The flow was promoted, so the copy must end."""
    DONE = "done"
    """`--once`: nothing is left to copy."""
    REPLACED = "replaced"
    """The configuration of the flow has changed."""
    REMOVED = "removed"
    """The flow was removed from the configuration."""
    STOPPED = "stopped"
    """The process shuts down."""
    RESTS = "rests"
    """No lane is left, and the flow is set up again."""
    CLOSES = "closes"
    """No lane is left, and the flow ends."""
    CLOSED = "closed"
    """The end was written to the state topic, or the write has failed."""
    CUT = "cut"
    """The time limit for a clean shutdown has passed."""


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
"""Steps that are stored as reasons for an end."""

_ANYWAY: Final = (Step.REPLACED, Step.REMOVED, Step.STOPPED)
"""Steps that can come at any time. If several came, they are followed in this order."""

_ENDS_WHAT_WAS_UNDER_WAY: Final = frozenset({Step.LED, Step.FAILED, Step.GIVEN_UP, Step.CLOSED})

STEPS: Final[Mapping[Phase, Mapping[Step, Phase]]] = {
    here: {
        step: here if to == "-" else Phase[to]
        for name, to in map(str.split, steps.split(", "))
        for step in (ENDS - {Step.HANDED_OVER} if name == "ends*" else [Step[name.upper()]])
    }
    for here, steps in {
        Phase.WAITING: "tried SETTING_UP, replaced -, removed CLOSED, stopped LEFT",
        Phase.SETTING_UP: (
            "led RUNNING, failed WAITING, given_up LEFT, replaced -, removed -, stopped LEFT"
        ),
        Phase.RUNNING: "paused PAUSED, offered HANDING_OVER, ends* ENDING",
        Phase.PAUSED: "paused -, resumed RUNNING, ends* ENDING",
        Phase.HANDING_OVER: "kept RUNNING, handed_over ENDING, paused PAUSED, ends* ENDING",
        Phase.ENDING: "rests RESTARTING, closes CLOSING, cut LEFT, ends* -",
        Phase.RESTARTING: "closed WAITING, cut CLOSED, replaced -, removed -, stopped -",
        Phase.CLOSING: "closed CLOSED, cut CLOSED, removed -, stopped -",
        Phase.CLOSED: "cut -, removed -, stopped -",
        Phase.LEFT: (
            "led RUNNING, failed -, given_up -, replaced WAITING, removed CLOSED, cut -, stopped -"
        ),
    }.items()
}
"""The phase after each step. In the text, `-` does not change the phase, and `ends*` stands for all
ends except handed_over. A step that is not listed for a phase raises IllegalStep.
"""

LED: Final = frozenset({Phase.RUNNING, Phase.PAUSED, Phase.HANDING_OVER, Phase.ENDING})
"""Phases in which the flow has an active run."""

OVER: Final = frozenset({Phase.CLOSED, Phase.LEFT})


class IllegalStep(Exception):
    """Raised for a step that is not permitted in the phase, which is a bug."""


class Life:
    """The phase of one flow, and why it ends; used in the supervisor's thread."""

    def __init__(self) -> None:
        self.phase = Phase.WAITING
        self.why: frozenset[Step] = frozenset()

    def take(self, step: Step) -> Phase:
        """Follow a step. Return the phase after the step. Raises IllegalStep."""
        try:
            phase = STEPS[self.phase][step]
        except KeyError:
            raise IllegalStep(f"a flow that is {self.phase} cannot be {step}") from None
        if step in ENDS:
            self.why |= {step}
            if self.phase is Phase.HANDING_OVER:
                self.why |= {Step.HANDED_OVER}  # other processes already know of the handover
        elif step is Step.CLOSED:
            # a flow that has ended permanently keeps its reasons for display
            kept = ENDS if self.phase is Phase.CLOSING else {Step.REMOVED, Step.STOPPED}
            self.why &= kept - {Step.REPLACED}
        self.phase = phase
        if step in _ENDS_WHAT_WAS_UNDER_WAY:
            for end in _ANYWAY:
                if end in self.why:  # `end` came before `step` was done
                    self.take(end)
        return self.phase

    @property
    def is_over(self) -> bool:
        return self.phase in OVER

    @property
    def begins_again(self) -> bool:
        """Return True if the flow ends in order to be set up again."""
        left = {Step.HANDED_OVER, Step.LOST, Step.PROMOTED, Step.REPLACED}
        return bool(self.why & left) and not self.why & {Step.REMOVED, Step.STOPPED}
