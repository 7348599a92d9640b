"""H5: a topic is re-created with another number of partitions. No partition of the new topic is
mixed into the remote topic of the old one.
"""

from __future__ import annotations

import pytest

from tests.support.client import Outgoing, eventually, produce, read_all
from tests.support.rig import Rig
from tests.support.topics import (
    create_topic,
    delete_records,
    delete_topic,
    end_offsets,
    partition_count,
)
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot

pytestmark = [pytest.mark.faults, pytest.mark.broker]

OLD, NEW = b"old", b"new"


def fill(rig: Rig, partition: int, value: bytes, count: int) -> None:
    records = [Outgoing(value=value, partition=partition) for _ in range(count)]
    produce(rig.source, rig.topic, records)


def recreate(rig: Rig, partitions: int) -> None:
    delete_topic(rig.source, rig.topic)
    create_topic(rig.source, rig.topic, partitions)
    for partition in range(partitions):
        fill(rig, partition, NEW, 7)


def lives(rig: Rig) -> set[bytes | None]:
    return {record.value for record in read_all(rig.target, rig.remote)}


def run_once(rig: Rig) -> FlowSnapshot:
    with rig.mirror(once=True) as mirror:
        (flow,) = mirror.wait()
    return flow


def all_wait(parts: list[PartitionSnapshot], count: int) -> bool:
    held = [p for p in parts if p.code == "SOURCE_RECREATED"]
    return len(parts) == len(held) == count


@pytest.mark.witness(
    "H5: records of the old and the new topic are never mixed in one remote topic",
    case="3-1-default",
)
@pytest.mark.parametrize("prefixed", [True, False], ids=["default", "identity"])
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_recreated_under_a_running_mirror(
    rig: Rig, before: int, after: int, prefixed: bool
) -> None:
    rig.prefixed = prefixed
    create_topic(rig.source, rig.topic, before)
    fill(rig, before - 1, OLD, 20)  # only the last partition has records
    with rig.mirror(keys={"refresh.topics.interval.seconds": "1"}) as mirror:
        rig_end = {**dict.fromkeys(range(before), 0), before - 1: 20}
        mirror.eventually(lambda parts: sum(p.records for p in parts) == 20)
        recreate(rig, after)

        def waits(parts: list[PartitionSnapshot]) -> bool:
            wanted = [p for p in parts if p.state != "RELEASED"]
            # lanes may report earlier that the topic was deleted
            held = f"{rig.remote}-{before - 1} still holds records [0, 20)"
            there, missing = wanted[:before], wanted[before:]
            said = all(held in p.message for p in there)
            said &= all("gets no more partitions" in p.message for p in missing)
            return all_wait(wanted, after) and said

        mirror.eventually(waits)
        mirror.stop()
    assert partition_count(rig.target, rig.remote) == before
    ends = end_offsets(rig.target, rig.remote)
    assert {n: ends[n] for n in rig_end} == rig_end
    assert sum(ends.values()) == 20
    assert lives(rig) == {OLD}


@pytest.mark.parametrize("prefixed", [True, False], ids=["default", "identity"])
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_recreated_between_two_runs(rig: Rig, before: int, after: int, prefixed: bool) -> None:
    rig.prefixed = prefixed
    create_topic(rig.source, rig.topic, before)
    fill(rig, before - 1, OLD, 20)
    run_once(rig)
    recreate(rig, after)
    # the second run waits, too, although the first one has already seen the new topic
    for _ in range(2):
        assert all_wait([*run_once(rig).partitions], after)
    assert lives(rig) == {OLD}

    # after the old topic's records are deleted on the target, all of the new topic is copied
    delete_records(rig.target, rig.remote, before - 1)
    for _ in range(2):
        flow = run_once(rig)
        if {p.state for p in flow.partitions} == {"DONE"}:
            break
    eventually(lambda: lives(rig) == {NEW})
    assert len(read_all(rig.target, rig.remote)) == 7 * after
