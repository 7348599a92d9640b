"""Source partitions whose records are distributed by key to another number of target partitions.
Every record arrives once in its key's partition, whether lanes are killed or brokers expire
producer IDs.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support import raw
from tests.support.client import eventually, read_all
from tests.support.load import Load
from tests.support.machine_pace import paced
from tests.support.mirror import Mirror
from tests.support.rig import OLD, Rig, arrived, send_signals
from tests.support.topics import add_partitions, create_topic, delete_records, delete_topic
from twinlog.cluster.logs.producers import describe_producers
from twinlog.control.flow.flow_setup import known_fan_producers
from twinlog.errors import TwinlogError
from twinlog.mirror.copy.fan_out import partition_for_key, partition_of
from twinlog.model import TopicPartition

pytestmark = [pytest.mark.faults, pytest.mark.broker]

TARGETS = 3
CHANGES = 3
"""Minimum number of lease changes in a test under load."""
STALL_S = 0.5
KEYED = {"twinlog.target.partitions": "keyed"}


@pytest.fixture
def flow(rig: Rig) -> Rig:
    create_topic(rig.target, rig.remote, partitions=TARGETS)
    return rig


def check(rig: Rig, sources: int) -> None:
    """Check that every record is in its key's partition once, and that the records of each source
    partition are in order.
    """
    here, there = read_all(rig.source, rig.topic), read_all(rig.target, rig.remote)
    assert Counter(one.value for one in there) == Counter(one.value for one in here)
    home = {one.value: (one.partition, one.offset) for one in here}
    for number in range(TARGETS):
        part = [one for one in there if one.partition == number]
        assert {partition_for_key(one.key or b"", TARGETS) for one in part} <= {number}
        for begin in range(sources):
            order = [home[one.value][1] for one in part if home[one.value][0] == begin]
            assert order == sorted(order)


@pytest.mark.witness("records placed by key survive killed lanes")
def test_lanes_killed_again_and_again(flow: Rig) -> None:
    create_topic(flow.source, flow.topic, partitions=2)
    mirror = Mirror(flow.config(KEYED), lanes=2, lease_s=3.0)
    dice = random.Random(1)
    with mirror, Load(flow.source, flow.topic, partitions=2, per_second=1_000) as load:
        mirror.eventually(lambda parts: sum(p.records for p in parts) > 0)
        end = time.monotonic() + 9
        while time.monotonic() < end:
            time.sleep(dice.uniform(0.2, 1.2))
            send_signals(dice.sample(mirror.leases.pids(), 1), signal.SIGKILL)
        count = load.stop()
        eventually(lambda: arrived(flow) >= count, what="everything that was produced")
        mirror.stop()
    check(flow, 2)


DIES_BETWEEN_ROWS = """
import os, pathlib, signal
from twinlog.lane import map_writer
done = pathlib.Path({done!r})
def die(*_):
    done.touch()
    os.kill(os.getpid(), signal.SIGKILL)
if not done.exists():
    map_writer.ROUND_BYTES = 0
    map_writer.MapWriter.on_answer = die
"""


def test_lane_killed_between_the_first_rows_of_its_branches(flow: Rig, tmp_path: Path) -> None:
    flow.create()
    flow.put(range(40))
    done = tmp_path / "done"
    flow.copy_once(KEYED, prelude=DIES_BETWEEN_ROWS.format(done=str(done)))
    assert done.exists()
    check(flow, 1)


READS_BEFORE_ROWS = """
from twinlog.mirror.copy.fan_out import is_record
pump, begun = map_writer.MapWriter.pump, []
def late(self, now_ms):
    copies = [copy for home in self._map_partitions.values() for copy in home.waiting]
    begun.append(any(is_record(copy.tail.runs[0]) for copy in copies))
    if any(begun) or len(begun) > 200:
        pump(self, now_ms)
if not done.exists():
    map_writer.MapWriter.pump = late
"""
"""Prelude of a lane whose map writer writes no row until the first record has been read or some
time has passed.
"""


def test_lane_killed_between_the_first_rows_when_one_is_a_record_already(
    flow: Rig, tmp_path: Path
) -> None:
    flow.create()
    first = next(n for n in range(40) if partition_of(flow.record(n), TARGETS) == 0)
    flow.put([first])
    done = tmp_path / "done"
    prelude = (DIES_BETWEEN_ROWS + READS_BEFORE_ROWS).format(done=str(done))
    flow.copy_once(KEYED, prelude=prelude)
    assert done.exists()
    check(flow, 1)


def test_leases_change_in_order_under_load(flow: Rig) -> None:
    """If records are distributed by key, no lane hands over its position when the next lease (Spark
    job whose tasks are lanes) starts. So the lanes of every lease must search the log for the end
    of the copy. Every record must still arrive once.
    """
    create_topic(flow.source, flow.topic, partitions=2)
    mirror = Mirror(flow.config(KEYED), lanes=2, lease_s=2.0)
    with mirror, Load(flow.source, flow.topic, partitions=2, per_second=1_000) as load:
        jobs = mirror.leases.jobs
        while True:
            first = len(jobs)
            with paced() as pace:
                eventually(
                    lambda: len(jobs) > first + CHANGES and jobs[first + CHANGES - 1].is_done  # noqa: B023
                )
            if pace.longest_stall_s < STALL_S:
                break  # a stall this long loses a lane, so count lease changes again after it
        at_the_change = load.sent
        eventually(lambda: arrived(flow) > at_the_change, what="records of the last lease")
        count = load.stop()
        eventually(lambda: arrived(flow) >= count, what="everything that was produced")
        tries = {attempt for job in jobs[first:][:CHANGES] for attempt in job.attempts.values()}
        assert tries == {0}, "no lane was lost: these were changes in order"
        mirror.eventually(lambda parts: {part.code for part in parts} == {""})
        mirror.stop()
    check(flow, 2)


def test_broker_expired_the_producer_id_and_the_records_are_old(flow: Rig) -> None:
    flow.create()
    for begin in (0, 40, 80):
        flow.put(range(begin, begin + 40), age_ms=OLD)
        flow.copy_once(KEYED)
        eventually(lambda: not known(flow), what="the expiry of every producer id")
    check(flow, 1)


def known(rig: Rig) -> set[int]:
    """Return the producer IDs that the target remembers in any partition."""
    found = describe_producers(
        rig.target_client, [TopicPartition(rig.remote, number) for number in range(TARGETS)]
    )
    ids: set[int] = set()
    for states in found.values():
        assert not isinstance(states, TwinlogError), states
        ids |= states.keys()
    return ids


def test_a_batch_that_our_map_does_not_announce_is_found_at_the_source(flow: Rig) -> None:
    flow.create()
    flow.put(range(40))
    flow.copy_once(KEYED)
    flow.put(range(40, 80))
    # late batches of a lane that was given up, with other bounds than those of the new lane
    rest = [flow.record(n) for n in range(40, 80)]
    late = [one for one in rest if partition_of(one, TARGETS) == 1][:2]
    done = [flow.record(n) for n in range(40) if partition_of(flow.record(n), TARGETS) == 1]
    producer_id = known_fan_producers(flow.target_client)[flow.flow, 0]
    writer = raw.Writer(flow.target_client, TopicPartition(flow.remote, 1), producer_id)
    writer.send(late, len(done)).expect_ok()
    flow.copy_once(KEYED)
    check(flow, 1)


def test_changed_partition_counts_stop_the_copy_because_records_are_not_moved(flow: Rig) -> None:
    flow.create()
    flow.put(range(40))
    flow.copy_once(KEYED)
    flow.put(range(40, 80))
    add_partitions(flow.target, flow.remote, TARGETS + 1)
    code, message = flow.fail_once(KEYED)
    assert code == "PARTITIONS_DIFFER"
    assert f"partitioned by key into {TARGETS} target partitions" in message
    # the code is also reported if the two counts have become equal
    add_partitions(flow.source, flow.topic, TARGETS + 1)
    with flow.mirror(once=True, keys=KEYED) as mirror:
        (ended,) = mirror.wait()
    assert {p.code for p in ended.partitions} == {"PARTITIONS_DIFFER"}
    assert arrived(flow) == 40


def test_copy_that_kept_partitions_does_not_begin_to_place_by_key(flow: Rig) -> None:
    create_topic(flow.source, flow.topic, partitions=TARGETS)
    flow.put(range(40))
    with flow.mirror(once=True, keys=KEYED) as mirror:
        (ended,) = mirror.wait()
    assert {p.code for p in ended.partitions} == {""}
    flow.put(range(40, 80))
    add_partitions(flow.target, flow.remote, TARGETS + 1)
    with flow.mirror(once=True, keys=KEYED) as mirror:
        (ended,) = mirror.wait()
    assert {p.code for p in ended.partitions} == {"PARTITIONS_DIFFER"}
    assert arrived(flow) == 40


def test_source_that_was_recreated_is_not_mixed_with_its_old_copy(flow: Rig) -> None:
    flow.create()
    flow.put(range(40))
    flow.copy_once(KEYED)
    delete_topic(flow.source, flow.topic)
    flow.create()
    flow.put(range(100, 140))
    code, _ = flow.fail_once(KEYED)
    assert code == "SOURCE_RECREATED"
    there = Counter(one.value for one in read_all(flow.target, flow.remote))
    assert there == Counter(flow.record(n).value for n in range(40))

    for partition in range(TARGETS):
        delete_records(flow.target, flow.remote, partition)
    flow.copy_once(KEYED)
    there = Counter(one.value for one in read_all(flow.target, flow.remote))
    assert there == Counter(flow.record(n).value for n in range(100, 140))
