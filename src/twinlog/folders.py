"""Folders that a command needs: where they are, and one clear error if one is unusable."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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
