"""Creates folders that a command needs, and files that only this user can read.

If a folder cannot be used, EnvironmentMissing is raised with advice.

**Private files** are in a folder to which no other user can write. Another user may have created a
folder with a predictable name below a shared one (`/tmp/twinlog-1000`), with links that lead to
files of this user. So a folder is opened once, without following links, and the opened folder is
checked. All later steps use its descriptor, so nothing is written to another folder that replaces
it after the check.

A file is created under a random name that must not exist, and is renamed when it is complete. So a
reader sees either the old or the new file, even if this process is killed between any two steps. If
a process is killed, a hidden file with its pid in the name may remain, which the next process of
this user removes.
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
    """Convert an OSError in the block to EnvironmentMissing. `todo`: advice, for the message."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise EnvironmentMissing(
            f"{error.filename or folder} cannot be used: {why}; {todo}"
        ) from None


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder `twinlog` in XDG_CACHE_HOME, or else in `~/.cache`."""
    return (xdg_folder(environment, "XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "twinlog"


def xdg_folder(environment: Mapping[str, str], variable: str) -> Path | None:
    """Return the folder in an XDG variable, or None if it is not set or not absolute.

    The XDG Base Directory Specification says that relative paths must be ignored. Each command
    would resolve them to another folder.
    """
    folder = Path(environment.get(variable, ""))
    return folder if folder.is_absolute() else None


def temporary_folder(prefix: str) -> Path:
    """Create and return a private folder for temporary files. Raises EnvironmentMissing."""
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
    """Create a private folder, or check an existing one. Raises FolderNotPrivate, with advice in
    `todo`, and OSError.
    """
    with private_folder(folder, todo):
        pass


def write_private(path: Path, text: str, todo: str) -> None:
    """Write a private file atomically. Raises FolderNotPrivate (`todo`: advice) and OSError."""
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
    """Return a regular file's text. Raises OSError, also for other users' files, and ValueError."""
    with open(path, encoding="utf-8", opener=own_opener) as file:
        return file.read()


@contextmanager
def memory_file(text: str, shown_as: str = "twinlog") -> Iterator[int]:
    """Yield the descriptor of a file in memory, which can be opened as `/proc/self/fd/DESCRIPTOR`.

    The file is in no folder, so it disappears when its last process ends or is killed.
    """
    descriptor = os.memfd_create(shown_as)
    try:
        with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
        yield descriptor
    finally:
        os.close(descriptor)


def own_opener(path: str, flags: int) -> int:
    """Opener for `open`. Raises PermissionError unless `path` is a regular file of this user."""
    # without O_NONBLOCK, opening a named pipe would wait for a writer
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    state = os.fstat(descriptor)
    if stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid():
        return descriptor
    os.close(descriptor)
    raise PermissionError(errno.EPERM, "is not a regular file of this user", path)


def private_opener(path: str, flags: int) -> int:
    """Opener for `open` that creates private files. The mode of an existing file is not changed."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def own_folder(folder: Path) -> None:
    """Create a private folder, or make an existing one private. Raises OSError.

    Only for paths that no other user could have created. For other paths use `make_private`.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def write_own(path: Path, text: str) -> None:
    """Write a file with mode 0600, so that other users cannot read it in any folder."""
    with open(path, "w", encoding="utf-8", opener=private_opener) as file:
        os.fchmod(file.fileno(), 0o600)  # an earlier release may have created it with another mode
        file.write(text)


def is_running(pid: int) -> bool:
    """Return True if a process has this pid. Returns False for numbers that cannot be a pid."""
    import psutil  # imported here, because most processes do not need it

    try:
        return bool(psutil.pid_exists(pid))
    except OverflowError:
        return False


def remove_unfinished(folder: Path) -> None:
    """Remove unfinished files of killed processes from a folder that was checked."""
    for path in folder.glob(f".*{_UNFINISHED}"):
        pid = path.name[1:].partition("-")[0]
        if pid.isdecimal() and not is_running(int(pid)):
            path.unlink(missing_ok=True)


@contextmanager
def private_folder(folder: Path, todo: str) -> Iterator[int]:
    """Yield a descriptor of a private folder, which is created if it does not exist. Raises
    OSError, and FolderNotPrivate (`todo`: advice) if other users can access the folder.
    """
    # create the folder, because a job that cleans temporary folders may have removed it
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink():
        raise FolderNotPrivate(f"{folder} is a link, so other users may control its target; {todo}")
    # O_NOFOLLOW: if a link has been created since the check, opening it fails
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
