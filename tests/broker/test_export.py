"""`twinlog export` writes exactly the records of one cluster to a file, and reports missing
records.
"""

from __future__ import annotations

import json
import stat
import uuid
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import (
    LOG_APPEND_TIME,
    Outgoing,
    Seen,
    eventually,
    produce,
    produce_transaction,
    producer,
    read_all,
)
from tests.support.mirror import Mirror
from tests.support.topics import create_topic, delete_records
from twinlog.cli.main import run
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

ODD = [
    Outgoing(key=b"k", value=b"plain", headers=(("h", b"v"), ("h", None)), timestamp=1_700_000_000),
    Outgoing(key=None, value=None, timestamp=1_700_000_001),
    Outgoing(key=b"", value=b"\xff\x00\xfe", headers=(("bytes", b"\xc3\x28"),), timestamp=1),
    Outgoing(key="größe".encode(), value=b'{"a":"\x1b[31m"}\n', timestamp=1_700_000_002),
]


class Side:
    """A configuration file with one flow, its source topic, and the copy on the target."""

    def __init__(
        self, source: LocalCluster, target: LocalCluster, topic: str, folder: Path
    ) -> None:
        self.source, self.topic, self.folder = source, topic, folder
        self.alias = f"A{uuid.uuid4().hex[:6]}"
        self.remote = f"{self.alias}.{topic}"
        self.file = folder / "mm2.properties"
        self.file.write_text(
            f"clusters = {self.alias}, B\n"
            f"{self.alias}.bootstrap.servers = {source.bootstrap}\n"
            f"B.bootstrap.servers = {target.bootstrap}\n"
            f"{self.alias}->B.enabled = true\n{self.alias}->B.topics = {topic}\n"
            "replication.factor = 1\ntwinlog.state.topic.replication.factor = 1\n"
        )

    def export(self, *more: str, topic: str = "", side: str = "source", name: str = "out") -> int:
        return run(
            [
                *("export", str(self.file), "--topic", topic or self.topic, "--side", side),
                *("--output", str(self.folder / name), *more),
            ]
        )

    def lines(self, name: str = "out") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]


@pytest.fixture
def side(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> Side:
    return Side(source_cluster, target_cluster, fresh_topic, tmp_path)


def _bytes(value: Any) -> bytes | None:
    if isinstance(value, dict):
        return b64decode(value["base64"])
    return None if value is None else str(value).encode()


def as_seen(line: dict[str, Any]) -> Seen:
    return Seen(
        line["partition"],
        line["offset"],
        _bytes(line["key"]),
        _bytes(line["value"]),
        tuple((name, _bytes(value)) for name, value in line["headers"]),
        line["timestamp"],
        LOG_APPEND_TIME if line["timestamp_type"] == "LogAppendTime" else 1,
    )


@pytest.mark.witness("export contains every field of every record", case="none-CreateTime")
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_field_of_every_record(side: Side, kind: str, codec: str) -> None:
    create_topic(side.source, side.topic, 2, configs={"message.timestamp.type": kind})
    produce(side.source, side.topic, [one._replace(partition=1) for one in ODD], codec=codec)
    assert side.export("--partition", "1") == 0
    assert [as_seen(line) for line in side.lines()] == read_all(side.source, side.topic)
    assert [line["timestamp_type"] for line in side.lines()] == [kind] * len(ODD)
    text = (side.folder / "out").read_bytes()
    assert text.isascii()
    assert b"\x1b" not in text


def test_file_is_private_and_none_is_overwritten(
    side: Side, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(side.source, side.topic)
    produce(side.source, side.topic, ODD)
    assert side.export() == 0
    assert stat.S_IMODE((side.folder / "out").stat().st_mode) == 0o600
    before = (side.folder / "out").read_bytes()
    produce(side.source, side.topic, ODD)
    assert side.export() == 2
    assert "already exists" in capsys.readouterr().err
    assert (side.folder / "out").read_bytes() == before
    assert list(side.folder.glob("*.partial")) == []


def test_ranges_outside_the_log_are_reported_exactly(
    side: Side, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(side.source, side.topic)
    for at in range(0, 100, 10):
        produce(side.source, side.topic, [Outgoing(value=b"%d" % n) for n in range(at, at + 10)])
    delete_records(side.source, side.topic, before=37)
    assert side.export("--from", "40", "--to", "60", name="inside") == 0
    assert [line["offset"] for line in side.lines("inside")] == list(range(40, 60))
    assert (
        f"{side.topic}-0 on {side.alias}, offsets [40, 60): 20 records" in capsys.readouterr().out
    )

    assert side.export("--from", "10", "--to", "250", name="wider") == 1
    said = capsys.readouterr().out
    assert "offsets [10, 37) do not exist: the log starts at 37" in said
    assert "offsets [100, 250) do not exist: the log ends at 100" in said
    assert [line["offset"] for line in side.lines("wider")] == list(range(37, 100))

    assert side.export("--from", "100", "--to", "120", name="nothing") == 1
    error = capsys.readouterr().err
    assert "has no offset in [100, 120): its log is [37, 100)" in error
    assert "[OUTSIDE_LOG]" in error
    assert not (side.folder / "nothing").exists()


def test_aborted_records_are_left_out_unless_asked_for(
    side: Side, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(side.source, side.topic)
    produce_transaction(side.source, side.topic, [Outgoing(value=b"a")] * 3, commit=True)
    produce_transaction(side.source, side.topic, [Outgoing(value=b"b")] * 2, commit=False)
    # a client is informed of the end of a transaction before the marker is in the log
    eventually(lambda: side.export("--to", "7", name=f"try-{uuid.uuid4()}") == 0)
    produce(side.source, side.topic, [Outgoing(value=b"c")])
    capsys.readouterr()
    assert side.export() == 0
    said = capsys.readouterr().out
    assert "2 records of aborted transactions were left out" in said
    assert "2 offsets have no record" in said
    assert [line["value"] for line in side.lines()] == ["a", "a", "a", "c"]
    assert side.export("--include-aborted", name="all") == 0
    assert [line["value"] for line in side.lines("all")] == ["a", "a", "a", "b", "b", "c"]


def test_open_transaction_is_reported(side: Side, capsys: pytest.CaptureFixture[str]) -> None:
    create_topic(side.source, side.topic)
    produce(side.source, side.topic, [Outgoing(value=b"a")])
    client = producer(side.source, config={"transactional.id": f"test-{uuid.uuid4()}"})
    client.init_transactions(30)
    client.begin_transaction()
    client.produce(side.topic, value=b"open", partition=0)
    client.flush(30)
    produce(side.source, side.topic, [Outgoing(value=b"behind")])
    assert side.export() == 1
    assert "offsets [1, 3) were left out because of an open transaction" in capsys.readouterr().out
    assert [line["value"] for line in side.lines()] == ["a"]
    client.abort_transaction(30)


def test_both_sides_while_the_mirror_runs(
    side: Side, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlog.cli.commands.export.PROGRESS_EVERY_S", 0.0)
    create_topic(side.source, side.topic)
    produce(side.source, side.topic, [Outgoing(value=b"%d" % n) for n in range(500)])
    with Mirror(side.file, lanes=1) as mirror:
        mirror.eventually(lambda parts: parts[0].records == 500)
        assert side.export(name="here") == 0
        assert side.export(topic=side.remote, side="target", name="there") == 0
        assert "of 500" in capsys.readouterr().err
        produce(side.source, side.topic, [Outgoing(value=b"more")])
        mirror.eventually(lambda parts: parts[0].records == 501)
        mirror.stop()
    assert len(side.lines("here")) == 500
    assert side.lines("here") == side.lines("there")


def test_json_for_programs(side: Side, capsys: pytest.CaptureFixture[str]) -> None:
    create_topic(side.source, side.topic)
    produce(side.source, side.topic, ODD)
    assert side.export("--format", "json", "--to", "9") == 1
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["command"], found["version"]) == ("export", 1)
    assert (found["from"], found["to"], found["records"]) == (0, 4, 4)
    assert (found["before_log"], found["behind_log"]) == (None, [4, 9])


def test_topic_that_is_not_there(side: Side, capsys: pytest.CaptureFixture[str]) -> None:
    assert side.export() == 1
    assert "[TOPIC_MISSING]" in capsys.readouterr().err
    assert not (side.folder / "out").exists()
