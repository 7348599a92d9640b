"""Follows key files that are renewed under the same path, for new connections.

    file changes ---> read whole ---> in use by the next connection
                        |
                        `-- wrong: the previous content stays in use; one line reports the file and
                            the reason; it is read again until it is right

*When.* A connection checks the files (time, size, inode) if the last check was `CHECK_EVERY_S` ago.
The driver also checks them that often, and informs lanes, which have no files. Open connections
stay open: brokers close those that they no longer accept.

*Half-written files.* A check often finds a file that is not complete, or a new key beside an old
certificate. So a file that cannot be used is reported only if that is still so after `SETTLES_S`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.errors import ConfigError

log = logging.getLogger(__name__)

CHECK_EVERY_S: Final = 10.0
"""A rejected connection is retried for at least half a minute, so three checks fit into it."""

SETTLES_S: Final = 15.0
"""More than it takes to copy two files, and more than one check."""

Mark = tuple[str, int, int, int]
"""A file's path, time (ns), size and inode. The last three are -1 if it does not exist."""


def marks_of(files: Iterable[tuple[str, str]]) -> tuple[Mark, ...]:
    """Return the marks of these files, which change with them. Links are followed."""
    return tuple(_mark(path) for path in dict.fromkeys(path for _, path in files))


def _mark(path: str) -> Mark:
    try:
        state = os.stat(path)  # noqa: PTH116 (a name that is no path raises ValueError as well)
    except (OSError, ValueError):
        return path, -1, -1, -1
    return path, state.st_mtime_ns, state.st_size, state.st_ino


class FollowedFiles:
    """The files of one cluster's settings. Not thread-safe."""

    def __init__(self, settings: SecuritySettings, read: Callable[[], SecuritySettings]) -> None:
        """`read` reads all files again. It raises ConfigError if one cannot be used."""
        self.settings = settings
        """The settings in use: the last complete ones."""
        self._read = read
        self._used: tuple[Mark, ...] | None = None
        """Marks of the files in use. None until the first check, because they may have changed
        since they were first read.
        """
        self._wrong_since: float | None = None
        self._reported = ""

    def check(self, now: float) -> bool:
        """Read the files again if they have changed or could not be used. Returns whether the
        settings have changed.

        `now` is in seconds of any monotonic clock.
        """
        marks = marks_of(self.settings.files)
        if marks == self._used:
            self._wrong_since, self._reported = None, ""  # the old files may have been restored
            return False
        changed = [mark[0] for mark in marks if mark not in (self._used or ())]
        try:
            current = self._read()
        except ConfigError as error:
            self._is_wrong(error, changed, now)
            return False
        # marks from before the reading, so that the next check notices a change during it
        same_files = current.files == self.settings.files
        self._used = marks if same_files else marks_of(current.files)
        self._wrong_since, self._reported = None, ""
        if current == self.settings:
            return False
        self.settings = current
        log.info("new connections use the renewed key files: %s", ", ".join(changed))
        return True

    def _is_wrong(self, error: ConfigError, changed: Iterable[str], now: float) -> None:
        if self._wrong_since is None:
            self._wrong_since = now
        if now - self._wrong_since >= SETTLES_S and error.message != self._reported:
            self._reported = error.message
            log.warning(
                "%s was changed and cannot be used; the previous content stays in use, and it is "
                "read again every %.0f s: %s",
                " and ".join(changed),
                CHECK_EVERY_S,
                error.message,
            )


class Renewals:
    """All key files that this process follows, by the settings that were first read from them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        """Protects the table. Each entry has its own lock, which is held while files are read."""
        self._followed: dict[SecuritySettings, _Entry] = {}

    def follow(self, settings: SecuritySettings, read: Callable[[], SecuritySettings]) -> None:
        """Follow the files of these settings. `read` reads them again."""
        if not settings.files:
            return
        files = FollowedFiles(settings, read)
        with self._lock:
            # of several clusters with these files, the last `read` has the newest passwords
            self._followed[settings] = _Entry(files, self._clock())

    def current(self, settings: SecuritySettings) -> SecuritySettings:
        """Return the current settings for a new connection. They are unchanged without files."""
        entry = self._followed.get(settings)
        if entry is None:
            return settings
        # while another thread reads, perhaps from a slow disk, the known settings are used
        if self._clock() - entry.checked_at >= CHECK_EVERY_S and entry.lock.acquire(blocking=False):
            try:
                entry.checked_at = self._clock()
                entry.files.check(self._clock())
            finally:
                entry.lock.release()
        return entry.files.settings

    def last_settings(self, settings: SecuritySettings) -> SecuritySettings:
        """Return the settings in use, without checking any file."""
        entry = self._followed.get(settings)
        return settings if entry is None else entry.files.settings


class _Entry:
    __slots__ = ("checked_at", "files", "lock")

    def __init__(self, files: FollowedFiles, checked_at: float) -> None:
        self.files = files
        self.checked_at = checked_at
        self.lock = threading.Lock()


_renewals: Final = Renewals()

follow: Final = _renewals.follow
current: Final = _renewals.current
known: Final = _renewals.last_settings
