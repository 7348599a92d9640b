"""In any order of steps of a transformed copy, each record that is not filtered out arrives once,
in order and masked.

The function filters and masks differently each time. Lanes die at any step, answers are lost or
arrive twice, lanes that were given up continue, and the broker expires the producer ID
(`tests.support.transformed_flow`). Each rule that a mutant removes must be detected.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Final
from unittest import mock

import pytest

from tests.support import memory_flow
from tests.support.mutants import (
    Mutant,
    always,
    appends_anywhere,
    check_noticed,
    hands_over_what_was_read,
    take_steps,
)
from tests.support.sweeps import sweep
from tests.support.transformed_flow import TRANSFORMED_STEPS, TransformedFlow
from twinlog.mirror.copy import range_intake
from twinlog.mirror.copy.partition import PartitionCopy
from twinlog.mirror.copy.range_intake import Stretch
from twinlog.mirror.copy.transformed import TransformedCopy
from twinlog.mirror.map import map_tail
from twinlog.mirror.map.offset_map import PartitionMap
from twinlog.mirror.start import position

STEPS_TAKEN: Final = int(os.environ.get("TWINLOG_STEPS", "60000"))
PARTS: Final = 3
FEW_RUNS: Final = 3
SMALL_RANGE: Final = 200
"""Size in bytes that is so small that a response of the source becomes several ranges."""
SEARCHED: Final = 2_000


def run(program: bytes) -> TransformedFlow:
    flow = TransformedFlow()
    with (
        mock.patch.object(map_tail, "RUNS_PER_CHUNK", FEW_RUNS),
        mock.patch.object(range_intake, "RANGE_BYTES", SMALL_RANGE),
    ):
        flow.do(program)
        flow.finish()
    return flow


@pytest.mark.parametrize("part", sweep(range(PARTS), in_gate=1))
def test_every_order_of_steps_keeps_every_surviving_record_once_and_the_map_true(part: int) -> None:
    taken = take_steps(run, STEPS_TAKEN // PARTS, 1_000_000 * part)
    assert {*TRANSFORMED_STEPS} == {*taken}, "a step that is never taken shows nothing"


def _starts_at_once(self: TransformedFlow) -> bool:
    self._wait_until_ms = self._lanes_until_ms = 0
    return False


def _uses_any_answer(self: TransformedCopy, now_ms: int) -> None:
    self._asked = deque(sorted(self._asked, key=lambda one: one.answer is None))
    use_answers(self, now_ms)


def _forgets_the_rest(self: Stretch, at: int) -> Stretch:
    rest = cut(self, at)
    rest.batches, rest.size = [], 0
    return rest


cut: Final = Stretch.cut
use_answers: Final = TransformedCopy.use_answers
RULES: Final = (
    Mutant(
        "wait: no start beside late requests",
        8,
        TransformedFlow,
        "waits_for_late_requests",
        _starts_at_once,
    ),
    Mutant("map: the end of each batch is named", 1, TransformedCopy, "_end_run", always(None)),
    Mutant("map: a batch waits for its rows", 6, PartitionCopy, "_ordinal_to_announce", always(-1)),
    Mutant("map: what cannot be compared is known", 0, position, "is_transformed", always(False)),
    Mutant(
        "order: answers are used in that of the source",
        0,
        TransformedCopy,
        "use_answers",
        _uses_any_answer,
    ),
    Mutant(
        "position: what is not answered is not decided",
        2,
        TransformedCopy,
        "_acknowledge_what_was_read",
        PartitionCopy._acknowledge_what_was_read,
    ),
    Mutant(
        "release: what is acknowledged is handed over",
        5,
        memory_flow,
        "hand_over",
        hands_over_what_was_read,
    ),
    Mutant("part: the rest is another range", 1, Stretch, "cut", _forgets_the_rest),
    Mutant("term: newer chunks void older ones", 0, PartitionMap, "_store_entry", appends_anywhere),
    Mutant("window: nothing goes out after an error", 2, PartitionCopy, "stop", always(None)),
)


def test_topic_is_switched_between_raw_and_transforms_at_its_position() -> None:
    flow = TransformedFlow()
    for number, transform in enumerate(("", "ab", "ab", "", "", "cd", "", "ab")):
        flow.transform, before = transform, flow.target.end
        for _ in range(5):
            flow.produce(number + 1)
        for ends in (flow.release, flow.kill):
            assert flow.start(1) and flow.copy_on(3)
            flow.position_is_noted(0)
            flow.write_map(0)
            flow.rows_are_durable(0)
            assert ends(0) and not flow.has_lane()
            flow._handed = None
            if not transform:
                flow.raw.update(range(before, flow.target.end))
            flow.check()
        assert flow.target.end > before
    assert {*flow.raw} < {*range(flow.target.end)}, "some were masked, some were not"
    known = flow.known()
    assert known is not None and len(known.transformed) == 3, "two digests in a row are one range"


@pytest.mark.parametrize("mutant", RULES, ids=[mutant.rule for mutant in RULES])
def test_removed_rule_is_detected(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    check_noticed(run, mutant, monkeypatch, SEARCHED)
