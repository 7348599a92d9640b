"""The source deletes the markers or aborted records after the last copied record. No copied record
is lost, so the copy resumes without an error.
"""

from __future__ import annotations

import pytest

from tests.support.client import Outgoing, eventually, produce_transaction
from tests.support.rig import Rig, kill
from tests.support.topics import apply_topic_configs, delete_records

pytestmark = [pytest.mark.faults, pytest.mark.broker]


def transaction(rig: Rig, first: int, count: int, *, commit: bool = True) -> None:
    batch = [Outgoing(key=b"k%d" % n, value=b"u%d" % n) for n in range(first, first + count)]
    produce_transaction(rig.source, rig.topic, batch, commit=commit)


def retention_takes_all(rig: Rig) -> None:
    apply_topic_configs(rig.source, rig.topic, {"retention.ms": "500"})
    eventually(lambda: rig.source_start() == rig.source_end(), what="retention")
    apply_topic_configs(rig.source, rig.topic, {"retention.ms": "-1"})


@pytest.mark.parametrize("prefixed", [True, False], ids=["ours alone", "shared"])
def test_idle_transactional_topic_whose_retention_has_passed(rig: Rig, prefixed: bool) -> None:
    rig.prefixed = prefixed
    rig.create()
    transaction(rig, 0, 10)
    rig.copy_once()
    assert rig.numbers() == list(range(10))
    retention_takes_all(rig)
    rig.copy_once()
    transaction(rig, 10, 10)
    rig.copy_once()
    assert rig.numbers() == list(range(20))
    rig.offsets_are_exact()


@pytest.mark.witness("a lane is killed after a transaction marker")
def test_lane_that_is_killed_after_a_marker(rig: Rig) -> None:
    rig.create()
    transaction(rig, 0, 10)
    with rig.mirror() as mirror:
        rig.copied(10)
        mirror.eventually(lambda parts: parts[0].state == "AT_END" and parts[0].lag == 0)
        eventually(lambda: rig.map().runs[-1].upstream == 11, what="the position in the map")
        delete_records(rig.source, rig.topic)
        kill(mirror.leases.pids())
        transaction(rig, 10, 10)
        rig.copied(20)
        mirror.eventually(lambda parts: parts[0].lag == 0 and not parts[0].code)
        assert "SOURCE_TRUNCATED" not in mirror.snapshots[0].errors
        mirror.stop()
    assert rig.numbers() == list(range(20))
    rig.offsets_are_exact()


def test_nothing_but_rolled_back_data(rig: Rig) -> None:
    rig.create()
    transaction(rig, 0, 10, commit=False)
    rig.copy_once()
    delete_records(rig.source, rig.topic)
    rig.copy_once()
    transaction(rig, 10, 5)
    rig.copy_once()
    assert rig.numbers() == list(range(10, 15))
    rig.offsets_are_exact()
