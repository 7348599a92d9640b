"""A mirror in its own process, which a test may kill. The process prints its state whenever the
state changes.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

from tests.support.eventually import eventually
from tests.support.hosts import Host
from tests.support.mirror import EmittingMirror, Mirror
from twinlog.addresses import Address
from twinlog.cli.terminal.monitoring import watched
from twinlog.config.load import load
from twinlog.control.web.address import parse_listen
from twinlog.control.web.current_config import CurrentConfig
from twinlog.control.web.server import WebServer

ROOT: Final = Path(__file__).parents[2]


class State(NamedTuple):
    """The mirror's last report about a flow."""

    state: str = ""
    reason: str = ""
    generation: int = -1
    """Generation that this process leads, or -1 if it does not lead the flow."""
    records: int = 0
    lanes: tuple[int, ...] = ()
    """Process IDs of the lanes of all flows."""


class Driver:
    """The mirror's process, as the test sees it."""

    def __init__(
        self,
        config: Path,
        *,
        lanes: int = 2,
        listen: Address | None = None,
        adopts_mm2: bool = False,
        clusters: Sequence[str] = (),
        emits: bool = False,
        host: Host | None = None,
    ) -> None:
        self.state = State()
        """State of the only flow."""
        self.states: dict[str, State] = {}
        """States by flow."""
        self.address: Address | None = None
        """The mirror's HTTP address, or None until it serves HTTP."""
        arguments = [str(config), f"--lanes={lanes}"]
        arguments += [] if listen is None else [f"--listen={listen}"]
        arguments += ["--adopt"] if adopts_mm2 else []
        arguments += ["--emit"] if emits else []
        arguments += ["--clusters", *clusters] if clusters else []
        entry = [*(host.enter if host else ()), sys.executable]
        self._process = subprocess.Popen(
            [*entry, "-m", "tests.support.mirror_process", *arguments],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | {"XDG_RUNTIME_DIR": str(config.parent)},
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("["):
                flows, lanes = json.loads(line)
                self.states = {
                    flow: State(state, reason, generation, records, tuple(lanes))
                    for flow, state, reason, generation, records in flows
                }
                self.state = next(iter(self.states.values()))
            elif line.startswith("http://"):
                self.address = parse_listen(line.removeprefix("http://").split()[0])

    def served(self) -> Address:
        """Wait until the mirror serves HTTP, and return its address."""
        eventually(lambda: self.address, what="an address of HTTP")
        assert self.address is not None
        return self.address

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

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


def main() -> None:
    """Run the mirror of the given file until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--lanes", type=int)
    parser.add_argument("--listen", default="off")
    parser.add_argument("--adopt", action="store_true")
    parser.add_argument("--emit", action="store_true")
    parser.add_argument("--clusters", nargs="*", default=())
    given = parser.parse_args()
    stop = threading.Event()
    logging.getLogger("twinlog").setLevel(logging.INFO)  # the level that the command line sets
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    file, address = given.file, parse_listen(given.listen)
    config = load(file, given.clusters)
    current = CurrentConfig(config)
    kind = EmittingMirror if given.emit else Mirror

    def served(server: WebServer) -> None:
        print(server.line, flush=True)  # noqa: T201 (its parent reads it)

    with (
        watched(file, address, stop, served, current=current) as watch,
        kind(
            config,
            lanes=given.lanes,
            on_snapshot=watch.update,
            events=watch.events,
            adopt_mm2=given.adopt,
        ) as mirror,
    ):
        last = ""
        while not stop.wait(0.1):
            flows = [
                [
                    one.flow,
                    one.state,
                    one.reason,
                    -1 if one.generation is None else one.generation,
                    one.records,
                ]
                for one in mirror.supervisor.snapshots()
            ]
            line = json.dumps([flows, mirror.leases.pids()])
            if line != last:
                print(line, flush=True)  # noqa: T201 (its parent reads it)
                last = line
        mirror.stop()


if __name__ == "__main__":
    main()
