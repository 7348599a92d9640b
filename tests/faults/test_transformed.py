"""Transformed partitions on real brokers. Lanes are killed, and the function returns different
results each time. Each remaining record arrives once, masked and in order, and the offset map is
right.
"""

from __future__ import annotations

import random
import signal
import time

import pytest

from tests.support.client import eventually, read_all
from tests.support.load import Load
from tests.support.rewritten_source import expect_diverged, fill, rewrite
from tests.support.rig import Rig, send_signals
from tests.support.transformed_mirror import DIGEST, TransformedMirror, with_transforms
from twinlog.mirror.map.offset_map import run_at
from twinlog.wire.records import Record

pytestmark = [pytest.mark.faults, pytest.mark.broker]

ALWAYS_KEPT = 3
KILLS = 2
LEASES = 4


class Mask:
    """A function that filters out most records. It masks the others with a different value each
    time.
    """

    def __init__(self) -> None:
        self.dropped: set[int] = set()
        self._dice = random.Random(1)

    def __call__(self, record: Record) -> Record | None:
        if record.offset % ALWAYS_KEPT and self._dice.random() < 0.5:
            self.dropped.add(record.offset)
            return None
        return record._replace(value=b"m%d-%d" % (record.offset, self._dice.getrandbits(30)))


def check(rig: Rig, mask: Mask, count: int) -> None:
    known = rig.map()
    k = known.runs[0].downstream - known.runs[0].ordinal
    before = -1
    for one in read_all(rig.target, rig.remote):
        assert (one.value or b"").startswith(b"m"), one
        upstream = int((one.value or b"")[1:].split(b"-")[0])
        assert upstream > before
        assert {*range(before + 1, upstream)} <= mask.dropped, "a record is missing"
        before = upstream
        run = run_at(known.runs, one.offset - k)
        assert run is not None and run.upstream_of(one.offset - k) == upstream
    assert {*range(before + 1, count)} <= mask.dropped
    assert known.transform == DIGEST


def has_read(mirror: TransformedMirror, rig: Rig, count: int) -> bool:
    progress = mirror.partition(rig.here).progress
    return progress is not None and progress.upstream >= count


def test_lanes_killed_under_a_function_that_decides_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_transforms(monkeypatch)
    rig.create()
    mask, dice = Mask(), random.Random(2)
    mirror = TransformedMirror(mask, rig.config(), lanes=1)
    with mirror, Load(rig.source, rig.topic, per_second=1_000) as load:
        for _ in range(KILLS):
            before = mirror.ranges
            eventually(lambda: mirror.ranges > before + 5, what="answers")  # noqa: B023
            time.sleep(dice.uniform(0.0, 0.5))  # kill at a random moment of the copy
            send_signals(mirror.leases.pids(), signal.SIGKILL)
            eventually(lambda: mirror.ranges > before + 6, what="a new lane")  # noqa: B023
        count = load.stop()
        eventually(lambda: has_read(mirror, rig, count), what="everything that was produced")
        mirror.stop()
    check(rig, mask, count)


def test_leases_change_under_a_function_that_decides_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_transforms(monkeypatch)
    rig.create()
    mask = Mask()
    mirror = TransformedMirror(mask, rig.config(), lanes=1, lease_s=3.0)
    with mirror, Load(rig.source, rig.topic, per_second=1_000) as load:
        eventually(lambda: mirror.lanes >= LEASES, what="leases that change")
        count = load.stop()
        eventually(lambda: has_read(mirror, rig, count), what="everything that was produced")
        mirror.stop()
    check(rig, mask, count)


def test_source_that_lost_its_end(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    with_transforms(monkeypatch)
    fill(rig)
    mask = Mask()
    mirror = TransformedMirror(mask, rig.config(), lanes=1)
    with mirror:
        eventually(lambda: mirror.ranges, what="the first range")
        eventually(lambda: has_read(mirror, rig, 50), what="everything that was produced")
        rig.source.kill(1)
        rewrite(rig)
        (part,) = mirror.eventually(lambda parts: parts[0].state == "FAILED")
        expect_diverged(part.code, part.message)
        mirror.stop()
    before = read_all(rig.target, rig.remote)
    with TransformedMirror(mask, rig.config(), lanes=1) as again:
        (part,) = again.eventually(lambda parts: parts[0].state == "FAILED")
        assert part.code == "SOURCE_DIVERGED" and "the source's log ends at 30" in part.message
        again.stop()
    assert read_all(rig.target, rig.remote) == before
