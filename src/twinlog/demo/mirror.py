"""The demo's mirror, which runs in its own process, so that a user can kill it while the demo
continues.

The process reports over a pipe, and ends when the pipe is closed because the demo has ended. The
process has its own session, so that signals to the demo's process group (Ctrl-C, a closed terminal,
`timeout`) reach only the demo. The demo then ends this process after its other parts.
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
"""Duration of a lease (the Spark job of the lanes) in seconds. Short, so that even a demo of a
minute has changes of leases, and shows that the changes do not disturb the copy.
"""

OF_THE_GROUP: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that are often sent to all processes of a terminal or a job."""


class Serve(Protocol):
    """A picklable function that serves a mirror's page, REST API and metrics in a `with` block."""

    def __call__(
        self, file: Path, config: MirrorConfig, served: Callable[[str], None]
    ) -> AbstractContextManager[Callable[[list[FlowSnapshot]], None]]:
        """Return a context manager whose value is called with the mirror's snapshots. `served` is
        called with the page's address.
        """


class DemoMirror:
    """The mirror's process and its last reports, from the demo's view."""

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
        """The address of the mirror's page, or an empty text before it is served."""
        self.error: TwinlogError | None = None
        """The error that has ended the mirror, or None."""
        self.was_killed = False

    def start(self) -> None:
        # start the tracker now, because its start would unblock the signals that are blocked below
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_THE_GROUP)
        try:
            # signals stay blocked in the new process until it has its own session
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._child_pipe.close()
        self._reader.start()

    def stop(self) -> None:
        """Stop the process, wait for its end, and remove files that remain if it was killed."""
        self._is_stopping = True
        if self._process.pid is None:
            return
        with suppress(OSError):  # the process has already ended
            self._pipe.send(None)
        if self._reader.is_alive():
            self._reader.join()
        self._pipe.close()
        self._process.join()
        with suppress(TwinlogError):  # if the folder cannot be used, there are no files
            remove_events(self._file)
            deque(running_mirrors(self._file), maxlen=0)  # removes files of ended mirrors

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
    """Sends log records to the demo, which shows them above its table."""

    def __init__(self, report: Callable[[object], None]) -> None:
        super().__init__(None)  # type: ignore[arg-type]  # `enqueue` uses no queue
        self._report = report

    def enqueue(self, record: logging.LogRecord) -> None:
        self._report(record)


def _run(file: Path, serve: Serve, levels: dict[str, int], demo: Connection[Any, Any]) -> None:
    """The main function of the mirror's process."""
    _leave_the_group()
    commands, lock = CommandPort(), threading.Lock()

    def report(what: object) -> None:
        with lock, suppress(OSError):  # the demo has ended, so this process ends, too
            demo.send(what)

    def wait_for_stop() -> None:
        # recv raises OSError if the demo was killed while data was unread
        with suppress(EOFError, OSError):
            demo.recv()
        commands.put(Stop(who="the demo"))

    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    lines = _Lines(report)
    lines.setLevel(levels["twinlog"])
    logging.getLogger().addHandler(lines)
    # level INFO or lower, because the page also shows events of normal operation
    logging.getLogger("twinlog").setLevel(min(levels["twinlog"], logging.INFO))
    threading.Thread(target=wait_for_stop, name="demo", daemon=True).start()
    config = load(file, environment={})
    try:
        with serve(file, config, report) as watch:

            def on_snapshot(flows: list[FlowSnapshot]) -> None:
                watch(flows)
                # replace two functions that cannot be pickled
                report([replace(flow, checkpoints=tuple, clusters=tuple) for flow in flows])

            options = MirrorOptions(lease_s=LEASE_S, commands=commands, on_snapshot=on_snapshot)
            run_mirror(config, file, options)
    except TwinlogError as error:
        report(error)


def _leave_the_group() -> None:
    """Leave the demo's session, and drop the demo's signals that arrived during the start."""
    os.setsid()
    for number in OF_THE_GROUP:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_THE_GROUP)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
