"""Folders that a command needs, and files that only this user can read.

If a folder is unusable, there is one clear error.

**Private files** are in a folder to which no other user can write. A folder with a predictable name
below a shared one (`/tmp/twinlog-1000`) may have been created by another user, with links that lead
to files of this user. So a folder is opened once, without following links, and the opened folder is
checked. All further steps use its descriptor. If the folder is replaced in the meantime, nothing is
written to the new one.

A file is created under a random name that must be new, and is renamed when it is complete. So a
reader sees the old or the new file, even if this process is killed between any two steps. A killed
process leaves one hidden file with its pid in the name, which the next process of this user
removes.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from twinlog.errors import EnvironmentMissing


@contextmanager
def usable(folder: Path, todo: str) -> Iterator[None]:
    """Convert an OSError of the block to EnvironmentMissing with `todo`, which says what to do."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise EnvironmentMissing(
            f"{error.filename or folder} cannot be used: {why}; {todo}"
        ) from None


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return `twinlog` below XDG_CACHE_HOME, else below `~/.cache`."""
    return (
        named_folder(environment, "XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    ) / "twinlog"


def named_folder(environment: Mapping[str, str], variable: str) -> Path | None:
    """Return the folder in an XDG variable, or None if it is not set or not absolute.

    The XDG Base Directory Specification requires relative paths to be ignored. Each command would
    resolve them to another folder.
    """
    folder = Path(environment.get(variable, ""))
    return folder if folder.is_absolute() else None


def temporary_folder(prefix: str) -> Path:
    """Create a private folder for temporary files. Raises EnvironmentMissing."""
    with usable(Path("the temporary folder"), "set TMPDIR to a folder that can be written"):
        return Path(tempfile.mkdtemp(prefix=prefix))


def temporary_root() -> Path:
    """Return the system's folder for temporary files. Raises EnvironmentMissing if unusable."""
    with usable(Path("the temporary folder"), "set TMPDIR to a folder that can be written"):
        return Path(tempfile.gettempdir())


FOR_OTHERS: Final = 0o077
_UNFINISHED: Final = ".unfinished"


class FolderNotPrivate(EnvironmentMissing):
    """A folder for private files belongs to another user, is accessible to others, or is a link."""

    code = "FOLDER_NOT_PRIVATE"


def make_private(folder: Path, todo: str) -> None:
    """Create the folder if it does not exist, else check it. Raises FolderNotPrivate with `todo`,
    and OSError.
    """
    with private_folder(folder, todo):
        pass


def write_private(path: Path, text: str, todo: str) -> None:
    """Write a private file atomically. Raises FolderNotPrivate with `todo`, and OSError."""
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
    """Read a regular file that belongs to this user. Raises OSError for others, and ValueError."""
    with open(path, encoding="utf-8", opener=own_opener) as file:
        return file.read()


@contextmanager
def memory_file(text: str, shown_as: str = "twinlog") -> Iterator[int]:
    """Yield the descriptor of a file in memory, which can be opened as `/proc/self/fd/N`.

    It is in no folder, so nothing is left of it when its last process ends or is killed.
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
    # without O_NONBLOCK, opening a named pipe would wait for a writer
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    state = os.fstat(descriptor)
    if stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid():
        return descriptor
    os.close(descriptor)
    raise PermissionError(errno.EPERM, "is not a regular file of this user", path)


def private_opener(path: str, flags: int) -> int:
    """Opener for `open`. A file that it creates is private; an existing one keeps its mode."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def own_folder(folder: Path) -> None:
    """Create a private folder, or make an existing one private. Raises OSError.

    For paths that no other user could have created; for others see `make_private`.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def write_own(path: Path, text: str) -> None:
    """Write a file that other users cannot read, even if it is moved elsewhere."""
    with open(path, "w", encoding="utf-8", opener=private_opener) as file:
        os.fchmod(file.fileno(), 0o600)  # an earlier release may have created it with another mode
        file.write(text)


def is_running(pid: int) -> bool:
    """Return whether a process has this pid. Numbers that are too large for a pid have none."""
    import psutil  # imported here, because most processes do not need it

    try:
        return bool(psutil.pid_exists(pid))
    except OverflowError:
        return False


def remove_unfinished(folder: Path) -> None:
    """Remove the files of killed processes from a folder that was checked."""
    for path in folder.glob(f".*{_UNFINISHED}"):
        pid = path.name[1:].partition("-")[0]
        if pid.isdecimal() and not is_running(int(pid)):
            path.unlink(missing_ok=True)


@contextmanager
def private_folder(folder: Path, todo: str) -> Iterator[int]:
    """Yield a descriptor of the folder, creating it if it does not exist. Raises OSError, and
    FolderNotPrivate with `todo` if other users can access it.
    """
    # a job that cleans temporary folders may have removed it
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink():
        raise FolderNotPrivate(f"{folder} is a link, so other users may control its target; {todo}")
    # O_NOFOLLOW: opening a link that was created since the check is an error
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, flags)
    try:
        _check(folder, os.fstat(descriptor), todo)
        yield descriptor
    finally:
        os.close(descriptor)


def _check(folder: Path, status: os.stat_result, todo: str) -> None:
    us = os.geteuid()
    if status.st_uid != us:
        raise FolderNotPrivate(
            f"{folder} belongs to user {status.st_uid}, but this process runs as user {us}; {todo}"
        )
    if status.st_mode & FOR_OTHERS:
        raise FolderNotPrivate(
            f"{folder} is accessible to other users (mode {stat.S_IMODE(status.st_mode):04o}); "
            f"check who wrote its content, then make it private (chmod 700 {folder}), or {todo}"
        )
