"""Reads the configuration again while flows run: at a signal, or when the file has changed.

What cannot be read changes nothing. Of what can, only the flows whose effective values differ end
their work early and go on with the new ones; the others do not notice.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from twinlog.config.changes import changes_between
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.supervisor import Supervisor
from twinlog.control.watch.service import reloading
from twinlog.errors import TwinlogError
from twinlog.flow_log import NEWS

log = logging.getLogger(__name__)

LOOK_S: Final = 0.2
"""How soon a signal is noticed: its handler may only set an event."""


class Reloader:
    """A thread that reads the file again and tells the supervisor what changed."""

    def __init__(
        self,
        config: MirrorConfig,
        *,
        read: Callable[[], MirrorConfig],
        setup: Callable[[FlowConfig], FlowSetup],
        supervisor: Supervisor,
        asked: threading.Event,
        adopted: Callable[[MirrorConfig], None] = lambda _: None,
    ) -> None:
        """`adopted` is told what holds from now on, before any flow runs by it."""
        self._config = config
        self._read = read
        self._setup = setup
        self._supervisor = supervisor
        self._asked = asked
        self._adopted = adopted
        self._stop = threading.Event()
        self._seen = self._digest()
        self._thread = threading.Thread(target=self._run, name="twinlog-reload", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        waited = 0.0
        while not self._stop.wait(LOOK_S):
            waited += LOOK_S
            if self._asked.is_set():
                self._asked.clear()
                self._seen = self._digest()
                self._tell_and_reload()
            elif 0 < self._interval_s <= waited:
                waited = 0.0
                digest = self._digest()
                if digest not in (self._seen, b""):
                    self._seen = digest
                    self._tell_and_reload()

    @property
    def _interval_s(self) -> int:
        asked = [flow.reload_interval_seconds for flow in self._config.flows]
        return min((seconds for seconds in asked if seconds > 0), default=0)

    def _digest(self) -> bytes:
        """Of the files' bytes; empty while it cannot be read, as in the middle of a replacement."""
        try:
            files = (self._config.file, *self._config.more_files)
            return hashlib.sha256(b"\0".join(Path(one).read_bytes() for one in files)).digest()
        except OSError:
            return b""

    def _tell_and_reload(self) -> None:
        with reloading(os.environ):
            self._reload()

    def _reload(self) -> None:
        try:
            config = self._read()
            changes = changes_between(self._config, config)
            # key files are read here: what is wrong with them must not stop a flow either
            changed = [self._setup(flow) for flow in changes.changed]
            added = [self._setup(flow) for flow in changes.added]
            self._adopted(config)
        except TwinlogError as error:
            log.warning("the configuration was not reloaded, everything stays as it is: %s", error)
            return
        except Exception:  # what is wrong with the file must not end what runs with the one before
            log.exception("the configuration was not reloaded, everything stays as it is: a bug")
            return
        for warning in config.warnings:
            log.warning("%s", warning)
        self._config = config
        if not changes:
            log.info("the configuration was reloaded: no flow changes", extra=NEWS)
            return
        for line in changes.lines:
            log.info("reloaded: %s", line, extra=NEWS)
        self._supervisor.change(changed, added, [str(one.flow) for one in changes.removed])
