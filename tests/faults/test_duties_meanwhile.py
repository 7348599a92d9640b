"""Between what a duty or a look for topics saw and what it does, topics change hands."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.support.client import Outgoing, eventually, produce, read_all
from tests.support.mirror import Mirror
from tests.support.rig import DAY_MS, Rig
from tests.support.rounds import Rounds
from tests.support.topics import (
    alter_topic_configs,
    create_topic,
    topic_configs,
)
from twinlog.control.duties import config_sync
from twinlog.control.duties.config_sync import ConfigSync

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
