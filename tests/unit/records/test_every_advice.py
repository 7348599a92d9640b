"""For each piece of advice about an option or a schema, a test follows it, and the result is
accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import pytest
from pyspark.sql.types import StructType

from tests.support.advice_sites import Site, advice_sites
from twinlog.errors import ConfigError
from twinlog.records.options import parse_options
from twinlog.records.write.options import parse_write_options
from twinlog.records.write.rows import check_schema

ABOUT_OPTIONS: Final = ("bounds.py", "given.py", "options.py", "write/options.py", "write/rows.py")
ELSEWHERE: Final = {
    "the cluster at {} has no topic {}, or the user may not see it ({}); check the name and the "
    "addresses. {}": "tests/broker/test_reader.py",
}
"""Advice that needs a cluster, with the test module that follows it."""

READ: Final = {"kafka.bootstrap.servers": "kafka1:9092", "subscribe": "orders"}
WRITE: Final = {"kafka.bootstrap.servers": "kafka1:9092", "topic": "orders", "writeId": "x"}
STREAM: Final = {**WRITE, "checkpointLocation": "/c", "writeId": None}
TIME, JSON = "time:2026-01-31T12:00:00Z", '{"topic": {"0": 23}}'

Given = dict[str, str | None]
Parse = Callable[[dict[str, str]], object]
KINDS: Final[dict[str, tuple[Given, Parse]]] = {
    "batch": ({**READ}, partial(parse_options, is_stream=False)),
    "stream": ({**READ}, partial(parse_options, is_stream=True)),
    "write": ({**WRITE}, partial(parse_write_options, is_stream=False)),
    "stream writer": ({**STREAM}, partial(parse_write_options, is_stream=True)),
}
CASES: Final[list[tuple[str, str, Given, list[Given]]]] = [
    (
        "batch",
        "write earliest, latest (streams), time:",
        {"startingOffsets": "begin"},
        [{"startingOffsets": one} for one in ("earliest", TIME, "group:NAME", JSON)],
    ),
    (
        "stream",
        "write earliest, latest (streams), time:",
        {"startingOffsets": "begin"},
        [{"startingOffsets": one} for one in ("earliest", "latest", TIME, "group:NAME", JSON)],
    ),
    (
        "batch",
        "is not a valid position; write latest, time:",
        {"endingOffsets": "end"},
        [{"endingOffsets": one} for one in ("latest", TIME, JSON)],
    ),
    (
        "batch",
        "has the invalid offset -3; write -2 for earliest, -1 for latest",
        {"startingOffsets": '{"t": {"0": -3}}'},
        [{"startingOffsets": '{"t": {"0": -2}}'}],
    ),
    (
        "batch",
        "has the invalid offset -3; write -1 for latest",
        {"endingOffsets": '{"t": {"0": -3}}'},
        [{"endingOffsets": '{"t": {"0": -1}}'}],
    ),
    ("batch", "write group:NAME", {"startingOffsets": "group:"}, [{"startingOffsets": "group:g"}]),
    (
        "batch",
        'write {"topic": [0, 1]}',
        {"subscribe": None, "assign": "{}"},
        [{"subscribe": None, "assign": '{"topic": [0, 1]}'}],
    ),
    (
        "batch",
        'write {"topic": {"0": 23}}',
        {"startingOffsets": "{"},
        [{"startingOffsets": JSON}],
    ),
    (
        "batch",
        "is not a valid time; write milliseconds",
        {"startingTimestamp": "now"},
        [{"startingTimestamp": "1769860800000"}],
    ),
    (
        "batch",
        "has the time -1; write milliseconds since 1970",
        {"startingOffsetsByTimestamp": '{"t": {"0": -1}}'},
        [{"startingOffsetsByTimestamp": '{"t": {"0": 1769860800000}}'}],
    ),
    (
        "batch",
        "is neither true nor false; write true or false",
        {"failOnDataLoss": "no"},
        [{"failOnDataLoss": "false"}, {"failOnDataLoss": "true"}],
    ),
    (
        "batch",
        "missing; add it, for example kafka1:9092",
        {"kafka.bootstrap.servers": None},
        [{"kafka.bootstrap.servers": "kafka1:9092"}],
    ),
    (
        "batch",
        "is not a positive number; write a number, for example 1000",
        {"minPartitions": "0"},
        [{"minPartitions": "1000"}],
    ),
    ("batch", "path: unknown option; remove it", {"path": "x"}, [{}]),
    ("batch", "did you mean kafka.acks?", {"kafka.ack": "1"}, [{"kafka.acks": "1"}]),
    (
        "batch",
        "did you mean startingOffsets?",
        {"startingOffset": JSON},
        [{"startingOffsets": JSON}],
    ),
    (
        "stream",
        "write commitGroup to commit a stream's offsets",
        {"kafka.consumer.commit.groupid": "g"},
        [{"commitGroup": "g"}],
    ),
    (
        "stream",
        "use kafka.request.timeout.ms",
        {"kafkaConsumer.pollTimeoutMs": "1"},
        [{"kafka.request.timeout.ms": "1"}],
    ),
    ("batch", "use minPartitions", {"maxRecordsPerPartition": "1"}, [{"minPartitions": "1"}]),
    (
        "batch",
        "write startingOffsets",
        {"kafka.auto.offset.reset": "earliest"},
        [{"startingOffsets": "earliest"}],
    ),
    ("stream", "write commitGroup", {"kafka.enable.auto.commit": "true"}, [{"commitGroup": "g"}]),
    ("batch", "remove it, or use spark.readStream", {"commitGroup": "g"}, [{}]),
    ("stream", "remove it, or use spark.read", {"endingOffsets": "latest"}, [{}]),
    ("stream", "Spark passes no filters to streams; remove it", {"pushFilters": "true"}, [{}]),
    ("batch", "give exactly one of subscribe, ", {"assign": '{"t": [0]}'}, [{}]),
    ("batch", "write subscribe=orders,payments", {"subscribe": ","}, [{"subscribe": "a,b"}]),
    (
        "batch",
        "write a pattern, for example orders.*",
        {"subscribe": None, "subscribePattern": ""},
        [{"subscribe": None, "subscribePattern": "orders.*"}],
    ),
    (
        "batch",
        "write another pattern",
        {"subscribe": None, "subscribePattern": "("},
        [{"subscribe": None, "subscribePattern": "(a)"}],
    ),
    (
        "batch",
        "write error or latest",
        {"startingOffsetsByTimestampStrategy": "x"},
        [{"startingOffsetsByTimestampStrategy": one} for one in ("error", "latest")],
    ),
    (
        "batch",
        "write earliest or offsets",
        {"startingOffsets": "latest"},
        [{"startingOffsets": "earliest"}, {"startingOffsets": JSON}],
    ),
    (
        "batch",
        "write latest or offsets",
        {"endingOffsets": "earliest"},
        [{"endingOffsets": "latest"}, {"endingOffsets": JSON}],
    ),
    (
        "batch",
        "write read_committed or read_uncommitted",
        {"isolation": "x"},
        [{"isolation": "read_uncommitted"}, {"isolation": "read_committed"}],
    ),
    (
        "batch",
        "has another value; remove one of the two options",
        {"isolation": "read_committed", "kafka.isolation.level": "read_uncommitted"},
        [{"isolation": "read_committed"}, {"kafka.isolation.level": "read_uncommitted"}],
    ),
    ("batch", "for example upstream=A", {"upstream": ","}, [{"upstream": "A"}]),
    ("write", "or by a column partition", {"kafka.partitioner.class": "x"}, [{}]),
    (
        "write",
        "name a topic, or remove the option",
        {"topic": ""},
        [{"topic": "t"}, {"topic": None}],
    ),
    (
        "write",
        "write fail or write",
        {"missingMark": "x"},
        [{"missingMark": "fail"}, {"missingMark": "write"}],
    ),
    ("stream writer", "remove it, because Spark identifies", {"writeId": "x"}, [{}]),
    (
        "stream writer",
        "write one of the two options; each query needs its own ID",
        {"checkpointLocation": None},
        [{"checkpointLocation": "/c"}, {"kafka.transactional.id": "x"}],
    ),
    (
        "write",
        "write one of none, ",
        {"kafka.compression.type": "x"},
        [{"kafka.compression.type": one} for one in ("none", "zstd")],
    ),
    ("write", "write all", {"kafka.acks": "2"}, [{"kafka.acks": "all"}]),
    (
        "write",
        "write true",
        {"kafka.enable.idempotence": "x"},
        [{"kafka.enable.idempotence": "true"}],
    ),
]


def said(kind: str, more: Given, caplog: pytest.LogCaptureFixture) -> tuple[str, list[str]]:
    """Return the error, or an empty text if there is none, and the warnings."""
    caplog.clear()
    usual, parse = KINDS[kind]
    given = {name: value for name, value in {**usual, **more}.items() if value is not None}
    try:
        parse(given)
    except ConfigError as error:
        return error.message, caplog.messages[:]
    return "", caplog.messages[:]


@pytest.mark.parametrize(("kind", "says", "before", "after"), CASES)
def test_advice_about_options_is_followed(
    kind: str, says: str, before: Given, after: list[Given], caplog: pytest.LogCaptureFixture
) -> None:
    error, warnings = said(kind, before, caplog)
    assert any(says in one for one in (error, *warnings)), (error, warnings)
    for given in after:
        error, warnings = said(kind, given, caplog)
        assert error == ""
        assert [one for one in warnings if says in one] == []


PACKED: Final = ("partition integer", "record_batch binary", "least_timestamp long")
SCHEMAS: Final[list[tuple[str, bool, tuple[str, ...], bool, tuple[str, ...]]]] = [
    ("give both the same options", False, PACKED, True, PACKED),
    ("change rows before `partitioned`, ", True, (*PACKED, "value string"), True, PACKED),
    ("give the option topic, or a column topic", False, ("value string",), True, ("value string",)),
    (
        "give the option topic, or a column topic",
        False,
        ("value string",),
        False,
        ("value string", "topic string"),
    ),
    ("cast it", True, ("value integer",), True, ("value string",)),
]


def refusal(columns: tuple[str, ...], *, has_topic: bool) -> str:
    schema = StructType()
    for column in columns:
        name, kind = column.split()
        schema.add(name, kind)
    try:
        check_schema(schema, has_topic=has_topic)
    except ConfigError as error:
        return error.message
    return ""


@pytest.mark.parametrize(("says", "had", "before", "has", "after"), SCHEMAS)
def test_advice_about_a_schema_is_followed(
    says: str, had: bool, before: tuple[str, ...], has: bool, after: tuple[str, ...]
) -> None:
    assert says in refusal(before, has_topic=had)
    assert refusal(after, has_topic=has) == ""


def test_each_piece_of_advice_has_a_case(caplog: pytest.LogCaptureFixture) -> None:
    given = [refusal(before, has_topic=had) for _, had, before, *_ in SCHEMAS]
    for kind, _, before, _ in CASES:
        error, warnings = said(kind, before, caplog)
        given += [error, *warnings]

    def is_followed(site: Site) -> bool:
        return site.text in ELSEWHERE or any(map(site.pattern.match, given))

    sites = [
        one
        for one in advice_sites("records")
        if one.place.removeprefix("records/").partition(":")[0] in ABOUT_OPTIONS
    ]
    assert len(sites) > 30
    assert [str(site) for site in sites if not is_followed(site)] == []
