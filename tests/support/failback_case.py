"""A flow that was failed over, and its old source with records that never arrived on the target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import produce, read_all
from tests.support.cutover import Commands, killed
from tests.support.groups import Pair, numbered
from tests.support.mirror import Mirror
from tests.support.topics import create_topic
from twinlog.cli.main import run
from twinlog.sandbox import LocalCluster

__all__ = ["Case", "seen"]


class Case:
    """A flow with a failback to do: new owners have written to B, and A has a tail."""

    def __init__(
        self,
        a: LocalCluster,
        b: LocalCluster,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
        *,
        identity: bool = False,
    ) -> None:
        self.pair = Pair(folder, a, b, both_ways=False, sync=False, identity=identity)
        self.folder = folder / "tail"
        self.failback = Commands("failback", self.pair.config, capsys)
        create_topic(a, self.pair.topic)
        produce(a, self.pair.topic, numbered(0, 20))
        with Mirror(self.pair.config, once=True, lanes=1) as mirror:
            mirror.wait()

    def fail_over(self, new_owners: int = 5) -> None:
        """Promote the flow. Then write `new_owners` records to B as other clients."""
        pair = self.pair
        assert run(["failover", "run", str(pair.config), "--yes", "--reason", "A is lost"]) == 0
        produce(pair.b, pair.remote, numbered(1000, new_owners))

    def words(self, tail: str = "keep") -> list[str]:
        return ["--tail", tail, "--save", str(self.folder), "--yes"]

    def run(self, tail: str = "keep") -> tuple[int, str]:
        code, out, err = self.failback.do("run", *self.words(tail))
        return code, out + err

    def killed(self, moment: str, where: str, tail: str = "keep") -> None:
        killed(moment, where, "failback", "run", str(self.pair.config), *self.words(tail))

    def lines(self) -> list[dict[str, Any]]:
        """Return every saved record, in the order of the file names."""
        files = sorted(self.folder.glob("*.jsonl"))
        return [json.loads(line) for one in files for line in one.read_text().splitlines()]

    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "manifest.json").read_text())
        return found


def seen(pair: Pair, cluster: LocalCluster) -> list[bytes | None]:
    topic = pair.remote if cluster is pair.b else pair.topic
    return [one.value for one in read_all(cluster, topic, isolation="read_committed")]
