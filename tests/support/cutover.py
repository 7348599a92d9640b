"""What tests of switchover and failover have in common: one flow with groups, and its commands."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.eventually import PATIENCE_S
from twinlog.cli.main import run

__all__ = ["Commands", "killed"]

ROOT = Path(__file__).parents[2]


@dataclass
class Commands:
    """`twinlog failover|switchover VERB FILE ...` in this process."""

    verb: str
    file: Path
    capsys: pytest.CaptureFixture[str]

    def do(self, step: str, *words: str) -> tuple[int, str, str]:
        """(exit code, what it said on stdout, and on stderr)"""
        self.capsys.readouterr()
        code = run([self.verb, step, str(self.file), *words])
        said = self.capsys.readouterr()
        return code, said.out, said.err

    def show(self, step: str, *words: str) -> tuple[int, dict[str, Any]]:
        """(exit code, its object for programs)"""
        code, out, err = self.do(step, *words, "--format", "json")
        assert out, err
        return code, json.loads(out)


class _Forks:
    """The process from which commands are forked; a process of the tests has one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.killed_cutover"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )

    def run(self, **job: Any) -> int:
        """The exit code; minus a number where it died of that signal."""
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
    """Runs the command until it dies of SIGKILL there; what it had said."""
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
