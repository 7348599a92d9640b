"""Typical Strimzi resources with mistakes. Each one runs, or is refused with an error that names
its line.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.config_examples import RESOURCES, RESOURCES_SAY, example
from tests.support.properties import flow_of
from twinlog.config.flow.schema import PolicyKind
from twinlog.errors import ConfigError

REFUSED = {
    "indentation-lost": (12, "invalid YAML"),
    "indentation-lost-in-part": (5, "name: KafkaMirrorMaker2 has no such field"),
    "other-kinds": (2, 'kind: "Kafka" instead of a KafkaMirrorMaker2'),
    "migration": (71, "invalid YAML"),
}


def test_every_resource_is_here() -> None:
    assert {path.stem for path in RESOURCES.iterdir()} == {*RESOURCES_SAY, *REFUSED}


@pytest.mark.parametrize("name", RESOURCES_SAY)
def test_it_loads_with_its_warnings(name: str, tmp_path: Path) -> None:
    said = example(name, tmp_path).warnings
    found = sorted(said, key=lambda one: one.line or 0)
    assert [(w.line, w.code) for w in found] == [
        (line, code) for line, code, _ in RESOURCES_SAY[name]
    ]
    for warning, (_, _, hint) in zip(found, RESOURCES_SAY[name], strict=True):
        assert hint in warning.message


@pytest.mark.parametrize("name", REFUSED)
def test_the_line_that_cannot_be_is_named(name: str, tmp_path: Path) -> None:
    line, what = REFUSED[name]
    with pytest.raises(ConfigError) as caught:
        example(name, tmp_path)
    assert f"{name}.yaml:{line}: {what}" in str(caught.value)
    assert caught.value.exit_code == 2


def test_the_smallest_copies_and_does_nothing_else(tmp_path: Path) -> None:
    (flow,) = example("smallest", tmp_path).flows
    assert str(flow.flow) == "kafka-cluster-1->kafka-cluster-2"
    assert flow.topics.matches("anything")
    assert not flow.topics_exclude.matches("anything")
    values = {name: one.value for name, one in flow.settings.items()}
    assert values["emit.checkpoints.enabled"] == "false"
    assert values["emit.heartbeats.enabled"] == "false"
    assert values["sync.group.offsets.enabled"] == "false"


def test_the_migration_has_the_settings_of_all_its_sections(tmp_path: Path) -> None:
    config = example("migration-mended", tmp_path)
    (flow,) = config.flows
    assert flow.lanes.tasks_max == 32
    assert flow.policy.kind is PolicyKind.IDENTITY
    assert not flow.refresh.enabled
    assert flow.topics.matches("app3-t2")
    assert not flow.topics.matches("app3-t3")
    values = {name: one.value for name, one in flow.settings.items()}
    assert values["groups"] == "^(app1.*|app2.*)$"
    assert values["sync.group.offsets.interval.seconds"] == "10"
    assert values["offset-syncs.topic.location"] == "target"
    assert "emit.checkpoints.enabled" not in values
    assert values["emit.heartbeats.enabled"] == "true"
    assert flow.clients.target_producer["batch.size"] == "50000"
    assert flow.clients.source_consumer["security.protocol"] == "SSL"
    assert flow.clients.source_consumer["ssl.keystore.key"] == "text of mm2-source-cluster/tls.key"
    assert flow.clients.source_consumer["ssl.truststore.type"] == "PEM"
    assert flow.clients.target_producer["security.protocol"] == "SASL_SSL"
    assert flow.clients.target_producer["sasl.mechanism"] == "SCRAM-SHA-512"
    assert flow.clients.target_producer["sasl.jaas.config"].endswith(
        'username="kafka.mm2.migration-user" password="text of mm2-target-cluster/password";'
    )
    shown = repr(config) + "".join(map(str, config.warnings)) + repr(flow.settings)
    assert "text of" not in shown


def test_v1_has_its_clusters_in_mirrors_and_target(tmp_path: Path) -> None:
    config = example("v1", tmp_path)
    east, west = flow_of(config, "east", "target"), flow_of(config, "west.1", "target")
    worker = {name: one.value for name, one in config.cluster("target").settings.items()}
    assert worker["offset.storage.topic"] == "my-offsets"
    assert worker["producer.max.request.size"] == "2000000"
    assert east.lanes.tasks_max == 4
    assert not east.refresh.enabled
    assert east.isolation_level == "read_uncommitted"
    assert str(east.start) == "latest"
    # the source connector of this flow is paused, so nothing is copied
    assert not west.topics.matches("anything")
    assert not west.heartbeats_replication_enabled
    assert west.policy.separator == "_"
