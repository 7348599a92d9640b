"""Creates the archive that executors of a Spark cluster need: Twinlog and its dependencies except
Spark.

The archive is a zip of importable files. Spark unpacks it into a folder of every executor
(`spark.archives`), and the workers have this folder on their PYTHONPATH. Some files are compiled,
so executors need the same Python version and platform as the machine on which the archive was
created.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import secrets
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import twinlog
from twinlog.errors import EnvironmentMissing

UNPACKED_FOLDER: Final = "twinlog-executors"
"""Name of the folder in an executor's working directory into which Spark unpacks the archive."""

_CLUSTERS_OWN: Final = frozenset({"pyspark", "py4j"})
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)
"""Modification time of all files, which makes archives reproducible. Zip supports none earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackResult:
    """The archive that `pack` has written."""

    path: Path
    size: int
    python: str
    platform: str
    distributions: tuple[str, ...]


def pack(path: Path) -> PackResult:
    """Write an archive of the installed packages to `path`. Replaces an existing file when done."""
    names = sorted(_requirements_of("twinlog"))
    # the name is random, because in a shared folder another user could create a link with a
    # predictable name
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with (
            os.fdopen(os.open(partial, flags, 0o666), "w+b") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for name, member in sorted(_files(names)):
                info = zipfile.ZipInfo(name, _EARLIEST)
                info.external_attr = 0o644 << 16
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, member.read_bytes())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise EnvironmentMissing(
            f"{path} cannot be written: {error.strerror}; name another file with --output"
        ) from error
    return PackResult(
        path=path,
        distributions=tuple(names),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        platform=f"{platform.system()} {platform.machine()}",
        size=path.stat().st_size,
    )


def _requirements_of(name: str, names: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return `names`, extended by distribution `name` and its installed requirements. PySpark is
    left out.
    """
    key = name.lower().replace("_", "-")
    if key in names or key in _CLUSTERS_OWN:
        return names
    try:
        requires = importlib.metadata.requires(key) or []
    except importlib.metadata.PackageNotFoundError:
        # the requirement is for another platform, or for an extra that is not installed
        return names
    names |= {key}
    for requirement in requires:
        match = _NAME.match(requirement)
        if match is not None and "extra ==" not in requirement:
            names = _requirements_of(match.group(), names)
    return names


def _files(names: list[str]) -> Iterator[tuple[str, Path]]:
    """Yield (name in the archive, file) for each importable file of Twinlog and of `names`."""
    home = Path(twinlog.__file__).parent
    for file in home.rglob("*"):  # an editable installation has no list of files
        if file.is_file() and "__pycache__" not in file.parts:
            yield f"twinlog/{file.relative_to(home)}", file
    for name in names:
        for entry in importlib.metadata.files(name) or []:
            inside = entry.parts[0] not in ("..", "twinlog") and "__pycache__" not in entry.parts
            source = Path(str(importlib.metadata.distribution(name).locate_file(entry)))
            if inside and entry.suffix != ".pth" and source.is_file():
                yield str(entry), source
