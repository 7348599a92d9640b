"""Logs of a flow that the test itself writes for `twinlog verify`, without a mirror."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import raw
from tests.support.settings import HURRIED, settings_for
from tests.support.topics import create_topic, offset_map_topic
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append
from twinlog.control.verify.result import digest
from twinlog.mirror.map.offset_map import (
    MAP_PARTITIONS,
    ChunkRow,
    PartitionKey,
    Run,
    Term,
    map_partition,
)
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

NOW = 1_750_000_000_000
COUNT = 40
WHOLE = (Run(0, 0, 0),)


def verify(
    capsys: pytest.CaptureFixture[str], file: Path, *words: str
) -> tuple[int, dict[str, Any]]:
    """Run `twinlog verify`, and return its exit code and the only flow of its report."""
    capsys.readouterr()
    code = run(["verify", str(file), "--format", "json", *words])
    report = json.loads(capsys.readouterr().out)
    assert report["sha256"] == digest(report)
    (flow,) = report["flows"]
    assert report["answer"] == flow["answer"]
    return code, flow


def bar_shares(written: str) -> list[int]:
    """Return the percentages that a progress bar has shown on a terminal, in order."""
    return [int(share) for share in re.findall(r"(\d+) %", written)]


def page_script(names: Mapping[str, str]) -> str:
    """Return the script of docs/verify.md. `names`: replacements of names in it."""
    page = (Path(__file__).parents[2] / "docs" / "verify.md").read_text()
    (script,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert isinstance(script, str)
    for said, meant in names.items():
        assert script.count(said) == 1, said
        script = script.replace(said, meant)
    return script


class ByHand:
    """Topics of a flow without a mirror. The test writes both logs and the offset map."""

    def __init__(self, source: LocalCluster, target: LocalCluster, folder: Path) -> None:
        self.mark = f"v{uuid.uuid4().hex[:8]}"
        self.alias = f"a{self.mark}"
        self.source, self.target = source, target
        self.file = folder / "mm2.properties"
        self.file.write_text(
            f"clusters = {self.alias}, B\n{self.alias}.bootstrap.servers = {source.bootstrap}\n"
            f"B.bootstrap.servers = {target.bootstrap}\n{self.alias}->B.enabled = true\n"
            f"topics = {self.mark}-.*\ngroups = {self.mark}.*\nreplication.factor = 1\n"
            "heartbeats.replication.enabled = false\n"
        )
        self.here = ClusterClient(settings_for(source.bootstrap, "s"), patience=HURRIED)
        self.there = ClusterClient(settings_for(target.bootstrap, "t"), patience=HURRIED)
        compacted = {"cleanup.policy": "compact"}
        create_topic(target, offset_map_topic(self.alias), MAP_PARTITIONS, configs=compacted)

    def records(self, count: int = COUNT) -> list[Record]:
        return [
            Record(0, NOW + n, b"k%d" % n, b"value %d" % n, (("n", b"%d" % n),))
            for n in range(count)
        ]

    def put_source(self, name: str, count: int = COUNT) -> str:
        """Create a source topic with `count` records and without a copy. Return its name."""
        topic = f"{self.mark}-{name}"
        create_topic(self.source, topic)
        _fill(self.here, TopicPartition(topic, 0), self.records(count))
        return topic

    def put(
        self,
        name: str,
        there: Sequence[Record],
        runs: tuple[Run, ...] = WHOLE,
        *,
        count: int = COUNT,
        producer_id: int = -1,
    ) -> None:
        """Create a source topic with `count` records, a copy with the records `there`, and map rows
        with `runs`. A mirror accepts the copy if `producer_id` is the map's producer.
        """
        topic = self.put_source(name, count)
        remote = f"{self.alias}.{topic}"
        create_topic(self.target, remote)
        _fill(self.there, TopicPartition(remote, 0), there, producer_id)
        ids = (
            self.here.metadata([topic]).topics[topic].topic_id,
            self.there.metadata([remote]).topics[remote].topic_id,
        )
        key = PartitionKey(*ids, 0)
        row = ChunkRow(
            key=key, term=Term(1, 0), chunk=0, topic=topic, runs=runs, producer_id=producer_id
        )
        name_of_row, value = row.encode()
        home = map_partition(TopicPartition(topic, 0), MAP_PARTITIONS)
        append(
            self.there,
            TopicPartition(offset_map_topic(self.alias), home),
            [Record(0, NOW, name_of_row, value)],
        )

    def close(self) -> None:
        self.here.close()
        self.there.close()


def _fill(
    client: ClusterClient, tp: TopicPartition, records: Sequence[Record], producer_id: int = -1
) -> None:
    is_ours = producer_id >= 0
    for at in range(0, len(records), 10):
        batch = encode_batch(
            records[at : at + 10],
            codec=Codec.LZ4,
            producer_id=producer_id,
            producer_epoch=0 if is_ours else -1,
            base_sequence=at if is_ours else -1,
        )
        raw.send(client, tp, batch).expect_ok()
