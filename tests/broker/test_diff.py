"""`twinlog diff` reports the differences between two real clusters, and everything that a flow does
not copy.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import produce
from tests.support.groups import commit, numbered
from tests.support.mirror import Mirror
from tests.support.quotas import quota
from tests.support.settings import settings_of
from tests.support.topics import add_partitions, alter_topic_configs, create_topic, delete_topic
from twinlog.cli.main import run
from twinlog.cluster.client import ClusterClient
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]


class Pair:
    """A flow between two clusters that copies the topics with this test's prefix."""

    def __init__(self, folder: Path, source: LocalCluster, target: LocalCluster) -> None:
        self.mark = f"d{uuid.uuid4().hex[:8]}"
        self.source, self.target, self.alias = source, target, f"a{self.mark}"
        self._file = folder / "mm2.properties"
        self.write()

    def write(self, *lines: str) -> None:
        base = (
            f"clusters = {self.alias}, B\n{self.alias}.bootstrap.servers = "
            f"{self.source.bootstrap}\nB.bootstrap.servers = {self.target.bootstrap}\n"
            f"{self.alias}->B.enabled = true\ntopics = {self.mark}-in-.*\n"
            f"groups = {self.mark}.*\nheartbeats.replication.enabled = false\n"
        )
        if not any("replication.factor" in line for line in lines):
            base += "replication.factor = 1\n"
        self._file.write_text(base + "\n".join(lines) + "\n")

    @property
    def file(self) -> str:
        return str(self._file)

    def here(self, name: str, partitions: int = 1, **configs: str) -> str:
        topic = f"{self.mark}-{name}"
        create_topic(self.source, topic, partitions, configs=_named(configs))
        return topic

    def there(self, name: str, partitions: int = 1, **configs: str) -> str:
        topic = f"{self.alias}.{self.mark}-{name}"
        create_topic(self.target, topic, partitions, configs=_named(configs))
        return topic

    def asked(self, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = run(["diff", self.file, "--format", "json", *words])
        (flow,) = json.loads(capsys.readouterr().out)["flows"]
        return code, flow

    def found(self, capsys: pytest.CaptureFixture[str], *words: str) -> list[tuple[str, ...]]:
        _, flow = self.asked(capsys, *words)
        return sorted(
            (one["aspect"], one["name"].removeprefix(f"{self.mark}-"), one["detail"],
             one["source"], one["target"], one["left_alone"])
            for one in flow["deviations"]
        )  # fmt: skip


def _named(configs: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in configs.items()}


@pytest.fixture
def pair(tmp_path: Path, source_cluster: LocalCluster, target_cluster: LocalCluster) -> Pair:
    return Pair(tmp_path, source_cluster, target_cluster)


def test_topics_partitions_and_configs_by_the_rules_of_the_flow(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.here("in-same", 2, retention_ms="1000000")
    pair.there("in-same", 2, retention_ms="1000000")
    pair.here("in-new")
    pair.here("in-grown", 3)
    grown = pair.there("in-grown", 2)
    pair.here("in-set", retention_ms="1000000")
    set_there = pair.there("in-set", retention_ms="2000000")
    pair.here("in-wide")
    pair.there("in-wide", 2)
    pair.here("out")
    gone = pair.there("in-gone")
    differences = [
        ("config", "in-set", "retention.ms", "1000000", "2000000", ""),
        ("partitions", "in-grown", "", "3", "2", ""),
        ("topic", "in-new", "", "1 partition", "missing", ""),
    ]
    assert pair.found(capsys) == differences
    code, flow = pair.asked(capsys)
    assert (code, flow["is_equal"]) == (1, False)
    assert flow["totals"]["topic"]["compared"] == 5
    assert flow["totals"]["partitions"] == {"compared": 4, "different": 1, "left_alone": 1}

    alone = {row[1]: row[-1] for row in pair.found(capsys, "--all", "--topics", f"{pair.mark}-.*")}
    assert alone["out"] == "not in `topics`"
    assert "never removed" in alone["in-wide"]
    assert "source topic no longer exists" in alone["in-gone"]
    assert pair.found(capsys, "--topics", ".*-in-set") == differences[:1]
    assert run(["diff", pair.file]) == 1
    said = capsys.readouterr().out
    assert f"{pair.alias}->B: 3 differences" in said
    assert "not synced" in said

    pair.write("sync.topic.configs.enabled = false")
    assert [row[0] for row in pair.found(capsys)] == ["partitions", "topic"]
    pair.write("replication.factor = 2")
    factors = [row[1:5] for row in pair.found(capsys) if row[0] == "replication_factor"]
    assert ("in-same", "", "replication.factor = 2", "1") in factors

    pair.write()
    pair.there("in-new")
    add_partitions(pair.target, grown, 3)
    alter_topic_configs(pair.target, set_there, {"retention.ms": "1000000"})
    delete_topic(pair.target, gone)
    assert pair.asked(capsys)[0] == 0


def test_groups_are_at_the_offsets_that_the_sync_would_set(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, group = pair.here("in-orders"), f"{pair.mark}-app"
    produce(pair.source, topic, numbered(0, 6))
    commit(pair.source, group, topic, 4)
    with Mirror(Path(pair.file), once=True) as mirror:
        mirror.wait()
    remote = f"{pair.alias}.{topic}"
    # the group sync is off, so the group is not reported by default
    assert pair.asked(capsys)[0] == 0
    off = [row for row in pair.found(capsys, "--all") if row[0] == "group"]
    assert [row[-1] for row in off] == ["sync.group.offsets.enabled = false"]

    pair.write("sync.group.offsets.enabled = true")
    expected = ("group", "app", f"{remote}-0", "4, which corresponds to 4", "none", "")
    assert pair.found(capsys) == [expected]
    commit(pair.target, group, remote, 4)
    assert pair.asked(capsys)[0] == 0
    commit(pair.target, group, remote, 5)
    assert pair.asked(capsys)[0] == 0
    (ahead,) = [row for row in pair.found(capsys, "--all") if row[0] == "group"]
    assert "never moved back" in ahead[-1]


def test_quotas_are_shown_and_are_no_difference(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    with ClusterClient(settings_of(pair.source)) as client:
        quota(client, pair.mark, {"producer_byte_rate": 1e6})
        try:
            code, flow = pair.asked(capsys, "--all")
        finally:
            quota(client, pair.mark, {"producer_byte_rate": None})
    assert code == 0
    (one,) = [one for one in flow["deviations"] if one["name"] == f"client-id {pair.mark}"]
    assert (one["detail"], one["source"], one["target"]) == (
        "producer_byte_rate",
        "1000000",
        "none",
    )
    assert one["left_alone"]
