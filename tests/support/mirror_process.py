"""A mirror in a process of its own, which a test may kill: prints its state whenever it changes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.support.eventually import eventually
from tests.support.mirror import Mirror

ROOT: Final = Path(__file__).parents[2]


class State(NamedTuple):
    """What the mirror said last."""

    state: str = ""
    reason: str = ""
    generation: int = -1
    records: int = 0
    lanes: tuple[int, ...] = ()
    """Process ids."""


class Driver:
    """Such a process, seen from the test."""

    def __init__(self, config: Path, *, lanes: int = 2) -> None:
        self.state = State()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.mirror_process", str(config), str(lanes)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("["):
                state, reason, generation, records, lanes = json.loads(line)
                self.state = State(state, reason, generation, records, tuple(lanes))

    def until(self, state: str) -> State:
        eventually(lambda: self.state.state == state, what=f"{state}, not {self.state}")
        return self.state

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


def main(config: str, lanes: str) -> None:
    """Run until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with Mirror(Path(config), lanes=int(lanes)) as mirror:
        last = ""
        while not stop.wait(0.1):
            (flow,) = mirror.supervisor.snapshots()
            said = [flow.state, flow.reason, flow.generation, flow.records, mirror.leases.pids()]
            line = json.dumps(said)
            if line != last:
                print(line, flush=True)  # noqa: T201 (its parent reads it)
                last = line
        mirror.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
