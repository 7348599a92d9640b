"""Key files that are renewed under the same path: what a new connection proves itself with.

    file changes ---> read whole ---> in use by the next connection
                        |
                        `-- wrong: the material before it stays in use; one line says which file and
                            why; it is read again until it is right

A connection checks the files (time, size, inode) when nobody has for `CHECK_EVERY_S`; the driver
checks that often anyway, and tells lanes, which have no files. What is open stays open: brokers
close what they do not want any more. A file is often seen half-written, or a new key beside an old
certificate; so what is wrong is said when it still is after `SETTLES_S`.
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
"""Three checks fit into the half minute that a connection which was refused may wait."""

SETTLES_S: Final = 15.0
"""Longer than a copy of two files takes, and more than one check."""

Mark = tuple[str, int, int, int]
"""A file's path, time in ns, size and inode; -1 three times where there is none."""


def marks_of(files: Iterable[tuple[str, str]]) -> tuple[Mark, ...]:
    """What shows that one of these files is another than before; links are followed."""
    return tuple(_mark(path) for path in dict.fromkeys(path for _, path in files))


def _mark(path: str) -> Mark:
    try:
        found = os.stat(path)  # noqa: PTH116 (a name that is no path raises ValueError as well)
    except (OSError, ValueError):
        return path, -1, -1, -1
    return path, found.st_mtime_ns, found.st_size, found.st_ino


class FollowedFiles:
    """The files behind one set of settings; not for several threads at once."""

    def __init__(self, settings: SecuritySettings, read: Callable[[], SecuritySettings]) -> None:
        """`read` reads all files again, and raises ConfigError where one is wrong."""
        self.settings = settings
        """In use: the last that was whole."""
        self._read = read
        self._used: tuple[Mark, ...] | None = None
        """Of the files in use; None until the first check: they may have changed since they were
        read."""
        self._wrong_since: float | None = None
        self._reported = ""

    def check(self, now: float) -> bool:
        """Read the files again if they have changed, or were wrong; whether others are in use now.

        `now` is in seconds of any clock that does not go back.
        """
        marks = marks_of(self.settings.files)
        if marks == self._used:
            self._wrong_since, self._reported = None, ""  # also where the old ones were put back
            return False
        changed = [mark[0] for mark in marks if mark not in (self._used or ())]
        try:
            found = self._read()
        except ConfigError as error:
            self._is_wrong(error, changed, now)
            return False
        # marks of before the reading: what changes meanwhile differs from them at the next check
        same_files = found.files == self.settings.files
        self._used = marks if same_files else marks_of(found.files)
        self._wrong_since, self._reported = None, ""
        if found == self.settings:
            return False
        self.settings = found
        log.info("new connections use the renewed key files: %s", ", ".join(changed))
        return True

    def _is_wrong(self, error: ConfigError, changed: Iterable[str], now: float) -> None:
        if self._wrong_since is None:
            self._wrong_since = now
        if now - self._wrong_since >= SETTLES_S and error.message != self._reported:
            self._reported = error.message
            log.warning(
                "%s was changed and cannot be used; the key file before stays in use, and it is "
                "read again every %.0f s: %s",
                " and ".join(changed),
                CHECK_EVERY_S,
                error.message,
            )


class Renewals:
    """All key files that this process follows, by the settings they were first read into."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        """Of the table; each entry has one of its own, held while files are read."""
        self._followed: dict[SecuritySettings, _Entry] = {}

    def follow(self, settings: SecuritySettings, read: Callable[[], SecuritySettings]) -> None:
        """Look at the files of these settings from now on; both clusters may be entered with the
        same.
        """
        if not settings.files:
            return
        files = FollowedFiles(settings, read)
        with self._lock:
            # who read last knows the newest passwords of the same stores
            self._followed[settings] = _Entry(files, self._clock())

    def current(self, settings: SecuritySettings) -> SecuritySettings:
        """What a new connection uses; the settings themselves where no files are followed."""
        entry = self._followed.get(settings)
        if entry is None:
            return settings
        # while another thread reads, perhaps from a disk that hangs, what is known is used
        if self._clock() - entry.checked_at >= CHECK_EVERY_S and entry.lock.acquire(blocking=False):
            try:
                entry.checked_at = self._clock()
                entry.files.check(self._clock())
            finally:
                entry.lock.release()
        return entry.files.settings

    def known(self, settings: SecuritySettings) -> SecuritySettings:
        """The same, without a check of any file."""
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
known: Final = _renewals.known
