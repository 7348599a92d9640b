"""Kafka's classes as the JVM maps them at its start (application class data sharing, JEP 350).

A broker of the tests starts with 1.6 s of CPU in place of 2.85, and is ready after 2.1 s in place
of 3.3. The JVM checks what an archive was made of: with other jars, flags or another build of
itself it starts without it, so an archive may be old, never wrong.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from twinlog.sandbox.java import find_java

__all__ = ["archive_flags", "class_archive"]


def class_archive(jars: Path) -> Path:
    """Where the archive of these jars lies for this machine's Java; it may not be there."""
    java = find_java().resolve()
    build = f"{java} {java.stat().st_size} {java.stat().st_mtime_ns}"
    return jars / f"classes-{zlib.crc32(build.encode()):08x}.jsa"


def archive_flags(jars: Path) -> tuple[str, ...]:
    """JVM flags that use the archive of these jars; none where none could be made."""
    archive = class_archive(jars)
    is_made = archive.exists() and archive.stat().st_size > 0
    return (f"-XX:SharedArchiveFile={archive}",) if is_made else ()
