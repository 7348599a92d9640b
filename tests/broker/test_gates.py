"""Gates of a switchover close for real differences, and open when the differences are resolved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.client import eventually, produce
from tests.support.cutover import Commands
from tests.support.groups import numbered
from tests.support.mirror import Mirror
from tests.support.topics import (
    alter_topic_configs,
    create_topic,
    end_offsets,
    leader,
    topic_names,
)
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker


class Case:
    """A flow of one topic with the given replication factor on each side."""

    def __init__(
        self,
        clusters: tuple[LocalCluster, LocalCluster],
        topic: str,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
        *,
        factors: tuple[int, int],
    ) -> None:
        self.source, self.target = clusters
        self.topic, self.remote = topic, f"A.{topic}"
        self.file = folder / "mm2.properties"
        self.file.write_text(
            f"clusters = A, B\nA.bootstrap.servers = {self.source.bootstrap}\n"
            f"B.bootstrap.servers = {self.target.bootstrap}\nA->B.enabled = true\n"
            f"topics = {topic}\nreplication.factor = {factors[1]}\n"
            "sync.topic.configs.interval.seconds = 3600\ntwinlog.status.interval.seconds = 1\n"
        )
        self._commands = Commands("switchover", self.file, capsys)
        create_topic(self.source, topic, replication_factor=factors[0])
        produce(self.source, topic, numbered(0, 10))

    def is_copied(self) -> bool:
        there = self.remote in topic_names(self.target)
        return there and end_offsets(self.target, self.remote) == {0: 10}

    def gate(self, name: str) -> tuple[bool, str]:
        """Return a tuple: True if the gate is open, and the evidence for it."""
        _, found = self._commands.show("plan")
        gates: dict[str, Any] = {one["gate"]: one for one in found["plan"]["gates"]}
        return gates[name]["is_open"], " ".join(gates[name]["evidence"])


def test_replicas_out_of_sync(
    source_cluster: LocalCluster,
    target3: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clusters = source_cluster, target3
    case = Case(clusters, fresh_topic, tmp_path, capsys, factors=(1, 3))
    with Mirror(case.file) as mirror:
        eventually(case.is_copied)
        eventually(lambda: case.gate("replicas")[0])
        follower = next(n for n in target3.broker_pids if n != leader(target3, case.remote))
        target3.kill(follower)
        shrunk = (False, f"{case.remote}-0 has 2 of 3 replicas in sync")
        eventually(lambda: case.gate("replicas") == shrunk)
        target3.restart(follower)
        eventually(lambda: case.gate("replicas")[0])
        mirror.stop()


def test_fewer_replicas_than_at_the_source_and_another_config(
    source3: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clusters = source3, target_cluster
    case = Case(clusters, fresh_topic, tmp_path, capsys, factors=(3, 1))
    with Mirror(case.file) as mirror:
        eventually(case.is_copied)
        assert case.gate("replicas") == (
            False,
            f"{case.remote} has 1 replica, but {case.topic} has 3",
        )
        eventually(lambda: case.gate("configs")[0])
        alter_topic_configs(case.target, case.remote, {"retention.ms": "86400000"})
        eventually(lambda: not case.gate("configs")[0])
        assert "retention.ms" in case.gate("configs")[1]
        alter_topic_configs(case.source, case.topic, {"retention.ms": "86400000"})
        eventually(lambda: case.gate("configs")[0])
        mirror.stop()


def test_source_without_acls_is_fenced_by_other_means(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The source has no authorizer, so the fence by ACL fails. The plan and the error of the run
    name the kinds of fence that need no ACLs, and the copy continues.
    """
    clusters = source_cluster, target_cluster
    case = Case(clusters, fresh_topic, tmp_path, capsys, factors=(1, 1))
    commands, advice = Commands("switchover", case.file, capsys), "--fence hook or --fence none"
    with Mirror(case.file) as mirror:
        eventually(case.is_copied)
        eventually(lambda: commands.show("plan")[0] == 0)
        assert advice in case.gate("acls")[1]
        code, _, err = commands.do("run", "--yes")
        assert (code, "[SECURITY_DISABLED]" in err, advice in err) == (1, True, True), err
        produce(source_cluster, fresh_topic, numbered(10, 1))
        eventually(lambda: end_offsets(target_cluster, case.remote) == {0: 11})
        mirror.stop()
