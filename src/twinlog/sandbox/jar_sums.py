"""Checks that fetched jars are those that Twinlog was tested with, byte for byte.

A broker of the sandbox runs them as code. Ivy compares what it fetches with sums from the same
place, so whoever answers there decides; ours are part of the package. The list is in the format of
`sha256sum`, with names below the cache folder: `sha256sum -c` there checks what is installed. A set
is its jars and no other: the class path is the whole folder.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from twinlog.errors import EnvironmentMissing

LIST: Final = Path(__file__).with_name("kafka_jars.sha256")


def known_sums(name: str) -> dict[str, str]:
    """The sums of a set's jars by their file names; empty for a set that nobody listed."""
    lines = (line.split() for line in LIST.read_text(encoding="ascii").splitlines())
    return {path.partition("/")[2]: digest for digest, path in lines if path.startswith(f"{name}/")}


def check_known(name: str, what: str) -> None:
    """Raises EnvironmentMissing for a set that is not in the list: nothing need be fetched."""
    if not known_sums(name):
        raise EnvironmentMissing(
            f"{what} is not among the versions whose jars Twinlog knows; take one of those in "
            f"{LIST}"
        )


def check_jars(name: str, what: str, folder: Path, todo: str) -> None:
    """Raises EnvironmentMissing with `todo` unless the folder holds exactly this set's jars."""
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
            why = f"{jar} is another file: its SHA-256 is {found[jar]}, and not {known[jar]}"
        raise EnvironmentMissing(f"{what} was fetched, but {why}; nothing was installed; {todo}")


def _sum_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
