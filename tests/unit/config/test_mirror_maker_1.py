"""MirrorMaker 1's files and flags are converted to one flow. Errors name their line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.config_examples import effective
from twinlog.cluster.client import ClusterClient
from twinlog.config.config_file import canonical
from twinlog.config.files.mirror_maker_1 import PairOptions, read_pair
from twinlog.config.files.providers import PACKAGE
from twinlog.config.flow.schema import MirrorConfig, PolicyKind
from twinlog.config.load import load, load_raw
from twinlog.config.values.warnings import WarningCode
from twinlog.control.flow.wiring import cluster_settings
from twinlog.errors import ConfigError, Refused

# a typical file of training material, including its misspelling
CONSUMER = """\
bootstrap.servers=localhost:9092
client.id=mm1.Consumer
key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
yalue.deserializer=org.apache.kafka.common.serialization.StringDeserializer
group.id=mm1.Consumer
partition.assignment.strategy=org.apache.kafka.clients.consumer.RoundRobinAssignor
"""
PRODUCER = """\
bootstrap.servers=localhost:9093
client.id=mml.Producer
key.serializer=org.apache.kafka.common.serialization.StringSerializer
value.serializer=org.apache.kafka.common.serialization.BytesSerializer
compression.type=lz4
linger.ms=100
batch.size=65536
"""


class Pair:
    """MirrorMaker 1's consumer file and producer file in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(
        self, consumer: str = CONSUMER, producer: str = PRODUCER, **options: str
    ) -> MirrorConfig:
        (self.folder / "consumer.properties").write_text(consumer)
        (self.folder / "producer.properties").write_text(producer)
        given = PairOptions(**({"include": ".*"} | options))  # type: ignore[arg-type]
        self.raw = read_pair(
            self.folder / "consumer.properties", self.folder / "producer.properties", given
        )
        return load_raw(self.raw, environment={})


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_messages_name_the_keys_of_the_two_files(pair: Pair) -> None:
    config = pair.load(CONSUMER + "fetch.min.byte=1\n", PRODUCER + "linges.ms=5\n")
    assert config.more_files == (str(pair.folder / "producer.properties"),)
    said = [(one.key, one.message) for one in config.warnings if one.code == "UNKNOWN_KEY"]
    unknown = "unknown key, nothing reads it"
    assert (("fetch.min.byte", f"{unknown}; did you mean fetch.min.bytes?")) in said
    assert (("linges.ms", f"{unknown}; did you mean linger.ms?")) in said
    with pytest.raises(ConfigError) as caught:
        pair.load(CONSUMER.replace(":9092", ""), PRODUCER.replace(":9093", ""))
    assert [(str(one.file).rpartition("/")[2], one.key) for one in caught.value.each] == [
        ("consumer.properties", "bootstrap.servers"),
        ("producer.properties", "bootstrap.servers"),
    ]


def test_the_pasted_example_runs_with_its_warnings(pair: Pair) -> None:
    config = pair.load()
    (flow,) = config.flows
    assert str(flow.flow) == "mm1.Consumer->target"
    assert flow.policy.kind is PolicyKind.IDENTITY
    assert (flow.source_group.group_id, flow.source_group.commit_interval_ms) == (
        "mm1.Consumer",
        60_000,
    )
    assert (flow.keyed_partitions, flow.new_topics.default_partitions) == (True, True)
    assert flow.new_topics.replication_factor == -1
    assert str(flow.start) == "latest"
    assert flow.clients.source_consumer["bootstrap.servers"] == "localhost:9092"
    assert flow.clients.target_producer["bootstrap.servers"] == "localhost:9093"
    assert flow.clients.target_producer["batch.size"] == "65536"
    said = config.warnings
    assert [(w.code, w.line) for w in said] == [
        (WarningCode.NO_MEANING, None),
        (WarningCode.NO_MEANING, None),
        (WarningCode.UNKNOWN_KEY, 4),
    ]
    assert said[0].message.startswith("keys and values are always bytes: key.deserializer (")
    assert "consumer.properties:6" in said[1].message
    assert said[2].message.endswith("; did you mean value.deserializer?")


def test_each_file_has_its_own_config_providers(pair: Pair) -> None:
    """Both clients of MirrorMaker 1 read their own providers, which may have the same name."""
    keys = "config.providers=own\nconfig.providers.own.class=" + PACKAGE
    (pair.folder / "secrets").write_text("key=of-the-file\n")
    (pair.folder / "key").write_text("of-the-folder")
    (flow,) = pair.load(
        f"{CONSUMER}{keys}FileConfigProvider\nclient.rack=${{own:{pair.folder}/secrets:key}}\n",
        f"{PRODUCER}{keys}DirectoryConfigProvider\nacks=${{own:{pair.folder}:key}}\n",
    ).flows
    assert flow.clients.source_consumer["client.rack"] == "of-the-file"
    assert flow.clients.target_producer["acks"] == "of-the-folder"


def test_internal_topics_are_left_out_and_all_others_are_not(pair: Pair) -> None:
    (flow,) = pair.load().flows
    for name in ("orders", "orders.replica", "heartbeats"):
        assert flow.topics.matches(name)
        assert not flow.topics_exclude.matches(name)
    for name in ("__consumer_offsets", "__transaction_state", "mm2-offset-syncs.B.internal"):
        assert flow.topics_exclude.matches(name)


def test_nothing_but_records_is_copied(pair: Pair) -> None:
    (flow,) = pair.load().flows
    assert flow.config_sync.exclude.matches("retention.ms")
    assert not flow.config_sync.enabled
    assert not flow.acl_sync.enabled
    assert not flow.heartbeats_replication_enabled


def test_flags_are_settings(pair: Pair) -> None:
    (flow,) = pair.load(
        include='"a, b.*"',
        exclude="bad",
        streams="3",
        commit_interval_ms="5000",
        source="east",
    ).flows
    assert str(flow.flow) == "east->target"
    assert flow.topics.entries == ("a", "b.*")
    assert flow.topics_exclude.matches("bad")
    assert flow.topics_exclude.matches("__consumer_offsets")
    assert flow.lanes.tasks_max == 3
    assert flow.source_group.commit_interval_ms == 5000


def test_the_files_own_settings_win_over_the_defaults(pair: Pair) -> None:
    consumer = CONSUMER + "auto.offset.reset=earliest\nmetadata.max.age.ms=30000\n"
    (flow,) = pair.load(consumer).flows
    assert str(flow.start) == "earliest"
    assert flow.refresh.interval_seconds == 30


def test_converted_it_means_the_same(pair: Pair, tmp_path: Path) -> None:
    config = pair.load()
    out = tmp_path / "mm2.properties"
    out.write_text(canonical(pair.raw.settings, [one.alias for one in config.clusters]))
    assert effective(load(out, environment={})) == effective(config)


BAD = {
    "no group": (
        CONSUMER.replace("group.id", "#group.id"),
        PRODUCER,
        "consumer.properties: group.id: missing",
    ),
    "empty group": (
        CONSUMER.replace("group.id=mm1.Consumer", "group.id="),
        PRODUCER,
        "consumer.properties:5: group.id: has no group",
    ),
    "no source": (
        CONSUMER.replace("bootstrap.servers", "#"),
        PRODUCER,
        "consumer.properties: bootstrap.servers: missing",
    ),
    "no target": (
        CONSUMER,
        PRODUCER.replace("bootstrap.servers", "#"),
        "producer.properties: bootstrap.servers: missing",
    ),
    "the consumer of old": (
        "zookeeper.connect=z:2181\n" + CONSUMER,
        PRODUCER,
        "consumer.properties:1: zookeeper.connect: is of the consumer before Kafka 0.9",
    ),
    "the producer of old": (
        CONSUMER,
        "metadata.broker.list=b:9092\n",
        "producer.properties:1: metadata.broker.list: is of the producer before Kafka 0.9",
    ),
    "no address": (
        CONSUMER.replace("localhost:9092", "localhost"),
        PRODUCER,
        'consumer.properties:1: bootstrap.servers: "localhost" is not host:port',
    ),
    "Java code": (
        CONSUMER + "interceptor.classes=a.B\n",
        PRODUCER,
        "consumer.properties:7: interceptor.classes: Twinlog cannot run Java classes",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_are_named(name: str, pair: Pair) -> None:
    consumer, producer, expected = BAD[name]
    with pytest.raises(ConfigError) as caught:
        pair.load(consumer, producer)
    assert str(caught.value).removeprefix(f"{pair.folder}/").startswith(expected)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("flag", "options"),
    [
        ("--whitelist", {"include": "a(", "include_flag": "--whitelist"}),
        ("--num.streams", {"streams": "many"}),
        ("--offset.commit.interval.ms", {"commit_interval_ms": "0"}),
    ],
)
def test_a_wrong_flag_is_named(flag: str, options: dict[str, str], pair: Pair) -> None:
    with pytest.raises(ConfigError, match=flag):
        pair.load(**options)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="consumer configuration"):
        read_pair(tmp_path / "none", tmp_path / "none", PairOptions(include=".*"))


@pytest.mark.parametrize(
    ("include", "matching", "other"),
    [
        ("*", "anything", None),
        ("stock-prices|stocks", "stocks", "my-stocks"),
        ("'stocks, orders'", "orders", "stocks, orders"),
    ],
)
def test_patterns_as_people_write_them(
    pair: Pair, include: str, matching: str, other: str | None
) -> None:
    config = pair.load(include=include)
    assert config.flows[0].topics.matches(matching)
    assert other is None or not config.flows[0].topics.matches(other)
    stars = [w for w in config.warnings if w.code is WarningCode.STAR_PATTERN]
    assert len(stars) == (include == "*")


def test_an_unreachable_cluster_is_reported_for_the_file_that_names_it(pair: Pair) -> None:
    (flow,) = pair.load(CONSUMER.replace("localhost:9092", "127.0.0.1:1")).flows
    settings = cluster_settings("mm1.Consumer", flow.clients.source_consumer, "mm1")
    said = f"check bootstrap.servers ({pair.folder / 'consumer.properties'}:1) and the network"
    with (
        ClusterClient(settings, refused_s=0.0) as client,
        pytest.raises(Refused, match=re.escape(said)),
    ):
        client.metadata(None)
