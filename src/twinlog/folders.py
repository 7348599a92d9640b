"""Folders that a command cannot do without: one that cannot be used is said in one line."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from twinlog.errors import EnvironmentMissing


@contextmanager
def usable(folder: Path, todo: str) -> Iterator[None]:
    """What is done with a folder; raises EnvironmentMissing with `todo` where that fails."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise EnvironmentMissing(
            f"{error.filename or folder} cannot be used: {why}; {todo}"
        ) from None


def cache_folder(environment: Mapping[str, str]) -> Path:
    """`twinlog` below XDG_CACHE_HOME, else below `~/.cache`."""
    return (
        named_folder(environment, "XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    ) / "twinlog"


def named_folder(environment: Mapping[str, str], variable: str) -> Path | None:
    """The folder that an XDG variable names. One that is not absolute is none: the XDG Base
    Directory Specification has it ignored, since each command would have another.
    """
    folder = Path(environment.get(variable, ""))
    return folder if folder.is_absolute() else None


def temporary_folder(prefix: str) -> Path:
    """A new folder of our own for temporary files; raises EnvironmentMissing."""
    with usable(Path("the temporary folder"), "set TMPDIR to a folder that can be written"):
        return Path(tempfile.mkdtemp(prefix=prefix))


def temporary_root() -> Path:
    """Where temporary files go; raises EnvironmentMissing where there is no such place."""
    with usable(Path("the temporary folder"), "set TMPDIR to a folder that can be written"):
        return Path(tempfile.gettempdir())
