"""Duties change only topics that the copy itself writes. In each of these tests, a sync that
changed the remote topic's configs would delete the only copy of some records by the source's
retention.
"""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.circle_of_flows import IDENTITY, Circle
from tests.support.client import Outgoing, eventually, produce, read_all
from tests.support.groups import commit, committed
from tests.support.mirror import Mirror
from tests.support.mirror_process import Driver
from tests.support.rig import DAY_MS, Rig, kill
from tests.support.rounds import Rounds
from tests.support.topics import (
    alter_topic_configs,
    create_topic,
    delete_topic,
    leader,
    partition_count,
    topic_configs,
)
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics import topic_admin
from twinlog.cluster.topics.topic_admin import TopicCreation
from twinlog.codes import PartitionState
from twinlog.control.duties import config_sync
from twinlog.control.duties.config_sync import ConfigSync
from twinlog.sandbox import LocalCluster
from twinlog.survey import copied_topics

pytestmark = [pytest.mark.faults, pytest.mark.broker]

SYNC: Final = {
    "sync.topic.configs.enabled": "true",
    "sync.topic.configs.interval.seconds": "1",
    "refresh.topics.interval.seconds": "2",
}
RETENTION: Final = "retention.ms"
FOR_EVER: Final = {RETENTION: "-1"}


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)


def await_refusal(caplog: pytest.LogCaptureFixture, remote: str, code: str) -> None:
    """Wait until a round of the config sync has logged that it leaves this topic unchanged, with
    the code as the reason.
    """
    wanted = f"configs of {remote} are left as they are while the topic has stopped with {code}"
    eventually(lambda: any(wanted in one.getMessage() for one in caplog.records), what=wanted)


@pytest.mark.witness(
    "a source topic that is created again with another retention does not empty the copy"
)
def test_recreated_source_topic(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    create_topic(rig.source, rig.topic, configs=FOR_EVER)
    rig.put(range(20), age_ms=30 * DAY_MS)
    with rig.mirror(keys=SYNC) as mirror:
        rig.copied(20)
        delete_topic(rig.source, rig.topic)
        create_topic(rig.source, rig.topic, configs={RETENTION: "1000"})
        mirror.eventually(lambda parts: [p.code for p in parts] == ["SOURCE_RECREATED"])
        await_refusal(caplog, rig.remote, "SOURCE_RECREATED")
        assert topic_configs(rig.target, rig.remote) == FOR_EVER
        mirror.stop()
    assert len(read_all(rig.target, rig.remote)) == 20


@pytest.mark.witness(
    "the old cluster's retention does not empty a topic after its clients have moved"
)
def test_topic_that_clients_went_over_to(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.prefixed = False
    rig.create()
    rig.put(range(20))
    with rig.mirror(keys=SYNC) as mirror:
        rig.copied(20)
        produce(rig.target, rig.topic, [Outgoing(key=b"f", value=b"app")] * 10)
        mirror.eventually(lambda parts: [p.state for p in parts] == [PartitionState.TAKEN_OVER])
        alter_topic_configs(rig.source, rig.topic, {RETENTION: "1000"})
        await_refusal(caplog, rig.topic, "TAKEN_OVER")
        assert RETENTION not in topic_configs(rig.target, rig.topic)
        mirror.stop()
    # after a restart, no duty changes the topic until the lane has found again why it is stopped
    with rig.mirror(keys=SYNC) as mirror:
        mirror.eventually(lambda parts: [p.state for p in parts] == [PartitionState.TAKEN_OVER])
        mirror.stop()
    assert RETENTION not in topic_configs(rig.target, rig.topic)
    assert len(read_all(rig.target, rig.topic)) == 30


@pytest.mark.witness(
    "another client's topic of the remote name is not extended, configured or written to"
)
def test_topic_of_another_client(rig: Rig) -> None:
    create_topic(rig.target, rig.remote, 2, configs=FOR_EVER)
    old_ms = rig.began_ms - 30 * DAY_MS
    theirs = [Outgoing(key=b"x", value=b"theirs", timestamp=old_ms, partition=0)] * 10
    produce(rig.target, rig.remote, theirs)
    create_topic(rig.source, rig.topic, 3, configs={RETENTION: "3600000"})
    ours = [Outgoing(key=b"k", value=b"%d" % n, partition=n % 3) for n in range(30)]
    produce(rig.source, rig.topic, ours)
    with rig.mirror(keys=SYNC) as mirror:
        parts = mirror.eventually(lambda parts: {p.code for p in parts} == {"FOREIGN_DATA"})
        assert len(parts) == 3, "the topic as a whole"
        assert f"{rig.remote}-0" in parts[0].message
        mirror.discover_topics()
        mirror.stop()
    assert partition_count(rig.target, rig.remote) == 2
    assert topic_configs(rig.target, rig.remote) == FOR_EVER
    assert [one.value for one in read_all(rig.target, rig.remote)] == [b"theirs"] * 10


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    """Counts the rounds of the config sync."""
    return Rounds(monkeypatch, ConfigSync, "round", lambda _: "round")


@pytest.mark.witness(
    "while no lane runs, a topic to which clients have moved is not changed", case="topic pause"
)
@pytest.mark.parametrize("between", ["lease change", "killed lane", "topic pause", "flow pause"])
def test_topic_that_clients_went_over_to_while_no_lane_watches(
    rig: Rig, rounds: Rounds, between: str
) -> None:
    rig.prefixed = False
    rig.create()
    rig.put(range(20))
    lease_s = 4.0 if between == "lease change" else 300.0
    with rig.mirror(keys=SYNC, lease_s=lease_s) as mirror:
        rig.copied(20)
        mirror.eventually(lambda parts: [p.state for p in parts] == ["AT_END"])
        kind, _, verb = between.partition(" ")
        if verb == "pause":
            file = str(rig.config(SYNC))
            assert (
                run([kind, "pause", file, *(["--topics", rig.topic] if kind == "topic" else ())])
                == 0
            )
            mirror.eventually(lambda parts: [p.state for p in parts] == ["PAUSED"])
        produce(rig.target, rig.topic, [Outgoing(key=b"f", value=b"app")] * 10)
        if verb != "pause":
            mirror.eventually(lambda parts: [p.state for p in parts] == ["TAKEN_OVER"])
        alter_topic_configs(rig.source, rig.topic, {RETENTION: "1000"})
        if between == "lease change":
            leases = len(mirror.leases.jobs)
            eventually(lambda: len(mirror.leases.jobs) > leases + 1, what="two lease changes")
        elif between == "killed lane":
            kill(mirror.leases.pids())
        elif between == "flow pause":
            assert run(["flow", "resume", file]) == 0
        if between != "topic pause":
            mirror.eventually(lambda parts: [p.state for p in parts] == ["TAKEN_OVER"])
        rounds.pass_by("round", 3)
        mirror.stop()
    assert RETENTION not in topic_configs(rig.target, rig.topic)
    assert len(read_all(rig.target, rig.topic)) == 30


@pytest.mark.parametrize(
    "keyed",
    [
        pytest.param(
            False,
            id="identity",
            marks=pytest.mark.witness(
                "an application's topic of the remote name is neither extended nor emptied"
            ),
        ),
        pytest.param(True, id="keyed"),
    ],
)
def test_topic_with_foreign_records(
    rig: Rig, rounds: Rounds, caplog: pytest.LogCaptureFixture, *, keyed: bool
) -> None:
    """The target topic has records of other clients before the flow begins. The flow copies to it
    as configured, but must change neither its retention nor its partition count.
    """
    rig.prefixed = False
    create_topic(rig.target, rig.topic, 2, configs=FOR_EVER)
    old_ms = rig.began_ms - 30 * DAY_MS
    theirs = [Outgoing(key=b"x", value=b"theirs", timestamp=old_ms, partition=0)] * 10
    produce(rig.target, rig.topic, theirs)
    create_topic(rig.source, rig.topic, 3, configs={RETENTION: "3600000"})
    ours = [Outgoing(key=b"k", value=b"%d" % n, partition=n % 2) for n in range(30)]
    produce(rig.source, rig.topic, ours)
    keys = {"twinlog.target.partitions": "keyed"} if keyed else {}
    with rig.mirror(keys=SYNC | keys) as mirror:
        eventually(lambda: len(read_all(rig.target, rig.topic)) == 40)
        mirror.discover_topics()
        rounds.pass_by("round", 3)
        parts = mirror.eventually(lambda parts: len(parts) == 3)
        assert [p.code for p in parts] == ["", "", "" if keyed else "TARGET_TOPIC_TOO_SMALL"]
        mirror.stop()
    assert partition_count(rig.target, rig.topic) == 2
    assert topic_configs(rig.target, rig.topic) == FOR_EVER
    told = [one.getMessage() for one in caplog.records]
    assert keyed or any(
        "keeps its configs, because other flows write to it, too" in line for line in told
    )


def test_two_flows_into_one_topic_do_not_fight_over_its_retention(
    fault_source: LocalCluster,
    source_cluster: LocalCluster,
    fault_target: LocalCluster,
    tmp_path: Path,
    rounds: Rounds,
) -> None:
    here = {"A": fault_source, "B": source_cluster}
    circle = Circle(tmp_path, [*here.values(), fault_target])
    topic = circle.topic()
    for cluster, retention in zip(here.values(), ("-1", "3600000"), strict=True):
        create_topic(cluster, topic, configs={RETENTION: retention})
        produce(cluster, topic, [Outgoing(value=b"%d" % n) for n in range(20)])
    with ExitStack() as stack:
        for at, alias in enumerate(here):
            config = circle.file(
                {alias: at, "T": 2},
                [f"{alias}->T"],
                name=alias,
                replication_policy_class=IDENTITY,
                sync_topic_configs_interval_seconds="1",
            )
            mirror = stack.enter_context(Mirror(config, lanes=1))
            mirror.eventually(lambda parts: [p.state for p in parts] == ["AT_END"])
        seen = set()
        for _ in range(6):
            rounds.pass_by("round", 1)
            seen.add(topic_configs(fault_target, topic).get(RETENTION))
    assert seen == {"-1"}


def test_source_topic_that_is_recreated_between_two_questions(
    rig: Rig, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source topic is re-created after its ID was compared and before its configs are read. The
    config sync must not apply the new topic's configs.
    """
    create_topic(rig.source, rig.topic, configs=FOR_EVER)
    rig.put(range(20), age_ms=30 * DAY_MS)
    is_armed = False
    ask = copied_topics.unchanged_pairs

    def ask_then_recreate(*arguments: object) -> dict[str, str]:
        nonlocal is_armed
        found = ask(*arguments)  # type: ignore[arg-type]
        if is_armed and found:
            is_armed = False
            delete_topic(rig.source, rig.topic)
            create_topic(rig.source, rig.topic, configs={RETENTION: "1000"})
        return found

    monkeypatch.setattr(config_sync, "unchanged_pairs", ask_then_recreate)
    with rig.mirror(keys=SYNC) as mirror:
        rig.copied(20)
        mirror.eventually(lambda parts: [p.state for p in parts] == ["AT_END"])
        is_armed = True
        mirror.eventually(lambda parts: [p.code for p in parts] == ["SOURCE_RECREATED"])
        rounds.pass_by("round", 2)
        mirror.stop()
    assert topic_configs(rig.target, rig.remote) == FOR_EVER
    assert len(read_all(rig.target, rig.remote)) == 20


@pytest.mark.witness("a frozen leader changes nothing in promoted topics after it wakes up")
def test_frozen_leader_of_topics_that_were_promoted_in_the_meantime(rig: Rig) -> None:
    rig.create()
    rig.put(range(20))
    group = f"app-{rig.alias}"
    commit(rig.source, group, rig.topic, 7)
    file = rig.config(
        SYNC
        | {
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "1",
            "emit.checkpoints.interval.seconds": "1",
            "refresh.groups.interval.seconds": "1",
            "groups": group,
        }
    )
    with Driver(file, lanes=1) as driver:
        driver.until("RUNNING")
        rig.copied(20)
        eventually(lambda: committed(rig.target, group, rig.remote) == 7)
        driver.signal(signal.SIGSTOP)
        try:
            assert run(["flow", "promote", "--yes", str(file)]) == 0
            produce(rig.target, rig.remote, [Outgoing(key=b"f", value=b"app")] * 10)
            commit(rig.target, group, rig.remote, 0)
            alter_topic_configs(rig.source, rig.topic, {RETENTION: "1000"})
        finally:
            driver.signal(signal.SIGCONT)
        driver.until("FENCED")
    assert RETENTION not in topic_configs(rig.target, rig.remote)
    assert committed(rig.target, group, rig.remote) == 0
    assert len(read_all(rig.target, rig.remote)) == 30


@pytest.mark.witness(
    "a topic that another client creates at the same time is checked before the copy begins"
)
def test_topic_that_another_client_creates_at_the_same_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flow's CreateTopics fails because another client has just created the topic and written
    to it. The flow must treat the topic as the other client's: all partitions stop with
    FOREIGN_DATA.
    """
    create_topic(rig.source, rig.topic, 3)
    ours = [Outgoing(key=b"k", value=b"%d" % n, partition=n % 3) for n in range(30)]
    produce(rig.source, rig.topic, ours)
    create = topic_admin.create_topic
    theirs = [Outgoing(key=b"x", value=b"theirs", partition=0)] * 10
    is_made: list[str] = []

    def late(client: ClusterClient, name: str, **more: Any) -> TopicCreation:
        if name == rig.remote and not is_made:
            is_made.append(name)
            create_topic(rig.target, rig.remote, 3)
            produce(rig.target, rig.remote, theirs)
        return create(client, name, **more)

    monkeypatch.setattr("twinlog.survey.discovery.create_topic", late)
    with rig.mirror(keys=SYNC) as mirror:
        parts = mirror.eventually(lambda parts: {p.code for p in parts} == {"FOREIGN_DATA"})
        assert len(parts) == 3, "the topic as a whole"
        mirror.stop()
    assert [one.value for one in read_all(rig.target, rig.remote)] == [b"theirs"] * 10


@pytest.mark.witness("an unreadable topic is neither extended nor written to")
def test_topic_whose_records_have_no_leader(
    fault_source: LocalCluster, target3: LocalCluster, tmp_path: Path
) -> None:
    with Rig(fault_source, target3, tmp_path) as rig:
        create_topic(rig.target, rig.remote, 3)
        theirs = [Outgoing(key=b"x", value=b"theirs", partition=0)] * 10
        produce(rig.target, rig.remote, theirs)
        create_topic(rig.source, rig.topic, 4)
        ours = [Outgoing(key=b"k", value=b"%d" % n, partition=n % 4) for n in range(40)]
        produce(rig.source, rig.topic, ours)
        lost = leader(rig.target, rig.remote)
        rig.target.kill(lost)
        keys = SYNC | {"twinlog.state.topic.replication.factor": "3"}
        with rig.mirror(keys=keys) as mirror:
            parts = mirror.eventually(
                lambda parts: len(parts) == 4 and {p.state for p in parts} == {"FAILED"}
            )
            assert {p.code for p in parts} == {"LEADER_NOT_AVAILABLE"}
            rig.target.restart(lost)
            mirror.eventually(lambda parts: {p.code for p in parts} == {"FOREIGN_DATA"})
            mirror.stop()
        assert partition_count(rig.target, rig.remote) == 3
        assert [one.value for one in read_all(rig.target, rig.remote)] == [b"theirs"] * 10
