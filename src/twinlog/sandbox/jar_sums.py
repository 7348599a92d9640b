"""Checks that downloaded jars are byte-identical to those that Twinlog was tested with.

Brokers of the sandbox run these jars as code. Ivy only compares downloads with checksums from the
same server, so these checksums are part of the package. The list has the format of `sha256sum`,
with names relative to the cache folder: `sha256sum -c` there checks the installed jars. A set must
have exactly its jars, because the class path is the whole folder.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from twinlog.errors import EnvironmentMissing

LIST: Final = Path(__file__).with_name("kafka_jars.sha256")


def known_sums(name: str) -> dict[str, str]:
    """Return the checksums of a set's jars by file name; empty for an unlisted set."""
    lines = (line.split() for line in LIST.read_text(encoding="ascii").splitlines())
    return {path.partition("/")[2]: digest for digest, path in lines if path.startswith(f"{name}/")}


def check_known(name: str, what: str) -> None:
    """Raise EnvironmentMissing before any download if a set is not in the list."""
    if not known_sums(name):
        raise EnvironmentMissing(
            f"{what} is not a version whose jars Twinlog has checksums of; use a version in {LIST}"
        )


def check_jars(name: str, what: str, folder: Path, todo: str) -> None:
    """Raise EnvironmentMissing with `todo` unless the folder has exactly this set's jars."""
    known = known_sums(name)
    found = {path.name: _sum_of(path) for path in sorted(folder.iterdir())}
    for jar in sorted(known.keys() | found.keys()):
        if found.get(jar) == known.get(jar):
            continue
        if jar not in found:
            why = f"{jar} is missing"
        elif jar not in known:
            why = f"{jar} does not belong to it"
        else:
            why = f"{jar} is a different file: its SHA-256 is {found[jar]}, not {known[jar]}"
        raise EnvironmentMissing(f"{what} was downloaded, but {why}; nothing was installed; {todo}")


def _sum_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
