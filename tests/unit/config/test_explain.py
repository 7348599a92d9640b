"""`check` describes a configuration: every key with its value and line, and the differences from
another file.
"""

from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.properties import BASE, Loader, flow_of
from twinlog.cli.commands.check import explanation_parts
from twinlog.cli.main import run
from twinlog.config.advice.explanation import (
    MEANING_OF,
    ExplainedFlow,
    ExplainedKey,
    explain,
    without_meaning,
)
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.keys.client_keys import CLIENT_KEYS, Role, is_connection_key
from twinlog.config.keys.key_table import DEFINITIONS, Support
from twinlog.config.load import load
from twinlog.wire.compression import GZIP_LEVEL, ZSTD_LEVEL

SECRET = "s3cr3t-value"


def explained(config: MirrorConfig) -> ExplainedFlow:
    return explain(flow_of(config))


def found(flow: ExplainedFlow, key: str) -> ExplainedKey:
    (one,) = [one for one in flow.keys if one.key == key]
    return one


def test_every_key_is_explained_with_value_and_line(read: Loader) -> None:
    flow = explained(
        read("topics = a", "A->B.topics = b", "A.consumer.fetch.max.bytes = 7", "tasks.max = 2")
    )
    assert len(flow.keys) > len(DEFINITIONS)
    assert (found(flow, "A->B.topics").value, found(flow, "A->B.topics").line) == ("b", 6)
    assert [one.key for one in flow.keys].count("topics") == 0, "the general line does not count"
    assert found(flow, "A.consumer.fetch.max.bytes").line == 7
    default = found(flow, "B.producer.max.request.size")
    assert (default.value, default.file, default.line) == ("1048576", "", None)
    assert found(flow, "replication.factor").value == "2"


def test_a_line_that_several_clients_read_is_one_row(read: Loader) -> None:
    config = read("B.producer.bootstrap.servers = other:1")
    flow = explained(config)
    here = found(flow, "A.bootstrap.servers")
    assert here.meaning == "connection of this client to its cluster (A.consumer.*, A.admin.*)"
    assert "(B.producer.*)" in found(flow, "B.producer.bootstrap.servers").meaning
    assert "(B.admin.*)" in found(flow, "B.bootstrap.servers").meaning


def test_the_line_that_takes_effect_is_shown(read: Loader) -> None:
    config = read("A->B.consumer.fetch.max.bytes = 1", "A.consumer.fetch.max.bytes = 2")
    assert found(explained(config), "A.consumer.fetch.max.bytes").value == "2"


def test_lines_without_a_meaning_are_named_with_the_reason(read: Loader) -> None:
    config = read(
        "B.producer.acks = 1",
        "B.offset.flush.timeout.ms = 250000",
        "listeners = http://localhost:8080",
        "dedicated.mode.enable.internal.rest = true",
        "B.exactly.once.source.support = preparing",
        "A->B.producer.override.linger.ms = 5",
        "A.consumer.max.poll.records = 5",
        "offset.storage.topic = x",
        "listeners.https.ssl.keystore.location = /k",
        "A->B.errors.tolerance = all",
        "B.task_shutdown_graceful_timeout_ms = 1",
        "topics = a",
        "A->B.topic.creation.default.partitions = 3",
        "transforms.route.type = x",
        "A->B.key.converter.schemas.enable = false",
    )
    lines = {one.line: one.meaning for one in without_meaning(config)}
    assert list(lines) == [5, 6, *range(8, 15), 17, 19], "listeners and topics act; 18 is a warning"
    assert "the cost is the wait for the in-sync replicas" in lines[5]
    assert "nothing to flush" in lines[6]
    assert "exactly once, regardless of this value" in lines[9]
    assert "records are sent when they arrive" in lines[10]
    assert "like the source's" in lines[17]
    assert "never converted" in lines[19]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "A.consumer.isolation.level is read_committed (MirrorMaker 2: "),
        ([], "tasks.max is not set"),
        (["B.producer.acks = 1"], "B.producer.acks: acks is always all; with another value"),
        (["B.producer.linger.ms = 100"], "B.producer.linger.ms: always 0"),
        (
            ["B.producer.compression.type = gzip"],
            "compressed keep their codec; B.twinlog.compression = enforce re-encodes all",
        ),
        (
            ["B.producer.max.request.size = 157286400"],
            "B.producer.max.request.size: 157286400 is limited to 67108864 (64 MiB): brokers "
            "accept",
        ),
        (
            ["A.admin.bootstrap.servers = x:1"],
            "A.admin.bootstrap.servers and A.bootstrap.servers differ: the source's topics are "
            "queried at the first, and records are read from the second",
        ),
        (
            ["B.admin.bootstrap.servers = x:1"],
            "B.admin.bootstrap.servers and B.bootstrap.servers differ: the target's topics are "
            "queried at the first, and records are written to the second",
        ),
    ],
)
def test_where_our_ways_differ(read: Loader, lines: list[str], expected: str) -> None:
    assert any(expected in line for line in explained(read(*lines)).differences)


def test_values_set_in_the_file_are_no_difference(read: Loader) -> None:
    lines = explained(
        read(
            "A.consumer.isolation.level = read_uncommitted",
            "B.producer.acks = all",
            "B.producer.max.request.size = 67108864",
        )
    ).differences
    decided = ("isolation", "acks", "max.request.size")
    assert not any(word in line for line in lines for word in decided)


def test_no_secret_is_shown(read: Loader) -> None:
    config = read(
        f'A.sasl.jaas.config = PlainLoginModule required password="{SECRET}";',
        f"B.ssl.keystore.password = {SECRET}",
        f"B.producer.override.x.password = {SECRET}",
    )
    assert SECRET not in str((explained(config), without_meaning(config)))
    hidden = {one.key: one.value for one in explained(config).keys}
    assert hidden["B.ssl.keystore.password"] == "<hidden>"


def test_every_key_of_clients_has_a_meaning() -> None:
    for role, keys in CLIENT_KEYS.items():
        expected = {name for one, name in MEANING_OF if one is role}
        assert expected == {key for key in keys if not is_connection_key(key)}
    assert {row.support for row in MEANING_OF.values()} == set(Support)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ("send.buffer.bytes receive.buffer.bytes", "grow with the link"),
        ("reconnect.backoff.ms retry.backoff.max.ms", "doubles with each consecutive failure"),
        ("metadata.max.age.ms", "refresh.topics.interval.seconds"),
        ("metadata.recovery.strategy", "bootstrap.servers are always tried"),
        ("connections.max.idle.ms", "stay open"),
        ("client.dns.lookup", "tried in turn"),
        ("socket.connection.setup.timeout.ms", "10 s for all"),
    ],
)
def test_forbidden_client_keys_have_their_own_reason(keys: str, why: str) -> None:
    rows = [MEANING_OF[role, key] for role in CLIENT_KEYS for key in keys.split()]
    assert {(row.support, why in row.meaning) for row in rows} == {(Support.NO_MEANING, True)}


def test_levels_of_codecs_say_which_are_taken() -> None:
    row = MEANING_OF[Role.PRODUCER, "compression.gzip.level"]
    assert f"{GZIP_LEVEL} for gzip, {ZSTD_LEVEL} for zstd" in row.meaning


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    lines = [
        *BASE,
        "replication.facto = 1",
        "A->B.topics = orders.*",
        "response.http.headers.config = x",
    ]
    (tmp_path / "mm2.properties").write_text("\n".join(lines))
    return "mm2.properties"


def test_check_explains_without_a_connection(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", file, "--explain", "--lease-seconds", "9"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    below = dict(pairwise(lines))
    assert any(line.startswith("warning 5 replication.facto unknown key") for line in lines)
    assert below["A->B.topics = orders.* (line 6)"].startswith("topics to mirror")
    assert below["twinlog.lease.seconds = 9 (--lease-seconds)"]
    assert below["response.http.headers.config = x (line 7)"].startswith("[no meaning]")
    assert not any(line.startswith(("errors.tolerance", "refresh.topics")) for line in lines)
    assert run(["check", file, "--explain", "--defaults"]) == 0
    text = capsys.readouterr().out
    assert "refresh.topics.interval.seconds = 600  (default)" in text
    assert "errors.tolerance" not in text


@pytest.mark.parametrize("width", [40, 80, 120])
def test_nothing_is_wider_than_the_terminal(file: str, width: int) -> None:
    config = load(file, environment={})
    shown = io.StringIO()
    console = Console(file=shown, width=width, force_terminal=True, color_system=None)
    for part in explanation_parts(config, with_defaults=True):
        console.print(part)
    lines = shown.getvalue().splitlines()
    assert len(lines) > 100
    assert max(map(len, lines)) <= width


def test_programs_get_every_key(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", file, "--explain", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (flow,) = answer["explained"]
    topics = next(one for one in flow["keys"] if one["key"] == "A->B.topics")
    assert (topics["value"], topics["file"], topics["line"]) == ("orders.*", file, 6)
    assert "errors.tolerance" in {one["key"] for one in flow["keys"]}
    assert [one["line"] for one in answer["without_meaning"]] == [7]
