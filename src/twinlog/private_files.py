"""Files of this user alone, in a folder that nobody else can write.

A folder with a known name below a shared one (`/tmp/twinlog-1000`) may have been put there by
somebody else, with links in it that lead to files of ours. So a folder is opened once, without
following a link, and what was opened is checked: everything after that goes through its
descriptor, and a folder that is exchanged meanwhile gets nothing. A file is made under a random
name that must be new, and renamed when it is whole: who reads it sees the old one or the new one,
also when we are killed between any two steps. What a killed process leaves is one hidden file
under a name with its pid, which the next process of this user removes.
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
    """A folder for files of ours belongs to somebody else, is open to others, or is a link."""

    code = "FOLDER_NOT_PRIVATE"


def make_private(folder: Path, todo: str) -> None:
    """Make the folder if it is not there; raises FolderNotPrivate with `todo`, and OSError."""
    with private_folder(folder, todo):
        pass


def write_private(path: Path, text: str, todo: str) -> None:
    """Put a file of this user's in its place, whole; raises FolderNotPrivate and OSError."""
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
    """A file that this user wrote; raises OSError for anything else, and ValueError."""
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
    """For `open`: a file that it makes is this user's alone, one that is there stays as it is."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def own_folder(folder: Path) -> None:
    """Make a folder that is ours by its place, or close it to others; raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def write_own(path: Path, text: str) -> None:
    """Write a file of such a folder, which others cannot read wherever it is moved."""
    with open(path, "w", encoding="utf-8", opener=private_opener) as file:
        os.fchmod(file.fileno(), 0o600)  # one of an earlier release may be there
        file.write(text)


def is_running(pid: int) -> bool:
    """Whether there is such a process; none has a number that is too large for one."""
    import psutil  # only here: most of those who write files do not ask

    try:
        return bool(psutil.pid_exists(pid))
    except OverflowError:
        return False


def remove_unfinished(folder: Path) -> None:
    """Remove what killed processes left; of a folder that was found private."""
    for path in folder.glob(f".*{_UNFINISHED}"):
        pid = path.name[1:].partition("-")[0]
        if pid.isdecimal() and not is_running(int(pid)):
            path.unlink(missing_ok=True)


@contextmanager
def private_folder(folder: Path, todo: str) -> Iterator[int]:
    """Yield a descriptor of the folder, which is created if it does not exist. Raises OSError, and
    FolderNotPrivate with `todo` if other users may use the folder.
    """
    # what cleans temporary folders may have removed it
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink():
        raise FolderNotPrivate(f"{folder} is a link, which may lead anywhere; {todo}")
    # a link that was put there since is an error here
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
            f"{folder} is open to other users (mode {stat.S_IMODE(found.st_mode):04o}); look who "
            f"wrote what is in it, then close it (chmod 700 {folder}), or {todo}"
        )
