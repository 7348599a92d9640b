"""A lane must know the target's current leaders and its current producer ID expiry. Otherwise it
would assume that the target still remembers the flow's producer ID.
"""

from __future__ import annotations

import pytest

from tests.support.client import eventually
from tests.support.mirror import Mirror
from tests.support.rig import DAY_MS, OLD, Rig
from tests.support.surgery import cut_log

pytestmark = [pytest.mark.faults, pytest.mark.broker]

HOUR_MS = 3_600_000
CHECKS_OFTEN = "import twinlog.lane.watches.expiry_watch as w; w.CHECK_EVERY_S = 0.3\n"


@pytest.fixture
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lanes repeat a check soon if it still finds the old leader epoch."""
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)


def lose_the_end_and_copy_more(rig: Rig, mirror: Mirror) -> None:
    """Remove the last three of ten records during a restart of the target, then copy ten more. The
    controller does not count the restart as an election. All twenty records must be on the target.
    """
    rig.target.kill(1)
    cut_log(rig.target, rig.there, 7)
    rig.target.restart(1)
    rig.put(range(10, 20), age_ms=OLD)
    rig.copied(20)
    mirror.eventually(lambda parts: parts[0].lag == 0 and not parts[0].code)
    assert "GAP_WRITTEN" not in mirror.snapshots[0].errors, mirror.snapshots[0]
    mirror.stop()
    assert rig.numbers() == list(range(20))
    rig.same()
    rig.offsets_are_exact()


@pytest.mark.usefixtures("quick_retry")
def test_leader_that_lost_its_end_after_an_idle_copy(rig: Rig) -> None:
    """The target loses its last records while the copy is idle. It has also expired the producer
    ID, so it would accept any batch, and the lane itself must detect the loss.
    """
    rig.create()
    with rig.mirror() as mirror:
        for number in range(10):
            rig.put([number], age_ms=OLD)
            rig.copied(number + 1)
        mirror.eventually(lambda parts: parts[0].lag == 0)
        rig.forgotten()
        lose_the_end_and_copy_more(rig, mirror)


@pytest.mark.usefixtures("quick_retry")
def test_leader_that_lost_its_end_after_a_copy_that_never_sent(rig: Rig) -> None:
    """The target loses its last records before the lane has connected to the leader. The lane
    notices no broken connection, and must detect the loss anyway.
    """
    rig.create()
    for number in range(10):
        rig.put([number], age_ms=OLD)
    rig.copy_once()
    rig.forgotten()
    with rig.mirror() as mirror:
        mirror.eventually(lambda parts: parts[0].state == "AT_END")
        lose_the_end_and_copy_more(rig, mirror)


@pytest.mark.witness("a lowered producer ID expiry is detected while a lane copies")
def test_expiry_that_is_lowered_while_a_lane_copies(rig: Rig) -> None:
    rig.create()
    rig.put(range(10), age_ms=2 * HOUR_MS)
    with rig.mirror(prelude=CHECKS_OFTEN) as mirror:
        rig.copied(10)
        eventually(lambda: protection(rig, mirror) is True, what="two hours of a day are protected")
        with rig.target_forgets_after(HOUR_MS):
            eventually(lambda: protection(rig, mirror) is False, what="of an hour they are not")
        eventually(lambda: protection(rig, mirror) is True, what=f"of {DAY_MS} ms they are again")
        mirror.stop()


def test_expiry_that_was_lowered_before_a_lane_began(rig: Rig) -> None:
    """The expiry is lowered from a day to an hour after the driver has claimed its generation.
    Lanes that begin later must use the new value.
    """
    rig.create()
    rig.put(range(10), age_ms=2 * HOUR_MS)
    with rig.mirror(lease_s=4.0) as mirror:
        rig.copied(10)
        eventually(lambda: protection(rig, mirror) is True, what="two hours of a day are protected")
        with rig.target_forgets_after(HOUR_MS):
            eventually(lambda: protection(rig, mirror) is False, what="of an hour they are not")
        mirror.stop()


def protection(rig: Rig, mirror: Mirror) -> bool | None:
    """Return True if the lane reports that the target certainly remembers the producer ID; None
    before the lane's first report.
    """
    progress = mirror.partition(rig.here).progress
    return None if progress is None else progress.is_protected
