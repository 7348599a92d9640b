"""Finds the Java that runs Kafka's brokers and tools."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from twinlog.errors import EnvironmentMissing

__all__ = ["MINIMUM_JAVA", "find_java"]

MINIMUM_JAVA = 17
"""What Kafka 4 brokers and Spark 4 ask for."""

_HOW_TO_INSTALL = (
    "install it, for example: sudo apt install openjdk-17-jre-headless, or: brew install openjdk@17"
)


@functools.cache
def find_java() -> Path:
    """The `java` of JAVA_HOME or else of the PATH, once it has proved to be new enough."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if found is None:
        raise EnvironmentMissing(f"Java {MINIMUM_JAVA} or newer is missing; {_HOW_TO_INSTALL}")
    version = _major_version(found)
    if version < MINIMUM_JAVA:
        raise EnvironmentMissing(
            f"Java {MINIMUM_JAVA} or newer is missing ({found} is {version}); {_HOW_TO_INSTALL}"
        )
    return Path(found)


def _major_version(java: str) -> int:
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if match is None:
        return 0
    # Java 8 calls itself 1.8
    return int(match[2] or 0) if match[1] == "1" else int(match[1])
