"""Another client writes to a remote topic repeatedly, and its records are accepted. In every order
of steps, the copy resumes with exactly the next record, and the map stays right.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Final
from unittest import mock

from tests.support import memory_flow
from tests.support.memory_flow import PRODUCER_ID, STRAY, TARGET_ID, THERE, MemoryFlow
from tests.support.memory_log import MemoryView
from twinlog.mirror.map import map_tail
from twinlog.mirror.map.foreign_records import last_stretch, walk
from twinlog.mirror.map.runs import DOWNSTREAM, following
from twinlog.mirror.start.divergence import find_break

PROGRAMS: Final = 120
PROGRAM_BYTES: Final = 800
MAY_STOP: Final = {*memory_flow.MAY_STOP, "TARGET_TRUNCATED"}
"""Codes with which a copy may stop. An unclean election may lose records that were accepted before
the flow's first record.
"""
OURS: Final = frozenset({PRODUCER_ID})


@dataclass(slots=True)
class AcceptingFlow(MemoryFlow):
    """A flow whose operator accepts foreign records whenever the copy stops because of them, as
    `client.repair` does.
    """

    acceptances: int = 0

    def start(self, number: int) -> bool:
        if self.stopped is not None and self.stopped.code == "EXTRA_RECORDS":
            self._accept()
        return MemoryFlow.start(self, number)

    def _accept(self) -> None:
        known = self.known()
        assert known is not None
        view = MemoryView({THERE: self.target}, TARGET_ID)
        ends = view.ends({THERE})[THERE]

        def read(offset: int) -> memoryview:
            return view.read({THERE: offset})[THERE].records

        stretch = last_stretch(known.runs, ends.log_end)
        low = max(ends.log_start, stretch.low, known.runs[0].downstream)
        at = find_break(read, low=low, high=ends.log_end, k=stretch.k, producers=OURS)
        if at is None:  # the log has lost its end since then
            self.stopped, self.has_stranger = None, False
            return
        found = walk(read, at.offset, ends.log_end, k=stretch.k, producers=OURS)
        if found is not None:
            others = tuple(one for one in self.accepted if one.first != found.accepted.first)
            self.accepted = (*others, found.accepted)
            self.stopped, self.has_stranger = None, False
            self.acceptances += 1

    def check(self) -> None:
        known, before = self.known(), self.begins_at - 1
        sure = -1 if self.lane is None else self.lane.copy.acked_ordinal
        shifted = max((one.first for one in self.accepted), default=self.target.end)
        for record in self.target.records():
            if record.value == STRAY:
                continue
            upstream = int((record.value or b"")[1:])
            assert upstream > before, f"u{upstream} behind u{before}"
            for at in range(before + 1, upstream):
                assert at not in self.written or at in self.gone, f"u{at} is missing"
            before = upstream
            assert known is not None, "records without a row"
            run = known.runs[max(0, following(known.runs, record.offset, DOWNSTREAM) - 1)]
            ordinal = record.offset - run.downstream + run.ordinal
            is_sure = ordinal < sure and record.offset not in self._of_living
            if self.lane is not None and self.lane.copy.tail.durable_ordinal < 0:
                # the first row states which records were accepted
                is_sure &= record.offset < shifted
            if is_sure and upstream not in self.gone and not self.has_stranger:
                said = run.upstream_of(ordinal)
                assert said == upstream, f"offset {record.offset} is u{upstream}, map: {said}"


def test_in_every_order_of_steps_the_copy_resumes_after_accepted_records() -> None:
    stops = Counter[str]()
    acceptances = 0
    for seed in range(PROGRAMS):
        flow = AcceptingFlow()
        with (
            mock.patch.object(map_tail, "RUNS_PER_CHUNK", 3),
            mock.patch.object(memory_flow, "MAY_STOP", MAY_STOP),
        ):
            try:
                flow.do(random.Random(seed).randbytes(PROGRAM_BYTES))
                flow.finish()
            except Exception as broken:
                raise AssertionError(f"the program of seed {seed} breaks a rule") from broken
        acceptances += flow.acceptances
        stops[flow.stopped.code if flow.stopped is not None else ""] += 1
    assert acceptances > PROGRAMS / 8, acceptances
    assert stops[""] > PROGRAMS / 5, stops
