"""A lane loses only its connection to the driver, so it continues to copy for up to 10 s. The next
lane's map lacks the records that it copies in this time.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.client import eventually, produce_transaction
from tests.support.cuttable import Cuttable
from tests.support.rig import Rig
from tests.support.stopwatch import Stopwatch
from tests.support.topics import create_topic

pytestmark = [pytest.mark.faults, pytest.mark.broker]

WAITS_BEFORE_IT_LOOKS = """
import os, time
import twinlog.lane.sides.log_view as v
asked = v.ClusterLogView.ends
def ask(self, tps, *rest):
    if any(tp == ({topic!r}, 0) for tp in tps):
        try:
            os.rename({flag!r}, {flag!r} + ".seen")
        except FileNotFoundError:
            pass
        else:
            while os.path.exists({flag!r} + ".seen"):
                time.sleep(0.02)
    return asked(self, tps, *rest)
v.ClusterLogView.ends = ask
"""
"""Prelude of a lane that stops once: after it got its partition and the offset map (`Take`), and
before it queries the target's end.
"""


def one(rig: Rig, number: int, *, commit: bool = True) -> None:
    """Write a transaction of one record, so that a marker follows the record."""
    produce_transaction(rig.source, rig.topic, [rig.outgoing(number)], commit=commit)


@pytest.mark.witness(
    "a lane that is considered dead continues, and nothing is copied twice", case="ours alone"
)
@pytest.mark.parametrize("prefixed", [True, False], ids=["ours alone", "shared"])
def test_its_records_after_the_end_of_the_next_lanes_map_are_not_copied_again(
    rig: Rig, tmp_path: Path, prefixed: bool
) -> None:
    rig.prefixed = prefixed
    create_topic(rig.source, rig.topic, 2)  # with one partition, the flow would have only one lane
    for number in range(5):
        one(rig, number)
    writes_behind_the_map_of_the_next(rig, tmp_path)


def test_its_records_after_an_aborted_one_are_not_copied_again(rig: Rig, tmp_path: Path) -> None:
    """A lane has lost its driver and copies one more record, which the next lane's map lacks. An
    aborted record is between the end of this map and that record. The next lane must not copy the
    record again.
    """
    create_topic(rig.source, rig.topic, 2)
    for number in range(5):
        one(rig, number)
        one(rig, 100 + number, commit=False)
    writes_behind_the_map_of_the_next(rig, tmp_path, rolled_back=105)


def writes_behind_the_map_of_the_next(
    rig: Rig, tmp_path: Path, rolled_back: int | None = None
) -> None:
    """Five records are copied. A lane that was given up copies the sixth, and the next lane must
    not copy it again.
    """
    flag = tmp_path / "wait"
    mirror = rig.mirror(lanes=2)
    port = Cuttable(mirror, WAITS_BEFORE_IT_LOOKS.format(topic=rig.remote, flag=str(flag)))
    with mirror:
        rig.copied(5)
        mirror.eventually(lambda parts: sum(part.records for part in parts) == 5)
        flag.touch()
        lost = mirror.partition(rig.here).lane
        assert lost is not None
        port.cut(lost.lease, lost.lane)
        waits = flag.with_name(flag.name + ".seen")
        eventually(waits.exists, what="the other lane's look")
        if rolled_back is not None:
            one(rig, rolled_back, commit=False)
        # this record follows a marker, so its run is in no row of the map that the other lane got
        one(rig, 5)
        with Stopwatch() as since:
            rig.copied(6)
        assert since.seconds < 8, "by the lane that lives"
        os.kill(port.pids[lost.lease, lost.lane], signal.SIGKILL)
        waits.unlink()
        one(rig, 6)
        rig.copied(7)
        mirror.eventually(lambda parts: parts[0].lag == 0 and not parts[0].code)
        mirror.stop()
    port.close()
    assert rig.numbers() == list(range(7))
    rig.same()
    rig.offsets_are_exact()
