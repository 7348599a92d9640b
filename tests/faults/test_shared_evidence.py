"""Evidence that a start needs before it resumes in shared and in keyed topics, on real brokers. The
cases are lost rows of the map, gaps, late repeats, and lost records below a mark
(`mirror.map.offset_map.Mark`). `unit/mirror/test_our_end.py` tests them in memory.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition as GroupAt

from tests.support import raw
from tests.support.client import Outgoing, eventually, produce
from tests.support.groups import commit_all
from tests.support.led_flow import led_flow
from tests.support.mirror_process import Driver
from tests.support.rig import MAP_PARTITIONS, OLD, Rig
from tests.support.topics import (
    alter_topic_configs,
    apply_topic_configs,
    create_topic,
    delete_records,
    delete_topic,
    offset_map_topic,
    topic_configs,
    topic_names,
)
from twinlog.cli.main import run
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.control.duties.own_topics import OwnTopics
from twinlog.mirror.map.offset_map import Mark, PartitionMap
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.state.copies import MappedCopies, mapped_copies
from twinlog.mirror.state.intents import FlowIntents, flow_intents
from twinlog.survey.replica import Maps
from twinlog.survey.state_reader import state_rows

pytestmark = [pytest.mark.faults, pytest.mark.broker]

KEYED: Mapping[str, str] = {"twinlog.target.partitions": "keyed"}


def is_compacted(rig: Rig, name: str) -> bool:
    return topic_configs(rig.target, name)["cleanup.policy"] == "compact"


def lose_rows(rig: Rig) -> None:
    """Delete all rows of the offset map: a topic with the policy `delete` permits it."""
    name = offset_map_topic(rig.alias)
    apply_topic_configs(rig.target, name, {"cleanup.policy": "delete"})
    for partition in range(MAP_PARTITIONS):
        delete_records(rig.target, name, partition)
    alter_topic_configs(rig.target, name, {"cleanup.policy": "compact"})


def noted(rig: Rig) -> MappedCopies:
    """Return the copies that have map rows according to the state topic."""
    rows = read_to_end(rig.target_client, STATE_TOPIC, 0)
    return mapped_copies(rig.flow, [(r.key, r.value) for r in rows])


def wanted(rig: Rig) -> FlowIntents:
    """Return the flow's intents in the state topic."""
    rows = read_to_end(rig.target_client, STATE_TOPIC, 0)
    return flow_intents(rig.flow, [(r.key, r.value) for r in rows])


@pytest.fixture(params=["own", "identity", "keyed"])
def kind(request: pytest.FixtureRequest, rig: Rig) -> tuple[Rig, Mapping[str, str]]:
    """A flow of each kind (prefixed, identity, keyed), with 20 records to copy, and its keys."""
    rig.prefixed = request.param != "identity"
    rig.create()
    if request.param == "keyed":
        create_topic(rig.target, rig.remote, partitions=2)
    rig.put(range(20))
    return rig, KEYED if request.param == "keyed" else {}


@pytest.mark.witness("H03: lost map rows cause MAP_MISSING, never a second copy", case="identity")
def test_lost_rows_are_never_a_second_copy(kind: tuple[Rig, Mapping[str, str]]) -> None:
    rig, keys = kind
    rig.copy_once(keys)
    before = rig.on_target()
    lose_rows(rig)
    code, message = rig.fail_once(keys)
    assert code == "MAP_MISSING", message
    assert rig.on_target() == before


@pytest.mark.witness("H03: lost map rows cause MAP_MISSING with MirrorMaker 1's arguments, too")
def test_lost_rows_are_no_reason_to_begin_at_the_groups_offset(rig: Rig) -> None:
    rig.prefixed = False
    rig.create()
    group = f"g-{rig.topic}"
    keys = {
        f"{rig.flow}.twinlog.source.group.id": group,
        f"{rig.flow}.twinlog.source.group.commit.interval.ms": "600000",
    }
    commit_all(rig.source, group, [GroupAt(rig.topic, 0, 5)])
    rig.put(range(10))
    rig.copy_once(keys)
    assert rig.numbers() == list(range(5, 10))
    commit_all(rig.source, group, [GroupAt(rig.topic, 0, 5)])
    lose_rows(rig)
    code, message = rig.fail_once(keys)
    assert code == "MAP_MISSING", message
    assert rig.numbers() == list(range(5, 10))


def test_rows_are_known_as_lost_if_the_target_is_empty_and_the_producer_id_expired(
    rig: Rig,
) -> None:
    rig.create()
    rig.put(range(10), age_ms=OLD)
    rig.copy_once()
    lose_rows(rig)
    with rig.target_forgets_after(1000):
        rig.forgotten()
        delete_records(rig.target, rig.remote)
        code, message = rig.fail_once()
    assert code == "MAP_MISSING", message
    assert not rig.on_target()


def test_the_policy_is_put_right_while_a_mirror_runs(
    rig: Rig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlog.control.duties.own_topics.OwnTopics.interval_s", 0.5)
    rig.create()
    rig.put(range(10))
    with rig.mirror() as mirror:
        rig.copied(10)

        eventually(
            lambda: [*noted(rig).partitions.values()] == [{0}], what="the copy's rows to be noted"
        )
        for name in (STATE_TOPIC, offset_map_topic(rig.alias)):
            alter_topic_configs(rig.target, name, {"cleanup.policy": "delete"})
            eventually(lambda: is_compacted(rig, name), what=f"{name} to be compacted again")  # noqa: B023
        mirror.stop()
    said = {r.getMessage() for r in caplog.records if "INTERNAL_TOPIC_NOT_COMPACTED" in r.message}
    assert len(said) == 2, "once for each topic"
    assert all("rows that were already deleted are lost" in line for line in said)


def test_a_partition_without_a_row_takes_no_other_along(rig: Rig) -> None:
    """A partition has no map row because it has had no leader, or was stopped for another reason,
    since the topic was created. The leader must still record in the state topic that the other
    partition has a map row.
    """
    create_topic(rig.source, rig.topic, partitions=2)
    create_topic(rig.target, rig.remote, partitions=2)
    flow, _ = led_flow(rig.config())
    view, second = (one for one in flow.partitions() if one.source.topic == rig.topic)
    maps = Maps(
        {second.map_key: PartitionMap(key=second.map_key, topic=rig.topic)}, {}, MAP_PARTITIONS
    )
    duty = OwnTopics(
        replace(
            flow, partitions=lambda: (replace(view, is_begun=False), second), read_map=lambda: maps
        )
    )
    create_topic(rig.target, offset_map_topic(rig.alias), configs={"cleanup.policy": "compact"})
    duty.round()
    duty.close()
    assert [noted(rig).has_row(*second.map_key[:2], one) for one in range(3)] == [
        False,
        True,
        False,
    ]


def test_rows_are_noted_again_in_a_state_topic_that_was_recreated(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state topic was re-created and lacks the row that lists the partitions with map rows. The
    map may have lost rows as well. So the mirror writes its map rows and the row of the state topic
    again.
    """
    monkeypatch.setattr("twinlog.control.duties.own_topics.OwnTopics.interval_s", 0.5)
    rig.create()
    rig.put(range(10))
    with rig.mirror() as mirror:
        rig.copied(10)
        eventually(lambda: noted(rig).partitions, what="the copy's rows to be noted")
        before = noted(rig).partitions
        producer = rig.claim().producer_id
        delete_topic(rig.target, STATE_TOPIC)
        create_topic(rig.target, STATE_TOPIC, configs={"cleanup.policy": "compact"})
        eventually(lambda: noted(rig).partitions == before, what="the same notes in the new topic")
        assert producer in state_rows(rig.target_client).producers
        mirror.stop()


def test_intents_are_written_again_to_a_recreated_state_topic(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state topic was re-created, so the intents in it are gone, although no user revoked them.
    The mirror must write them again. New topics must not wait for that.
    """
    monkeypatch.setattr("twinlog.control.duties.own_topics.OwnTopics.interval_s", 0.5)
    rig.create()
    rig.put(range(10))
    keys = {f"{rig.flow}.topics": f"{rig.topic}.*", "refresh.topics.interval.seconds": "1"}
    file, later = str(rig.config(keys)), f"{rig.topic}-later"
    released = f"{rig.topic}-released"
    create_topic(rig.source, released)
    with rig.mirror(keys=keys) as mirror:
        rig.copied(10)
        assert run(["topic", "release", file, "--topics", released]) == 0
        assert run(["flow", "limit", file, "--bytes-per-second", "100000000"]) == 0
        eventually(lambda: noted(rig).partitions, what="the copy's rows to be noted")
        before, claim = wanted(rig), rig.claim()
        mirror.eventually(
            lambda parts: {p.topic for p in parts if p.state != "RELEASED"} == {rig.topic}
        )
        delete_topic(rig.target, STATE_TOPIC)
        create_topic(rig.target, STATE_TOPIC, configs={"cleanup.policy": "compact"})
        eventually(lambda: noted(rig).partitions, what="the notes in the new topic")
        eventually(lambda: wanted(rig) == before, what="what was wanted in the new topic")
        assert rig.claim() == claim, "who promotes the flow waits for its end"
        create_topic(rig.source, later)
        eventually(lambda: f"{rig.alias}.{later}" in topic_names(rig.target), what="a new copy")
        mirror.stop()


# -- records of this flow are missing or duplicated


@pytest.mark.parametrize("prefixed", [True, False], ids=["own", "identity"])
@pytest.mark.witness(
    "H02: missing records of this flow are reported as a gap at each start", case="identity"
)
def test_missing_records_of_the_flow_remain_a_gap(rig: Rig, *, prefixed: bool) -> None:
    rig.prefixed = prefixed
    rig.create()
    rig.put(range(10), age_ms=OLD)
    rig.copy_once()
    rig.put(range(10, 30), age_ms=OLD)
    writer = rig.claim().producer_id
    with rig.target_forgets_after(1000):
        rig.forgotten()
        late = raw.Writer(rig.target_client, rig.there, writer)
        late.send([rig.record(n, age_ms=OLD) for n in range(15, 20)], 15).expect_ok()
        for _ in range(2):
            code, message = rig.fail_once()
            assert code == "GAP_WRITTEN", message
    assert rig.numbers() == [*range(10), *range(15, 20)]


@pytest.mark.parametrize("prefixed", [True, False], ids=["own", "identity"])
def test_a_late_repeat_is_extra_and_no_text_says_to_delete_an_application_s_topic(
    rig: Rig, *, prefixed: bool
) -> None:
    rig.prefixed = prefixed
    rig.create()
    rig.put(range(8), age_ms=OLD)
    rig.copy_once()
    writer = rig.claim().producer_id
    with rig.target_forgets_after(1000):
        rig.forgotten()
        late = raw.Writer(rig.target_client, rig.there, writer)
        late.send([rig.record(n, age_ms=OLD) for n in range(2, 5)], 2).expect_ok()
        code, message = rig.fail_once()
    assert code == "EXTRA_RECORDS", message
    assert prefixed or "do not delete it" in message


# -- the records after the mark are gone


def test_killed_and_emptied_after_a_mark_that_is_seconds_old(rig: Rig) -> None:
    rig.prefixed = False
    rig.create()
    rig.put(range(5), age_ms=OLD)
    with Driver(rig.config(), lanes=1) as driver:
        rig.copied(5)
        eventually(lambda: rig.map().mark == Mark(5, 5), what="the mark of the first five")
        rig.put(range(5, 8), age_ms=OLD)
        rig.copied(8)
        lanes = driver.state.lanes
        driver.kill()
        for pid in lanes:
            os.kill(pid, signal.SIGKILL)
    with rig.target_forgets_after(1000):
        rig.forgotten()
        delete_records(rig.target, rig.remote)
        code, message = rig.fail_once()
    assert code == "TARGET_TRUNCATED", message
    assert rig.end() == 8, "5, 6 and 7 are not copied a second time"


def test_stopped_in_order_and_emptied_it_resumes_by_its_final_mark(rig: Rig) -> None:
    rig.prefixed = False
    rig.create()
    rig.put(range(8), age_ms=OLD)
    rig.copy_once()
    assert rig.map().mark == Mark(8, 8, is_final=True)
    with rig.target_forgets_after(1000):
        rig.forgotten()
        delete_records(rig.target, rig.remote)
        rig.put(range(8, 10), age_ms=OLD)
        rig.copy_once()
    assert rig.numbers() == [8, 9]


def test_where_a_copy_that_was_taken_over_ended_stays_known(rig: Rig) -> None:
    rig.prefixed = False
    rig.create()
    rig.put(range(8), age_ms=OLD)
    with rig.mirror() as mirror:
        rig.copied(8)
        mirror.eventually(lambda parts: parts[0].state == "AT_END")
        produce(rig.target, rig.topic, [Outgoing(value=b"app", partition=0)])
        mirror.eventually(lambda parts: parts[0].state == "TAKEN_OVER")
        eventually(lambda: rig.map().mark == Mark(8, 8, is_final=True), what="a final mark")
        mirror.stop()
    with rig.target_forgets_after(1000):
        rig.forgotten()
        delete_records(rig.target, rig.remote)
        produce(rig.target, rig.topic, [Outgoing(value=b"app", partition=0)])
        with rig.mirror(once=True) as mirror:
            (flow,) = mirror.wait()
    assert [(p.state, p.code) for p in flow.partitions] == [("TAKEN_OVER", "")]


@pytest.mark.parametrize("begins_anew", [False, True], ids=["idle", "before our next"])
def test_a_late_repeat_beside_a_running_copy_is_extra(rig: Rig, *, begins_anew: bool) -> None:
    """The target appends a late batch that repeats records of this flow while the copy runs. It has
    the flow's own producer ID, so the code is EXTRA_RECORDS and not that of another client's
    records.
    """
    rig.prefixed = False
    rig.create()
    rig.put(range(8), age_ms=OLD)
    with rig.mirror() as mirror:
        rig.copied(8)
        mirror.eventually(lambda parts: parts[0].state == "AT_END")
        rig.forgotten()
        late = raw.Writer(rig.target_client, rig.there, rig.claim().producer_id)
        late.send([rig.record(n, age_ms=OLD) for n in range(2, 5)], 2).expect_ok()
        if begins_anew:
            rig.forgotten()
            rig.put(range(8, 10))
        mirror.eventually(lambda parts: parts[0].code == "EXTRA_RECORDS")
        mirror.stop()
    # the lane may first check the idle end of the log, and then cannot send its next records
    assert len(rig.numbers()) in ((11, 13) if begins_anew else (11,))
    code, message = rig.fail_once()
    assert code == "EXTRA_RECORDS", message
