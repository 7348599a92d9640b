"""What tests of switchover and failover have in common: one flow with groups, and its commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import PATIENCE_S
from twinlog.cli.main import run

__all__ = ["Commands", "killed"]

SCRIPT = Path(__file__).with_name("killed_cutover.py")


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

    def look(self, step: str, *words: str) -> tuple[int, dict[str, Any]]:
        """(exit code, its object for programs)"""
        code, out, err = self.do(step, *words, "--format", "json")
        assert out, err
        return code, json.loads(out)


def killed(moment: str, where: str, *words: str) -> str:
    """Runs the command until it dies of SIGKILL there; what it had said."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(SCRIPT), moment, where, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        cwd=SCRIPT.parents[2],
    )
    took_s = time.monotonic() - began
    said = f"{where}, {took_s:.1f} s: {done.stdout}\n{done.stderr}"
    assert done.returncode == -signal.SIGKILL, said
    return done.stdout
