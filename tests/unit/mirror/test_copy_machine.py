"""In any order of steps of a copy, every record arrives once and in order, and the map is right.

A program is a sequence of bytes, two for each step (`tests.support.memory_flow`). Hypothesis
searches for a program that breaks a rule, and shortens it. Other programs are generated from seeds.
Each rule that a mutant removes (`tests.support.mutants`) must be detected, or the machine proves
nothing.
"""

from __future__ import annotations

import os
from typing import Final
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.memory_flow import MemoryFlow
from tests.support.memory_steps import STEPS
from tests.support.mutants import MUTANTS, PROGRAM_BYTES, Mutant, check_noticed, take_steps
from tests.support.sweeps import sweep
from twinlog.mirror.map import map_tail

STEPS_TAKEN: Final = int(os.environ.get("TWINLOG_STEPS", "200000"))
"""Number of steps to run. TWINLOG_STEPS=5000000 scripts/test tests/unit/mirror -k copy_machine runs
more.
"""
PARTS: Final = 6
IN_GATE: Final = 2
"""Number of parts that the gate runs. Each part runs each kind of step."""
FEW_RUNS: Final = 3
"""Maximum number of runs in a chunk (a row of the offset map). It is small, so that chunks
fill up.
"""
SEARCHED: Final = 4_000
"""Number of programs that are tried if a mutant's own program no longer detects it."""


def run(program: bytes) -> MemoryFlow:
    flow = MemoryFlow()
    with mock.patch.object(map_tail, "RUNS_PER_CHUNK", FEW_RUNS):
        flow.do(program)
        flow.finish()
    return flow


@given(st.binary(max_size=PROGRAM_BYTES))
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_hypothesis_finds_no_order_that_breaks_a_rule(program: bytes) -> None:
    run(program)


@pytest.mark.parametrize("part", sweep(range(PARTS), in_gate=IN_GATE))
def test_every_order_of_steps_keeps_every_record_once_in_order_and_the_map_true(part: int) -> None:
    taken = take_steps(run, STEPS_TAKEN // PARTS, 1_000_000 * part)
    assert {*STEPS} == {*taken}, "a step that is never taken shows nothing"


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.rule for mutant in MUTANTS])
def test_removed_rule_is_detected(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    check_noticed(run, mutant, monkeypatch, SEARCHED)
