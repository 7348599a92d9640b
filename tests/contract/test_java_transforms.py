"""Twinlog's steps return the same records as Kafka Connect's own transforms and predicates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.support.connect_chains import (
    BAD_REPLACEMENTS,
    CHAINS,
    RECORDS,
    ROUTED_TOPICS,
    ROUTES,
    after,
    chain_lines,
    router,
)
from tests.support.java import kafka_jvm
from tests.support.properties import Loader, flow_of, loader
from twinlog.config.files.properties import decode, parse_properties
from twinlog.errors import ConfigError
from twinlog.mirror.names.filters import policy_of
from twinlog.sandbox.kafka_jars import mirror_maker_jars
from twinlog.wire.records import Headers, Record

pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("mirror-maker-jvm")]

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
LITERALS = {
    **{
        one: one
        for one in ("privacy", "a b", "a:b,c", '"quoted"', "true}", "x [1]", "ü", "-", "+x")
    },
    **{one: one for one in ("1.2.3", "3rd", "2024", "-5", "9223372036854775807", "1.5", "-0.25")},
    **{"true": "true", " false ": "false", "null": None, " null": None, "": "", "   ": "   "},
    **{"007": "7", "+5": "5", "1.0": "1", "1e3": "1000", "-0": "0", " 12 ": "12", "0.99": "0.99"},
    **{
        one: one
        for one in ("nullx", "NULL", "True", " padded ", "a\\:b", "x{y}", "12345.5", "0.01")
    },
}
"""Text of the header's value, by literal of InsertHeader. Only literals whose header is known are
listed.
"""
UNCERTAIN = (
    *("[1, 2]", '{"a": 1}', " [x", "12:30", "2024-01-31", "1,5", "3.14159265358979", "1e-9", "5-x"),
    *("9223372036854775808", "0.001", "2024-01-31T10:00:00.000Z", "10:00:00.000Z", "-1:x", "1.50"),
)


@pytest.fixture
def read(tmp_path: Path) -> Loader:
    return loader(tmp_path)


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with kafka_jvm(mirror_maker_jars()) as running:
        yield running


@pytest.fixture(scope="module")
def plugins(jvm: Any) -> Any:
    made = jvm.org.apache.kafka.connect.runtime.isolation.Plugins(
        {"plugin.discovery": "service_load"}
    )
    jvm.Thread.currentThread().setContextClassLoader(made.delegatingLoader())
    return made


@pytest.fixture(scope="module")
def converter(jvm: Any) -> Any:
    """The header converter of MirrorMaker 2's dedicated mode."""
    return jvm.org.apache.kafka.connect.converters.ByteArrayConverter()


@pytest.fixture(scope="module")
def simple(jvm: Any) -> Any:
    return jvm.org.apache.kafka.connect.storage.SimpleHeaderConverter()


def stages(jvm: Any, plugins: Any, lines: Mapping[str, str]) -> list[Any]:
    """Return the transformation stages that a worker creates from a connector's configuration."""
    runtime = jvm.org.apache.kafka.connect.runtime
    given = {
        "name": "source",
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        **lines,
    }
    config = runtime.SourceConnectorConfig(plugins, given, False)
    task = jvm.org.apache.kafka.connect.util.ConnectorTaskId("source", 0)
    worker = {"bootstrap.servers": "x:1", "key.converter": BYTES, "value.converter": BYTES}
    standalone = runtime.standalone.StandaloneConfig(
        {**worker, "offset.storage.file.filename": "x"}
    )
    system = jvm.org.apache.kafka.common.utils.Time.SYSTEM
    metrics = runtime.ConnectMetrics("w", standalone, system, "cluster")
    return list(config.transformationStages(plugins, task, metrics))


def java_stages(jvm: Any, plugins: Any, lines: tuple[str, ...]) -> list[Any]:
    text = parse_properties(decode("\n".join(lines).encode()), file="x")
    return stages(jvm, plugins, {key: one.value for key, one in text.settings.items()})


def source_record(jvm: Any, topic: str, record: Record) -> Any:
    """Return the source record that MirrorSourceTask.convertRecord creates from a record."""
    schema = jvm.org.apache.kafka.connect.data.Schema
    headers = jvm.org.apache.kafka.connect.header.ConnectHeaders()
    for name, value in record.headers:
        headers.addBytes(name, value)
    return jvm.org.apache.kafka.connect.source.SourceRecord(
        {}, {}, topic, 0, schema.OPTIONAL_BYTES_SCHEMA, record.key, schema.BYTES_SCHEMA,
        record.value, record.timestamp, headers,
    )  # fmt: skip


def headers_of(converter: Any, simple: Any, record: Any) -> Headers:
    """Return the headers that a worker writes. Values that are not bytes are written as text,
    because MirrorMaker 2's own converter cannot write them.
    """
    found = []
    for one in record.headers().iterator():
        is_text = one.schema() is not None and str(one.schema().type()) != "BYTES"
        using = simple if is_text else converter
        value = using.fromConnectHeader(record.topic(), one.key(), one.schema(), one.value())
        found.append((one.key(), None if value is None else bytes(value)))
    return tuple(found)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("topic", ["orders", "payments"])
def test_a_chain_gives_the_same_records(
    jvm: Any, plugins: Any, converter: Any, simple: Any, read: Loader, name: str, topic: str
) -> None:
    lines = CHAINS[name]
    flow = flow_of(read(*(f"A->B.{line}" for line in lines)))
    steps = flow.transforms.connect_steps(topic)
    theirs = java_stages(jvm, plugins, lines)
    remote = policy_of(flow).format_remote_topic("A", topic)
    differing = []
    for record in RECORDS:
        found = source_record(jvm, remote, record)
        for stage in theirs:
            found = None if found is None else stage.apply(found)
        expected = None
        if found is not None:
            key, value = found.key(), found.value()
            assert found.topic() == remote and found.timestamp() == record.timestamp
            expected = Record(
                record.offset,
                record.timestamp,
                None if key is None else bytes(key),
                None if value is None else bytes(value),
                headers_of(converter, simple, found),
            )
        if after(record, steps) != expected:
            differing.append((record, after(record, steps), expected))
    assert differing == []


@pytest.mark.parametrize("name", ROUTES)
def test_a_router_gives_the_same_topics(jvm: Any, plugins: Any, read: Loader, name: str) -> None:
    flow = flow_of(read(*(f"A->B.{line}" for line in ROUTES[name])))
    theirs, policy = java_stages(jvm, plugins, ROUTES[name]), policy_of(flow)
    record = Record(0, 1, b"k", b"v", ())
    ours: dict[str, str | None] = {}
    expected: dict[str, str | None] = {}
    for topic in ROUTED_TOPICS:
        found = source_record(jvm, f"A.{topic}", record)
        for stage in theirs:
            found = None if found is None else stage.apply(found)
        expected[topic] = None if found is None else str(found.topic())
        is_filtered = after(record, flow.transforms.connect_steps(topic)) is None
        ours[topic] = None if is_filtered else policy.format_remote_topic("A", topic)
    assert ours == expected


@pytest.mark.parametrize("replacement", BAD_REPLACEMENTS)
def test_a_replacement_that_fails_in_java_is_refused(
    jvm: Any, plugins: Any, read: Loader, replacement: str
) -> None:
    lines = chain_lines(router(r"A\.(?<name>.*)", replacement))
    (stage,) = java_stages(jvm, plugins, lines)
    with pytest.raises(Py4JJavaError):
        stage.apply(source_record(jvm, "A.orders", Record(0, 1, b"k", b"v", ())))
    with pytest.raises(ConfigError, match="replacement"):
        read(*(f"A->B.{line}" for line in lines))


@pytest.mark.parametrize("literal", [*LITERALS, *UNCERTAIN])
def test_the_text_of_a_header(jvm: Any, simple: Any, read: Loader, literal: str) -> None:
    parsed = jvm.org.apache.kafka.connect.data.Values.parseString(literal)
    written = None
    if parsed is not None:
        written = simple.fromConnectHeader("A.orders", "h", parsed.schema(), parsed.value())
    theirs = None if written is None else bytes(written)
    escaped = literal.replace("\\", "\\\\").replace(" ", "\\ ", 1).replace("ü", "\\u00fc")
    lines = chain_lines(("InsertHeader", "header = h", f"value.literal = {escaped}"))
    given = [f"A->B.{line}" for line in lines]
    if literal in UNCERTAIN:
        with pytest.raises(ConfigError, match="in another form"):
            read(*given)
        return
    (step,) = flow_of(read(*given)).transforms.connect_steps("orders")
    expected = LITERALS[literal]
    assert step.value == theirs == (None if expected is None else expected.encode())


def test_mirror_maker_2s_handling_of_headers(jvm: Any, converter: Any, simple: Any) -> None:
    """ByteArrayConverter, MirrorMaker 2's default for headers, fails on a text header that a
    transform adds. SimpleHeaderConverter, Connect's default, writes the headers of the source's
    records as base64. So no converter would write both, and Twinlog refuses a file that sets a
    header converter other than ByteArrayConverter.
    """
    parsed = jvm.org.apache.kafka.connect.data.Values.parseString("privacy")
    with pytest.raises(Py4JJavaError, match="Invalid schema type for ByteArrayConverter: STRING"):
        converter.fromConnectHeader("A.orders", "h", parsed.schema(), parsed.value())
    schema = jvm.org.apache.kafka.connect.data.Schema.BYTES_SCHEMA
    assert bytes(simple.fromConnectHeader("A.orders", "h", schema, b"privacy")) == b"cHJpdmFjeQ=="
    assert bytes(converter.fromConnectHeader("A.orders", "h", schema, b"privacy")) == b"privacy"
