"""The machine's Java, and archives of loaded classes that make a JVM start faster (JEP 350).

A JVM checks how its archive was created. If the jars, the flags or the JVM have changed, it starts
without the archive. So an outdated archive costs time, but is never used wrongly.
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
"""The Java version that Kafka 4 brokers and Spark 4 require."""

_HOW_TO_INSTALL: Final = (
    "install it, for example: sudo apt install openjdk-17-jre-headless, or: brew install openjdk@17"
)


def java_command() -> Path:
    """Return the path of `java` in JAVA_HOME, or else on the PATH. Does not check its version."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if path is None:
        raise EnvironmentMissing(f"Java {MINIMUM_JAVA} or newer is missing; {_HOW_TO_INSTALL}")
    return Path(path)


@functools.cache
def find_java() -> Path:
    """Return `java_command`. Starts it once per process to check its version."""
    command = java_command()
    version = _major_version(command)
    if version < MINIMUM_JAVA:
        raise EnvironmentMissing(
            f"Java {MINIMUM_JAVA} or newer is missing ({command} is {version}); {_HOW_TO_INSTALL}"
        )
    return command


def class_archive(folder: Path, *parts: str) -> Path:
    """Return the archive's path for this machine's Java and `parts`. It might not exist yet."""
    java = java_command().resolve()
    build = " ".join((*parts, f"{java} {java.stat().st_size} {java.stat().st_mtime_ns}"))
    return folder / f"classes-{zlib.crc32(build.encode()):08x}.jsa"


def archive_flags(archive: Path) -> tuple[str, ...]:
    """Return the JVM flags to use the archive, or no flags if the archive is missing or empty."""
    is_made = archive.exists() and archive.stat().st_size > 0
    return (f"-XX:SharedArchiveFile={archive}",) if is_made else ()


def unfinished(archive: Path) -> Path:
    """Return the path to which a JVM writes the archive when it ends. It contains this process's
    ID, so that concurrent setups write to different files.
    """
    return archive.with_suffix(f".{os.getpid()}")


def install_archive(archive: Path) -> None:
    """Install the archive after the JVM that writes it has ended.

    If the JVM has written no archive, an empty file is installed, because another JVM would not
    write one either.
    """
    new = unfinished(archive)
    new.touch()
    new.replace(archive)


def _major_version(java: Path) -> int:
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if match is None:
        return 0
    # Java 8 reports itself as 1.8
    return int(match[2] or 0) if match[1] == "1" else int(match[1])
