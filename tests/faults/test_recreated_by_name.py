"""The target's brokers do not accept topic IDs in requests. A topic that was re-created under the
same name must still be detected.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.recreated import recreate_target
from tests.support.rig import Rig
from tests.support.topics import delete_records, delete_topic

pytestmark = [pytest.mark.faults, pytest.mark.broker]

BY_NAME = "import twinlog.lane.sides.target_side as t; t.VERSION_BY_ID = 99\n"
"""Prelude of a lane that treats brokers like those before Kafka 4.1, which do not accept topic IDs.
"""

NEVER_LOOKS_AT_IDS = (
    BY_NAME + "import twinlog.lane.sides.topic_by_name as n; n.SEEN_WITHIN_S = 1e9\n"
)
"""Prelude of a lane that checks the topic ID only once. The topic is re-created directly after this
check.
"""

STANDS_STILL = (
    BY_NAME
    + """
import os, time
def stand_still():
    try:
        os.rename({flag!r}, {flag!r} + ".seen")
    except FileNotFoundError:
        return
    while os.path.exists({flag!r} + ".seen"):
        time.sleep(0.01)
"""
)
"""Prelude of a lane that stops once, so that the test can re-create the topic."""

BEFORE_IT_READS_AN_ANSWER = (
    STANDS_STILL
    + """
read = t.TargetSide.on_answer
def late(*arguments):
    stand_still()
    return read(*arguments)
t.TargetSide.on_answer = late
"""
)

BEHIND_A_BATCH = (
    STANDS_STILL
    + """
t.SENT_TOGETHER_BYTES = 1
pump, submit = t.TargetSide.pump, t.TargetSide._submit_one
def when_there_are_two(self, now_ms):
    if not os.path.exists({flag!r}) or any(len(copy._queue) > 1 for copy in self.copies):
        pump(self, now_ms)
def then_stand_still(self, connection, ready, now_ms):
    if self.in_flight_bytes and ready:
        stand_still()
    return submit(self, connection, ready, now_ms)
t.TargetSide.pump, t.TargetSide._submit_one = when_there_are_two, then_stand_still
"""
)
"""Prelude of a lane that stops with one batch in flight, directly before it sends the next batch.
The test then re-creates the topic.
"""


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)


@pytest.mark.witness("a topic is created again on brokers without topic IDs")
def test_it_is_copied_again_from_the_beginning(rig: Rig) -> None:
    rig.create()
    with rig.mirror(prelude=BY_NAME) as mirror:
        rig.put(range(30))
        rig.copied(30)
        for end in (40, 50):  # directly after the last response, and once more
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


@pytest.mark.parametrize(
    "prelude",
    [
        pytest.param(BEFORE_IT_READS_AN_ANSWER, id="before it reads an answer"),
        pytest.param(BEHIND_A_BATCH, id="behind a batch"),
    ],
)
def test_lane_is_stopped_while_the_topic_is_recreated(
    rig: Rig, tmp_path: Path, prelude: str
) -> None:
    """A lane freezes while the target topic is re-created. When the lane continues, it may read
    responses that belong to the deleted topic, but must not apply them to the new topic. Every
    record must arrive once.
    """
    rig.create()
    flag = tmp_path / "stand-still"
    with rig.mirror(prelude=prelude.format(flag=str(flag))) as mirror:
        rig.put(range(30))
        rig.copied(30)
        mirror.eventually(lambda parts: parts[0].lag == 0)
        flag.touch()
        for number in range(30, 40):
            rig.put([number])
        stands = flag.with_name(flag.name + ".seen")
        eventually(stands.exists)
        recreate_target(rig)
        rig.put(range(40, 50))
        stands.unlink()
        rig.copied(50)
        mirror.eventually(lambda parts: parts[0].lag == 0 and not parts[0].code)
        mirror.stop()
    assert rig.numbers() == list(range(50))
    rig.same()
    rig.offsets_are_exact()


def test_twinlog_itself_deletes_and_recreates_it(rig: Rig) -> None:
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


def test_batch_that_was_on_its_way_when_it_was_recreated(rig: Rig) -> None:
    """A batch is in flight when the target topic is re-created, so its records are at the start of
    the new topic. The partition stops with TARGET_RECREATED. The flow must write nothing after
    these records until they are removed.
    """
    rig.create()
    with rig.mirror(prelude=NEVER_LOOKS_AT_IDS) as mirror:
        rig.put(range(30))
        rig.copied(30)
        mirror.eventually(lambda parts: parts[0].lag == 0)
        recreate_target(rig)
        rig.put(range(30, 40))
        # before the lane finds these records, it may have failed with a message about the topic ID
        # alone
        found = "records [0, 10) of the new topic are this flow's"
        (part,) = mirror.eventually(lambda parts: found in parts[0].message)
        assert (part.state, part.code) == ("FAILED", "TARGET_RECREATED")
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
