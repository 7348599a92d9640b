"""Folders that a command needs. An unusable folder is reported in one line."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from twinlog.errors import EnvironmentMissing


@contextmanager
def usable(folder: Path, todo: str) -> Iterator[None]:
    """Run the block's work with a folder. Raises EnvironmentMissing with `todo` if that fails."""
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
    """Return the folder that an XDG variable names, or None if it is not absolute.

    The XDG Base Directory Specification requires relative paths to be ignored, because each command
    would use a different folder.
    """
    folder = Path(environment.get(variable, ""))
    return folder if folder.is_absolute() else None


def temporary_folder(prefix: str) -> Path:
    """Create a private folder for temporary files. Raises EnvironmentMissing."""
    with usable(Path("the temporary folder"), "set TMPDIR to a folder that can be written"):
        return Path(tempfile.mkdtemp(prefix=prefix))


def temporary_root() -> Path:
    """Return the folder for temporary files. Raises EnvironmentMissing if there is none."""
    with usable(Path("the temporary folder"), "set TMPDIR to a folder that can be written"):
        return Path(tempfile.gettempdir())
