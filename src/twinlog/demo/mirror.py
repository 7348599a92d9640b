"""The demo's mirror, in a process of its own: it may be killed, and the demo continues.

What it reports comes over a pipe; that the pipe ends shows it that the demo is gone. It is in a
session of its own: a signal to the demo's whole group (Ctrl-C, a terminal that closes, `timeout`)
is for the demo, which ends this one last.
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
from dataclasses import replace
from logging.handlers import QueueHandler
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Protocol

from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.load import load
from twinlog.control.process.commands import CommandPort, Stop
from twinlog.control.process.run import MirrorOptions, run_mirror
from twinlog.control.watch.events import remove_events
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.watch.status_file import running_mirrors
from twinlog.errors import TwinlogError

LEASE_S: Final = 30.0
"""Short, so that a demo of a minute shows that a change of leases is not to be noticed."""

OF_THE_GROUP: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What is sent to all processes of a terminal or a job at once."""


class Serve(Protocol):
    """Serves page, REST and metrics of a mirror while the block lasts. It is pickled."""

    def __call__(
        self, file: Path, config: MirrorConfig, served: Callable[[str], None]
    ) -> AbstractContextManager[Callable[[list[FlowSnapshot]], None]]:
        """`served` gets the address of the page; the function takes what the mirror reports."""


class DemoMirror:
    """Seen from the demo: what it reported last."""

    def __init__(
        self, file: Path, serve: Serve, on_snapshot: Callable[[list[FlowSnapshot]], None]
    ) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._here, self._there = spawn.Pipe()
        levels = {name: logging.getLogger(name).level for name in ("", "twinlog")}
        self._process = spawn.Process(
            target=_run, args=(file, serve, levels, self._there), name="demo-mirror"
        )
        self._file, self._on_snapshot = file, on_snapshot
        self._reader = threading.Thread(target=self._read, name="demo-mirror", daemon=True)
        self._is_stopping = False
        self.page = ""
        """Its address; empty before it is served."""
        self.error: TwinlogError | None = None
        """Why it ended, where it should not have."""
        self.was_killed = False

    def start(self) -> None:
        resource_tracker.ensure_running()  # its start ends with these signals let in
        before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_THE_GROUP)
        try:
            self._process.start()  # inherits that, until it is in its own session
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._there.close()
        self._reader.start()

    def stop(self) -> None:
        """Returns when it has ended, and its files are gone: one that was killed left them."""
        self._is_stopping = True
        if self._process.pid is None:
            return
        with suppress(OSError):  # it has ended by itself
            self._here.send(None)
        if self._reader.is_alive():
            self._reader.join()
        self._here.close()
        self._process.join()
        with suppress(TwinlogError):  # no folder that can be used, so no files
            remove_events(self._file)
            deque(running_mirrors(self._file), maxlen=0)  # forgets those that are gone

    def _read(self) -> None:
        while True:
            try:
                message = self._here.recv()
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
            self.error = TwinlogError("the demo's mirror ended by itself")


class _Lines(QueueHandler):
    """Log lines go to the demo, which shows them above its table."""

    def __init__(self, report: Callable[[object], None]) -> None:
        super().__init__(None)  # type: ignore[arg-type]  # nothing is queued
        self._report = report

    def enqueue(self, record: logging.LogRecord) -> None:
        self._report(record)


def _run(file: Path, serve: Serve, levels: dict[str, int], demo: Connection[Any, Any]) -> None:
    """The process."""
    _leave_the_group()
    commands, lock = CommandPort(), threading.Lock()

    def report(what: object) -> None:
        with lock, suppress(OSError):  # the demo is gone, and this process ends
            demo.send(what)

    def hear() -> None:
        # a demo that was killed before it had read all is no plain end of the pipe
        with suppress(EOFError, OSError):
            demo.recv()
        commands.put(Stop(who="the demo"))

    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger().addHandler(_Lines(report))
    threading.Thread(target=hear, name="demo", daemon=True).start()
    config = load(file, environment={})
    try:
        with serve(file, config, report) as watch:

            def on_snapshot(flows: list[FlowSnapshot]) -> None:
                watch(flows)
                # what can be asked stays here
                report([replace(one, checkpoints=tuple, clusters=tuple) for one in flows])

            options = MirrorOptions(lease_s=LEASE_S, commands=commands, on_snapshot=on_snapshot)
            run_mirror(config, file, options)
    except TwinlogError as error:
        report(error)


def _leave_the_group() -> None:
    """Drop what came for the demo while this process began, and get no more of it."""
    os.setsid()
    for number in OF_THE_GROUP:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_THE_GROUP)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
