"""Re-reads key files that were renewed under the same path, and provides the new settings to new
connections.

    file changes ---> read whole ---> in use by the next connection
                        |
                        `-- wrong: the previous content stays in use; one line reports the file and
                            the reason; it is read again until it is right

*When.* A new connection checks the files (time, size, inode) if the last check was at least
`CHECK_EVERY_S` ago. The driver also checks the files at this interval, and sends new settings to
lanes, which have no files. Open connections are kept; brokers close them if the old certificate is
no longer accepted.

*Half-written files.* A check often finds an incomplete file, or a new key together with an old
certificate. So an unusable file is reported only if it is still unusable after `SETTLES_S`.
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
"""Interval of checks, in seconds. A rejected connection is retried for at least half a minute, so
that three checks fit into this time.
"""

SETTLES_S: Final = 15.0
"""Time before an unusable file is reported, in seconds. It is longer than the copying of two files
takes, and longer than the interval of checks.
"""

FileStamp = tuple[str, int, int, int]
"""A file's path, modification time (ns), size and inode. Without the file, all but path are -1."""


def file_stamps(files: Iterable[tuple[str, str]]) -> tuple[FileStamp, ...]:
    """Return a stamp of each file that changes if the file changes. Follows symbolic links."""
    return tuple(_stamp(path) for path in dict.fromkeys(path for _, path in files))


def _stamp(path: str) -> FileStamp:
    try:
        state = os.stat(path)  # noqa: PTH116 (a name that is no path also raises ValueError)
    except (OSError, ValueError):
        return path, -1, -1, -1
    return path, state.st_mtime_ns, state.st_size, state.st_ino


class FollowedFiles:
    """The key files of one cluster's settings, with the last usable settings. Not thread-safe."""

    def __init__(self, settings: SecuritySettings, read: Callable[[], SecuritySettings]) -> None:
        """`read` returns the settings from the current files. It may raise ConfigError."""
        self.settings = settings
        """The settings in use, from the last state in which all files were usable."""
        self._read = read
        self._used: tuple[FileStamp, ...] | None = None
        """Path, time, size and inode of each file from which `settings` were read. None until the
        first check, because the files may have changed since they were first read.
        """
        self._wrong_since: float | None = None
        self._reported = ""
        self.lock = threading.Lock()
        """Held by the thread that calls `check`."""
        self.checked_at = 0.0
        """When `check` was called last. Set by the caller."""

    def check(self, now: float) -> bool:
        """Read the files again if they have changed or could not be used. Returns True if the
        settings have changed.

        `now` is in seconds of any monotonic clock.
        """
        stamps = file_stamps(self.settings.files)
        if stamps == self._used:
            self._wrong_since, self._reported = None, ""  # the old files may have been restored
            return False
        changed = [stamp[0] for stamp in stamps if stamp not in (self._used or ())]
        try:
            current = self._read()
        except ConfigError as error:
            self._is_wrong(error, changed, now)
            return False
        # use the stamps from before `_read`, so that the next check notices changes during `_read`
        same_files = current.files == self.settings.files
        self._used = stamps if same_files else file_stamps(current.files)
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
                "%s changed, but the new content cannot be used; the previous content stays in "
                "use, and the new content is read again every %.0f s: %s",
                " and ".join(changed),
                CHECK_EVERY_S,
                error.message,
            )


class Renewals:
    """All key files of this process, by the settings that were first read from the files.
    Thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        """Protects `_followed`. The lock of FollowedFiles protects the reading of its files."""
        self._followed: dict[SecuritySettings, FollowedFiles] = {}

    def follow(self, settings: SecuritySettings, read: Callable[[], SecuritySettings]) -> None:
        """Check these settings' files from now on. `read` reads the settings again."""
        if not settings.files:
            return
        files = FollowedFiles(settings, read)
        files.checked_at = self._clock()
        with self._lock:
            # if clusters with equal settings share an entry, the later one's `read` replaces the
            # earlier one's, because it has the newer passwords
            self._followed[settings] = files

    def current(self, settings: SecuritySettings) -> SecuritySettings:
        """Return the current settings for a new connection, or `settings` if it has no files."""
        files = self._followed.get(settings)
        if files is None:
            return settings
        # if another thread is reading, perhaps from a slow disk, do not wait for it
        if self._clock() - files.checked_at >= CHECK_EVERY_S and files.lock.acquire(blocking=False):
            try:
                files.checked_at = self._clock()
                files.check(self._clock())
            finally:
                files.lock.release()
        return files.settings

    def last_settings(self, settings: SecuritySettings) -> SecuritySettings:
        """Return the settings in use, without checking if files have changed."""
        files = self._followed.get(settings)
        return settings if files is None else files.settings


_renewals: Final = Renewals()

follow: Final = _renewals.follow
current: Final = _renewals.current
known: Final = _renewals.last_settings
