"""Where a copy begins (`twinlog.start`). The setting is evaluated once per partition, and the first
map row fixes the result.
"""

from __future__ import annotations

import pytest

from tests.support.client import Outgoing, eventually, produce, read_all
from tests.support.rig import COMPACTED, Rig
from tests.support.topics import add_partitions, create_topic, delete_records
from twinlog.config.load import load
from twinlog.control.flow.wiring import flow_setup

pytestmark = [pytest.mark.faults, pytest.mark.broker]

HOUR_MS = 3_600_000


def at(rig: Rig, start: str) -> dict[str, str]:
    return {f"{rig.flow}.twinlog.start": start}


def time_of(rig: Rig, number: int) -> str:
    return f"{rig.topic}:{rig.record(number).timestamp}"


@pytest.mark.parametrize(("since", "left"), [(5, range(5, 20)), (12, range(15, 20))])
def test_a_time_is_the_first_record_that_is_not_older(rig: Rig, since: int, left: range) -> None:
    """The setting is a time. Records 10 to 14 are an hour older than their neighbors. The copy
    begins at the first record that is not older than the time, and copies all later records.
    """
    rig.create()
    rig.put(range(10))
    rig.put(range(10, 15), age_ms=HOUR_MS)
    rig.put(range(15, 20))
    rig.copy_once(at(rig, time_of(rig, since)))
    assert rig.numbers() == list(left)
    rig.put(range(20, 25), age_ms=HOUR_MS)
    rig.copy_once(at(rig, "earliest"))
    assert rig.numbers() == [*left, *range(20, 25)], "what has a position resumes from it"
    rig.offsets_are_exact()


def test_a_time_in_a_compacted_topic(rig: Rig) -> None:
    rig.create(**COMPACTED)
    rig.put(range(10))
    rig.put([10], keys={10: 6})
    rig.put([11, 12])
    rig.put([13])
    rig.compacted([*range(6), *range(7, 14)])
    rig.copy_once(at(rig, time_of(rig, 6)))
    assert rig.numbers() == list(range(7, 14))
    rig.offsets_are_exact()


@pytest.mark.witness(
    "a start at the log's end is fixed by the first run, even if it copies nothing", case="latest"
)
@pytest.mark.parametrize("start", ["latest", "a time that has not come"])
def test_the_end_is_where_it_was_when_the_copy_began(rig: Rig, start: str) -> None:
    """The first run has no record to copy, but fixes the position at the log end. So the next run
    copies the records that were written between the two runs.
    """
    keys = at(rig, start if start == "latest" else time_of(rig, 3000))
    rig.create()
    rig.put(range(10))
    rig.copy_once(keys)
    assert rig.numbers() == []
    rig.put(range(10, 20))
    rig.copy_once(keys)
    assert rig.numbers() == list(range(10, 20))
    rig.put(range(20, 25))
    rig.copy_once(at(rig, f"{rig.topic}:0=2"))
    assert rig.numbers() == list(range(10, 25))


def test_the_latest_committed_record_leaves_an_open_transaction_to_be_copied(rig: Rig) -> None:
    """With read_committed a log ends at its last stable offset. A copy that begins at `latest`
    while a transaction is open must therefore copy the transaction's records after their commit.
    """
    rig.create()
    rig.put(range(3))
    keys = at(rig, "latest")
    rig.put_at_once([rig.record(n) for n in (3, 4)], before=lambda: rig.copy_once(keys))
    rig.copy_once(keys)
    assert rig.numbers() == [3, 4]


def test_offsets_of_partitions(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    code, message = rig.fail_once(at(rig, f"{rig.topic}:0=11, .*:latest"))
    assert code == "START_BEYOND_END"
    assert f"{rig.here}: twinlog.start begins at offset 11, but the log ends at 10" in message
    assert rig.numbers() == []
    rig.copy_once(at(rig, f"{rig.topic}:0=7, .*:latest"))
    assert rig.numbers() == [7, 8, 9]


def test_an_offset_that_retention_took_is_the_first_one_left(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    delete_records(rig.source, rig.topic)
    rig.put(range(10, 13))
    rig.copy_once(at(rig, "0=7"))
    assert rig.numbers() == [10, 11, 12]


@pytest.mark.parametrize("of_new", ["earliest", "start"])
def test_topics_created_while_the_mirror_runs(rig: Rig, of_new: str) -> None:
    """A topic is created while the mirror runs. With `latest`, records that were written before its
    discovery are skipped, as by MirrorMaker 2; with `earliest` they are copied.
    """
    rig.create()
    rig.put(range(5))
    later, remote = f"{rig.topic}-later", f"{rig.remote}-later"
    keys = {
        **at(rig, "latest"),
        f"{rig.flow}.twinlog.start.new": of_new,
        f"{rig.flow}.topics": f"{rig.topic}.*",
    }
    with rig.mirror(keys=keys) as mirror:
        mirror.eventually(lambda parts: [p.state for p in parts] == ["AT_END"])
        create_topic(rig.source, later)
        produce(rig.source, later, [Outgoing(value=b"first")])
        add_partitions(rig.source, rig.topic, 2)
        produce(rig.source, rig.topic, [Outgoing(value=b"first", partition=1)])
        mirror.discover_topics()
        mirror.eventually(lambda parts: [p.state for p in parts] == ["AT_END"] * 3)
        for topic, partition in ((later, 0), (rig.topic, 1)):
            produce(rig.source, topic, [Outgoing(value=b"second", partition=partition)])
        wanted = [b"first", b"second"] if of_new == "earliest" else [b"second"]
        for topic in (remote, rig.remote):
            eventually(lambda: [r.value for r in read_all(rig.target, topic)] == wanted)  # noqa: B023
        mirror.stop()


@pytest.mark.witness("a topic that is created while no mirror runs is copied completely")
def test_topics_created_while_no_mirror_runs(rig: Rig) -> None:
    """A topic that is created while no mirror runs begins as `twinlog.start.new` says. This is so
    even if the process that discovers it dies before it writes the topic's first row. A topic that
    existed before the first start begins as `twinlog.start` says.
    """
    rig.create()
    rig.put(range(5))
    old, later = f"{rig.topic}-old", f"{rig.topic}-later"
    create_topic(rig.source, old)
    produce(rig.source, old, [Outgoing(value=b"old")])
    keys = {**at(rig, "latest"), f"{rig.flow}.twinlog.start.new": "earliest"}
    rig.copy_once(keys)
    create_topic(rig.source, later)
    produce(rig.source, later, [Outgoing(value=b"first")])
    keys |= {f"{rig.flow}.topics": f"{rig.topic}.*"}
    # a process that discovers the topic and ends before it writes the topic's first row
    (flow,) = load(rig.config(keys), environment={}).flows
    found = flow_setup(flow).prepare(once=False)
    assert {plan.source.topic for plan in found.plans if plan.is_new} == {later}
    found.close(drained=True)
    with rig.mirror(once=True, keys=keys) as mirror:
        mirror.wait()
    assert [r.value for r in read_all(rig.target, f"{rig.remote}-later")] == [b"first"]
    assert read_all(rig.target, f"{rig.remote}-old") == [], "it was there, though not chosen"
    assert rig.numbers() == []
