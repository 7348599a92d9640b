"""The machine's Java, and archives of classes that it maps at its start (JEP 350).

A JVM checks what an archive was made of: with other jars, other flags or another build of itself it
starts without it, so an archive may be old, never wrong.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Final

from twinlog.errors import EnvironmentMissing

MINIMUM_JAVA: Final = 17
"""What Kafka 4 brokers and Spark 4 ask for."""

_HOW_TO_INSTALL: Final = (
    "install it, for example: sudo apt install openjdk-17-jre-headless, or: brew install openjdk@17"
)


def java_command() -> Path:
    """The `java` of JAVA_HOME or else of the PATH, of whatever version."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if found is None:
        raise EnvironmentMissing(f"Java {MINIMUM_JAVA} or newer is missing; {_HOW_TO_INSTALL}")
    return Path(found)


@functools.cache
def find_java() -> Path:
    """The same, once it has proved to be new enough: which costs a start of it."""
    found = java_command()
    version = _major_version(found)
    if version < MINIMUM_JAVA:
        raise EnvironmentMissing(
            f"Java {MINIMUM_JAVA} or newer is missing ({found} is {version}); {_HOW_TO_INSTALL}"
        )
    return found


def class_archive(folder: Path, *parts: str) -> Path:
    """Where an archive for this machine's Java lies, made of what `parts` name; it may not be
    there.
    """
    java = java_command().resolve()
    build = " ".join((*parts, f"{java} {java.stat().st_size} {java.stat().st_mtime_ns}"))
    return folder / f"classes-{zlib.crc32(build.encode()):08x}.jsa"


def archive_flags(archive: Path) -> tuple[str, ...]:
    """JVM flags that use it; none where none could be made."""
    is_made = archive.exists() and archive.stat().st_size > 0
    return (f"-XX:SharedArchiveFile={archive}",) if is_made else ()


def unfinished(archive: Path) -> Path:
    """What a JVM is told to write at its end; two setups at once write two."""
    return archive.with_suffix(f".{os.getpid()}")


def install_archive(archive: Path) -> None:
    """The JVM that was to write it has ended. One that wrote none will not the next time either:
    then it is empty.
    """
    new = unfinished(archive)
    new.touch()
    new.replace(archive)


def _major_version(java: Path) -> int:
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if match is None:
        return 0
    # Java 8 calls itself 1.8
    return int(match[2] or 0) if match[1] == "1" else int(match[1])
