"""Runs the `twinlog` command as a process, as users do."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from tests.support.eventually import PATIENCE_S
from tests.support.hosts import Host
from tests.support.read_only import with_mounts

ENTRY = [str(Path(sys.executable).with_name("twinlog"))]


class Command:
    """One run of `twinlog` with these arguments. Its output is written to files.

    `program`: the command of another environment. `mounts`: mounts that only this run sees.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        host: Host | None = None,
        program: Path | None = None,
        mounts: Sequence[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.out = folder / "stdout"
        self.err = folder / "stderr"
        command = [*([str(program)] if program else ENTRY), *arguments]
        if mounts:
            command = with_mounts(mounts, command)
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [*(host.enter if host else ()), *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stdout(self) -> str:
        return self.out.read_text()

    @property
    def stderr(self) -> str:
        return self.err.read_text()

    @property
    def json(self) -> dict[str, Any]:
        """Return the last line of the command's standard output as JSON."""
        value: dict[str, Any] = json.loads(self.stdout.splitlines()[-1])
        return value

    def children(self) -> list[psutil.Process]:
        """Return all current descendants of the command's process."""
        return psutil.Process(self.pid).children(recursive=True)

    def lane_pids(self) -> list[int]:
        """Return the IDs of Spark's Python workers: the processes that one of Spark's daemons has
        forked.
        """
        found = []
        for child in self.children():
            try:
                parent = child.parent()
                if _is_daemon(child) and parent is not None and _is_daemon(parent):
                    found.append(child.pid)
            except psutil.NoSuchProcess:
                continue
        return found

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self, within: float = PATIENCE_S) -> int:
        """Wait until the command ends, and return its exit code."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"not ended within {within} s:\n{self.stdout[-2000:]}\n{self.stderr[-4000:]}"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            below = self.children()
            self.process.kill()
            self.process.wait()
            for child in below:
                if child.is_running():
                    child.kill()


def _is_daemon(process: psutil.Process) -> bool:
    return "twinlog.spark.daemon" in process.cmdline()


def all_gone(processes: Sequence[psutil.Process], within: float = PATIENCE_S) -> bool:
    """Wait until none of the processes runs any more. Return False if some still run after `within`
    seconds.
    """
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes):
            return True
        time.sleep(0.1)
    return False


def write_config(path: Path, lines: Mapping[str, object]) -> Path:
    """Write a properties file with these keys, and return its path."""
    path.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
    return path
