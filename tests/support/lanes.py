"""Leases without Spark: every lane is a process of its own, started again when it dies, as Spark
would do it.

Fault tests kill and freeze lanes by process id; what Spark adds (placement, its own retries) has
its own tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from twinlog.channel.frames import ChannelAddress
from twinlog.channel.lane_secrets import LaneSecrets
from twinlog.errors import TwinlogError

MAX_ATTEMPTS = 20

PROGRAM = """
import json, logging, sys
from twinlog.channel.frames import ChannelAddress
from twinlog.spark.lane import run_lane
logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s lane %(message)s")
job = json.loads(sys.argv[1])
run_lane(job["lane"], job["lease"], job["attempt"], ChannelAddress(**job["address"]))
"""


@dataclass(slots=True)
class ProcessJob:
    """One lease: a process per lane."""

    lease: int
    lanes: int
    address: ChannelAddress
    secrets: tuple[str, ...]
    prelude: str = ""
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    cancelled: bool = False
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
        program = self.prelude + PROGRAM
        self.processes[lane] = subprocess.Popen([sys.executable, "-c", program, json.dumps(job)])

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

    def cancel(self) -> None:
        self.cancelled = True
        for process in self.processes.values():
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)
                process.kill()
            process.wait()


class ProcessLeases:
    """Starts leases; what the supervisor takes for Spark."""

    def __init__(self, address: ChannelAddress, secrets: LaneSecrets) -> None:
        self._address = address
        self.secrets = secrets
        self.prelude = ""
        """Python that every lane runs first: how a test stops a lane at one exact place."""
        self.jobs: list[ProcessJob] = []

    def start(self, lease: int, lanes: int) -> ProcessJob:
        own = self.secrets.open(lease, lanes)
        job = ProcessJob(lease, lanes, self._address, own, self.prelude)
        job.start()
        self.jobs.append(job)
        return job

    def pids(self) -> list[int]:
        """Lane processes that run now."""
        return [pid for job in self.jobs for pid in job.pids()]

    def close(self) -> None:
        for job in self.jobs:
            job.cancel()
