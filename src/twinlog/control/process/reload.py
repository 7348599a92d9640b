"""Reads the configuration again while flows run, on request or because its files have changed.

A configuration that cannot be read changes nothing. Otherwise, only flows whose effective values
differ shut down and resume with the new values. All other flows continue.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from twinlog.config.advice.transforms import refuse_transforms
from twinlog.config.effective import changes_between
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.process.commands import CommandPort, QueuedCommand, Reload, shutdown_error
from twinlog.control.risk.running_flow import InBackground
from twinlog.control.watch.service import reloading
from twinlog.errors import TwinlogError, UsageError
from twinlog.flow_log import NEWS
from twinlog.threads import RepeatedJob

log = logging.getLogger(__name__)

POLL_S: Final = 1.0
"""Seconds between checks whether a reload has enabled the file watch, while it is disabled."""
NOT_RELOADED: Final = "the configuration was not reloaded, everything stays as it is"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadResult:
    """The result of a reload: set-ups of changed flows, and a line for each change."""

    changed: tuple[FlowSetup, ...]
    added: tuple[FlowSetup, ...]
    removed: frozenset[str]
    lines: tuple[str, ...]


class Reloader:
    """Reads the configuration files again, one read at a time."""

    def __init__(
        self,
        config: MirrorConfig,
        *,
        read: Callable[[], MirrorConfig],
        setup: Callable[[FlowConfig], FlowSetup],
        adopted: Callable[[MirrorConfig], None] = lambda _: None,
    ) -> None:
        """`adopted` is called with the new configuration, before any flow uses it."""
        self._config = config
        self._read = read
        self._setup = setup
        self._adopted = adopted
        self._seen = self._digest()

    @property
    def interval_s(self) -> int:
        """Return the seconds between two comparisons of the files, or 0 if no flow wants any."""
        asked = [flow.reload_interval_seconds for flow in self._config.flows]
        return min((seconds for seconds in asked if seconds > 0), default=0)

    def has_new_files(self) -> bool:
        """Return True if the files differ from when they were last read or compared."""
        digest = self._digest()
        if digest in (self._seen, b""):
            return False
        self._seen = digest
        return True

    def _digest(self) -> bytes:
        """Return a digest of the files' bytes. It is empty if a file cannot be read, for example
        while the file is being replaced.
        """
        try:
            files = (self._config.file, *self._config.more_files)
            return hashlib.sha256(b"\0".join(Path(file).read_bytes() for file in files)).digest()
        except OSError:
            return b""

    def read(self) -> ReloadResult:
        """Read the files, and return the changes. May block. If it raises TwinlogError, nothing has
        changed.
        """
        with reloading(os.environ):
            self._seen = self._digest()
            try:
                return self._reloaded()
            except TwinlogError as error:
                log.warning("%s: %s", NOT_RELOADED, error)
                raise
            except Exception as error:
                # an error in the file must not end flows that run with the earlier one
                log.exception("%s: internal error", NOT_RELOADED)
                raise TwinlogError(f"{NOT_RELOADED}: internal error, see the log") from error

    def _reloaded(self) -> ReloadResult:
        config = refuse_transforms(self._read())
        changes = changes_between(self._config, config)
        # read key files here, because an error in one must not stop a running flow either
        changed = tuple(self._setup(flow) for flow in changes.changed)
        added = tuple(self._setup(flow) for flow in changes.added)
        self._adopted(config)
        self._config = config
        for warning in config.warnings:
            log.warning("%s", warning, extra={"code": warning.code})
        for line in changes.lines:
            log.info("reloaded: %s", line, extra=NEWS)
        if not changes:
            log.info("the configuration was reloaded: no flow changes", extra=NEWS)
        removed = frozenset(str(flow.flow) for flow in changes.removed)
        return ReloadResult(changed=changed, added=added, removed=removed, lines=changes.lines)


@dataclass(slots=True, kw_only=True)
class Reloads:
    """Pending reloads. Used in the supervisor's thread. A request that arrives while the files are
    being read is answered by the next read.
    """

    reloader: Reloader | None
    """The reader of the files, or None with `--once`, which reads them only once."""
    background: InBackground
    change: Callable[[ReloadResult], bool]
    """Applies a reload. Returns False if the process is shutting down."""
    _waiting: list[QueuedCommand] = field(default_factory=list)
    _reading: list[QueuedCommand] = field(default_factory=list)

    def ask(self, queued: QueuedCommand) -> None:
        if self.reloader is None:
            queued.refuse(
                UsageError(
                    "this process does not reload its configuration, because it runs with --once"
                )
            )
            return
        self._waiting.append(queued)
        self._begin(self.reloader)

    def _begin(self, reloader: Reloader) -> None:
        if self._reading or not self._waiting:
            return
        self._reading, self._waiting = self._waiting, []

        def on_reloaded(reloaded: ReloadResult) -> None:
            is_followed = self.change(reloaded)
            for asked in self._ended(reloader):
                if is_followed:
                    asked.answer(*reloaded.lines)
                else:
                    asked.refuse(shutdown_error())

        def on_failed(error: TwinlogError) -> None:
            for asked in self._ended(reloader):
                asked.refuse(error)

        self.background(reloader.read, on_reloaded, on_failed)

    def _ended(self, reloader: Reloader) -> Iterable[QueuedCommand]:
        ended, self._reading = self._reading, []
        self._begin(reloader)
        return ended

    def end(self) -> None:
        """Reject waiting requests, because the process has ended."""
        for asked in (*self._reading, *self._waiting):
            asked.refuse(shutdown_error())
        self._reading, self._waiting = [], []


def file_watch(reloader: Reloader, commands: CommandPort) -> RepeatedJob:
    """Return a job that requests a reload when files have changed, if any flow wants that."""

    def run() -> float:
        if reloader.interval_s > 0 and reloader.has_new_files():
            commands.put(Reload(who="this process", reason="its files have changed"))
        return reloader.interval_s or POLL_S

    return RepeatedJob("twinlog-reload", run)
