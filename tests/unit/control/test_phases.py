"""The table here has every step from every phase of a flow's life, as the code does."""

from __future__ import annotations

from itertools import product

import pytest

from twinlog.control.flow.phases import ENDS, STEPS, IllegalStep, Life, Phase, Step

ENDS_RUNS = ENDS - {Step.HANDED_OVER}


ROWS = {
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
}
"""The steps of each phase. `-` does not change the phase; `ends*` are all steps in ENDS_RUNS."""


def table() -> dict[Phase, dict[Step, Phase]]:
    """Return the rows with the phase after each step."""
    found: dict[Phase, dict[Step, Phase]] = {}
    for here, steps in ROWS.items():
        row = found[here] = {}
        for entry in steps.split(", "):
            step, to = entry.split()
            after = here if to == "-" else Phase[to]
            row |= dict.fromkeys(ENDS_RUNS if step == "ends*" else [Step[step.upper()]], after)
    return found


TABLE = table()
WAY_TO: dict[Phase, tuple[Step, ...]] = {
    Phase.WAITING: (),
    Phase.SETTING_UP: (Step.TRIED,),
    Phase.RUNNING: (Step.TRIED, Step.LED),
    Phase.PAUSED: (Step.TRIED, Step.LED, Step.PAUSED),
    Phase.HANDING_OVER: (Step.TRIED, Step.LED, Step.OFFERED),
    Phase.ENDING: (Step.TRIED, Step.LED, Step.LOST),
    Phase.RESTARTING: (Step.TRIED, Step.LED, Step.LOST, Step.RESTS),
    Phase.CLOSING: (Step.TRIED, Step.LED, Step.DONE, Step.CLOSES),
    Phase.CLOSED: (Step.TRIED, Step.LED, Step.DONE, Step.CLOSES, Step.CLOSED),
    Phase.LEFT: (Step.TRIED, Step.GIVEN_UP),
}


def at(phase: Phase) -> Life:
    life = Life()
    for step in WAY_TO[phase]:
        life.take(step)
    assert life.phase is phase
    return life


def test_the_table_has_all_phases_and_steps() -> None:
    assert {*TABLE} == {*STEPS} == {*Phase} == {*WAY_TO}
    assert {step for row in STEPS.values() for step in row} == {*Step}


@pytest.mark.parametrize(("phase", "step"), [*product(Phase, Step)])
def test_a_step_leads_where_the_table_says_or_raises(phase: Phase, step: Step) -> None:
    life, to = at(phase), TABLE[phase].get(step)
    if to is None:
        before = life.why
        with pytest.raises(IllegalStep, match=f"{phase} cannot be {step}"):
            life.take(step)
        assert (life.phase, life.why) == (phase, before)
    else:
        assert life.take(step) is to


def test_a_flow_that_changes_while_it_is_set_up_ends_as_soon_as_it_is_led() -> None:
    life = at(Phase.SETTING_UP)
    life.take(Step.REPLACED)
    assert life.take(Step.LED) is Phase.ENDING
    assert life.begins_again
    life.take(Step.RESTS)
    assert life.take(Step.CLOSED) is Phase.WAITING
    assert not life.why


def test_steps_during_the_end_of_a_run_are_followed_after_it() -> None:
    for step, then in ((Step.STOPPED, Phase.LEFT), (Step.REMOVED, Phase.CLOSED)):
        life = at(Phase.RESTARTING)
        life.take(step)
        assert life.take(Step.CLOSED) is then


def test_a_set_up_that_ends_after_the_end_of_the_process_ends_in_order() -> None:
    life = at(Phase.SETTING_UP)
    assert life.take(Step.STOPPED) is Phase.LEFT
    assert life.is_over
    assert life.take(Step.LED) is Phase.ENDING
    assert not life.begins_again


@pytest.mark.parametrize(
    ("ends", "again"),
    [
        ({Step.DONE}, False),
        ({Step.STOPPED}, False),
        ({Step.REMOVED}, False),
        ({Step.LOST}, True),
        ({Step.PROMOTED}, True),
        ({Step.REPLACED, Step.LOST}, True),
        ({Step.REPLACED, Step.REMOVED}, False),
        ({Step.LOST, Step.STOPPED}, False),
    ],
)
def test_a_flow_begins_again_unless_it_is_to_end(ends: set[Step], again: bool) -> None:
    life = at(Phase.RUNNING)
    for step in sorted(ends):
        life.take(step)
    assert life.begins_again is again


def test_one_that_was_offered_is_handed_over_whatever_ends_it() -> None:
    life = at(Phase.HANDING_OVER)
    life.take(Step.LOST)
    assert life.why == {Step.LOST, Step.HANDED_OVER}
