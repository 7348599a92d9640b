"""If one partition is bad, only it stops, with its own code. The lane's other partitions continue.
The bad one is retried soon, and recovers when its cause is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import surgery
from tests.support.client import Outgoing, eventually, produce, read_all
from tests.support.mirror import Mirror
from tests.support.rig import Rig, kill
from tests.support.topics import apply_topic_configs, create_topic, delete_topic, end_offsets
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.faults, pytest.mark.broker]

NEIGHBOURS = 3
LIMIT = "max.message.bytes"
LEASE_S = 300.0
"""Duration of a lease (Spark job whose tasks are lanes) in seconds. It is longer than a test, so no
other lease starts, and retries use the same lane.
"""


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)


class SiblingFlows:
    """A healthy topic of the same flow and lane, whose partitions must get all their records."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.topic = f"{rig.topic}-healthy"
        self.remote = f"{rig.alias}.{self.topic}"
        self._count = 0
        self._usual = 0.0
        create_topic(rig.source, self.topic, partitions=NEIGHBOURS)

    def go_on(self) -> None:
        """Check that new records of every partition reach the target without delay."""
        rig = self._rig
        self._count += 10
        records = [
            Outgoing(b"k", b"%d" % n, partition=partition)
            for n in range(10)
            for partition in range(NEIGHBOURS)
        ]
        produce(rig.source, self.topic, records)
        wanted = dict.fromkeys(range(NEIGHBOURS), self._count)
        began = time.monotonic()
        eventually(lambda: end_offsets(rig.target, self.remote) == wanted, what="the neighbours")
        took = time.monotonic() - began
        self._usual = self._usual or took
        assert took < 5 + 10 * self._usual, "they waited for the bad one"

    def same(self) -> None:
        assert read_all(self._rig.target, self.remote) == read_all(self._rig.source, self.topic)


@contextmanager
def mirrored(rig: Rig, prelude: str = "") -> Iterator[tuple[Mirror, SiblingFlows]]:
    """Mirror the rig's topic together with a healthy one, on one lane under one lease. In the end,
    the healthy topic must be equal on both sides.
    """
    neighbours = SiblingFlows(rig)
    keys = {f"{rig.flow}.topics": f"{rig.topic}, {neighbours.topic}"}
    with rig.mirror(lanes=1, lease_s=LEASE_S, keys=keys, prelude=prelude) as mirror:
        yield mirror, neighbours
        mirror.stop()
    neighbours.same()


def of(parts: list[PartitionSnapshot], topic: str) -> list[PartitionSnapshot]:
    return [part for part in parts if part.topic == topic]


def failed(rig: Rig, mirror: Mirror) -> PartitionSnapshot:
    """Return the bad partition after it has failed. No partition of the healthy topic may have a
    code.
    """

    parts = mirror.eventually(
        lambda parts: any(part.state == "FAILED" for part in of(parts, rig.topic))
    )
    assert [part.code for part in parts if part.topic != rig.topic] == [""] * NEIGHBOURS
    return of(parts, rig.topic)[0]


def tried_again(rig: Rig, mirror: Mirror) -> None:
    """Wait until the failed partition was assigned to its lane two more times. The lease must not
    change.
    """
    before = mirror.partition(rig.here).term
    eventually(
        lambda: mirror.partition(rig.here).term.start >= before.start + 2,
        what="two more tries",
    )
    assert len(mirror.leases.jobs) == 1


def recovered(rig: Rig, mirror: Mirror, count: int) -> None:
    rig.copied(count)
    mirror.eventually(lambda parts: not any(part.code for part in parts))
    rig.same()
    rig.offsets_are_exact()


@pytest.mark.witness("a record that the target cannot store stops only its partition")
def test_record_that_no_batch_of_the_target_can_hold(rig: Rig) -> None:
    rig.create()
    rig.put(range(5))
    with mirrored(rig) as (mirror, neighbours):
        rig.copied(5)
        neighbours.go_on()
        apply_topic_configs(rig.target, rig.remote, {LIMIT: "2000"})
        rig.put(range(5, 10))
        rig.put([10], size=4000)
        rig.put([11])
        bad = failed(rig, mirror)
        assert bad.code == "RECORD_TOO_LARGE"
        assert f"{rig.topic}-0" in bad.message
        assert "upstream offset 10" in bad.message
        assert LIMIT in bad.message
        assert rig.numbers() == list(range(10)), "what stands before it is copied"
        neighbours.go_on()
        tried_again(rig, mirror)
        neighbours.go_on()
        assert rig.numbers() == list(range(10)), "nothing behind it went before it"
        apply_topic_configs(rig.target, rig.remote, {LIMIT: "1000000"})
        recovered(rig, mirror, 12)


def test_limit_that_was_lowered_below_whole_batches_only_makes_them_smaller(rig: Rig) -> None:
    rig.create()
    rig.put(range(5))
    with mirrored(rig) as (mirror, neighbours):
        rig.copied(5)
        apply_topic_configs(rig.target, rig.remote, {LIMIT: "2000"})
        # the target rejects the batch once, and then the lane splits it
        rig.put(range(5, 25), size=500)
        neighbours.go_on()
        recovered(rig, mirror, 25)


Damage = Callable[[LocalCluster, TopicPartition, int], None]


@pytest.mark.witness("corrupt bytes from the source are never sent", case="flip_byte")
@pytest.mark.parametrize("damage", [surgery.flip_byte, surgery.spoil_length])
def test_corrupt_bytes_in_the_source_log(rig: Rig, damage: Damage) -> None:
    rig.create()
    for start in range(0, 30, 10):
        rig.put(range(start, start + 10))
    log = surgery.log_file(rig.source, rig.here)
    sound = log.read_bytes()
    # damages the file while the broker serves it: the broker sends the bytes without checking them
    damage(rig.source, rig.here, 10)
    with mirrored(rig) as (mirror, neighbours):
        bad = failed(rig, mirror)
        assert bad.code == "CORRUPT_BATCH"
        assert f"{rig.topic}-0" in bad.message
        assert "offset 10" in bad.message
        assert rig.numbers() == list(range(10)), "all before the corrupt batch, nothing of it"
        neighbours.go_on()
        tried_again(rig, mirror)
        neighbours.go_on()
        assert rig.numbers() == list(range(10))
        with log.open("r+b") as file:
            file.write(sound)
        recovered(rig, mirror, 30)


STALLS_AFTER_S = 1.0
STALLS_SOON = (
    f"import twinlog.lane.watches.stalls as stalls; stalls.STALLED_AFTER_S = {STALLS_AFTER_S}\n"
)
COUNTS_LOOKS = (
    STALLS_SOON
    + """
found = stalls.StallWatch._on_found
def counted(*arguments):
    with open({path!r}, "a") as file:
        file.write("x")
    return found(*arguments)
stalls.StallWatch._on_found = counted
"""
)
"""Prelude of a lane that appends one byte to a file for each failed query about partitions."""


def looked_in_vain(path: Path) -> None:
    """Wait for three failed queries. If the first one had found anything, it would be reported by
    the third.
    """
    eventually(lambda: path.exists() and path.stat().st_size >= 3, what="three looks")


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_source_that_answers_nothing_forever(rig: Rig, policy: str) -> None:
    # an index entry for every batch, so that the broker can serve records after the damaged ones
    rig.create(cleanup_policy=policy, index_interval_bytes="0", min_cleanable_dirty_ratio="1")
    for start in range(0, 50, 10):
        rig.put(range(start, start + 10))
    log = surgery.log_file(rig.source, rig.here)
    sound = log.read_bytes()
    surgery.swell_length(rig.source, rig.here, 10)
    with mirrored(rig, STALLS_SOON) as (mirror, neighbours):
        bad = failed(rig, mirror)
        assert bad.code == "SOURCE_STALLED"
        assert (
            f"{rig.topic}-0: the source returns no records from upstream offset 10 on"
            in bad.message
        )
        assert "its log ends at 50" in bad.message
        assert "on the leader, node 1" in bad.message
        assert "Only then delete" in bad.message, "these brokers say that there is no tier"
        assert rig.numbers() == list(range(10))
        neighbours.go_on()
        tried_again(rig, mirror)
        assert failed(rig, mirror).since_ms == bad.since_ms, "one failure, said once"
        neighbours.go_on()
        with log.open("r+b") as file:
            file.write(sound)
        recovered(rig, mirror, 50)


@pytest.mark.witness("a damaged segment that the source skips is reported", case="delete")
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_segment_that_the_source_jumps_over(
    rig: Rig, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig.create(cleanup_policy=policy, min_cleanable_dirty_ratio="1")
    rig.put(range(10))
    rig.put(range(10, 20))
    apply_topic_configs(rig.source, rig.topic, {"segment.ms": "500"})
    rig.put(range(20, 30))  # begins a new segment
    surgery.swell_length(rig.source, rig.here, 10)
    with mirrored(rig) as (mirror, neighbours):
        rig.copied(20)
        neighbours.go_on()
    # Records that the source lost must be reported, because only a compacted log lacks offsets
    # normally.
    assert rig.numbers() == [*range(10), *range(20, 30)]
    told = [line for line in caplog.messages if "SOURCE_GAP" in line]
    if policy == "compact":
        assert told == []
    else:
        (line,) = told
        assert f"{rig.here}: upstream offsets [10, 20): 10 of them are missing" in line
        (flow,) = mirror.snapshots
        assert flow.errors["SOURCE_GAP"] == 1


def test_segment_that_the_source_jumps_over_in_one_go(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.create()
    rig.put(range(10))
    apply_topic_configs(rig.source, rig.topic, {"segment.ms": "500"})
    rig.put(range(10, 20))
    surgery.swell_length(rig.source, rig.here, 0)
    rig.copy_once()  # the partition is not DONE before the compacted records are known
    assert rig.numbers() == list(range(10, 20))
    assert [line for line in caplog.messages if "upstream offsets [0, 10): 10 of them" in line]


def compacted(rig: Rig) -> None:
    """Create a compacted topic with records 0 and 1. The next record begins a new segment."""
    rig.create(cleanup_policy="compact", min_cleanable_dirty_ratio="1")
    rig.put([0])
    rig.put([1])
    apply_topic_configs(rig.source, rig.topic, {"segment.ms": "500"})


def swallow_last(rig: Rig) -> None:
    """Remove record 1 before an open transaction, so that the last stable offset is 2 but no record
    is at offset 1.
    """
    surgery.swallow(rig.source, rig.here, 1)


def partitions(mirror: Mirror) -> list[PartitionSnapshot]:
    return [part for flow in mirror.snapshots for part in flow.partitions]


def test_compacted_log_with_nothing_before_an_open_transaction_is_sound(
    rig: Rig, tmp_path: Path
) -> None:
    looks = tmp_path / "looks"
    compacted(rig)

    def mirrored_meanwhile() -> None:
        swallow_last(rig)
        mirror.__enter__()
        rig.copied(1)
        looked_in_vain(looks)
        found = [(part.code, part.upstream, part.lag) for part in partitions(mirror)]
        assert found == [("", 1, 1)]

    mirror = rig.mirror(prelude=COUNTS_LOOKS.format(path=str(looks)))
    try:
        rig.put_at_once([rig.record(2)], before=mirrored_meanwhile)
        rig.copied(2)
        assert rig.numbers() == [0, 2]
    finally:
        mirror.__exit__(None, None, None)


def test_once_ends_before_an_open_transaction_with_nothing_in_front_of_it(rig: Rig) -> None:
    compacted(rig)

    def mirrored_meanwhile() -> None:
        swallow_last(rig)
        rig.copy_once(prelude=STALLS_SOON)
        assert rig.numbers() == [0]

    rig.put_at_once([rig.record(2)], before=mirrored_meanwhile)
    rig.copy_once()
    assert rig.numbers() == [0, 2]


def test_once_does_not_end_before_a_damaged_last_batch(rig: Rig, tmp_path: Path) -> None:
    looks = tmp_path / "looks"
    compacted(rig)
    surgery.swell_length(rig.source, rig.here, 1)
    with rig.mirror(once=True, prelude=COUNTS_LOOKS.format(path=str(looks))) as mirror:
        rig.copied(1)
        looked_in_vain(looks)
        assert [(part.state, part.lag) for part in partitions(mirror)] == [("COPYING", 1)]


def test_source_topic_that_was_deleted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.flow.generation.RETRY_FAILED_S", 1.0)
    rig.create()
    rig.put(range(5))
    with mirrored(rig) as (mirror, neighbours):
        rig.copied(5)
        delete_topic(rig.source, rig.topic)
        neighbours.go_on()
        # the next lane does not wait for the deleted topic either
        kill(mirror.leases.pids())
        mirror.eventually(
            lambda parts: [p.state for p in of(parts, rig.topic)] == ["SOURCE_DELETED"]
        )
        neighbours.go_on()
        assert rig.numbers() == list(range(5))
        # the new topic is found before the next refresh, which is due 600 s after the start
        create_topic(rig.source, rig.topic)
        mirror.eventually(
            lambda parts: [p.code for p in of(parts, rig.topic)] == ["SOURCE_RECREATED"]
        )
        neighbours.go_on()
    assert rig.numbers() == list(range(5))
