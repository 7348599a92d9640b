"""Options of `format("twinlog")`: the options of Spark's own source, and a message for each
error.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest

from twinlog.cluster.client import ClusterClient
from twinlog.config.keys.client_keys import CLIENT_KEYS, Role
from twinlog.errors import ConfigError, Refused
from twinlog.model import Isolation, TopicPartition
from twinlog.records.bounds import BoundKind
from twinlog.records.given import OPTIONS
from twinlog.records.options import IGNORED, REFUSED_KEYS, ReadOptions, parse_options
from twinlog.records.write.options import parse_write_options

LEAST = {"kafka.bootstrap.servers": "kafka1:9092,kafka2:9092", "subscribe": "orders"}


def batch(more: Mapping[str, str] | None = None) -> ReadOptions:
    return parse_options({**LEAST, **(more or {})}, is_stream=False)


def stream(more: Mapping[str, str] | None = None) -> ReadOptions:
    return parse_options({**LEAST, **(more or {})}, is_stream=True)


def refusal(more: Mapping[str, str], *, of_stream: bool = False) -> str:
    with pytest.raises(ConfigError) as error:
        (stream if of_stream else batch)(more)
    return error.value.message


def test_defaults_of_options() -> None:
    options = batch()
    assert options.topics == ("orders",)
    assert (options.starting.kind, options.ending.kind) == (BoundKind.EARLIEST, BoundKind.LATEST)
    assert options.isolation is Isolation.READ_COMMITTED
    assert options.fails_on_data_loss
    assert stream().starting.kind is BoundKind.LATEST
    assert options.cluster().alias == "kafka1:9092"
    assert options.cluster().bootstrap == (("kafka1", 9092), ("kafka2", 9092))


def test_an_unreachable_cluster_is_reported_for_the_option_that_names_it() -> None:
    options = batch({"kafka.bootstrap.servers": "127.0.0.1:1"})
    with (
        ClusterClient(options.cluster(), refused_s=0.0) as client,
        pytest.raises(Refused, match=r"; check kafka\.bootstrap\.servers and the network"),
    ):
        client.metadata(None)


def test_names_are_known_in_any_case() -> None:
    options = parse_options(
        {
            "KAFKA.bootstrap.servers": "b:1",
            "Subscribe": " payments, orders,,",
            "MAXOFFSETSPERTRIGGER": "7",
            "includeheaders": "TRUE",
        },
        is_stream=True,
    )
    assert options.topics == ("orders", "payments")
    assert options.max_offsets == 7


def test_partitions_and_patterns() -> None:
    given = {"kafka.bootstrap.servers": "b:1"}
    assigned = parse_options({**given, "assign": '{"orders":[1]}'}, is_stream=False)
    assert assigned.assigned == (TopicPartition("orders", 1),)
    names = parse_options({**given, "subscribePattern": "or.*"}, is_stream=False).names()
    assert names.matches("orders")
    assert not names.matches("my-orders")


def test_a_time_is_stronger_than_times_and_they_than_offsets() -> None:
    offsets = {"startingOffsets": '{"orders":{"0":1}}'}
    times = {"startingOffsetsByTimestamp": '{"orders":{"0":2}}'}
    assert batch(offsets).starting.kind is BoundKind.OFFSETS
    assert batch(offsets | times).starting.values == {TopicPartition("orders", 0): 2}
    assert batch(offsets | times | {"startingTimestamp": "3"}).starting.time_ms == 3
    ends = {"endingOffsetsByTimestamp": '{"orders":{"0":2}}', "endingTimestamp": "3"}
    assert batch(ends).ending.time_ms == 3
    assert not batch(ends).ending.needs_match
    assert batch(times).starting.needs_match
    lenient = times | {"startingOffsetsByTimestampStrategy": "latest"}
    assert not batch(lenient).starting.needs_match


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({"isolation": "read_uncommitted"}, Isolation.READ_UNCOMMITTED),
        ({"kafka.isolation.level": "read_uncommitted"}, Isolation.READ_UNCOMMITTED),
        (
            {"isolation": "READ_COMMITTED", "kafka.isolation.level": "read_committed"},
            Isolation.READ_COMMITTED,
        ),
    ],
    ids=["own", "client", "both"],
)
def test_isolation(given: dict[str, str], level: Isolation) -> None:
    assert batch(given).isolation is level


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffset": "earliest"}, "startingoffset: unknown option; did you mean starting"),
        ({"path": "orders"}, "path: unknown option; remove it"),
        ({"assign": '{"o":[0]}'}, "subscribe and assign are given; give exactly one of"),
        ({"startingOffsets": "latest"}, "a batch cannot begin at the end"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "a batch cannot begin at the end"),
        ({"endingOffsets": "earliest"}, "reading cannot end at the start"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "reading cannot end at the start"),
        ({"endingOffsets": "group:billing"}, "is not a valid position"),
        ({"isolation": "committed"}, "write read_committed or read_uncommitted"),
        (
            {"isolation": "read_committed", "kafka.isolation.level": "read_uncommitted"},
            "kafka.isolation.level has another value",
        ),
        ({"minPartitions": "0"}, "'0' is not a positive number"),
        ({"minPartitions": "many"}, "'many' is not a positive number"),
        ({"failOnDataLoss": "no"}, "'no' is neither true nor false"),
        ({"includeHeaders": "si"}, "'si' is neither true nor false"),
        ({"startingOffsetsByTimestampStrategy": "none"}, "write error or latest"),
        ({"commitGroup": "g"}, "only streams have it"),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers: missing; add it"),
        ({"kafka.bootstrap.servers": "kafka1"}, "'kafka1' is not an address"),
        ({"kafka.fetch.min.byte": "1"}, "did you mean kafka.fetch.min.bytes?"),
        ({"kafka.ack": "1"}, "did you mean kafka.acks?"),
        ({"chekpointLocation": "x"}, "did you mean checkpointLocation?"),
        ({"kafka.auto.offset.reset": "earliest"}, "write startingOffsets"),
        ({"subscribe": " , "}, "it names no topic"),
    ],
    ids=[f"{number:02}" for number in range(23)],
)
def test_errors_are_reported_with_a_remedy(given: dict[str, str], said: str) -> None:
    assert said in refusal(given)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    assert "a stream has no end" in refusal({name: "latest"}, of_stream=True)


def test_a_stream_gets_no_filters() -> None:
    said = refusal({"pushFilters": "true"}, of_stream=True)
    assert "pushFilters: Spark passes no filters to streams; remove it" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"kafka.sasl.mechanism": "GSSAPI"}, "sasl.mechanism: 'GSSAPI' is not supported"),
        (
            {"kafka.sasl.login.callback.handler.class": "com.example.Handler"},
            "Java code cannot run here",
        ),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.engine.factory.class": "com.example.E"},
            "ssl.engine.factory.class: ",
        ),
    ],
    ids=["kerberos", "handler", "engine"],
)
def test_kerberos_and_java_classes_are_refused(more: dict[str, str], said: str) -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    given = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": f"{module} required;",
    }
    with pytest.raises(ConfigError) as error:
        batch(given | more).cluster()
    assert said in error.value.message


@pytest.mark.parametrize("pattern", ["", "orders(", "(a*)*b"], ids=["empty", "open", "endless"])
def test_a_pattern_that_is_none(pattern: str) -> None:
    given = {"kafka.bootstrap.servers": "b:1", "subscribePattern": pattern}
    with pytest.raises(ConfigError, match="option subscribePattern: "):
        parse_options(given, is_stream=False)


def test_no_topic_at_all() -> None:
    with pytest.raises(ConfigError, match="no topic is given; give exactly one of subscribe, "):
        parse_options({"kafka.bootstrap.servers": "b:1"}, is_stream=False)


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_options_of_sparks_source_are_accepted_with_a_warning(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert stream({name: "1"}) == stream()
    assert f"option {name} has no effect: {IGNORED[name]}" in caplog.text


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_a_batch_warns_of_a_limit_of_micro_batches(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    batch({name: "5"})
    assert f"option {name} has no effect: a batch reads everything at once" in caplog.text
    assert "'0' is not a positive number" in refusal({name: "0"})


@pytest.mark.parametrize("of_stream", [True, False], ids=["stream", "batch"])
def test_keys_and_options_of_writers_are_accepted_with_a_warning(
    caplog: pytest.LogCaptureFixture, *, of_stream: bool
) -> None:
    keys = CLIENT_KEYS[Role.PRODUCER] - CLIENT_KEYS[Role.CONSUMER]
    names = {*OPTIONS[Role.PRODUCER]} - {*OPTIONS[Role.CONSUMER]}
    given = {f"kafka.{key}" for key in keys} | names
    assert {"kafka.acks", "kafka.key.serializer", "topic", "writeId"} <= given
    (stream if of_stream else batch)(dict.fromkeys(given, "1"))
    missing = [one for one in given if f"option {one} has no effect: " not in caplog.text]
    assert missing == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("group.id", "Spark ignores Kafka's keys without the prefix kafka.; write kafka.group.id"),
        ("acks", "Spark ignores Kafka's keys without the prefix kafka.; write kafka.acks"),
        (
            "auto.offset.reset",
            "Spark ignores Kafka's keys without the prefix kafka.; write startingOffsets",
        ),
        ("inferSchema", "Spark's Kafka source does not have this option"),
        ("spark.streaming.backpressure.enabled", "Spark's Kafka source does not have this option"),
        ("kafka.poll.interval.of.nobody", "Kafka's clients do not have this key"),
        (
            "kafka.consumer.commit.groupid",
            "Kafka's clients do not have this key; write commitGroup to commit a stream's offsets",
        ),
    ],
)
def test_options_that_sparks_source_ignores_are_accepted_with_a_warning(
    caplog: pytest.LogCaptureFixture, name: str, why: str
) -> None:
    assert stream({name: "1"}).topics == ("orders",)
    assert f"option {name.lower()} has no effect: {why}" in caplog.text
    assert parse_write_options({**LEAST, "checkpointLocation": "c", name: "1"}, is_stream=True)


@pytest.mark.parametrize("key", ["security.protocol", "ssl.truststore.location", "sasl.mechanism"])
def test_a_connection_key_without_its_prefix_is_refused(key: str) -> None:
    assert f"unknown option; did you mean kafka.{key}?" in refusal({key: "SSL"})
    assert batch({f"kafka.{key}": "SSL"}).properties[key] == "SSL"


@pytest.mark.parametrize("key", sorted(REFUSED_KEYS))
def test_keys_that_sparks_source_refuses_are_refused(key: str) -> None:
    assert REFUSED_KEYS[key] in refusal({f"kafka.{key}": "x"})


def test_secrets_are_in_no_text_and_travel_to_tasks(tmp_path: Path) -> None:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    options = batch(
        {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{login} username="me" password="hunter2";',
        }
    )
    assert "hunter2" not in repr(options)
    assert "hunter2" not in str(options)
    again = pickle.loads(pickle.dumps(options))  # noqa: S301 (our own)
    assert again == options
    security = again.cluster().security
    assert security is not None
    assert "hunter2" not in repr(security)
    missing = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": f"{tmp_path}/no"}
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location"):
        batch(missing).cluster()


def test_secrets_are_looked_up_where_tasks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kafka.properties"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    kind = "org.apache.kafka.common.config.provider"
    options = batch(
        {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.config.providers": "env,file",
            "kafka.config.providers.env.class": f"{kind}.EnvVarConfigProvider",
            "kafka.config.providers.file.class": f"{kind}.FileConfigProvider",
            "kafka.sasl.jaas.config": f'{login} username="${{env:KAFKA_USER}}" '
            f'password="${{file:{file}:password}}";',
        }
    )
    monkeypatch.setenv("KAFKA_USER", "me")
    file.write_text("password = hunter2\n")
    travels = pickle.dumps(options)
    assert b"hunter2" not in travels
    security = pickle.loads(travels).cluster().security  # noqa: S301 (our own)
    assert (security.username, security.password) == ("me", "hunter2")
    file.write_text("password = another\n")
    renewed = options.cluster().security
    assert renewed is not None
    assert renewed.password == "another"


def test_the_page_names_every_option() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "dataframes.md").read_text()
    names = [name for some in OPTIONS.values() for name in some]
    assert [name for name in names if f"`{name}`" not in page] == []
