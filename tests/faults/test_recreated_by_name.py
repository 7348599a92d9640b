"""A target whose brokers take no topic ids is deleted and created again under the same name."""

from __future__ import annotations

import pytest

from tests.faults.rig import Rig
from tests.faults.test_h05_recreated import recreate_target
from tests.support.topics import delete_records, delete_topic

pytestmark = [pytest.mark.faults, pytest.mark.broker]

BY_NAME = "import twinlog.lane.sides.target_side as t; t.VERSION_BY_ID = 99\n"
"""As with a broker before Kafka 4.1."""

NEVER_LOOKS_AT_IDS = BY_NAME + "t.SEEN_WITHIN_S = 1e9\n"
"""It is created anew right behind the look at its id."""


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)


def test_it_is_copied_anew_from_the_beginning(rig: Rig) -> None:
    rig.create()
    with rig.mirror(prelude=BY_NAME) as mirror:
        rig.put(range(30))
        rig.copied(30)
        mirror.eventually(lambda parts: parts[0].lag == 0)
        for end in (40, 50):  # and once more
            recreate_target(rig)
            rig.put(range(end - 10, end))
            rig.copied(end)
            mirror.eventually(lambda parts: parts[0].lag == 0 and not parts[0].code)
        told = set(mirror.snapshots[0].errors)
        assert told <= {"TARGET_RECREATED", "TOPIC_MISSING", "NO_LEADER"}, told
        mirror.stop()
    assert rig.numbers() == list(range(50))
    rig.same()
    rig.offsets_are_exact()


def test_it_is_deleted_and_made_anew_by_us(rig: Rig) -> None:
    rig.create()
    with rig.mirror(prelude=BY_NAME) as mirror:
        rig.put(range(20))
        rig.copied(20)
        mirror.eventually(lambda parts: parts[0].lag == 0)
        delete_topic(rig.target, rig.remote)
        rig.put(range(20, 30))
        rig.copied(30)
        mirror.eventually(lambda parts: parts[0].lag == 0 and not parts[0].code)
        mirror.stop()
    rig.same()
    rig.offsets_are_exact()


def test_batch_that_was_on_its_way_when_it_was_created_again(rig: Rig) -> None:
    """It stands where the first records belong: nothing follows it before it is taken away."""
    rig.create()
    with rig.mirror(prelude=NEVER_LOOKS_AT_IDS) as mirror:
        rig.put(range(30))
        rig.copied(30)
        mirror.eventually(lambda parts: parts[0].lag == 0)
        recreate_target(rig)
        rig.put(range(30, 40))
        (part,) = mirror.eventually(lambda parts: parts[0].state == "FAILED")
        assert part.code == "TARGET_RECREATED"
        assert "records [0, 10) of the new topic are ours" in part.message
        assert "upstream record 39, which the source still has" in part.message
        told = set(mirror.snapshots[0].errors)
        assert {"TARGET_RECREATED"} <= told <= {"TARGET_RECREATED", "TOPIC_MISSING", "NO_LEADER"}
        assert rig.numbers() == list(range(30, 40))

        delete_records(rig.target, rig.remote, before=10)
        rig.copied(50)
        mirror.eventually(lambda parts: parts[0].lag == 0 and not parts[0].code)
        rig.put(range(40, 45))
        rig.copied(55)
        mirror.stop()
    assert rig.numbers() == list(range(45)), "every record once and in order"
    rig.same()
    rig.offsets_are_exact()
    rig.put(range(45, 50))
    rig.copy_once()
    rig.same()
    rig.offsets_are_exact()
