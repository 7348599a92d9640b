"""H5: a topic is deleted and re-created under the same name, either while a lane runs or while none
runs.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import raw
from tests.support.client import eventually
from tests.support.kafka_versions import FAULT_TARGET
from tests.support.recreated import recreate_source, recreate_target
from tests.support.rig import Rig
from tests.support.topics import create_topic, delete_records, delete_topic
from twinlog.cluster.logs.producers import init_producer_id
from twinlog.sandbox import LocalCluster
from twinlog.sandbox.kafka_jars import KAFKA_VERSION

pytestmark = [pytest.mark.faults, pytest.mark.broker]


@pytest.mark.skipif(FAULT_TARGET != KAFKA_VERSION, reason="Produce takes topic ids since 4.1")
def test_naive_writer_continues_in_the_new_topic_where_the_old_one_ended(rig: Rig) -> None:
    create_topic(rig.target, rig.remote)
    us = init_producer_id(rig.target_client).producer_id
    lane = raw.Writer(rig.target_client, rig.there, us)
    old_id = rig.target_client.metadata([rig.remote]).topics[rig.remote].topic_id
    for at in (0, 10, 20):
        lane.send([rig.record(n) for n in range(at, at + 10)], at).expect_ok()
    recreate_target(rig)

    last = [rig.record(n) for n in range(30, 40)]
    by_id = raw.send(rig.target_client, rig.there, lane.batch(last, 30), old_id)
    assert by_id.error == raw.UNKNOWN_TOPIC_ID
    assert lane.send(last, 30).expect_ok() == 0, "by name it is taken"
    assert rig.numbers() == list(range(30, 40))


def test_naive_reader_continues_in_the_middle_of_the_new_topic(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    recreate_source(rig)
    rig.put(range(100, 120))
    found = raw.values(rig.source_client, rig.here, 10)
    assert found == [b"u%d" % n for n in range(110, 120)], "a Fetch by name misses the first 10"


@pytest.mark.witness("H5: a target topic that was created again is copied again", case="earliest")
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_target_recreated_under_a_running_lane_is_copied_again_from_the_beginning(
    rig: Rig, start: str
) -> None:
    rig.create()
    with rig.mirror(keys={f"{rig.alias}.consumer.auto.offset.reset": start}) as mirror:
        mirror.eventually(lambda parts: parts[0].lag == 0)
        for at in (0, 10, 20):
            rig.put(range(at, at + 10))
        rig.copied(30)
        recreate_target(rig)
        rig.put(range(30, 40))
        rig.copied(40)
        mirror.eventually(lambda parts: parts[0].lag == 0 and not parts[0].code)
        mirror.stop()
    assert rig.numbers() == list(range(40))
    rig.same()
    rig.offsets_are_exact()


def test_target_recreated_between_two_runs_is_copied_again_from_the_beginning(rig: Rig) -> None:
    rig.create()
    rig.put(range(20))
    rig.copy_once()
    recreate_target(rig)
    rig.put(range(20, 30))
    rig.copy_once()
    assert rig.numbers() == list(range(30))
    rig.same()
    rig.offsets_are_exact()


def test_target_deleted_under_a_running_lane_is_created_and_copied_again(rig: Rig) -> None:
    rig.create()
    rig.put(range(20))
    with rig.mirror() as mirror:
        rig.copied(20)
        delete_topic(rig.target, rig.remote)
        rig.put(range(20, 30))
        rig.copied(30)
        mirror.eventually(lambda parts: parts[0].lag == 0 and not parts[0].code)
        mirror.stop()
    rig.same()
    rig.offsets_are_exact()


@pytest.mark.witness("H5: a source topic that was created again is not appended to the old copy")
def test_source_recreated_under_a_running_lane_stops_before_anything_of_it_is_written(
    rig: Rig,
) -> None:
    rig.create()
    rig.put(range(10))
    with rig.mirror() as mirror:
        rig.copied(10)
        recreate_source(rig)
        rig.put(range(100, 120))
        # the first message may come from a comparison of topic IDs alone; wait for the one that
        # names the records in danger
        mirror.eventually(
            lambda parts: (
                (parts[0].state, parts[0].code) == ("FAILED", "SOURCE_RECREATED")
                and "[0, 10)" in parts[0].message
            )
        )
        mirror.stop()
    assert rig.numbers() == list(range(10))


@pytest.mark.parametrize("prefixed", [True, False], ids=["ours alone", "shared"])
@pytest.mark.parametrize("how", [delete_topic, delete_records])
def test_source_recreated_under_a_running_mirror_is_copied_by_it_once_its_old_copy_is_gone(
    rig: Rig, how: Callable[[LocalCluster, str], None], prefixed: bool
) -> None:
    """The source topic is re-created while a mirror runs, so the lane's fetch session still
    contains the deleted topic. When the old copy has been deleted or emptied, the running mirror
    must copy the new topic.
    """
    rig.prefixed = prefixed
    rig.create()
    rig.put(range(10))
    with rig.mirror(keys={"refresh.topics.interval.seconds": "2"}) as mirror:
        rig.copied(10)
        mirror.eventually(lambda parts: parts[0].lag == 0)
        recreate_source(rig)
        rig.put(range(100, 120))
        mirror.eventually(
            lambda parts: (parts[0].state, parts[0].code) == ("FAILED", "SOURCE_RECREATED")
        )
        how(rig.target, rig.remote)
        mirror.eventually(lambda parts: parts[0].lag == 0 and not parts[0].code)
        mirror.stop()
    assert rig.numbers() == list(range(100, 120))
    rig.same()


def test_source_recreated_between_two_runs_is_copied_after_its_old_copy_was_deleted(
    rig: Rig,
) -> None:
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    recreate_source(rig)
    rig.put(range(100, 120))
    code, message = rig.fail_once()
    assert code == "SOURCE_RECREATED"
    assert "delete the target topic" in message
    assert rig.numbers() == list(range(10))

    delete_topic(rig.target, rig.remote)
    rig.copy_once()
    assert rig.numbers() == list(range(100, 120))
    rig.same()
    rig.offsets_are_exact()


def test_records_of_a_recreated_source_are_not_taken_for_those_of_the_old_one(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    with rig.mirror() as mirror:
        rig.copied(10)
        recreate_source(rig)
        rig.put(range(10))  # the same records at the same offsets as in the deleted topic
        rig.put(range(10, 20))
        mirror.eventually(lambda parts: parts[0].code == "SOURCE_RECREATED")
        mirror.stop()
    eventually(lambda: rig.numbers() == list(range(10)))
