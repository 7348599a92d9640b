"""H11 and the identity policy: other clients write to the remote topic, between this flow's records
and after them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce, produce_transaction, read_all
from tests.support.mirror import Mirror
from tests.support.rig import Numbered, Rig
from tests.support.topics import create_topic, delete_records, delete_topic
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.mirror.map.offset_map import run_at_upstream
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.faults, pytest.mark.broker]

FOREIGN = b"foreign"
TAKEN_OVER = "TAKEN_OVER"
"""Code that a lane reports if another client has written to its partition. The lane checks this
every two seconds.
"""


@pytest.fixture
def flow(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> Iterator[Rig]:
    with Rig(source_cluster, target_cluster, tmp_path) as rig:
        rig.prefixed = False
        rig.create()
        yield rig


def write_foreign(rig: Rig, count: int = 3) -> None:
    """Write like an application that was moved to the target before the copy ended."""
    produce(rig.target, rig.remote, [Outgoing(key=b"f", value=FOREIGN)] * count)


def ours(rig: Rig) -> list[Numbered]:
    return [record for record in rig.on_target() if record.value != FOREIGN]


def foreign(rig: Rig) -> int:
    return sum(record.value == FOREIGN for record in rig.on_target())


def map_is_exact(rig: Rig) -> None:
    """Check for every copied record that the map has its actual target offset."""
    known = rig.map()
    there = {r.value: r.offset for r in read_all(rig.target, rig.remote) if r.value != FOREIGN}
    wrong = []
    for record in read_all(rig.source, rig.topic):
        run = run_at_upstream(known.runs, record.offset)
        said = None if run is None else run.downstream + record.offset - run.upstream
        if said != there[record.value]:
            wrong.append((record.offset, said, there[record.value]))
    assert not wrong


def is_taken_over(parts: list[PartitionSnapshot]) -> bool:
    return [(p.state, p.code) for p in parts] == [(TAKEN_OVER, "")]


@pytest.mark.witness("H11: foreign records between copied ones are in the map")
def test_foreign_records_between_the_flows_own_are_in_the_map(flow: Rig) -> None:
    flow.put(range(10))
    with flow.mirror() as mirror:
        flow.copied(10)
        write_foreign(flow)
        # sent before the lane's next check, so these records arrive after the foreign ones
        flow.put(range(10, 20))
        flow.copied(23)
        flow.put(range(20, 30))
        flow.copied(33)
        mirror.eventually(lambda parts: parts[0].lag == 0 and not parts[0].code)
        mirror.stop()
    assert ours(flow) == flow.on_source()
    map_is_exact(flow)
    flow.put(range(30, 40))
    flow.copy_once()
    assert ours(flow) == flow.on_source()
    map_is_exact(flow)


def test_jump_that_a_dead_lane_could_not_note_is_found_at_the_next_start(flow: Rig) -> None:
    flow.put(range(10))
    before_the_row = (
        "import twinlog.mirror.copy.partition as c, os, signal\n"
        "c.PartitionCopy.stop = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with flow.mirror(prelude=before_the_row) as mirror:
        flow.copied(10)
        write_foreign(flow)
        mirror.leases.prelude = ""
        flow.put(range(10, 20))
        flow.copied(23)
        flow.put(range(20, 30))
        flow.copied(33)
        mirror.stop()
    assert ours(flow) == flow.on_source()
    map_is_exact(flow)


def test_flow_that_is_added_later_is_no_stranger(
    flow: Rig, fault_source: LocalCluster, tmp_path: Path
) -> None:
    """A flow from another source is added to the same target topic while the first flow runs. The
    new flow's records must not stop the first flow with TAKEN_OVER.
    """
    folder = tmp_path / "later"
    folder.mkdir()
    flow.put(range(10))
    with flow.mirror() as mirror, Rig(fault_source, flow.target, folder) as later:
        later.topic, later.prefixed = flow.topic, False
        later.create()
        later.put(range(1000, 1010))
        flow.copied(10)
        mirror.eventually(lambda parts: parts[0].state == "AT_END")
        with later.mirror() as second:
            flow.copied(20)
            known = mirror.partition(flow.here)
            for number in range(10, 20):
                flow.put([number])
                later.put([1000 + number])
                flow.copied(2 * number + 2)
            for one in (mirror, second):
                one.eventually(lambda parts: parts[0].state == "AT_END" and not parts[0].code)
            eventually(lambda: known.last_plan is not None and not known.is_taken_over)
            flow.put([20])  # the flow would not copy this record if the partition were TAKEN_OVER
            flow.copied(41)
            mirror.eventually(lambda parts: parts[0].state == "AT_END" and not parts[0].code)
            second.stop()
        mirror.stop()
        numbers = flow.numbers()
        assert [number for number in numbers if number < 1000] == list(range(21))
        assert [number for number in numbers if number >= 1000] == list(range(1000, 1020))


def test_flow_is_no_stranger_whose_claims_the_state_topic_lost(
    flow: Rig, fault_source: LocalCluster, tmp_path: Path
) -> None:
    """The state topic was deleted, so each of the two flows starts with a new producer ID. The
    former IDs are only in the flows' own offset maps. A flow must recognize its own earlier
    records, and must not report the other flow's records as another client's.
    """
    folder = tmp_path / "other"
    folder.mkdir()
    with Rig(fault_source, flow.target, folder) as other:
        other.topic, other.prefixed = flow.topic, False
        other.create()
        flow.put(range(10))
        flow.copy_once()
        other.put(range(1000, 1010))
        other.copy_once()
        delete_topic(flow.target, STATE_TOPIC)
        with flow.mirror() as mirror:
            # without the state topic, the other flow's producer ID is unknown
            mirror.eventually(is_taken_over)
            flow.put(range(10, 20))
            other.put(range(1010, 1020))
            with other.mirror() as second:
                for one in (mirror, second):
                    one.eventually(lambda parts: parts[0].state == "AT_END" and not parts[0].code)
                second.stop()
            mirror.stop()
        for rig in (flow, other):
            rig.copy_once()
        numbers = flow.numbers()
        assert [number for number in numbers if number < 1000] == list(range(20))
        assert [number for number in numbers if number >= 1000] == list(range(1000, 1020))


@pytest.mark.witness("H11: consumers are moved first, by hand")
def test_consumers_first_migration_by_hand(flow: Rig) -> None:
    """An operator drains the flow, and moves the consumers and then the producers. When the
    producers write to the target, the partition is TAKEN_OVER, which is no error. No record is
    lost, and the next processes report the same.
    """
    flow.put(range(20))
    seen: list[FlowSnapshot] = []
    with Mirror(flow.config(), lanes=1, on_snapshot=seen.extend) as mirror:
        flow.copied(20)
        mirror.eventually(lambda parts: parts[0].state == "AT_END")
        write_foreign(flow)
        mirror.eventually(is_taken_over)
        write_foreign(flow)
        looks = len(seen)
        eventually(lambda: len(seen) > looks + 3, what="the driver has looked several times")
        mirror.eventually(is_taken_over)  # the partition may be restarting to check the new records
        (flow_snapshot,) = mirror.stop()
        assert flow_snapshot.state == "STOPPED"
    assert ours(flow) == flow.on_source()
    assert foreign(flow) == 6
    # a new process, also one with --once, reports the same
    with flow.mirror() as mirror:
        mirror.eventually(is_taken_over)
        mirror.stop()
    with flow.mirror(once=True) as mirror:
        (flow_snapshot,) = mirror.wait()
        assert is_taken_over(list(flow_snapshot.partitions))
    assert flow.end() == 26


def test_source_that_continues_after_that_stops_the_partition_with_the_range(flow: Rig) -> None:
    flow.put(range(20))
    mirror = Mirror(flow.config(), lanes=1, lease_s=300)
    with mirror:
        flow.copied(20)
        write_foreign(flow)
        mirror.eventually(is_taken_over)
        flow.put(range(20, 25))
        (part,) = mirror.eventually(
            lambda parts: parts[0].state == "FAILED" and parts[0].code == TAKEN_OVER
        )
        assert f"upstream records [20, 25) of {flow.topic}-0" in part.message
        assert "from offset 20 on" in part.message
        mirror.stop()
    assert flow.end() == 23
    code, message = flow.fail_once()
    assert code == TAKEN_OVER
    assert "[20, 25)" in message


def test_lease_change_after_that_keeps_it(flow: Rig) -> None:
    flow.put(range(20))
    mirror = Mirror(flow.config(), lanes=1, lease_s=3.0)
    with mirror:
        flow.copied(20)
        write_foreign(flow)
        mirror.eventually(is_taken_over)
        leases = len(mirror.leases.jobs)
        eventually(lambda: len(mirror.leases.jobs) > leases + 1, what="two lease changes")
        mirror.eventually(is_taken_over)
        for pid in mirror.leases.pids():
            os.kill(pid, signal.SIGKILL)
        mirror.eventually(is_taken_over)
        mirror.stop()
    assert flow.end() == 23


def test_markers_and_rolled_back_records_at_the_source_are_nothing_new(flow: Rig) -> None:
    batch = [Outgoing(key=b"k%d" % n, value=b"u%d" % n) for n in range(5)]
    produce_transaction(flow.source, flow.topic, batch, commit=True)
    produce_transaction(flow.source, flow.topic, batch, commit=False)
    with flow.mirror() as mirror:
        flow.copied(5)
        write_foreign(flow)
        mirror.eventually(is_taken_over)
        known, starts = mirror.partition(flow.here), mirror.partition(flow.here).term.start
        produce_transaction(flow.source, flow.topic, batch, commit=False)
        # the partition is checked again, because the end of its source log has moved
        eventually(lambda: known.term.start > starts and known.is_taken_over)
        produce_transaction(flow.source, flow.topic, batch, commit=True)
        mirror.eventually(lambda parts: parts[0].code == TAKEN_OVER)
        mirror.stop()
    assert flow.end() == 8


def test_records_that_were_there_before_are_left_unchanged(flow: Rig) -> None:
    create_topic(flow.target, flow.remote)
    write_foreign(flow, 7)
    flow.put(range(10))
    flow.copy_once()
    flow.put(range(10, 20))
    flow.copy_once()
    assert ours(flow) == flow.on_source()
    assert foreign(flow) == 7
    map_is_exact(flow)


def test_source_that_was_recreated_is_not_appended_to_its_old_copy(flow: Rig) -> None:
    flow.put(range(10))
    flow.copy_once()
    delete_topic(flow.source, flow.topic)
    flow.create()
    flow.put(range(100, 120))
    code, message = flow.fail_once()
    assert code == "SOURCE_RECREATED"
    assert "[0, 10)" in message
    assert flow.numbers() == [*range(10)]


def test_source_that_was_recreated_is_copied_when_its_old_copy_is_emptied(flow: Rig) -> None:
    flow.put(range(10))
    flow.copy_once()
    delete_topic(flow.source, flow.topic)
    flow.create()
    flow.put(range(100, 120))
    delete_records(flow.target, flow.remote)
    flow.copy_once()
    # the target still remembers the producer ID, so the copy must continue its sequence numbers
    assert flow.numbers() == [*range(100, 120)]
