"""A topic changes its owner between the moment when a duty or a discovery reads it and the moment
when the duty acts on it.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.support.client import Outgoing, eventually, produce, read_all
from tests.support.mirror import Mirror
from tests.support.rig import DAY_MS, Rig
from tests.support.rounds import Rounds
from tests.support.topics import (
    add_partitions,
    alter_topic_configs,
    create_topic,
    delete_topic,
    partition_count,
    topic_configs,
    topic_names,
)
from twinlog.cli.main import run
from twinlog.control.duties import config_sync
from twinlog.control.duties.config_sync import ConfigSync
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.loops.guard import LoopGuard

pytestmark = [pytest.mark.faults, pytest.mark.broker]

RETENTION: Final = "retention.ms"
SYNC: Final = {
    "sync.topic.configs.enabled": "true",
    "sync.topic.configs.interval.seconds": "1",
    "refresh.topics.interval.seconds": "2",
}


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)


def app(partition: int = 0, *, age_ms: int = 0, rig: Rig) -> list[Outgoing]:
    at = rig.began_ms - age_ms
    return [Outgoing(key=b"f", value=b"app", timestamp=at, partition=partition)] * 10


def test_clients_go_over_between_the_look_and_the_change(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.prefixed = False
    rig.create()
    rig.put(range(20))
    find, mirrors = config_sync.find_drift, list[Mirror]()

    def found_then_taken_over(*arguments: Any) -> Any:
        found = find(*arguments)
        if found.topics and mirrors:
            mirror = mirrors.pop()
            produce(rig.target, rig.topic, app(rig=rig))
            mirror.eventually(lambda parts: [p.state for p in parts] == ["TAKEN_OVER"])
        return found

    monkeypatch.setattr(config_sync, "find_drift", found_then_taken_over)
    rounds = Rounds(monkeypatch, ConfigSync, "round", lambda _: "round")
    with rig.mirror(keys=SYNC) as mirror:
        rig.copied(20)
        mirror.eventually(lambda parts: [p.state for p in parts] == ["AT_END"])
        mirrors.append(mirror)
        alter_topic_configs(rig.source, rig.topic, {RETENTION: "1000"})
        eventually(lambda: not mirrors)
        rounds.pass_by("round", 2)
        mirror.stop()
    assert RETENTION not in topic_configs(rig.target, rig.topic)
    assert len(read_all(rig.target, rig.topic)) == 30


def test_others_write_to_a_partition_that_is_not_copied(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(monkeypatch, ConfigSync, "round", lambda _: "round")
    rig.prefixed = False
    rig.create()
    create_topic(rig.target, rig.topic, 3, configs={RETENTION: "-1"})
    produce(rig.target, rig.topic, app(2, age_ms=30 * DAY_MS, rig=rig))
    rig.put(range(20))
    alter_topic_configs(rig.source, rig.topic, {RETENTION: "3600000"})
    with rig.mirror(keys=SYNC) as mirror:
        rig.copied(20)
        mirror.eventually(lambda parts: [p.state for p in parts] == ["AT_END"])
        rounds.pass_by("round", 3)
        mirror.stop()
    assert topic_configs(rig.target, rig.topic) == {RETENTION: "-1"}


@pytest.mark.parametrize("how", ["created again", "taken over"])
def test_a_run_that_looks_once_grows_no_topic_that_is_not_its_copy(rig: Rig, how: str) -> None:
    rig.prefixed = how != "taken over"
    rig.create()
    rig.put(range(20))
    rig.copy_once()
    if how == "taken over":
        produce(rig.target, rig.topic, app(rig=rig))
        add_partitions(rig.source, rig.topic, 3)
    else:
        delete_topic(rig.source, rig.topic)
        create_topic(rig.source, rig.topic, 3)
    with rig.mirror(once=True) as mirror:
        (flow,) = mirror.wait()
    assert partition_count(rig.target, rig.remote) == 1
    wanted = "TARGET_TOPIC_TOO_SMALL" if how == "taken over" else "SOURCE_RECREATED"
    assert wanted in {p.code for p in flow.partitions}


def test_a_run_that_looks_once_grows_its_copy(rig: Rig) -> None:
    rig.create()
    rig.put(range(20))
    rig.copy_once()
    add_partitions(rig.source, rig.topic, 3)
    produce(rig.source, rig.topic, [Outgoing(value=b"%d" % n, partition=2) for n in range(5)])
    with rig.mirror(once=True) as mirror:
        (flow,) = mirror.wait()
    assert {(p.state, p.code) for p in flow.partitions} == {("DONE", "")}
    assert partition_count(rig.target, rig.remote) == 3
    assert len(read_all(rig.target, rig.remote)) == 25


@pytest.mark.parametrize("how", ["released", "made anew"])
def test_a_topic_changes_hands_between_the_look_and_its_growth(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    rig.create()
    rig.put(range(20))
    ask = LoopGuard.growth_refusal

    def changed_then_asked(self: LoopGuard, *arguments: Any) -> Any:
        if not changed:
            if how == "released":
                file = str(rig.config(SYNC))
                assert run(["topic", "release", file, "--topics", rig.topic]) == 0
            else:
                delete_topic(rig.target, rig.remote)
                create_topic(rig.target, rig.remote)
                produce(rig.target, rig.remote, app(rig=rig))
            changed.append(how)
        return ask(self, *arguments)

    changed = list[str]()
    monkeypatch.setattr(LoopGuard, "growth_refusal", changed_then_asked)
    looks = Rounds(monkeypatch, FlowSetup, "discover", lambda _: "look")
    with rig.mirror(keys=SYNC) as mirror:
        rig.copied(20)
        mirror.eventually(lambda parts: [p.state for p in parts] == ["AT_END"])
        add_partitions(rig.source, rig.topic, 3)
        eventually(lambda: changed)
        looks.pass_by("look", 1)
        mirror.stop()
    assert partition_count(rig.target, rig.remote) == 1


def test_a_topic_that_is_recreated_after_its_check_is_not_begun(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remote topic was empty when it was checked, and was then re-created by another client,
    which writes to one partition. The flow must not copy to any partition of it (FOREIGN_DATA).
    """
    create_topic(rig.source, rig.topic, 2)
    ours = [Outgoing(key=b"k", value=b"%d" % n, partition=n % 2) for n in range(20)]
    produce(rig.source, rig.topic, ours)
    create_topic(rig.target, rig.remote, 2)
    admit, done = LoopGuard.admit, list[int]()

    def admitted_then_made_anew(self: LoopGuard, *arguments: Any) -> Any:
        found = admit(self, *arguments)
        if not done:
            done.append(1)
            delete_topic(rig.target, rig.remote)
            create_topic(rig.target, rig.remote, 2)
            produce(rig.target, rig.remote, app(rig=rig))
        return found

    monkeypatch.setattr(LoopGuard, "admit", admitted_then_made_anew)
    with rig.mirror(keys=SYNC) as mirror:
        parts = mirror.eventually(lambda parts: any(p.code == "FOREIGN_DATA" for p in parts))
        mirror.discover_topics()
        parts = mirror.eventually(lambda parts: {p.code for p in parts} == {"FOREIGN_DATA"})
        assert len(parts) == 2, "the topic as a whole"
        mirror.stop()
    assert [one.value for one in read_all(rig.target, rig.remote)] == [b"app"] * 10


def test_a_look_that_began_before_a_promotion_makes_no_topic(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.create()
    rig.put(range(20))
    keys = SYNC | {f"{rig.flow}.topics": f"{rig.topic}.*"}
    judge, later, seen = LoopGuard._verdicts_of, f"{rig.topic}-later", list[int]()
    looks = Rounds(monkeypatch, FlowSetup, "discover", lambda _: "look")

    def judged_then_promoted(self: LoopGuard, topics: Any, *arguments: Any) -> Any:
        found = judge(self, topics, *arguments)
        if later in topics and not seen:
            seen.append(looks.ended["look"])
            assert run(["flow", "promote", "--yes", str(rig.config(keys))]) == 0
        return found

    monkeypatch.setattr(LoopGuard, "_verdicts_of", judged_then_promoted)
    with rig.mirror(keys=keys) as mirror:
        rig.copied(20)
        create_topic(rig.source, later)
        eventually(lambda: seen and looks.ended["look"] > seen[0])
        mirror.stop()
    assert f"{rig.alias}.{later}" not in topic_names(rig.target)
