"""The changes between two configurations are exactly the differences in behavior. A difference in
spelling is no change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest

from twinlog.config.effective import (
    ACT_WHEN_GIVEN,
    ConfigChanges,
    changes_between,
    differing_keys,
    digests,
)
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.config.keys.key_table import DEFINITIONS, Support
from twinlog.config.load import load
from twinlog.config.values.origin import Settings

BASE = {
    "clusters": "A, B",
    "A.bootstrap.servers": "a:1",
    "B.bootstrap.servers": "b:1",
    "A->B.enabled": "true",
    "A->B.topics": "orders, pay.*",
}

ANOTHER = {
    "source_alias": {"A->B.source.cluster.alias": "east"},
    "target_alias": {"A->B.target.cluster.alias": "west"},
    "topics": {"A->B.topics": "orders"},
    "topics_exclude": {"topics.exclude": "hidden"},
    "heartbeats_replication_enabled": {"heartbeats.replication.enabled": "false"},
    "policy.kind": {
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    },
    "policy.separator": {"replication.policy.separator": "-"},
    "policy.internal_separator": {"replication.policy.separator": "_"},
    "policy.custom": {"replication.policy.class": "named_anew:Mine"},
    "transforms": {
        "twinlog.transforms": "cut",
        "twinlog.transforms.cut.topics": "clicks",
        "twinlog.transforms.cut.sql": "SELECT * FROM records",
    },
    "new_topics.replication_factor": {"A->B.replication.factor": "3"},
    "config_sync.exclude": {"config.properties.exclude": "retention.ms"},
    "config_sync.use_defaults_from": {"use.defaults.from": "source"},
    "refresh.enabled": {"refresh.topics.enabled": "false"},
    "refresh.interval_seconds": {"refresh.topics.interval.seconds": "7"},
    "new_topics.enabled": {"B.topic.creation.enable": "false"},
    "config_sync.enabled": {"sync.topic.configs.enabled": "false"},
    "config_sync.interval_seconds": {"sync.topic.configs.interval.seconds": "7"},
    "config_sync.keeps_retention": {"twinlog.sync.retention": "raise-only"},
    "acl_sync.enabled": {"sync.topic.acls.enabled": "false"},
    "acl_sync.interval_seconds": {"sync.topic.acls.interval.seconds": "7"},
    "acl_sync.prefixed": {"twinlog.sync.topic.acls.prefixed": "true"},
    "acl_sync.removal": {"twinlog.sync.topic.acls.removal": "true"},
    "heartbeats": {"B->A.emit.heartbeats.interval.seconds": "7"},
    "offset_syncs.on_target": {"offset-syncs.topic.location": "target"},
    "offset_syncs.lag_max": {"offset.lag.max": "7"},
    "offset_syncs.replication_factor": {"offset-syncs.topic.replication.factor": "3"},
    "groups.include": {"groups": "shop"},
    "groups.exclude": {"groups.exclude": "test-.*"},
    "groups.refresh_s": {"refresh.groups.interval.seconds": "7"},
    "groups.checkpoints_s": {"emit.checkpoints.enabled": "false"},
    "groups.sync_s": {"sync.group.offsets.enabled": "true"},
    "groups.checkpoints_replication_factor": {"checkpoints.topic.replication.factor": "3"},
    "lanes.tasks_max": {"tasks.max": "7"},
    "isolation_level": {"A.consumer.isolation.level": "read_uncommitted"},
    "start": {"twinlog.start": "pay.*:latest"},
    "source_group.group_id": {"twinlog.source.group.id": "mirror-maker-1"},
    "source_group.commit_interval_ms": {"twinlog.source.group.commit.interval.ms": "7"},
    "target_partitions": {"twinlog.target.partitions": "same"},
    "new_topics.default_partitions": {
        "twinlog.target.partitions": "keyed", "twinlog.new.topic.partitions": "default"
    },
    "beside": {"twinlog.beside": "A2->B"},
    "accept_source_loss": {"twinlog.source.loss": "accept"},
    "lanes.lease_seconds": {"twinlog.lease.seconds": "77"},
    "lanes.has_warm_standby": {"twinlog.spark.standby": "warm"},
    "status_interval_seconds": {"twinlog.status.interval.seconds": "7"},
    "verify": {"twinlog.verify": "full"},
    "metric_names": {"A->B.metric.names.formats": "legacy, new"},
    "rpo_seconds": {"twinlog.rpo.seconds": "7"},
    "rpo_enforced": {"twinlog.rpo.enforce": "quota", "twinlog.rpo.seconds": "7"},
    "reload_interval_seconds": {"twinlog.config.reload.interval.seconds": "7"},
    "lanes.memory_bytes": {"twinlog.lane.memory.bytes": "7000000"},
    "tuning.fetch_bytes": {"A.consumer.fetch.max.bytes": "7000"},
    "tuning.partition_fetch_bytes": {"A.consumer.max.partition.fetch.bytes": "7000"},
    "tuning.fetch_least_bytes": {"A.consumer.fetch.min.bytes": "7000"},
    "tuning.fetch_wait_ms": {"A.consumer.fetch.max.wait.ms": "70"},
    "tuning.gather_ms": {"twinlog.latency": "lowest"},
    "tuning.request_bytes": {"B.producer.max.request.size": "7000"},
    "tuning.join_bytes": {"A->B.producer.override.batch.size": "7000"},
    "tuning.rack": {"A.consumer.client.rack": "east-1"},
    "tuning.recompression": {"B.producer.compression.type": "zstd"},
    "lanes.max_bytes_per_second": {"twinlog.max.bytes.per.second": "7000000"},
    "policy.renames": {"twinlog.rename": "orders:eu-orders"},
    "lanes.priorities": {"twinlog.priority": "pay.*:3"},
    "producer_id_expiration_ms": {"B.twinlog.target.producer.id.expiration.ms": "7000"},
    "state_topic_replication_factor": {"twinlog.state.topic.replication.factor": "2"},
    "clients.source_consumer": {"A.consumer.request.timeout.ms": "7000"},
    "clients.source_admin": {"A.admin.request.timeout.ms": "7000"},
    "clients.target_admin": {"B.admin.request.timeout.ms": "7000"},
    "clients.target_consumer": {"B.consumer.request.timeout.ms": "7000"},
    "clients.target_producer": {"B.producer.request.timeout.ms": "7000"},
}  # fmt: skip
"""For each value of a flow, lines that change this value."""

OF_NO_VALUE = {"flow", "settings", "released"}
"""Fields of a flow that no line of a file sets."""

OF_ONE_PURPOSE = {
    *("policy", "groups", "offset_syncs", "tuning", "refresh", "new_topics", "config_sync"),
    *("acl_sync", "source_group", "lanes", "clients"),
}

Loaded = Callable[[Mapping[str, str]], MirrorConfig]


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    def loaded(more: Mapping[str, str]) -> MirrorConfig:
        path = tmp_path / "mm2.properties"
        path.write_text("".join(f"{key} = {value}\n" for key, value in {**BASE, **more}.items()))
        return load(path, environment={})

    return loaded


def values_of(value: object, name: str = "") -> Iterator[str]:
    """Yield the path of every value of a flow, including the values of nested settings."""
    for field in fields(value) if is_dataclass(value) else ():
        below = getattr(value, field.name)
        path = f"{name}{field.name}"
        if name + field.name in OF_ONE_PURPOSE:
            yield from values_of(below, f"{path}.")
        else:
            yield path


def at(config: FlowConfig, path: str) -> object:
    found: object = config
    for part in path.split("."):
        found = getattr(found, part)
    return found


def acts_alike(one: FlowConfig, other: FlowConfig) -> bool:
    nothing = Settings({})
    return replace(one, settings=nothing) == replace(other, settings=nothing)


def reloaded(before: MirrorConfig, after: MirrorConfig) -> ConfigChanges:
    changes = changes_between(before, after)
    assert bool(changes) == bool(changes.lines), "what changes is told"
    return changes


def test_no_value_of_a_flow_is_forgotten(loaded: Loaded) -> None:
    (config,) = loaded({}).flows
    assert {*values_of(config)} - OF_NO_VALUE == {*ANOTHER}


@pytest.mark.parametrize("path", ANOTHER)
def test_every_value_that_changes_is_noticed(
    loaded: Loaded, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "named_anew.py"
    module.write_text(
        "from twinlog.mirror.names.naming import DefaultReplicationPolicy\n\n\n"
        "class Mine(DefaultReplicationPolicy):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    before, after = loaded({}), loaded(ANOTHER[path])
    assert at(before.flows[0], path) != at(after.flows[0], path), "the lines do not change it"
    assert reloaded(before, after).changed == after.flows, "a reload begins the flow again"
    assert differing_keys(*(digests(one.flows[0]) for one in (before, after))), (
        "two processes differ"
    )


@pytest.mark.parametrize(
    "more", [{}, {"B.producer.buffer.memory": "7000000", "replication.policy.separator": "-"}]
)
@pytest.mark.parametrize("key", [key for key, one in DEFINITIONS.items() if one.default])
def test_a_default_that_is_spelled_out_changes_nothing(
    loaded: Loaded, key: str, more: Mapping[str, str]
) -> None:
    if key in ("enabled", "topics", *more):
        return  # the test's file sets another value for this key
    line = {f"A->B.{key}": (DEFINITIONS[key].default or "").replace("\\", "\\\\")}
    before, after = loaded(more), loaded({**more, **line})
    is_same = key not in ACT_WHEN_GIVEN
    if is_same and DEFINITIONS[key].support is not Support.NO_MEANING:
        assert acts_alike(before.flows[0], after.flows[0])
    assert bool(reloaded(before, after)) is not is_same
    assert (digests(before.flows[0]) == digests(after.flows[0])) is is_same


@pytest.mark.parametrize("key", sorted(ACT_WHEN_GIVEN))
def test_a_default_that_acts_when_given_is_one(loaded: Loaded, key: str) -> None:
    more = {"B.producer.buffer.memory": "7000000"}
    line = {f"A->B.{key}": DEFINITIONS[key].default or ""}
    assert not acts_alike(loaded(more).flows[0], loaded({**more, **line}).flows[0])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"tasks.max": "10"}, {"tasks.max": "010"}),
        ({"tasks.max": "10"}, {"A->B.tasks.max": " +10 "}),
        ({"A->B.topics": "orders,pay.*"}, {"A->B.topics": "orders ,  pay.*"}),
        ({"A->B.topics": "orders"}, {"A->B.topics": "orders", "topics": "others"}),
        ({"A.consumer.fetch.max.bytes": "100"}, {"A.consumer.fetch.max.bytes": "0100"}),
        ({"twinlog.priority": "pay.*:3,.*:1"}, {"twinlog.priority": "pay.*:3, .*:1"}),
        ({"B.bootstrap.servers": "b:1,c:1"}, {"B.bootstrap.servers": "b:1, c:1"}),
        ({"B.security.protocol": "SSL"}, {"B.security.protocol": "ssl"}),
        ({"groups": "shop"}, {"groups.whitelist": "shop"}),
        ({"sync.group.offsets.enabled": "true"}, {"sync.group.offsets.enabled": "TRUE"}),
    ],
)  # fmt: skip
def test_another_spelling_is_no_change(
    loaded: Loaded, one: Mapping[str, str], other: Mapping[str, str]
) -> None:
    before, after = loaded(one), loaded(other)
    assert not reloaded(before, after)
    assert digests(before.flows[0]) == digests(after.flows[0])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"B.ssl.truststore.password": "10"}, {"B.ssl.truststore.password": "010"}),
        ({"B.bootstrap.servers": "b:1"}, {"B.bootstrap.servers": "c:1"}),
        ({"B.ssl.truststore.location": "/a"}, {"B.ssl.truststore.location": "/b"}),
    ],
)
def test_how_to_enter_a_cluster_is_a_change_for_a_reload_alone(
    loaded: Loaded, one: Mapping[str, str], other: Mapping[str, str]
) -> None:
    before, after = loaded(one), loaded(other)
    changes = reloaded(before, after)
    assert changes.changed
    assert not any("010" in line for line in changes.lines)
    assert digests(before.flows[0]) == digests(after.flows[0])


def test_a_change_is_reported_with_both_values(loaded: Loaded) -> None:
    changes = reloaded(loaded({"groups": "shop"}), loaded({"groups": "shop, cellar"}))
    assert changes.lines == ('A->B: groups: "shop" -> "shop, cellar"',)
    lone = reloaded(loaded({}), loaded(ANOTHER["heartbeats"]))
    assert lone.lines == (
        "A->B: heartbeats B->A: every 1 s into the source -> every 7 s into the source",
    )
