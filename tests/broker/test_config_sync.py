"""Remote topics get the configs of their source topics (MirrorMaker 2's testSyncTopicConfigs,
testReplicateSourceDefault, testReplicateTargetDefault).
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Outgoing, eventually, produce
from tests.support.led_flow import led_flow
from tests.support.mirror import Mirror
from tests.support.topics import alter_topic_configs, create_topic, topic_configs
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics import configs
from twinlog.cluster.topics.configs import ConfigChange, describe_topic_configs
from twinlog.config.load import load
from twinlog.control.check.mirror_check import check
from twinlog.control.duties import config_sync as sync
from twinlog.control.duties.config_sync import LINES_SHOWN, ConfigSync, config_sync, find_drift
from twinlog.control.duties.rounds import LedFlow
from twinlog.errors import TwinlogError
from twinlog.sandbox import LocalCluster
from twinlog.survey import topic_configs as topic_configs_of
from twinlog.survey.copied_topics import copies_by_name
from twinlog.wire.topic_settings import ConfigEntry, ConfigSource

pytestmark = [pytest.mark.broker]

BEFORE_MAX, AFTER_MAX = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
RETENTION, SEGMENT, CLEANUP = "retention.ms", "segment.bytes", "cleanup.policy"


class Pair:
    """A topic that exists on both sides, and a flow between them."""

    def __init__(self, folder: Path, source: LocalCluster, target: LocalCluster) -> None:
        self.source, self.target = source, target
        self.topic, self.alias = f"c{uuid.uuid4().hex[:8]}", f"a{uuid.uuid4().hex[:8]}"
        self.remote = f"{self.alias}.{self.topic}"
        self._path = folder / "mm2.properties"

    def create(self, here: Mapping[str, str], there: Mapping[str, str]) -> None:
        create_topic(self.source, self.topic, configs=here)
        create_topic(self.target, self.remote, configs=there)

    def config(self, **keys: str) -> Path:
        lines = {
            "clusters": f"{self.alias}, B",
            f"{self.alias}.bootstrap.servers": self.source.bootstrap,
            "B.bootstrap.servers": self.target.bootstrap,
            f"{self.alias}->B.enabled": "true",
            "topics": self.topic,
            "replication.factor": "1",
            "sync.topic.configs.interval.seconds": "1",
            **{name.replace("_", "."): value for name, value in keys.items()},
        }
        self._path.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
        return self._path

    def duty(self, **keys: str) -> tuple[ConfigSync, LedFlow, list[str]]:
        flow, told = led_flow(self.config(**keys))
        duty = config_sync(flow)
        assert duty is not None
        return duty, flow, told

    @property
    def there(self) -> dict[str, str]:
        return topic_configs(self.target, self.remote)

    def unset(self, cluster: LocalCluster, topic: str, name: str) -> None:
        flow, _ = led_flow(self.config())
        with ClusterClient(flow.source if cluster is self.source else flow.target) as client:
            change = ConfigChange(name, None)
            assert configs.alter_topic_configs(client, {topic: [change]}) == {}


@pytest.fixture
def pair(tmp_path: Path, source_cluster: LocalCluster, target_cluster: LocalCluster) -> Pair:
    return Pair(tmp_path, source_cluster, target_cluster)


def lines_of(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == level and "config" in r.message]


def overwritten(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the CONFIG_OVERWRITTEN warnings only, because a broker that responds late causes other
    warnings.
    """
    return [one for one in lines_of(caplog, logging.WARNING) if "CONFIG_OVERWRITTEN" in one]


@pytest.mark.witness("configs of remote topics follow their sources")
def test_a_running_mirror_syncs_configs_and_overwrites_foreign_changes(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    here = {RETENTION: "7200000", "min.insync.replicas": "1", CLEANUP: "compact,delete"}
    create_topic(pair.source, pair.topic, configs=here)
    with Mirror(pair.config(), lanes=1) as mirror:
        mirror.eventually(lambda parts: [p.state for p in parts] == ["AT_END"])
        alter_topic_configs(pair.source, pair.topic, {SEGMENT: "1048576"})
        first = {RETENTION: "7200000", CLEANUP: "compact,delete", SEGMENT: "1048576"}
        # the sync sets these configs itself, so it knows that the values are its own
        eventually(lambda: pair.there == first)
        alter_topic_configs(pair.source, pair.topic, {RETENTION: "3600000", SEGMENT: "1048577"})
        pair.unset(pair.source, pair.topic, CLEANUP)
        eventually(lambda: pair.there == {RETENTION: "3600000", SEGMENT: "1048577"})
        assert overwritten(caplog) == [], "nobody changed the target"
        mine = {RETENTION: "1111111", "min.insync.replicas": "1"}
        alter_topic_configs(pair.target, pair.remote, mine)
        eventually(lambda: pair.there.get(RETENTION) == "3600000")
        eventually(lambda: overwritten(caplog), what="the line behind the answer")
        mirror.stop()
    assert pair.there["min.insync.replicas"] == "1", "excluded configs are left alone"
    (line,) = overwritten(caplog)
    assert f"config of {pair.remote}: retention.ms 1111111 -> 3600000: " in line
    assert line.endswith(
        "to keep a value on the target, add the config's name to the list of "
        "config.properties.exclude [CONFIG_OVERWRITTEN]"
    )


def test_a_config_that_a_client_sets_repeatedly_is_reported_each_time(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.create({RETENTION: "7200000"}, {RETENTION: "7200000"})
    duty, _, _ = pair.duty()
    duty.round()
    for _ in range(3):
        alter_topic_configs(pair.target, pair.remote, {"max.message.bytes": "500"})
        duty.round()
    assert len(lines_of(caplog, logging.WARNING)) == 3


def test_a_value_set_by_hand_is_named_however_many_topics_change(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "twinlog.control")
    others = [f"{pair.topic}-{n:02}" for n in range(LINES_SHOWN + 5)]
    for name in others:
        create_topic(pair.source, name)
        create_topic(pair.target, f"{pair.alias}.{name}")
    pair.create({}, {})
    duty, _, _ = pair.duty(topics=f"{pair.topic}.*")
    duty.round()
    for name in others:
        alter_topic_configs(pair.source, name, {RETENTION: "7200000"})
    last = f"{pair.alias}.{others[-1]}"
    alter_topic_configs(pair.target, last, {"max.message.bytes": "2000000"})
    duty.round()
    by_hand = [line for line in lines_of(caplog, logging.WARNING) if "CONFIG_OVERWRITTEN" in line]
    assert len(by_hand) == 1
    assert f"{last}: " in by_hand[0]
    assert "max.message.bytes 2000000 -> (default)" in by_hand[0]


@pytest.mark.witness("timestamp limits of topics are not copied")
def test_limits_of_timestamps_are_neither_copied_nor_undone(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(pair.source, pair.topic, configs={RETENTION: "7200000000"})
    old_ms = int(time.time() * 1000) - 7_200_000
    produce(pair.source, pair.topic, [Outgoing(value=b"v", timestamp=old_ms) for _ in range(10)])
    alter_topic_configs(pair.source, pair.topic, {BEFORE_MAX: "3600000", AFTER_MAX: "1800000"})
    with Mirror(pair.config(), lanes=1) as mirror:
        mirror.eventually(lambda parts: [(p.state, p.records) for p in parts] == [("AT_END", 10)])
        alter_topic_configs(pair.source, pair.topic, {SEGMENT: "1048577"})
        eventually(lambda: pair.there == {RETENTION: "7200000000", SEGMENT: "1048577"})
        alter_topic_configs(pair.target, pair.remote, {AFTER_MAX: "86400000", BEFORE_MAX: "9"})
        alter_topic_configs(pair.source, pair.topic, {RETENTION: "3600000000"})
        eventually(lambda: pair.there.get(RETENTION) == "3600000000")
        mirror.stop()
    assert (pair.there[AFTER_MAX], pair.there[BEFORE_MAX]) == ("86400000", "9")
    assert overwritten(caplog) == []


def test_once_ends_with_a_round(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.create({RETENTION: "7200000"}, {RETENTION: "1", CLEANUP: "compact"})
    with Mirror(pair.config(), once=True, lanes=1) as mirror:
        mirror.wait()
    eventually(lambda: pair.there == {RETENTION: "7200000"})
    (line,) = lines_of(caplog, logging.WARNING)
    assert "retention.ms 1 -> 7200000" in line
    (lowered,) = (one for one in caplog.messages if "RETENTION_LOWERED" in one)
    assert "cleanup.policy compact -> (default)" in lowered


def test_a_shorter_retention_is_reported_before_it_applies_and_refused_on_request(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    there = {RETENTION: "7200000", "max.message.bytes": "1000"}
    pair.create({RETENTION: "3600000", "max.message.bytes": "2000"}, there)
    (report,) = check(load(pair.config(), environment={})).flows
    wanted = f"{pair.remote}: retention.ms 7200000 -> 3600000, "
    (note,) = (note for note in report.notes if "RETENTION_LOWERED" in note)
    assert note.startswith(wanted)

    duty, _, told = pair.duty(**{"twinlog.sync.retention": "raise-only"})
    duty.round()
    eventually(lambda: pair.there == {RETENTION: "7200000", "max.message.bytes": "2000"})
    assert [
        line
        for line in told
        if "by twinlog.sync.retention: retention.ms 7200000 -> 3600000" in line
    ]
    assert not [one for one in caplog.messages if "RETENTION_LOWERED" in one]

    duty, _, _ = pair.duty()
    duty.round()
    assert [one for one in caplog.messages if "RETENTION_LOWERED" in one and wanted in one]
    eventually(lambda: pair.there == {RETENTION: "3600000", "max.message.bytes": "2000"})
    assert not [one for one in overwritten(caplog) if RETENTION in one], "one line for one change"


def test_the_second_round_finds_nothing_to_send(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "twinlog.control")
    pair.create({RETENTION: "7200000", SEGMENT: "1048577"}, {})
    duty, flow, told = pair.duty()
    with ClusterClient(flow.source) as source, ClusterClient(flow.target) as target:
        topics = copies_by_name(flow.config, source, target)
        first = find_drift(flow.config, topics, source, target)
        duty.round()
        again = find_drift(flow.config, topics, source, target)
    assert {one.name for one in first.topics[pair.remote]} == {SEGMENT, RETENTION}
    assert again.topics == {}
    duty.round()
    assert told == []
    assert len(lines_of(caplog, logging.INFO)) == 1


def test_check_reports_config_changes_and_makes_none(pair: Pair) -> None:
    pair.create({RETENTION: "7200000"}, {RETENTION: "1"})
    (report,) = check(load(pair.config(), environment={})).flows
    assert report.changes == [f"config of {pair.remote}: retention.ms 1 -> 7200000"]
    assert report.problems == []
    assert pair.there == {RETENTION: "1"}
    off = pair.config(sync_topic_configs_enabled="false")
    (report,) = check(load(off, environment={})).flows
    assert report.changes == []


@pytest.mark.witness("the source's default configs are copied as values on request")
def test_the_sources_defaults_become_values_on_request(pair: Pair) -> None:
    pair.create({RETENTION: "7200000"}, {"max.message.bytes": "5000"})
    duty, _, told = pair.duty(use_defaults_from="source")
    duty.round()
    eventually(lambda: pair.there.get(RETENTION) == "7200000")
    assert told == []
    assert pair.there["max.message.bytes"] == "1048588"
    assert "segment.ms" in pair.there
    assert "min.insync.replicas" not in pair.there


def test_each_topic_is_answered_by_itself(pair: Pair) -> None:
    other = Pair(pair._path.parent, pair.source, pair.target)
    other.alias, other.remote = pair.alias, f"{pair.alias}.{other.topic}"
    pair.create({RETENTION: "7200000"}, {})
    other.create({RETENTION: "7200000"}, {})
    duty, flow, told = pair.duty(topics=f"{pair.topic}, {other.topic}")
    with ClusterClient(flow.target) as target:
        refused = configs.alter_topic_configs(
            target,
            {
                pair.remote: [ConfigChange(RETENTION, "soon")],
                other.remote: [ConfigChange(RETENTION, "5")],
            },
        )
    assert [*refused] == [pair.remote]
    assert refused[pair.remote].code == "INVALID_CONFIG"
    eventually(lambda: (pair.there, other.there) == ({}, {RETENTION: "5"}))
    duty.round()
    eventually(lambda: pair.there == other.there == {RETENTION: "7200000"})
    assert told == []


@pytest.mark.parametrize(
    "keys",
    [
        {"sync_topic_configs_enabled": "false"},
        {"sync_topic_configs_interval_seconds": "-1"},
        {"B_topic_creation_enable": "false"},
    ],
    ids=["off", "never", "nothing-is-altered"],
)
def test_it_can_be_turned_off(pair: Pair, keys: dict[str, str]) -> None:
    flow, _ = led_flow(pair.config(**keys))
    assert config_sync(flow) is None


@pytest.mark.witness("configs that are unknown to the target do not prevent a topic's creation")
@pytest.mark.parametrize("is_readable", [True, False], ids=["a topic to ask", "none"])
def test_configs_that_the_target_does_not_know(
    pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_readable: bool,
) -> None:
    """Kafka 4 has removed some configs of Kafka 3, so a source may have configs that the target
    does not know. The creation of topics, `check` and the config sync all leave them out, and the
    mirror logs this once.
    """
    removed = {"message.downconversion.enable": "true", "message.format.version": "3.0-IV1"}
    describe = describe_topic_configs

    def of_older(client: ClusterClient, topics: Iterable[str]) -> dict[str, Any]:
        found = dict(describe(client, topics))
        for entries in found.values() if client.alias == pair.alias else ():
            assert not isinstance(entries, TwinlogError)
            entries += [
                ConfigEntry(name=name, value=value, source=ConfigSource.DYNAMIC_TOPIC)
                for name, value in removed.items()
            ]
        return found

    for module in (topic_configs_of, sync):
        monkeypatch.setattr(module, "describe_topic_configs", of_older)
    if not is_readable:
        monkeypatch.setattr(topic_configs_of, "is_permitted", lambda *_: False)
    create_topic(pair.source, pair.topic, configs={RETENTION: "7200000"})
    (report,) = check(load(str(pair.config()), environment={})).flows
    (line,) = [note for note in report.notes if "do not know" in note]
    assert f"get them: {', '.join(removed)};" in line
    assert report.problems == []
    assert report.topics[0].configs == {RETENTION: "7200000"}
    with Mirror(pair.config(), once=True, lanes=1) as mirror:
        (flow,) = mirror.wait()
    assert {one.state for one in flow.partitions} == {"DONE"}
    assert pair.there == {RETENTION: "7200000"}
    said = [one for one in lines_of(caplog, logging.WARNING) if "do not know" in one]
    assert said == [line], "once, though the sync finds it, too"
