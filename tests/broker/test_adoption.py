"""Topics and positions that a MirrorMaker 2 left are adopted with `--adopt-mm2`, or refused. The
tests cover every state in which it can leave them.
"""

from __future__ import annotations

import signal
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Outgoing, produce, produce_transaction, producer, read_all
from tests.support.connect_chains import after, chain_lines, router
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.left_by_mirror_maker import (
    ANOTHERS,
    STORAGE_PARTITIONS,
    Left,
    another_flow_writes,
    another_flow_wrote,
    outgoing,
    values,
)
from tests.support.load import Load
from tests.support.mirror import Mirror
from tests.support.mirror_process import Driver
from tests.support.settings import settings_for
from tests.support.topics import (
    create_topic,
    delete_records,
    delete_topic,
    end_offsets,
    offset_map_topic,
    topic_names,
)
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.group_protocol import GroupCalls
from twinlog.cluster.groups.membership import MemberRole, Membership
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.offset_storage import offset_storage
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.load import load
from twinlog.control.adopt import adoption
from twinlog.control.check.mirror_check import check
from twinlog.control.duties.source_positions import Mm2Positions
from twinlog.errors import AdoptionRefused, Fate, PartitionError
from twinlog.mirror.names.naming import DefaultReplicationPolicy
from twinlog.model import Flow, TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.survey.ends import log_bounds
from twinlog.survey.exact_map import ExactMap
from twinlog.wire.records import Headers, Record

pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True)
def no_long_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "QUIET_S", 0.2)


@pytest.fixture
def left(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> Left:
    alias = f"A{uuid.uuid4().hex[:6]}"
    made = Left(source_cluster, target_cluster, fresh_topic, tmp_path / "mm2.properties", alias)
    made.write_file()
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster, fresh_topic, outgoing(range(30)))
    create_topic(target_cluster, made.storage, STORAGE_PARTITIONS)
    return made


@pytest.mark.witness("a MirrorMaker 2 that was shut down cleanly is taken over")
def test_stopped_in_order(left: Left) -> None:
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(10)))
    left.note(9)
    assert left.adopt().code == ""
    assert left.values() == values(range(30))
    assert left.noted() == [9, 29], "MirrorMaker 2 may continue behind the last record"
    here = TopicPartition(left.remote, 0)
    with ClusterClient(settings_for(left.target.bootstrap)) as client:
        exact = ExactMap(client, DefaultReplicationPolicy(), Flow(left.alias, "B"))
        answers = [exact.downstream({here: at})[here] for at in (4, 10, 25)]
    assert [(one.offset, one.is_exact) for one in answers] == [(0, False), (10, True), (25, True)]


@pytest.mark.witness("a MirrorMaker 2 that was killed and wrote some records twice is taken over")
def test_killed_after_a_restart_that_wrote_some_twice(left: Left) -> None:
    create_topic(left.target, left.remote)
    wrote = [*range(10), *range(6, 14)]
    produce(left.target, left.remote, outgoing(wrote))
    left.note(5)
    assert left.adopt().code == ""
    assert left.values() == values([*wrote, *range(14, 30)]), "nothing is repaired"


@pytest.mark.witness(
    "topics that a MirrorMaker 2 with transforms wrote are taken over", case="routed"
)
@pytest.mark.parametrize("routes", [False, True], ids=["A.topic", "routed"])
def test_records_that_kafka_connect_transformed_are_found(left: Left, *, routes: bool) -> None:
    """MirrorMaker 2 copied the records through transforms of Kafka Connect. `check` finds its last
    record, because it applies the same transforms to the source's records before it compares them.
    If the file lacks most of the transforms, `check` reports MM2_PLACE_UNKNOWN.
    """
    traced: Headers = (("user", b"u"), ("trace", b"1"))
    more = [
        one._replace(headers=traced[: 1 + n % 2]) for n, one in enumerate(outgoing(range(30, 50)))
    ]
    produce(left.source, left.topic, more)
    route = [router(rf"{left.alias}\.(.*)", "eu-$1")] if routes else []
    lines = chain_lines(
        ("Filter", "predicate = hasTrace"),
        ("DropHeaders", "headers = user"),
        ("InsertHeader", "header = by", "value.literal = privacy"),
        *route,
    )
    remote = f"eu-{left.topic}" if routes else left.remote
    left.write_file(*(f"{left.alias}->B.{line}" for line in lines))
    config = load(left.file, environment={})
    steps = config.flows[0].transforms.connect_steps(left.topic)
    records = [
        Record(one.offset, one.timestamp, one.key, one.value, one.headers)
        for one in read_all(left.source, left.topic)
        if one.offset < 44
    ]
    kept = [made for one in records if (made := after(one, steps)) is not None]
    assert [one.offset for one in kept[-3:]] == [38, 40, 42]
    assert {one.headers for one in kept} == {(("by", b"privacy"),)}
    for topic in {left.remote, remote}:
        create_topic(left.target, topic)
    produce(left.target, remote, [Outgoing(r.key, r.value, r.headers, r.timestamp) for r in kept])
    left.note(40)

    def changes(config: MirrorConfig) -> list[str]:
        report = check(config, adopts=lambda flow: offset_storage(config, flow))
        (flow,) = report.flows
        return [*flow.changes, *(one.code for one in flow.problems)]

    taken = f"{left.topic} is taken over from MirrorMaker 2, by partition: 0 at 43"
    assert any(taken in one for one in changes(config)), changes(config)
    left.write_file(*(f"{left.alias}->B.{line}" for line in chain_lines(*route)))
    assert "MM2_PLACE_UNKNOWN" in changes(load(left.file, environment={}))


IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@pytest.mark.witness(
    "topics of MirrorMaker 2 that cannot be taken over are not copied again from the start"
)
def test_nothing_begins_again_after_a_record_of_an_application(left: Left) -> None:
    left.policy = IDENTITY
    left.write_file()
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing([*range(10), 77]))
    left.note(9)
    found = left.adopt()
    assert (found.state, found.code) == ("FAILED", "MM2_PLACE_UNKNOWN"), found.message
    assert "do not delete it" in found.message
    assert left.values() == values([*range(10), 77])


@pytest.mark.parametrize("is_known", [True, False], ids=["adopted", "refused"])
def test_check_says_the_verdict_and_writes_nothing(
    left: Left, capsys: pytest.CaptureFixture[str], *, is_known: bool
) -> None:
    wrote = [*range(10)] if is_known else [*range(10), 77]
    left.policy = IDENTITY
    left.write_file()
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(wrote))
    left.note(9)
    assert run(["check", str(left.file), "--adopt-mm2"]) == (0 if is_known else 1)
    said = capsys.readouterr().out
    taken = f"{left.topic} is taken over from MirrorMaker 2, by partition: 0 at 10"
    assert (taken in said) is is_known
    assert ("MM2_PLACE_UNKNOWN" in said) is not is_known
    assert left.values() == values(wrote)
    assert left.noted() == [9]
    assert offset_map_topic(left.alias) not in topic_names(left.target)


@pytest.mark.parametrize("policy", ["", IDENTITY], ids=["prefixed", "identity"])
def test_check_names_the_take_over_where_a_mirror_maker_2_copied(
    left: Left, capsys: pytest.CaptureFixture[str], policy: str
) -> None:
    left.policy = policy
    left.write_file()
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(10)))
    assert run(["check", str(left.file)]) == (0 if policy else 1)
    said = " ".join(capsys.readouterr().out.split())
    assert f"{left.storage} on B may belong to a MirrorMaker 2. If it copied {left.topic}, " in said
    assert "`twinlog check FILE --adopt-mm2` shows from which offsets" in said
    assert run(["check", str(left.file), "--adopt-mm2"]) in (0, 1)
    assert "may belong to a MirrorMaker 2" not in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "not noted"])
def test_records_that_were_deleted_on_the_target_count_as_copied(
    left: Left, *, noted: bool
) -> None:
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(10)))
    if noted:
        left.note(9)
    delete_records(left.target, left.remote, before=10)
    found = left.adopt()
    assert found.code == ("" if noted else "MM2_PLACE_UNKNOWN"), found.message
    assert left.values() == (values(range(10, 30)) if noted else [])


def test_topics_placed_by_key_that_mirror_maker_2_copied_do_not_begin_again(left: Left) -> None:
    left.policy = IDENTITY
    left.write_file("twinlog.target.partitions = keyed")
    create_topic(left.target, left.remote, 3)
    produce(left.target, left.remote, outgoing(range(10)))
    left.note(9)
    found = left.adopt()
    assert (found.state, found.code) == ("FAILED", "PARTITIONS_DIFFER"), found.message
    assert sorted(v for n in range(3) for v in left.values(n) if v) == sorted(values(range(10)))


def has_no_leader(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let the first `times` requests for a log's bounds fail with NO_LEADER."""
    ask, asked = log_bounds, []

    def once(client: ClusterClient, tp: TopicPartition, *more: Any) -> tuple[int, int]:
        asked.append(tp)
        if len(asked) <= times:
            raise PartitionError(f"{tp}: no leader", code="NO_LEADER", fate=Fate.RETRIABLE)
        return ask(client, tp, *more)

    monkeypatch.setattr(adoption, "log_bounds", once)


@pytest.mark.parametrize("policy", ["", IDENTITY], ids=["own", "identity"])
def test_a_transient_error_does_not_restart_the_copy(
    left: Left, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    left.policy = policy
    left.write_file()
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(10)))
    left.note(9)
    has_no_leader(monkeypatch, 2)
    found = left.adopt()
    assert (found.state, found.code) == ("FAILED", "NO_LEADER"), found.message
    assert left.values() == values(range(10))
    monkeypatch.undo()
    monkeypatch.setattr(adoption, "QUIET_S", 0.2)
    has_no_leader(monkeypatch, 3)
    with Mirror(left.file, adopt_mm2=True) as mirror:
        mirror.eventually(lambda parts: [p.state for p in parts] == ["AT_END"])
        mirror.stop()
    assert left.values() == values(range(30)), "it is checked again, and adopted"


def test_a_topic_that_is_found_later_is_adopted(left: Left) -> None:
    """The topic does not exist at the first discovery. A later discovery finds it and adopts
    MirrorMaker 2's copy of it, so that each record is copied once.
    """
    left.write_file("refresh.topics.interval.seconds = 1")
    delete_topic(left.source, left.topic)
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(10)))
    left.note(9)
    with Mirror(left.file, adopt_mm2=True) as mirror:
        eventually(lambda: mirror.snapshots, what="the flow runs")
        create_topic(left.source, left.topic)
        produce(left.source, left.topic, outgoing(range(30)))
        mirror.eventually(lambda parts: [p.state for p in parts] == ["AT_END"])
        mirror.stop()
    assert left.values() == values(range(30))


def test_killed_before_it_noted_anything(left: Left) -> None:
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(12)))
    assert left.adopt().code == ""
    assert left.values() == values(range(30))


@pytest.mark.witness(
    "records of transactions that an exactly-once MirrorMaker 2 rolled back are copied"
)
def test_transactions_of_its_exactly_once_mode(left: Left) -> None:
    create_topic(left.target, left.remote)
    produce_transaction(left.target, left.remote, outgoing(range(8)), commit=True)
    produce_transaction(left.target, left.remote, outgoing(range(8, 12)), commit=False)
    left.note(7)
    assert left.adopt().code == ""
    # MirrorMaker 2 had aborted records 8 to 11, so they are copied again. `values` also returns
    # aborted records
    assert left.values() == values([*range(12), *range(8, 30)])


def test_remote_topic_that_retention_emptied(left: Left) -> None:
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(10)))
    delete_records(left.target, left.remote)
    left.note(9)
    assert left.adopt().code == ""
    assert left.values() == values(range(10, 30))


def test_remote_topic_with_the_brokers_time(left: Left) -> None:
    create_topic(left.target, left.remote, configs={"message.timestamp.type": "LogAppendTime"})
    produce(left.target, left.remote, outgoing(range(10)))
    left.note(4)
    assert left.adopt().code == ""
    assert left.values() == values(range(30))


def test_topics_that_keep_their_names(left: Left) -> None:
    left.policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    left.write_file()
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(10)))
    left.note(4)
    assert left.adopt().code == ""
    assert left.values() == values(range(30))


def test_nothing_more_to_copy_stays_known_without_the_option(left: Left) -> None:
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(30)))
    left.note(29)
    assert left.adopt().code == ""
    produce(left.source, left.topic, outgoing(range(30, 35)))
    with Mirror(left.file, once=True) as mirror:
        mirror.wait()
    assert left.values() == values(range(35))


@pytest.mark.witness("records of unknown producers are not taken over")
def test_records_of_another_client_are_not_taken_over(
    left: Left, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing([*range(10), 77]))
    left.note(9)
    assert left.adopt().code == "MM2_PLACE_UNKNOWN"
    assert left.values() == values([*range(10), 77])
    assert left.noted() == [9]
    assert "its last record, at offset 10, is not in" in caplog.text


@pytest.mark.parametrize("policy", ["", IDENTITY], ids=["own", "identity"])
def test_records_that_the_source_deleted_before_they_were_copied(left: Left, policy: str) -> None:
    left.policy = policy
    left.write_file()
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(10)))
    left.note(9)
    delete_records(left.source, left.topic, before=15)
    assert left.adopt().code == "SOURCE_TRUNCATED"
    assert left.values() == values(range(10))
    left.write_file("twinlog.source.loss = accept")
    assert left.adopt().code == ""
    assert left.values() == values([*range(10), *range(15, 30)])


@pytest.mark.witness("a connector with another name is taken over")
def test_another_connectors_name(left: Left) -> None:
    create_topic(left.target, left.remote)
    left.note(9, connector="mine")
    with Mirror(left.file, once=True, adopt_mm2=True) as mirror:
        mirror.wait()
    (error,) = mirror.supervisor.errors
    assert isinstance(error, AdoptionRefused)
    assert (error.code, error.exit_code) == ("MM2_NOT_FOUND", 2)
    assert "has positions of mine, but none of " in str(error)
    assert end_offsets(left.target, left.remote) == {0: 0}


def test_positions_that_are_nowhere(left: Left) -> None:
    left.write_file("B.offset.storage.topic = not-there")
    config = load(left.file, environment={})
    assert offset_storage(config, config.flows[0]).topic == "not-there"
    with Mirror(left.file, once=True, adopt_mm2=True) as mirror:
        mirror.wait()
    (error,) = mirror.supervisor.errors
    assert error.code == "MM2_NOT_FOUND"
    assert "there is no topic not-there" in str(error)


def test_foreign_records_in_an_own_copy_are_not_mirror_maker_2s(left: Left) -> None:
    """Another client writes to a partition that was already adopted, and `--adopt-mm2` is still
    set. The flow must not treat the other client's records as MirrorMaker 2's, so the partition
    stops with OTHER_WRITER or EXTRA_RECORDS.
    """
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(10)))
    left.note(9)
    assert left.adopt().code == ""
    with Load(left.target, left.remote):
        eventually(lambda: end_offsets(left.target, left.remote)[0] > 100)
        assert left.adopt().code in {"OTHER_WRITER", "EXTRA_RECORDS"}
    assert left.values()[:30] == values(range(30))


@pytest.mark.parametrize("policy", ["", IDENTITY], ids=["own", "identity"])
def test_foreign_records_in_an_own_copy_restart_nothing(left: Left, policy: str) -> None:
    """Twinlog adopted a copy and continued it without `--adopt-mm2`, so MirrorMaker 2's stored
    position is old. Then another client writes to the copy, and the source deletes the records at
    that position. A start with `--adopt-mm2` must copy no record again.
    """
    left.policy = policy
    left.write_file("twinlog.source.loss = accept")
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(10)))
    left.note(9)
    assert left.adopt().code == ""
    produce(left.source, left.topic, outgoing(range(30, 40)))
    with Mirror(left.file, once=True) as mirror:
        mirror.wait()
    assert left.noted()[-1] == 29
    produce(left.target, left.remote, outgoing([77]))
    delete_records(left.source, left.topic, before=35)
    left.adopt()
    assert left.values() == values([*range(40), 77])


def test_foreign_open_transaction_in_an_own_copy_is_not_mirror_maker_2s(left: Left) -> None:
    left.policy = IDENTITY
    left.write_file()
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(10)))
    left.note(9)
    assert left.adopt().code == ""
    produce(left.target, left.remote, outgoing([77]))
    stranger = producer(left.target, config={"transactional.id": left.topic})
    stranger.init_transactions(PATIENCE_S)
    stranger.begin_transaction()
    stranger.produce(left.remote, b"v78", partition=0)
    stranger.flush(PATIENCE_S)
    assert left.adopt().state == "TAKEN_OVER"
    stranger.abort_transaction(PATIENCE_S)
    assert left.values() == values([*range(30), 77, 78]), "as the stranger wrote them"


@pytest.mark.parametrize("is_first", [True, False], ids=["at the take-over", "later"])
def test_records_of_another_twinlog_flow_are_not_mirror_maker_2s(
    left: Left, caplog: pytest.LogCaptureFixture, *, is_first: bool
) -> None:
    """Another Twinlog flow writes to the same target topic while this flow runs with `--adopt-mm2`.
    The other flow's records must not be treated as MirrorMaker 2's: this flow ends without an
    error, and each source record is copied once.
    """
    left.policy = IDENTITY
    left.write_file()
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(10)))
    left.note(9)
    if not is_first:
        assert left.adopt().code == ""
        produce(left.source, left.topic, outgoing(range(30, 40)))
    with another_flow_writes(left):
        found = left.adopt()
    assert (found.code, found.state) == ("", "DONE"), found.message
    copied = [value for value in left.values() if value != ANOTHERS]
    assert copied == values(range(30 if is_first else 40))
    assert "not taken over" not in caplog.text


def test_last_record_of_mirror_maker_2_is_found_before_many_foreign_records(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MirrorMaker 2 was killed after it had copied more records than its stored position shows. Its
    last record is found although another flow has written many records after it, and the copy
    continues after this record.
    """
    monkeypatch.setattr(adoption, "FURTHER_BACK", (1, 5))
    left.policy = IDENTITY
    left.write_file()
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(10)))
    left.note(5)
    another_flow_wrote(left, values(range(70, 80)))
    assert left.adopt().code == ""
    assert left.values() == values([*range(10), *range(70, 80), *range(10, 30)])


@pytest.mark.parametrize("deleted", [False, True], ids=["whole", "begun by somebody"])
def test_partition_that_only_another_twinlog_flow_wrote_to_begins_as_usual(
    left: Left, *, deleted: bool
) -> None:
    """MirrorMaker 2 has no position for the partition, and only another Twinlog flow wrote to it.
    The copy begins with the source's first record. If the first record of the target's log was
    deleted, its writer is unknown, so the adoption is refused.
    """
    left.policy = IDENTITY
    left.write_file()
    create_topic(left.target, left.remote)
    another_flow_wrote(left, values(range(70, 73)))
    if deleted:
        delete_records(left.target, left.remote, 0, 1)
    found = left.adopt()
    assert found.code == ("MM2_PLACE_UNKNOWN" if deleted else ""), found.message
    assert left.values() == values([71, 72] if deleted else [70, 71, 72, *range(30)])


def test_lost_map_is_reported_with_the_option_too(left: Left) -> None:
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(10)))
    left.note(9)
    assert left.adopt().code == ""
    delete_topic(left.target, offset_map_topic(left.alias))
    with Mirror(left.file, once=True, adopt_mm2=True) as mirror:
        (flow,) = mirror.wait()
    assert (flow.state, flow.code) == ("FAILED", "MAP_MISSING")
    assert left.values() == values(range(30))


def test_recreated_topic_begins_where_twinlogs_copy_began(left: Left) -> None:
    """An adopted remote topic is deleted and copied again, and `--adopt-mm2` is still set. The
    stored position is now Twinlog's own, at the end of its copy. The new copy must begin at offset
    10, where Twinlog's first copy began.
    """
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(10)))
    left.note(9)
    assert left.adopt().code == ""
    assert left.noted()[-1] == 29
    delete_topic(left.target, left.remote)
    assert left.adopt().code == ""
    assert left.values() == values(range(10, 30))


def test_topics_placed_by_key_begin_by_their_own_start(left: Left) -> None:
    """The topic is partitioned by key, and no position of a MirrorMaker 2 exists. The target is not
    searched for MirrorMaker 2's records. The copy begins after the existing records, at the
    source's configured start.
    """
    remote_partitions = 3
    left.policy = IDENTITY
    left.write_file("twinlog.target.partitions = keyed")
    create_topic(left.target, left.remote, remote_partitions)
    produce(left.target, left.remote, outgoing([77]))
    assert left.adopt().code == ""
    copied = [values_of for n in range(remote_partitions) for values_of in left.values(n)]
    assert Counter(copied) == Counter([b"v77", *values(range(30))])
    assert left.noted() == [29], "all of it is there: MirrorMaker 2 may continue behind it"


def test_process_that_lost_the_lead_notes_nothing_at_its_end(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process already leads the flow and has newer positions. A process that has lost the
    lead must not store its own positions when it ends.
    """
    last_rounds: list[object] = []
    monkeypatch.setattr(Mm2Positions, "last_round", lambda duty: last_rounds.append(duty))  # noqa: PLW0108 (a method, so it needs a function)
    create_topic(left.target, left.remote)
    produce(left.target, left.remote, outgoing(range(10)))
    left.note(9)
    target = settings_for(left.target.bootstrap)
    with Mirror(left.file, adopt_mm2=True) as mirror:
        mirror.eventually(lambda parts: all(one.state == "AT_END" for one in parts))
        (flow,) = mirror.supervisor.flows
        ours = flow.setup.membership
        assert ours is not None
        other = Membership(target, f"twinlog-{flow.setup.name}")
        other.start()
        try:
            eventually(lambda: other.state.role is MemberRole.STANDBY)
            expel(target, f"twinlog-{flow.setup.name}", ours.state.member_id)
            eventually(lambda: other.state.role is MemberRole.LEADING)
            eventually(lambda: flow.run is None and flow.trouble.is_standing_by)
            mirror.stop()
        finally:
            other.leave()
    assert last_rounds == []


@pytest.mark.parametrize("resumed", [True, False], ids=["MirrorMaker 2 is back", "nobody is"])
def test_frozen_leader_of_a_flow_that_was_promoted_in_the_meantime(
    left: Left, *, resumed: bool
) -> None:
    """A leader is frozen while its flow is promoted. MirrorMaker 2 resumes at the position that was
    written last. So if MirrorMaker 2 stores position 50 in the meantime, the leader must not write
    its own older position later. If MirrorMaker 2 stores nothing, the leader writes the end of the
    copy.
    """
    create_topic(left.target, left.remote)
    with Driver(left.file, lanes=1, adopts_mm2=True) as driver:
        eventually(lambda: left.noted()[-1:] == [29], what="the position of MirrorMaker 2")
        driver.signal(signal.SIGSTOP)
        try:
            # the frozen driver's lane still copies these
            produce(left.source, left.topic, outgoing(range(30, 40)))
            eventually(lambda: len(left.values()) == 40, what="the lane's copy")
            assert run(["flow", "promote", "--yes", str(left.file)]) == 0
            if resumed:
                left.note(50)
        finally:
            driver.signal(signal.SIGCONT)
        driver.until("FENCED")
    assert left.noted()[-1] == (50 if resumed else 39), "of the drained copy, if nobody noted more"


def expel(settings: ClusterSettings, group: str, member: str) -> None:
    """Remove a member from its group as `kafka-consumer-groups.sh` does, or as the coordinator does
    after a session timeout.
    """
    with ClusterClient(settings) as client:
        calls = GroupCalls(client, group, 10_000, 10_000)
        calls.member_id = member
        calls.leave(timeout_s=10.0)
