"""Leader epochs in the first fetch of a start.

A start sends the leader epoch of its position only if it knows that epoch. The source reports a
truncated log if the sent epoch ends before the position. So sending the epoch of any record other
than the one directly before the position would stop a healthy copy.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.client import eventually, producer
from tests.support.map_rows import HOLDS_ITS_DATA, rows
from tests.support.mirror import Mirror
from tests.support.rig import COMPACTED, Rig, kill
from tests.support.topics import create_topic

pytestmark = [pytest.mark.faults, pytest.mark.broker]


def in_a_new_epoch(rig: Rig) -> None:
    """Restart the source, so that its leader gets a new epoch."""
    rig.source.restart(1)


def put(rig: Rig, numbers: range, *, size: int = 0, keys: dict[int, int] | None = None) -> None:
    """Write records as `Rig.put` does, and retry while the broker does not know yet that it
    leads.
    """

    def done() -> bool:
        rig.put(numbers, size=size, keys=keys or {})
        return True

    eventually(done)


def open_transaction(rig: Rig, number: int) -> Producer:
    """Write a record in a transaction that stays open. Return its client."""
    client = producer(rig.source, config={"transactional.id": f"open-{rig.alias}"})
    client.init_transactions(20)
    client.begin_transaction()
    r = rig.record(number)
    headers: list[tuple[str, str | bytes | None]] = list(r.headers)
    client.produce(rig.topic, r.value, r.key, partition=0, timestamp=r.timestamp, headers=headers)
    client.flush(20)
    return client


def never_diverged(mirror: Mirror) -> None:
    assert "SOURCE_DIVERGED" not in mirror.snapshots[0].errors, mirror.snapshots[0]


def test_last_records_compacted_away_after_a_leader_change(rig: Rig) -> None:
    rig.create(**COMPACTED)
    create_topic(rig.target, rig.remote)
    rig.put(range(10))
    in_a_new_epoch(rig)
    put(rig, range(10, 13))
    rig.copy_once()
    rig.put(range(13, 16), keys={13: 10, 14: 11, 15: 12})
    rig.put(range(16, 19))
    rig.put(range(19, 22))
    rig.compacted([*range(10), *range(13, 22)])
    with rig.mirror() as mirror:
        rig.copied(22)
        never_diverged(mirror)
        mirror.stop()
    assert rig.numbers() == list(range(22))


@pytest.mark.witness("a position has the right leader epoch")
def test_record_announced_after_the_marker_of_a_newer_epoch(rig: Rig, tmp_path: Path) -> None:
    flag = tmp_path / "hold"
    rig.create()
    rig.put(range(10))
    client = open_transaction(rig, 10)
    in_a_new_epoch(rig)
    client.commit_transaction(30)
    eventually(lambda: rig.source_end() == 12)
    rig.copy_once()
    flag.touch()
    with rig.mirror(prelude=HOLDS_ITS_DATA.format(flag=str(flag))) as mirror:
        mirror.eventually(lambda parts: parts[0].state == "AT_END")
        rig.put(range(11, 14))
        eventually(lambda: rows(rig)[-1].runs[-1].ordinal == 11)
        kill(mirror.leases.pids())
        flag.unlink()
        rig.copied(14)
        never_diverged(mirror)
        mirror.stop()
    assert rig.numbers() == list(range(14))
    rig.offsets_are_exact()


def test_large_records_on_both_sides_of_a_leader_change(rig: Rig) -> None:
    size = 600_000
    rig.create()
    for number in range(25):
        rig.put([number], size=size)
    in_a_new_epoch(rig)
    for number in range(25, 40):
        put(rig, range(number, number + 1), size=size)
    rig.copy_once()
    rig.put([40], size=size)
    with rig.mirror() as mirror:
        rig.copied(41)
        never_diverged(mirror)
        mirror.stop()
    assert rig.numbers() == list(range(41))


def test_lease_change_after_the_marker_of_a_newer_epoch(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    with rig.mirror(lease_s=4.0) as mirror:
        rig.copied(10)
        client = open_transaction(rig, 10)
        in_a_new_epoch(rig)
        client.commit_transaction(30)
        rig.copied(11)
        leases = len(mirror.leases.jobs)
        eventually(lambda: len(mirror.leases.jobs) >= leases + 3, what="three lease changes")
        mirror.eventually(lambda parts: parts[0].state == "AT_END" and not parts[0].code)
        never_diverged(mirror)
        mirror.stop()
    assert rig.numbers() == list(range(11))
