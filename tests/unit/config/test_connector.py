"""The configuration of a MirrorMaker 2 connector on Kafka Connect, in every common form of its
keys.
"""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest

from twinlog.cli.main import run
from twinlog.config.config_file import read_files, read_raw
from twinlog.config.files.raw import RawConfig
from twinlog.config.load import load, load_all, load_raw
from twinlog.control.flow.wiring import cluster_settings
from twinlog.errors import ConfigError

PACKAGE = "org.apache.kafka.connect.mirror."
CONFIG = {
    "connector.class": PACKAGE + "MirrorSourceConnector",
    "source.cluster.alias": "west",
    "target.cluster.alias": "east",
    "source.cluster.bootstrap.servers": "a:9092",
    "source.cluster.security.protocol": "SSL",
    "target.cluster.bootstrap.servers": "b:9092",
    "topics": "orders",
    "tasks.max": "4",
    "consumer.fetch.max.bytes": "1048576",
    "producer.override.batch.size": "65536",
}
SETTINGS = {
    "clusters": "west, east",
    "emit.heartbeats.enabled": "false",
    "west.bootstrap.servers": "a:9092",
    "west.security.protocol": "SSL",
    "east.bootstrap.servers": "b:9092",
    "west->east.enabled": "true",
    "west->east.emit.checkpoints.enabled": "false",
    "west->east.sync.group.offsets.enabled": "false",
    "west->east.emit.heartbeats.enabled": "false",
    "west->east.name": "copy",
    "west->east.topics": "orders",
    "west->east.tasks.max": "4",
    "west->east.source.consumer.fetch.max.bytes": "1048576",
    "west->east.producer.override.batch.size": "65536",
}
WRAPPED = {"name": "copy", "config": CONFIG, "tasks": [], "type": "source"}
RESOURCE = {
    "apiVersion": "kafka.strimzi.io/v1beta2",
    "kind": "KafkaConnector",
    "metadata": {"name": "copy", "labels": {"strimzi.io/cluster": "connect"}},
    "spec": {
        "class": CONFIG["connector.class"],
        "tasksMax": 4,
        "config": {k: v for k, v in CONFIG.items() if k not in ("connector.class", "tasks.max")},
    },
}
FLAT = {"name": "copy", **CONFIG}
FORMS = {
    "flat.json": json.dumps(FLAT, indent=2),
    "flat.txt": json.dumps(FLAT),
    "wrapped.json": json.dumps(WRAPPED, indent=2),
    "wrapped.txt": json.dumps(WRAPPED, indent="\t"),
    "without-a-suffix": "\ufeff\n" + json.dumps(WRAPPED),
    "resource.yaml": json.dumps(RESOURCE, indent=2),
    "standalone.properties": "".join(f"{key} = {value}\n" for key, value in FLAT.items()),
}


def read(folder: Path, text: str, name: str = "connector.json") -> RawConfig:
    (folder / name).write_text(text, encoding="utf-8")
    return read_raw(folder / name)


def values(raw: RawConfig) -> dict[str, str]:
    return {key: one.value for key, one in raw.settings.items()}


def one(folder: Path, **changed: str | None) -> RawConfig:
    config = {**CONFIG, **{key.replace("_", "."): value for key, value in changed.items()}}
    return read(folder, json.dumps(config, indent=1))


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_the_same_flow(tmp_path: Path, name: str) -> None:
    raw = read(tmp_path, FORMS[name], name)
    assert values(raw) == SETTINGS
    (note,) = raw.warnings
    assert (note.code, note.key) == ("READ_AS", "connector.class")
    assert "`twinlog convert` writes it as an mm2.properties" in note.message
    (flow,) = load_raw(raw, environment={}).flows
    assert flow.topics.matches("orders")
    assert flow.lanes.tasks_max == 4


def test_it_is_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "connector.txt"
    file.write_text(FORMS["wrapped.txt"])
    assert run(["convert", str(file)]) == 0
    written = tmp_path / "mm2.properties"
    written.write_text(capsys.readouterr().out)
    assert values(read_raw(written)) == SETTINGS
    assert load(written, environment={}).warnings == ()


def test_check_names_the_command_that_converts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "connector.txt"
    file.write_text(FORMS["flat.txt"])
    assert run(["check", str(file), "--explain"]) == 0
    assert "twinlog convert" in "".join(capsys.readouterr())


def test_a_checkpoint_connector_copies_nothing(tmp_path: Path) -> None:
    raw = one(
        tmp_path,
        connector_class=PACKAGE + "MirrorCheckpointConnector",
        groups="payments",
        sync_group_offsets_enabled="true",
        topics=None,
    )
    (flow,) = load_raw(raw, environment={}).flows
    assert not flow.topics.matches("orders")
    found = {key: one.value for key, one in flow.settings.items()}
    assert (found["groups"], found["sync.group.offsets.enabled"]) == ("payments", "true")
    assert found["emit.heartbeats.enabled"] == "false"
    assert found["heartbeats.replication.enabled"] == "false"


def test_a_heartbeat_connector_only_emits_heartbeats(tmp_path: Path) -> None:
    raw = one(tmp_path, connector_class="MirrorHeartbeatConnector", topics=None)
    (flow,) = load_raw(raw, environment={}).flows
    found = {key: one.value for key, one in flow.settings.items()}
    assert found["emit.heartbeats.enabled"] == "true"
    assert found["emit.checkpoints.enabled"] == "false"
    assert not flow.topics.matches("orders")


def test_a_key_of_another_connector_has_no_effect_and_is_reported(tmp_path: Path) -> None:
    raw = one(tmp_path, sync_group_offsets_enabled="true")
    assert values(raw)["west->east.sync.group.offsets.enabled"] == "false"
    (dead,) = [one for one in raw.warnings if one.code == "DEAD_KEY"]
    assert (dead.key, dead.line) == ("sync.group.offsets.enabled", 12)
    assert dead.message == "has no effect in a MirrorSourceConnector"


def test_an_alias_that_is_no_name_stays_the_prefix(tmp_path: Path) -> None:
    found = values(one(tmp_path, source_cluster_alias=""))
    assert found["clusters"] == "source, east"
    assert found["source->east.source.cluster.alias"] == ""
    found = values(one(tmp_path, source_cluster_alias=None, target_cluster_alias=None))
    assert found["clusters"] == "source, target"
    assert not [key for key in found if key.endswith("alias")]


def test_variables_are_looked_up_by_the_connectors_providers(tmp_path: Path) -> None:
    provider = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    raw = one(
        tmp_path,
        source_cluster_ssl_truststore_password="${env:PASS}",
        config_providers="env",
        config_providers_env_class=provider,
    )
    (flow,) = load_raw(raw, environment={"PASS": "pw"}).flows
    assert flow.clients.source_admin["ssl.truststore.password"] == "pw"


def test_other_connectors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'connector.json:2: .*"x.JdbcSourceConnector" is no'):
        one(tmp_path, connector_class="x.JdbcSourceConnector")
    with pytest.raises(ConfigError, match=r"without connector.class; add connector.class"):
        one(tmp_path, connector_class=None)


def test_an_error_names_the_line(tmp_path: Path) -> None:
    raw = one(tmp_path, tasks_max="many", replication_factor="some")
    with pytest.raises(ConfigError) as caught:
        load_raw(raw, environment={})
    found = [(error.line, error.key) for error in caught.value.each]
    assert found == [(9, "tasks.max"), (12, "replication.factor")]


def files(folder: Path, **changed: dict[str, str]) -> list[Path]:
    """Write each connector of one flow to its own file, and return the paths."""
    shared = {key: value for key, value in CONFIG.items() if key.startswith(("source.", "target."))}
    own = {
        "Source": {"topics": "orders", "tasks.max": "4", "consumer.fetch.max.bytes": "1048576"},
        "Checkpoint": {"groups": "payments", "sync.group.offsets.enabled": "true"},
        "Heartbeat": {"emit.heartbeats.interval.seconds": "5"},
    }
    paths = []
    for kind, keys in own.items():
        named = {"name": kind, "connector.class": f"{PACKAGE}Mirror{kind}Connector"}
        paths.append(folder / f"{kind}.json")
        config = {**named, **shared, **keys, **changed.get(kind, {})}
        paths[-1].write_text(json.dumps(config, indent=1))
    return paths


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_connectors_of_a_flow_are_one_flow(tmp_path: Path, order: tuple[int, ...]) -> None:
    paths = files(tmp_path)
    config = load_all([paths[at] for at in order], environment={})
    assert [config.file, *config.more_files] == [str(paths[at]) for at in order]
    (flow,) = config.flows
    assert flow.topics.matches("orders")
    assert not flow.topics.matches("payments")
    assert flow.lanes.tasks_max == 4
    found = {key: one.value for key, one in flow.settings.items()}
    assert (found["groups"], found["sync.group.offsets.enabled"]) == ("payments", "true")
    assert found["emit.heartbeats.enabled"] == "true"
    assert found["emit.heartbeats.interval.seconds"] == "5"
    assert "emit.checkpoints.enabled" not in found
    assert flow.clients.source_consumer["fetch.max.bytes"] == "1048576"
    assert {one.code for one in config.warnings} == {"READ_AS"}
    assert not [one for one in config.warnings if "copies no topic" in one.message]


def test_several_connectors_are_converted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = files(tmp_path)
    assert run(["convert", *map(str, paths)]) == 0
    written = tmp_path / "mm2.properties"
    written.write_text(capsys.readouterr().out)
    assert values(read_raw(written)) == values(read_files(paths)[0])
    assert run(["convert", str(paths[0]), str(written)]) == 2
    assert "is not another connector of the flow in" in capsys.readouterr().err


def test_a_connector_alone_reports_the_missing_ones(tmp_path: Path) -> None:
    (_, checkpoint, _) = files(tmp_path)
    (note,) = [one for one in read_raw(checkpoint).warnings if one.code == "READ_AS"]
    assert "give the file of the MirrorSourceConnector too" in note.message


def test_the_order_of_keys_does_not_matter(tmp_path: Path) -> None:
    paths = files(tmp_path)
    keys = json.loads(paths[1].read_text())
    paths[1].write_text(json.dumps(dict(reversed(keys.items()))))
    assert [len(raw.connectors) for raw in read_files(paths)] == [3]


def test_connectors_of_other_flows_stay_apart(tmp_path: Path) -> None:
    elsewhere = {"source.cluster.bootstrap.servers": "c:9092"}
    paths = files(tmp_path, Checkpoint=elsewhere)
    assert [len(raw.connectors) for raw in read_files(paths[:2])] == [1, 1]
    assert [len(raw.connectors) for raw in read_files([paths[0], paths[0]])] == [1, 1]


def test_a_shared_key_is_the_source_connectors(tmp_path: Path) -> None:
    key = "replication.policy.separator"
    other = {key: "_", "topics": "pay", "tasks.max": "9"}
    raw = read_files(files(tmp_path, Checkpoint=other, Source={key: "_"}))[0]
    (dead,) = [one for one in raw.warnings if one.code == "DEAD_KEY"]
    assert (dead.key, dead.message) == (
        "topics",
        "group offsets are translated for all topics of the flow",
    )
    assert values(raw)["west->east.tasks.max"] == "4"
    paths = files(tmp_path, Checkpoint={key: "_", "topics": "orders"}, Source={key: "-"})
    raw = read_files(paths)[0]
    assert values(raw)[f"west->east.{key}"] == "-"
    (dead,) = [one for one in raw.warnings if one.code == "DEAD_KEY"]
    assert (dead.file, dead.key) == (str(paths[1]), key)
    assert f"the value of the MirrorSourceConnector ({paths[0]}:" in dead.message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("replication.policy.class", f"{PACKAGE}IdentityReplicationPolicy"),
        ("consumer.auto.offset.reset", "latest"),
        ("producer.override.compression.type", "gzip"),
    ],
)
def test_a_shared_key_that_the_source_connector_lacks_does_not_affect_the_copy(
    tmp_path: Path, key: str, value: str
) -> None:
    paths = files(tmp_path, Checkpoint={key: value})
    raw = read_files(paths)[0]
    assert values(raw) == values(read_files(files(tmp_path))[0])
    (dead,) = [one for one in raw.warnings if one.code == "DEAD_KEY"]
    assert (dead.file, dead.key) == (str(paths[1]), key)
    assert dead.message.endswith(f"share this key; write it in {paths[0]}")


def test_providers_of_any_connector_are_read(tmp_path: Path) -> None:
    provider = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    keys = {"config.providers": "env", "config.providers.env.class": provider, "groups": "${env:G}"}
    config = load_all(files(tmp_path, Checkpoint=keys), environment={"G": "payments"})
    assert config.flows[0].groups.include.entries == ("payments",)
    assert {one.code for one in config.warnings} == {"READ_AS"}


@pytest.mark.parametrize("is_last", [True, False])
def test_the_key_with_the_side_wins(tmp_path: Path, is_last: bool) -> None:
    # as in MirrorConnectorConfig.sourceConsumerConfig, in whatever order the file has the keys
    keys = {"consumer.auto.offset.reset": "earliest", "source.consumer.auto.offset.reset": "latest"}
    raw = one(tmp_path, **(keys if is_last else dict(reversed(keys.items()))))
    (flow,) = load_raw(raw, environment={}).flows
    assert str(flow.start) == "latest"
    (dead,) = [each for each in raw.warnings if each.code == "DEAD_KEY"]
    assert dead.key == "consumer.auto.offset.reset"
    assert "source.consumer.auto.offset.reset (" in dead.message


def test_clusters_is_a_key_that_connectors_do_not_read(tmp_path: Path) -> None:
    config = load_raw(one(tmp_path, clusters="west,east"), environment={})
    assert [str(flow.flow) for flow in config.flows] == ["west->east"]
    (unknown,) = [one for one in config.warnings if one.code == "UNKNOWN_KEY"]
    assert (unknown.key, unknown.line) == ("clusters", 12)


@pytest.mark.parametrize(
    ("key", "advised"),
    [
        ("producer.acks", "producer.override.acks"),
        ("source.cluster.max.poll.records", "consumer.max.poll.records"),
        ("target.cluster.batch.size", "producer.override.batch.size"),
        ("target.bootstrap.servers", "target.cluster.bootstrap.servers"),
        ("source.cluster.ssl.truststore.locaton", "source.cluster.ssl.truststore.location"),
        ("refresh.topics.enable", "refresh.topics.enabled"),
    ],
)
def test_advice_names_the_connectors_keys(tmp_path: Path, key: str, advised: str) -> None:
    useless = {"DEAD_KEY", "UNKNOWN_KEY"}
    raw = one(tmp_path, **{key: "all"})
    (said,) = [w for w in load_raw(raw, environment={}).warnings if w.code in useless]
    assert (said.key, said.message.partition("; ")[2]) in [
        (key, f"write {advised}"),
        (key, f"did you mean {advised}?"),
    ]
    value = "true" if key.endswith("enable") else "b:9092" if "bootstrap" in key else "1"
    followed = load_raw(one(tmp_path, **{advised: value}), environment={})
    assert [w for w in followed.warnings if w.code in useless] == []


def test_an_error_names_the_connectors_key(tmp_path: Path) -> None:
    raw = one(tmp_path, target_cluster_bootstrap_servers=None)
    with pytest.raises(ConfigError) as caught:
        load_raw(raw, environment={})
    assert caught.value.key == "target.cluster.bootstrap.servers"
    assert "add: target.cluster.bootstrap.servers = host:9092" in caught.value.what
    with pytest.raises(ConfigError, match=r"connector.json:12: transforms: "):
        load_raw(one(tmp_path, transforms="route"), environment={})
    wrong = one(
        tmp_path,
        source_cluster_security_protocol="SASL_SSL",
        source_cluster_sasl_mechanism="AWS_MSK_IAM",
    )
    client = load_raw(wrong, environment={}).flows[0].clients.source_consumer
    with pytest.raises(ConfigError, match=r"connector.json:12: source.cluster.sasl.mechanism: "):
        cluster_settings("west", client, "west->east")


@pytest.mark.parametrize("alias", ["west", "source"])
def test_a_cluster_that_cannot_be_used_has_the_key_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], alias: str
) -> None:
    config = {**CONFIG, "source.cluster.alias": alias}
    config["source.cluster.bootstrap.servers"] = "127.0.0.1:1"
    config["target.cluster.bootstrap.servers"] = "127.0.0.1:1"
    del config["source.cluster.security.protocol"]
    file = tmp_path / "connector.json"
    file.write_text(json.dumps(config, indent=1))
    assert run(["check", str(file)]) == 1
    said = f"{alias} (127.0.0.1:1): connection refused; check source.cluster.bootstrap.servers "
    assert f"{said}({file}:5) and the network" in capsys.readouterr().out
