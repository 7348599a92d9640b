"""Acknowledged records are lost by unclean elections on three real brokers, with an unmodified
driver: on the target, on the source, or on both.

If a new leader epoch proves that the target lost records, they are copied again to the same
offsets. If the source lost records, the partition stops and reports the range that only the target
still has.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce, read_all
from tests.support.groups import commit, committed
from tests.support.mirror import Mirror
from tests.support.rig import COMPACTED, KEEPS_LEADERLESS, Rig, kill
from tests.support.topics import delete_records
from tests.support.unclean import LostTail, create_on_two, lost_tail
from twinlog.sandbox import LocalCluster

pytestmark = [
    pytest.mark.faults,
    pytest.mark.broker,
]

LEASES = [
    pytest.param(300.0, id="lease", marks=pytest.mark.long),
    pytest.param(1.0, id="lease-changes"),
]

SAFE = {"replication.factor": "3", "twinlog.state.topic.replication.factor": "3"}
"""Settings that replicate Twinlog's own topics to all brokers, because two of three brokers are
down for a while.
"""
GROUPS = {
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
}


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 2.0)


@pytest.fixture
def losing_target(
    fault_source: LocalCluster, target3: LocalCluster, tmp_path: Path
) -> Iterator[Rig]:
    with Rig(fault_source, target3, tmp_path) as rig:
        create_on_two(target3, rig.remote)
        yield rig


@pytest.fixture
def losing_source(
    source3: LocalCluster, fault_target: LocalCluster, tmp_path: Path
) -> Iterator[Rig]:
    with Rig(source3, fault_target, tmp_path) as rig:
        create_on_two(source3, rig.topic)
        yield rig


@pytest.fixture
def losing_both(source3: LocalCluster, target3: LocalCluster, tmp_path: Path) -> Iterator[Rig]:
    with Rig(source3, target3, tmp_path) as rig:
        create_on_two(source3, rig.topic)
        create_on_two(target3, rig.remote)
        yield rig


def keys(rig: Rig) -> dict[str, str]:
    return SAFE if len(rig.target.ports) > 1 else {}


def once(rig: Rig) -> tuple[str, str, str]:
    """Return (state, code, message) of the partition after a run with `--once`."""
    with rig.mirror(once=True, keys=keys(rig)) as mirror:
        (flow,) = mirror.wait()
    (part,) = flow.partitions
    return part.state, part.code, part.message


def copy_all(rig: Rig) -> None:
    assert once(rig) == ("DONE", "", "")


def put(rig: Rig, numbers: range) -> None:
    """Write source records in batches of ten."""
    for at in numbers[::10]:
        rig.put([n for n in range(at, at + 10) if n in numbers])


def refilled(rig: Rig, mirror: Mirror, count: int) -> None:
    """Wait until every record is copied once, to its right offset, and no problem is reported any
    more.
    """
    rig.copied(count)
    mirror.eventually(lambda parts: [(p.state, p.code) for p in parts] == [("AT_END", "")])
    rig.same()
    rig.offsets_are_exact()


# -- the target ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [10, pytest.param(300, marks=pytest.mark.long)])
def test_target_truncated_while_no_mirror_ran(losing_target: Rig, lost: int) -> None:
    """The target loses records while no mirror runs. The next run copies them again, even if more
    records were lost than a start compares with the source.
    """
    rig = losing_target
    rig.create()
    put(rig, range(40))
    copy_all(rig)
    with lost_tail(rig.target, rig.remote):
        put(rig, range(40, 40 + lost))
        copy_all(rig)
        assert rig.end() == 40 + lost
    assert rig.numbers() == list(range(40)), "the loss is real"
    copy_all(rig)
    rig.same()
    rig.offsets_are_exact()


@pytest.mark.witness(
    "acknowledged records that the target lost are copied again", case="lease-changes"
)
@pytest.mark.parametrize("lease_s", LEASES)
@pytest.mark.usefixtures("lasting_lead")
def test_target_truncated_under_a_running_mirror(losing_target: Rig, lease_s: float) -> None:
    rig = losing_target
    rig.create()
    put(rig, range(40))
    with rig.mirror(keys=SAFE, lease_s=lease_s) as mirror:
        rig.copied(40)
        with lost_tail(rig.target, rig.remote):
            put(rig, range(40, 200))
            rig.copied(200)
        put(rig, range(200, 210))
        refilled(rig, mirror, 210)
        mirror.stop()
    assert "POSITION_REGRESSED" not in mirror.snapshots[0].errors, "a newer leader proves the loss"


@pytest.mark.usefixtures("lasting_lead")
def test_target_truncated_while_nothing_was_written(losing_target: Rig) -> None:
    """The target loses records while the lane is idle. The lane checks the new leader's log before
    it sends the next record, and copies the lost records again.
    """
    rig = losing_target
    rig.create()
    put(rig, range(40))
    with rig.mirror(keys=SAFE, prelude=KEEPS_LEADERLESS) as mirror:
        rig.copied(40)
        with lost_tail(rig.target, rig.remote):
            put(rig, range(40, 60))
            rig.copied(60)
            mirror.eventually(lambda parts: parts[0].state == "AT_END")
        rig.put([60])
        refilled(rig, mirror, 61)
        # the lane notices by its metadata, or because the new leader rejects the sequence number
        seen = {"TARGET_LEADER_CHANGED", "SEQUENCE_REFUSED"}
        eventually(lambda: seen & {*mirror.snapshots[0].errors})
        mirror.stop()


def test_target_lost_a_part_with_holes_of_compaction(losing_target: Rig) -> None:
    """The target loses records of a compacted topic. The records span several gaps of the source,
    which the offset map describes. The map is intact, and the records are copied again.
    """
    rig = losing_target
    rig.create(**COMPACTED)
    numbers = range(40)
    for n in numbers:  # the next record replaces every second record
        rig.put([n], keys={n: n - n % 2})
    left = [*range(1, 40, 2)]
    rig.put([1000])  # begins a new segment, because the cleaner does not compact the newest segment
    rig.compacted([*left, 1000])
    with lost_tail(rig.target, rig.remote):
        copy_all(rig)
        assert rig.numbers() == [*left, 1000]
        runs = rig.map().runs
        assert len(runs) > 10
    assert rig.numbers() == []
    copy_all(rig)
    rig.same()
    rig.offsets_are_exact()


@pytest.mark.usefixtures("lasting_lead")
def test_groups_ahead_of_the_targets_new_end(losing_target: Rig) -> None:
    """The target loses records below a group's offset. The group's offset is then after the log's
    end, until the same records are copied to the same offsets again.
    """
    rig = losing_target
    rig.create()
    put(rig, range(40))
    with rig.mirror(keys=SAFE | GROUPS) as mirror:
        rig.copied(40)
        with lost_tail(rig.target, rig.remote):
            put(rig, range(40, 100))
            rig.copied(100)
            commit(rig.source, rig.alias, rig.topic, 70)
            eventually(lambda: committed(rig.target, rig.alias, rig.remote) == 70, what="the group")
        put(rig, range(100, 110))
        refilled(rig, mirror, 110)
        assert committed(rig.target, rig.alias, rig.remote) == 70
        mirror.stop()
    at = next(r for r in read_all(rig.target, rig.remote) if r.offset == 70)
    assert at.value == b"u70"


def test_target_that_lost_more_than_the_copy(losing_target: Rig) -> None:
    """The target loses all records of the flow and some before them. Its log ends before the offset
    of the flow's first record, so no record shows where the copy must resume. The flow must report
    TARGET_TRUNCATED.
    """
    rig = losing_target
    rig.create()
    put(rig, range(10))
    with lost_tail(rig.target, rig.remote):
        # records of an earlier topic, since deleted, precede the flow's records
        produce(rig.target, rig.remote, [Outgoing(b"x", b"u%d" % n) for n in range(5)])
        delete_records(rig.target, rig.remote)
        copy_all(rig)
        assert rig.end() == 15
    state, code, message = once(rig)
    assert (state, code) == ("FAILED", "TARGET_TRUNCATED")
    assert f"{rig.remote}-0" in message
    assert rig.numbers() == []


@pytest.mark.usefixtures("lasting_lead")
def test_target_partition_without_a_leader(losing_target: Rig) -> None:
    """The target partition has no leader, so it waits with NO_LEADER. The new leader lacks some
    records, which are copied again.
    """
    rig = losing_target
    rig.create()
    put(rig, range(40))
    with rig.mirror(keys=SAFE) as mirror:
        rig.copied(40)
        with lost_tail(rig.target, rig.remote) as steps:
            put(rig, range(40, 60))
            rig.copied(60)
            steps.leader_dies()
            put(rig, range(60, 70))
            kill(mirror.leases.pids())  # the next lane checks the partition again
            eventually(
                lambda: mirror.snapshots[0].errors.get("NO_LEADER", 0) > 0,
                what="NO_LEADER",
            )
        refilled(rig, mirror, 70)
        mirror.stop()


def test_follower_that_is_too_slow_for_the_request(losing_target: Rig) -> None:
    """The leader appended the batch, but its follower is too slow, so the leader responds with 7
    (REQUEST_TIMED_OUT). The partition reports TARGET_REFUSED, and no record is duplicated.
    """
    rig = losing_target
    rig.create()
    put(rig, range(10))
    hurry = {f"{rig.target_alias}.producer.request.timeout.ms": "1000"}
    with rig.mirror(keys=SAFE | hurry) as mirror:
        rig.copied(10)
        mirror.eventually(lambda parts: parts[0].state == "AT_END")
        frozen = LostTail(rig.target, rig.remote).follows
        rig.target.freeze(frozen)
        try:
            put(rig, range(10, 20))
            eventually(
                lambda: mirror.snapshots[0].errors.get("TARGET_REFUSED", 0) > 0,
                what="TARGET_REFUSED",
            )
        finally:
            rig.target.thaw(frozen)
        refilled(rig, mirror, 20)
        mirror.stop()


# -- the source ------------------------------------------------------------------------------------


def put_others(rig: Rig, numbers: range) -> None:
    """Write different records to the source's new leader, in batches of ten."""
    for at in numbers[::10]:
        rig.put([1000 + n for n in range(at, at + 10)])


@pytest.mark.parametrize("lost", [pytest.param(20, marks=pytest.mark.long), 300])
def test_source_truncated_and_rewritten_while_no_mirror_ran(losing_source: Rig, lost: int) -> None:
    """The source loses records and gets others while no mirror runs. The partition stops with
    SOURCE_DIVERGED, even if more records were replaced than a start compares.
    """
    rig = losing_source
    put(rig, range(40))
    copy_all(rig)
    with lost_tail(rig.source, rig.topic):
        put(rig, range(40, 40 + lost))
        copy_all(rig)
    assert rig.source_end() == 40
    said = f"[40, {40 + lost})"
    for more in (range(0), range(40, 40 + lost), range(40 + lost, 40 + lost + 50)):
        put_others(rig, more)
        state, code, message = once(rig)
        assert (state, code) == ("FAILED", "SOURCE_DIVERGED"), message
        assert said in message
    assert rig.numbers() == list(range(40 + lost)), "the only copy is as it was"


@pytest.mark.parametrize("lease_s", LEASES)
def test_source_truncated_and_rewritten_under_a_running_mirror(
    losing_source: Rig, lease_s: float
) -> None:
    rig = losing_source
    put(rig, range(40))
    with rig.mirror(lease_s=lease_s) as mirror:
        rig.copied(40)
        with lost_tail(rig.source, rig.topic):
            put(rig, range(40, 80))
            rig.copied(80)
        put_others(rig, range(40, 120))
        (part,) = mirror.eventually(lambda parts: parts[0].code == "SOURCE_DIVERGED")
        assert "[40, 80)" in part.message
        mirror.stop()
    assert rig.numbers() == list(range(80))


# -- both ------------------------------------------------------------------------------------------


def test_both_lose_and_the_target_loses_more(losing_both: Rig) -> None:
    """Both clusters lose records, and the source gets others. The target has lost all copies of the
    replaced records, so no record exists only on the target, and the flow continues.
    """
    rig = losing_both
    put(rig, range(40))
    copy_all(rig)
    with lost_tail(rig.target, rig.remote):
        put(rig, range(40, 60))
        copy_all(rig)
        with lost_tail(rig.source, rig.topic):
            put(rig, range(60, 80))
            copy_all(rig)
    assert rig.numbers() == list(range(40))
    put_others(rig, range(60, 90))
    copy_all(rig)
    rig.same()
    rig.offsets_are_exact()


@pytest.mark.long
def test_both_lose_and_the_source_loses_more(losing_both: Rig) -> None:
    rig = losing_both
    put(rig, range(40))
    copy_all(rig)
    with lost_tail(rig.source, rig.topic):
        put(rig, range(40, 60))
        copy_all(rig)
        with lost_tail(rig.target, rig.remote):
            put(rig, range(60, 80))
            copy_all(rig)
    assert rig.source_end() == 40
    assert rig.numbers() == list(range(60))
    put_others(rig, range(40, 100))
    state, code, message = once(rig)
    assert (state, code) == ("FAILED", "SOURCE_DIVERGED"), message
    assert "[40, 60)" in message
    assert rig.numbers() == list(range(60))
