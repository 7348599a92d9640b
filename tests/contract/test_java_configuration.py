"""MirrorMaker 2's own classes have the same keys and the same defaults as Twinlog's tables, and
derive the same settings of a flow from the same file.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from py4j.java_collections import JavaList

from tests.support.java import kafka_jvm
from twinlog.config.files.properties import decode, parse_properties
from twinlog.config.flow.precedence import (
    candidate_flows,
    cluster_settings,
    data_producer,
    enabled_or_why_not,
    flow_settings,
)
from twinlog.config.keys.client_keys import CLIENT_KEYS, Role, is_connection_key
from twinlog.config.keys.key_table import DEFINITIONS, FLOW_KEYS, OWN_KEYS, RENAMED, KeyKind
from twinlog.config.values.origin import Setting, Settings
from twinlog.model import Flow
from twinlog.sandbox.kafka_jars import mirror_maker_jars

pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("mirror-maker-jvm")]

CONNECTORS = ("MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector")
CLIENTS = {
    Role.PRODUCER: "producer.ProducerConfig",
    Role.CONSUMER: "consumer.ConsumerConfig",
    Role.ADMIN: "admin.AdminClientConfig",
}
OTHER_DEFAULTS = {
    "enabled": "dedicated mode, the only one there is here, has false",
    "tasks.max": "as many lanes as cores",
    "target.cluster.alias": "the alias itself",
    "metric.reporters": "Java classes",
}
OLDER = {
    "add.source.alias.to.metrics",
    "auto.include.jmx.reporter",
    "use.incremental.alter.configs",
    "task.assigned.groups",
    "task.assigned.partitions",
    "task.index",
    "topic.creation.enable",
}
"""Keys that only MirrorMaker 2 before 4.0 has, keys of task configs, and keys of workers."""

ELSEWHERE = {
    "exactly.once.support",
    "offsets.storage.topic",
    "topic.creation.groups",
    "transaction.boundary",
    "transaction.boundary.interval.ms",
    "use.defaults.from",
}
"""Keys of Kafka Connect's table for source connectors, and of a filter."""

EXAMPLES = sorted((Path(__file__).parents[1] / "unit" / "config" / "examples").glob("*.properties"))
NO_SCAN = {"plugin.discovery": "service_load"}
"""Setting that makes Java find plugins by service files. By default it reads every class of every
jar for each configuration file.
"""

FILLED_IN = ("name", "connector.class", "source.cluster.alias", "target.cluster.alias", "enabled")
"""Keys that Java sets itself if the user has not set them."""


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with kafka_jvm(mirror_maker_jars()) as made:
        yield made


@pytest.fixture(scope="module")
def mm2(jvm: Any) -> Any:
    return jvm.org.apache.kafka.connect.mirror


@pytest.fixture(scope="module")
def definitions(mm2: Any) -> dict[str, tuple[str, Any]]:
    """Return the type and the default of every key of the three connectors."""
    found = {}
    for connector in CONNECTORS:
        table = getattr(mm2, connector)().config()
        defaults = table.defaultValues()
        for name in table.names():
            kind = str(table.configKeys()[name].getClass().getField("type").get(
                table.configKeys()[name]
            ))  # fmt: skip
            found[name] = (kind, defaults.get(name))
    return found


def test_every_key_of_the_connectors_is_known(definitions: Mapping[str, Any]) -> None:
    ours = {key.name for key in FLOW_KEYS}
    assert {name for name in definitions if not is_connection_key(name)} - ours == set()
    unknown_to_java = ours - set(definitions)
    assert unknown_to_java - OLDER - ELSEWHERE == set()


def text_of(value: Any) -> str:
    if isinstance(value, JavaList):
        return ", ".join(value)
    text = "" if value is None else str(value)
    return text.lower() if isinstance(value, bool) else text.removeprefix("class ")


def test_defaults_are_those_of_the_connectors(definitions: Mapping[str, Any]) -> None:
    differing = {
        name: (text_of(default), DEFINITIONS[name].default)
        for name, (_, default) in definitions.items()
        if name in DEFINITIONS
        and text_of(default) != (DEFINITIONS[name].default or "")
        and name not in OTHER_DEFAULTS
    }
    assert differing == {}


def test_values_are_read_as_the_connectors_do(definitions: Mapping[str, Any]) -> None:
    alike = {
        KeyKind.BOOLEAN: {"BOOLEAN"},
        KeyKind.SHORT: {"SHORT"},
        KeyKind.INT: {"INT"},
        KeyKind.LONG: {"LONG"},
        KeyKind.LIST: {"LIST"},
        KeyKind.NAMES: {"LIST"},
        KeyKind.CHOICE: {"STRING"},
        KeyKind.STRING: {"STRING", "CLASS"},
    }
    differing = {
        name: (kind, DEFINITIONS[name].kind)
        for name, (kind, _) in definitions.items()
        if name in DEFINITIONS and kind not in alike[DEFINITIONS[name].kind]
    }
    assert differing == {}


@pytest.mark.parametrize("role", Role)
def test_settings_of_clients_are_those_of_the_clients(jvm: Any, role: Role) -> None:
    package, _, name = CLIENTS[role].partition(".")
    names = set(getattr(getattr(jvm.org.apache.kafka.clients, package), name).configNames())
    public = {key for key in names if not key.startswith("internal.")}
    assert public - CLIENT_KEYS[role] == set()
    assert {key for key in CLIENT_KEYS[role] - names if not is_connection_key(key)} <= {
        "auto.include.jmx.reporter"
    }


def raw_of(properties: Mapping[str, str]) -> Settings:
    return Settings(
        {key: Setting(key=key, value=value, file="x") for key, value in properties.items()}
    )


def plain(found: Mapping[str, Setting]) -> dict[str, str]:
    return {name: setting.value for name, setting in found.items()}


class Judge:
    """Reads configuration files with MirrorMaker 2's classes. Each call is a round trip to the JVM,
    so it makes few calls.
    """

    def __init__(self, jvm: Any) -> None:
        mm2 = jvm.org.apache.kafka.connect.mirror
        self.config, self.pair = mm2.MirrorMakerConfig, mm2.SourceAndTarget
        self.connector = jvm.java.lang.Class.forName(f"{mm2._fqn}.MirrorSourceConnector")
        self._properties, self._writer = jvm.java.util.Properties, jvm.java.io.StringWriter
        self._reader = jvm.java.io.StringReader

    def read(self, properties: Mapping[str, str]) -> Any:
        made = self._properties()
        lines = (f"{key} = {value}" for key, value in {**properties, **NO_SCAN}.items())
        made.load(self._reader("\n".join(lines)))
        return self.config(made)

    def connector_of(self, config: Any, flow: Flow) -> dict[str, str]:
        pair = self.pair(flow.source, flow.target)
        return self._dict(config.connectorBaseConfig(pair, self.connector))

    def worker_of(self, config: Any, flow: Flow) -> dict[str, str]:
        return self._dict(config.workerConfig(self.pair(flow.source, flow.target)))

    def _dict(self, found: Any) -> dict[str, str]:
        properties, writer = self._properties(), self._writer()
        properties.putAll(found)
        properties.store(writer, None)
        read = parse_properties(writer.toString()).settings
        return {key: setting.value for key, setting in read.items()}


@pytest.fixture(scope="module")
def judge(jvm: Any) -> Judge:
    return Judge(jvm)


def compare(judge: Judge, properties: Mapping[str, str], flows: Iterable[Flow]) -> None:
    """Check that MirrorMaker 2 and Twinlog derive the same settings of these flows."""
    theirs, ours = judge.read(properties), raw_of(properties)
    for flow in flows:
        expected = judge.connector_of(theirs, flow)
        found = plain(flow_settings(ours, flow))
        for name in FILLED_IN:
            if name not in found:
                expected.pop(name)
        assert found == expected, flow
        compare_producer(judge.worker_of(theirs, flow), expected, ours, flow)


def compare_producer(
    worker: Mapping[str, str], connector: Mapping[str, str], raw: Settings, flow: Flow
) -> None:
    """Check that Twinlog derives the same settings as Kafka Connect for the producer of a source
    task.
    """
    expected = {name: value for name, value in worker.items() if is_connection_key(name)}
    for prefix, where in (("producer.", worker), ("producer.override.", connector)):
        for name, value in where.items():
            if name.startswith(prefix) and len(name) > len(prefix):
                expected[name.removeprefix(prefix)] = value
    made = data_producer(cluster_settings(raw, flow.target), flow_settings(raw, flow))
    assert dict(made) == expected, flow


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_mean_the_same(judge: Judge, file: Path) -> None:
    text = parse_properties(decode(file.read_bytes()))
    properties = {key: setting.value.strip() for key, setting in text.settings.items()}
    properties.setdefault("clusters", "sourceCluster, targetCluster")
    aliases = [alias.strip() for alias in properties["clusters"].split(",")]
    # these keys apply to more settings in Twinlog than in MirrorMaker 2
    left_out = ("topic.creation.enable", *RENAMED)
    compare(
        judge,
        {key: value for key, value in properties.items() if not key.endswith(left_out)},
        candidate_flows(aliases[:2]),
    )


def test_own_keys_leave_a_file_to_mirror_maker_2(judge: Judge, jvm: Any) -> None:
    own = {
        f"{prefix}{key.name}": key.default or "1"
        for key in OWN_KEYS
        for prefix in ("", "B.", "A->B.")
    }
    files = {"A.bootstrap.servers": "a:1", "B.bootstrap.servers": "b:1", "A->B.enabled": "true"}
    config = judge.read({"clusters": "A, B", **files, **own})
    found = judge.connector_of(config, Flow("A", "B"))
    assert {key.name for key in OWN_KEYS} <= found.keys()
    taken = jvm.java.util.HashMap()
    for name, value in found.items():
        taken.put(name, value)
    # created as the connector creates it when it starts
    made = jvm.org.apache.kafka.connect.mirror.MirrorSourceConfig(taken)
    assert "bootstrap.servers" in str(made.sourceConsumerConfig("x"))


PREFIXES = ("", "A.", "B.", "A->B.", "B->A.", "A.b.", "A->A.b.")
NAMES = (
    "topics", "groups", "replication.factor", "replication.policy.separator",
    "replication.policy.other", "config.providers.file.class",
    "bootstrap.servers", "security.protocol", "ssl.truststore.location", "sasl.jaas.config",
    "consumer.fetch.max.bytes", "consumer.bootstrap.servers",
    "source.consumer.fetch.max.bytes", "source.cluster.bootstrap.servers",
    "producer.acks", "producer.override.acks", "producer.ssl.truststore.location",
    "admin.request.timeout.ms", "adminx", "admin.timeout.ms", "offset.storage.topic",
    "offset.flush.interval.ms", "metadata.max.age.ms", "task.something", "group.id",
    "unknown.key", "source.cluster.alias", "name",
)  # fmt: skip
KEYS = [prefix + name for prefix in PREFIXES for name in NAMES]


@pytest.mark.parametrize("share", [0.15, 0.4, 0.7, 1.0])
def test_any_file_means_the_same(judge: Judge, share: float) -> None:
    """MirrorMaker 2 and Twinlog derive the same settings from files with random keys. Each key has
    a different value, so that a difference shows which line took effect.
    """
    chance = random.Random(share)
    chosen = [key for key in KEYS if chance.random() < share]
    entries = {key: "SSL" if "protocol" in key else str(at) for at, key in enumerate(chosen)}
    properties = {"clusters": "A, B, A.b", **entries}
    compare(judge, properties, [Flow("A", "B"), Flow("A", "A.b")])


@pytest.mark.parametrize(
    ("own", "general", "beats"),
    [
        ("true", None, "false"),
        ("true ", None, "false"),
        ("true ", None, None),
        ("TRUE", None, "false"),
        ("yes", "true", None),
        (None, "true", None),
        (None, "true", "false"),
        (None, None, None),
        ("false", "true", None),
    ],
)
def test_the_same_flows_are_on(
    judge: Judge, own: str | None, general: str | None, beats: str | None
) -> None:
    given = {"A->B.enabled": own, "enabled": general, "emit.heartbeats.enabled": beats}
    properties = {key: value for key, value in given.items() if value is not None}
    config, flow = judge.read({"clusters": "A, B", **properties}), Flow("A", "B")
    has_herder = config.clusterPairs().contains(judge.pair("A", "B"))
    value = judge.connector_of(config, flow).get("enabled", "false")
    runs = has_herder and value.strip().lower() == "true"
    assert enabled_or_why_not(raw_of(properties), flow)[0] == runs
