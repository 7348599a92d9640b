"""Leases (sets of lanes that run for some minutes) without Spark.

Every lane is a process, which is restarted when it dies, as Spark does. Fault tests kill and freeze
lanes by their process IDs. Other tests cover what Spark adds: placement, and its own retries.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.eventually import PATIENCE_S
from twinlog.channel.frames import ChannelAddress
from twinlog.channel.lane_secrets import LaneSecrets
from twinlog.errors import TwinlogError
from twinlog.model import LeaseCopy

MAX_ATTEMPTS = 20
ROOT: Final = Path(__file__).parents[2]

PROGRAM = """
import json, sys
from tests.support.lane_daemon import log_to_stderr, run
log_to_stderr()
run(json.loads(sys.argv[1]))
"""


class _Daemon:
    """Starts lanes that need no prelude. Each process of the test run has one daemon."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.lane_daemon"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._started: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._one_at_a_time = threading.Lock()
        self._ended = threading.Condition()
        self._codes: dict[int, int] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, job: dict[str, Any]) -> ForkedLane:
        assert self._process.stdin is not None
        with self._one_at_a_time:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
            return ForkedLane(self._started.get(timeout=PATIENCE_S), self)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            with self._ended:
                if "started" in said:
                    self._codes.pop(said["started"], None)
                    self._started.put(said["started"])
                else:
                    self._codes[said["ended"]] = said["code"]
                    self._ended.notify_all()

    def code(self, pid: int, within_s: float) -> int | None:
        """Wait up to `within_s` for a lane's end. Return its exit code, or None if it still
        runs.
        """
        with self._ended:
            self._ended.wait_for(lambda: pid in self._codes, within_s)
            return self._codes.get(pid)


_DAEMONS: list[_Daemon] = []


def _forked(job: dict[str, Any]) -> ForkedLane:
    if not _DAEMONS:
        _DAEMONS.append(_Daemon())
    return _DAEMONS[0].start(job)


class ForkedLane:
    """A forked lane, with the methods of `subprocess.Popen` that a job needs."""

    def __init__(self, pid: int, daemon: _Daemon) -> None:
        self.pid = pid
        self._daemon = daemon

    def poll(self) -> int | None:
        return self._daemon.code(self.pid, 0.0)

    def wait(self) -> int | None:
        return self._daemon.code(self.pid, PATIENCE_S)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


@dataclass(slots=True)
class ProcessJob:
    """A lease with one process for each lane."""

    lease: int
    lanes: int
    address: ChannelAddress
    secrets: tuple[str, ...]
    prelude: str = ""
    processes: dict[int, subprocess.Popen[bytes] | ForkedLane] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    cancelled: bool = False
    awaits_slot: bool = False
    copied: Sequence[LeaseCopy] = ()
    error: TwinlogError | None = None
    _watcher: threading.Thread | None = None
    _done: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        for lane in range(self.lanes):
            self._spawn(lane, 0)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _spawn(self, lane: int, attempt: int) -> None:
        job: dict[str, Any] = {
            "lane": lane,
            "lease": self.lease,
            "attempt": attempt,
            "address": {
                "host": self.address.host,
                "port": self.address.port,
                "token": self.secrets[lane],
                "fingerprint": self.address.fingerprint,
            },
        }
        self.attempts[lane] = attempt
        if not self.prelude:
            self.processes[lane] = _forked(job)
            return
        # a new process, because the prelude must change modules before they are imported
        command = [sys.executable, "-c", self.prelude + PROGRAM, json.dumps(job)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        self.processes[lane] = subprocess.Popen(command, env=environment)

    def _watch(self) -> None:
        while not self.cancelled:
            codes = {lane: process.poll() for lane, process in self.processes.items()}
            if all(code == 0 for code in codes.values()):
                break
            for lane, code in codes.items():
                if code not in (None, 0) and self.attempts[lane] < MAX_ATTEMPTS:
                    self._spawn(lane, self.attempts[lane] + 1)
            time.sleep(0.02)
        self._done.set()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def pids(self) -> list[int]:
        return [process.pid for process in self.processes.values() if process.poll() is None]

    def note(self, copied: Sequence[LeaseCopy]) -> None:
        self.copied = copied

    def cancel(self) -> None:
        self.cancelled = True
        for process in self.processes.values():
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)
                process.kill()
            process.wait()


class ProcessLeases:
    """Starts leases with the interface that the supervisor expects of Spark."""

    def __init__(self, address: ChannelAddress, secrets: LaneSecrets) -> None:
        self._address = address
        self.secrets = secrets
        self.prelude = ""
        """Python code that every lane runs first. Tests use it to stop a lane at an exact point."""
        self.jobs: list[ProcessJob] = []

    def start(self, lease: int, lanes: int, description: str) -> ProcessJob:
        own = self.secrets.open(lease, lanes)
        job = ProcessJob(lease, lanes, self._address, own, self.prelude)
        job.start()
        self.jobs.append(job)
        return job

    def pids(self) -> list[int]:
        """Return the IDs of running lane processes."""
        return [pid for job in self.jobs for pid in job.pids()]

    def close(self) -> None:
        for job in self.jobs:
            job.cancel()
