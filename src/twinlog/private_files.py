"""Files that belong to this user alone, in a folder to which no other user can write.

A folder with a known name below a shared one (`/tmp/twinlog-1000`) may have been created by another
user, with links in it that lead to this user's files. So a folder is opened once, without following
a link, and the opened folder is checked. Everything after that uses its descriptor, so a folder
that is replaced in the meantime gets nothing. A file is created under a random name that must be
new, and renamed once it is complete. So a reader sees the old or the new file, even if this process
is killed between any two steps. A killed process leaves one hidden file with its pid in the name,
which the next process of this user removes.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from twinlog.errors import EnvironmentMissing

FOR_OTHERS: Final = 0o077
_UNFINISHED: Final = ".unfinished"


class FolderNotPrivate(EnvironmentMissing):
    """A folder for private files belongs to another user, is open to other users, or is a link."""

    code = "FOLDER_NOT_PRIVATE"


def make_private(folder: Path, todo: str) -> None:
    """Create the folder if it does not exist. Raises FolderNotPrivate with `todo`, and OSError."""
    with private_folder(folder, todo):
        pass


def write_private(path: Path, text: str, todo: str) -> None:
    """Write a private file atomically. Raises FolderNotPrivate and OSError."""
    with private_folder(path.parent, todo) as folder:
        fresh = f".{os.getpid()}-{secrets.token_hex(8)}{_UNFINISHED}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(fresh, flags, 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.rename(fresh, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(fresh, dir_fd=folder)
            raise


def read_private(path: Path) -> str:
    """Read a file that this user wrote. Raises OSError for any other file, and ValueError."""
    with open(path, encoding="utf-8", opener=own_opener) as file:
        return file.read()


@contextmanager
def memory_file(text: str, shown_as: str = "twinlog") -> Iterator[int]:
    """Yield the descriptor of a file in memory, which `/proc/self/fd/N` opens.

    It is in no folder, so it disappears when its last process ends, even if that is killed.
    """
    descriptor = os.memfd_create(shown_as)
    try:
        with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
        yield descriptor
    finally:
        os.close(descriptor)


def own_opener(path: str, flags: int) -> int:
    """Opener for `open`. Raises PermissionError unless it is a regular file of this user."""
    # a named pipe would make the open wait
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        return descriptor
    os.close(descriptor)
    raise PermissionError(errno.EPERM, "is not a regular file of this user", path)


def private_opener(path: str, flags: int) -> int:
    """Opener for `open`. A file that it creates is private; an existing one keeps its mode."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def own_folder(folder: Path) -> None:
    """Create a private folder at a safe path, or close an existing one to other users. Raises
    OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def write_own(path: Path, text: str) -> None:
    """Write a file of such a folder that other users cannot read, wherever it is moved."""
    with open(path, "w", encoding="utf-8", opener=private_opener) as file:
        os.fchmod(file.fileno(), 0o600)  # a file of an earlier release may exist
        file.write(text)


def is_running(pid: int) -> bool:
    """Return whether there is such a process. Numbers that are too large for a pid have none."""
    import psutil  # only here: most of those who write files do not ask

    try:
        return bool(psutil.pid_exists(pid))
    except OverflowError:
        return False


def remove_unfinished(folder: Path) -> None:
    """Remove files left by killed processes, in a folder that was found private."""
    for path in folder.glob(f".*{_UNFINISHED}"):
        pid = path.name[1:].partition("-")[0]
        if pid.isdecimal() and not is_running(int(pid)):
            path.unlink(missing_ok=True)


@contextmanager
def private_folder(folder: Path, todo: str) -> Iterator[int]:
    """Yield a descriptor of the folder, which is created if it does not exist. Raises OSError, and
    FolderNotPrivate with `todo` if other users may use the folder.
    """
    # a cleaner of temporary folders may have removed it
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink():
        raise FolderNotPrivate(f"{folder} is a link, which may lead anywhere; {todo}")
    # a link that was created since causes an error here
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, flags)
    try:
        _check(folder, os.fstat(descriptor), todo)
        yield descriptor
    finally:
        os.close(descriptor)


def _check(folder: Path, found: os.stat_result, todo: str) -> None:
    us = os.geteuid()
    if found.st_uid != us:
        raise FolderNotPrivate(
            f"{folder} belongs to user {found.st_uid}, and this process is user {us}; {todo}"
        )
    if found.st_mode & FOR_OTHERS:
        raise FolderNotPrivate(
            f"{folder} is open to other users (mode {stat.S_IMODE(found.st_mode):04o}); check who "
            f"wrote its content, then close it (chmod 700 {folder}), or {todo}"
        )
