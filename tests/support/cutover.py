"""Common parts of switchover and failover tests: a flow with groups, and commands that run on
it.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.client import eventually, produce
from tests.support.eventually import PATIENCE_S
from tests.support.groups import Pair, committed, numbered
from tests.support.mirror import EmittingMirror, Mirror
from tests.support.topics import create_topic, log_size
from twinlog.cli.main import run
from twinlog.sandbox import LocalCluster

__all__ = ["UNFENCED", "Case", "Commands", "killed"]

ROOT = Path(__file__).parents[2]


@dataclass
class Commands:
    """Runs `twinlog VERB STEP FILE ...` in this process. VERB is failover, switchover or
    failback.
    """

    verb: str
    file: Path
    capsys: pytest.CaptureFixture[str]

    def do(self, step: str, *words: str) -> tuple[int, str, str]:
        """Run a step of the command, and return its exit code, stdout and stderr."""
        self.capsys.readouterr()
        code = run([self.verb, step, str(self.file), *words])
        said = self.capsys.readouterr()
        return code, said.out, said.err

    def show(self, step: str, *words: str) -> tuple[int, dict[str, Any]]:
        """Run a step of the command, and return its exit code and its JSON output."""
        code, out, err = self.do(step, *words, "--format", "json")
        assert out, err
        return code, json.loads(out)


class _Forks:
    """The process that forks the commands to be killed. Each process of a test run has only one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.killed_cutover"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )

    def run(self, **job: Any) -> int:
        """Run a command in a forked process. Return its exit code, or the negated number of the
        signal that killed it.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
        assert ready, f"not ended within {PATIENCE_S:g} s: {job}"
        return int(process.stdout.readline())


_FORKS: list[_Forks] = []


def killed(moment: str, where: str, *words: str) -> str:
    """Run a command that is killed (SIGKILL) at its call of the function `where`. `moment` is
    "before" (the call) or "behind" (after it). Return the command's output.
    """
    if not _FORKS:
        _FORKS.append(_Forks())
    with TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        code = _FORKS[0].run(
            moment=moment,
            where=where,
            words=words,
            stdout=str(out),
            stderr=str(err),
            environment=dict(os.environ),
        )
        said = out.read_text()
        assert code == -signal.SIGKILL, f"{where}: {said}\n{err.read_text()}"
    return said


UNFENCED = ("run", "--yes", "--fence", "none")


class Case:
    """A flow of one topic with a group, and cutover commands that run on it."""

    def __init__(
        self,
        clusters: tuple[LocalCluster, LocalCluster],
        folder: Path,
        capsys: pytest.CaptureFixture[str],
        *,
        identity: bool = False,
    ) -> None:
        self.pair = Pair(folder, *clusters, both_ways=False, sync=False, identity=identity)
        with self.pair.config.open("a") as file:
            file.write("refresh.topics.interval.seconds = 1\ntwinlog.status.interval.seconds = 1\n")
        create_topic(self.pair.a, self.pair.topic)
        produce(self.pair.a, self.pair.topic, numbered(0, 20))
        self.group = self.pair.stop_at(7)
        self.capsys = capsys

    def commands(self, verb: str, file: Path | None = None) -> Commands:
        return Commands(verb, file or self.pair.config, self.capsys)

    def plan(self, verb: str) -> tuple[int, dict[str, Any]]:
        code, found = self.commands(verb).show("plan")
        return code, found["plan"]

    def gate(self, name: str) -> tuple[bool, str]:
        """Return a tuple: True if the gate is open, and the evidence for it."""
        gates = {one["gate"]: one for one in self.plan("switchover")[1]["gates"]}
        return gates[name]["is_open"], " ".join(gates[name]["evidence"])

    def copy(self) -> None:
        with EmittingMirror(self.pair.config) as mirror:
            eventually(lambda: self.copied() == 20)
            eventually(self.has_checkpoint, what="a checkpoint of the group")
            mirror.stop()

    def copied(self) -> int:
        return log_size(self.pair.b, self.pair.remote)

    def has_checkpoint(self) -> bool:
        return log_size(self.pair.b, f"{self.pair.alias_a}.checkpoints.internal") > 0

    def there(self) -> int:
        return committed(self.pair.b, self.group, self.pair.remote)

    @contextmanager
    def ready(self) -> Iterator[Mirror]:
        """Run a mirror within the block, and wait until all gates of a switchover are open."""
        with Mirror(self.pair.config) as mirror:
            eventually(lambda: self.copied() == 20)
            eventually(lambda: self.plan("switchover")[0] == 0)
            yield mirror
            mirror.stop()

    def elsewhere(self, alias: str, bootstrap: str) -> Path:
        """Return a copy of the configuration file in which one cluster has another address."""
        text = self.pair.config.read_text()
        key = re.escape(f"{alias}.bootstrap.servers = ")
        path = self.pair.config.parent / "other.properties"
        path.write_text(re.sub(f"(?m)^({key}).*$", rf"\g<1>{bootstrap}", text))
        return path
