"""The demo's mirror, in its own process: it may be killed, and the demo continues.

The process reports over a pipe, and ends when the pipe is closed because the demo has ended. It has
its own session: signals to the demo's process group (Ctrl-C, a closed terminal, `timeout`) are for
the demo, which ends this process last.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from logging.handlers import QueueHandler
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec.structs import replace

from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.load import load
from twinlog.control.process.commands import CommandPort, Stop
from twinlog.control.process.run import MirrorOptions, run_mirror
from twinlog.control.watch.events import remove_events
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.watch.status_file import running_mirrors
from twinlog.errors import TwinlogError

LEASE_S: Final = 30.0
"""Short, so that a demo of a minute shows that lease changes do not disturb the copy."""

OF_THE_GROUP: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that are sent to all processes of a terminal or a job."""


class Serve(Protocol):
    """Serves page, REST and metrics of a mirror until the block ends. It must be picklable."""

    def __call__(
        self, file: Path, config: MirrorConfig, served: Callable[[str], None]
    ) -> AbstractContextManager[Callable[[list[FlowSnapshot]], None]]:
        """`served` gets the page's address; the returned function takes the mirror's snapshots."""


class DemoMirror:
    """The mirror as the demo sees it: its last reports."""

    def __init__(
        self, file: Path, serve: Serve, on_snapshot: Callable[[list[FlowSnapshot]], None]
    ) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, self._child_pipe = spawn.Pipe()
        levels = {name: logging.getLogger(name).level for name in ("", "twinlog")}
        self._process = spawn.Process(
            target=_run, args=(file, serve, levels, self._child_pipe), name="demo-mirror"
        )
        self._file, self._on_snapshot = file, on_snapshot
        self._reader = threading.Thread(target=self._read, name="demo-mirror", daemon=True)
        self._is_stopping = False
        self.page = ""
        """Its address; empty before it is served."""
        self.error: TwinlogError | None = None
        """The error that ended it unexpectedly."""
        self.was_killed = False

    def start(self) -> None:
        resource_tracker.ensure_running()  # starting it would unblock these signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_THE_GROUP)
        try:
            self._process.start()  # the process inherits the mask until it has its own session
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._child_pipe.close()
        self._reader.start()

    def stop(self) -> None:
        """Wait until the process has ended, and remove its files, which remain if it was killed."""
        self._is_stopping = True
        if self._process.pid is None:
            return
        with suppress(OSError):  # it has already ended
            self._pipe.send(None)
        if self._reader.is_alive():
            self._reader.join()
        self._pipe.close()
        self._process.join()
        with suppress(TwinlogError):  # no usable folder, so no files
            remove_events(self._file)
            deque(running_mirrors(self._file), maxlen=0)  # removes the files of ended mirrors

    def _read(self) -> None:
        while True:
            try:
                message = self._pipe.recv()
            except (EOFError, OSError):
                break
            if isinstance(message, logging.LogRecord):
                logging.getLogger(message.name).handle(message)
            elif isinstance(message, str):
                self.page = message
            elif isinstance(message, TwinlogError):
                self.error = message
            else:
                self._on_snapshot(message)
        self._process.join()
        if self._is_stopping or self.error is not None:
            return
        self.was_killed = (self._process.exitcode or 0) < 0
        self._on_snapshot([])
        if not self.was_killed:
            self.error = TwinlogError("the demo's mirror exited unexpectedly")


class _Lines(QueueHandler):
    """Sends log lines to the demo, which shows them above its table."""

    def __init__(self, report: Callable[[object], None]) -> None:
        super().__init__(None)  # type: ignore[arg-type]  # nothing is queued
        self._report = report

    def enqueue(self, record: logging.LogRecord) -> None:
        self._report(record)


def _run(file: Path, serve: Serve, levels: dict[str, int], demo: Connection[Any, Any]) -> None:
    """The main function of the process."""
    _leave_the_group()
    commands, lock = CommandPort(), threading.Lock()

    def report(what: object) -> None:
        with lock, suppress(OSError):  # the demo is gone, and this process ends
            demo.send(what)

    def wait_for_stop() -> None:
        # if the demo was killed with unread data, recv raises OSError
        with suppress(EOFError, OSError):
            demo.recv()
        commands.put(Stop(who="the demo"))

    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    lines = _Lines(report)
    lines.setLevel(levels["twinlog"])
    logging.getLogger().addHandler(lines)
    # the page shows events of normal operation, too
    logging.getLogger("twinlog").setLevel(min(levels["twinlog"], logging.INFO))
    threading.Thread(target=wait_for_stop, name="demo", daemon=True).start()
    config = load(file, environment={})
    try:
        with serve(file, config, report) as watch:

            def on_snapshot(flows: list[FlowSnapshot]) -> None:
                watch(flows)
                # these functions cannot be pickled
                report([replace(flow, checkpoints=tuple, clusters=tuple) for flow in flows])

            options = MirrorOptions(lease_s=LEASE_S, commands=commands, on_snapshot=on_snapshot)
            run_mirror(config, file, options)
    except TwinlogError as error:
        report(error)


def _leave_the_group() -> None:
    """Drop signals for the demo that arrived during the start, and receive no more of them."""
    os.setsid()
    for number in OF_THE_GROUP:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_THE_GROUP)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
