"""Runs commands with some folders mounted read-only, as in a hardened container.

Removing write permissions would test less, because root can write anyway, and the error is a
different one.
"""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.support.eventually import PATIENCE_S

UNSHARE: Final = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",))]

WHERE_FILES_ARE_MADE: Final = ("/", "/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 (mounted anew)


@functools.cache
def _refused() -> str:
    """Return the reason why mount namespaces are not possible here, or an empty text if they
    are.
    """
    try:
        done = subprocess.run(
            [*UNSHARE, "sh", "-c", as_it_is(Path("/tmp"))],  # noqa: S108 (only mounted anew)
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
    except OSError as error:
        return str(error)
    return done.stderr.strip() if done.returncode else ""


def empty(folder: Path) -> str:
    """Return the command that mounts an empty read-only folder here."""
    return f"mount -t tmpfs -o ro tmpfs {shlex.quote(str(folder))}"


def as_it_is(folder: Path) -> str:
    """Return the command that makes the folder read-only, without the mounts below it."""
    path = shlex.quote(str(folder))
    return f"mount --bind {path} {path} && mount -o remount,bind,ro {path}"


def scratch(folder: Path) -> str:
    """Return the command that mounts a writable folder here, whatever its parent folders are."""
    return f"mount -t tmpfs tmpfs {shlex.quote(str(folder))}"


def with_mounts(mounts: Sequence[str], command: Sequence[str]) -> list[str]:
    """Return the command with mounts that only it sees. They end with the command. Skip the test if
    mount namespaces are not permitted.
    """
    if reason := _refused():
        pytest.skip(f"mount namespaces are refused here: {reason}")
    # enter the working directory again, because it was entered before the mounts
    script = " && ".join([*mounts, 'cd "$PWD"', 'exec "$@"'])
    return [*UNSHARE, "sh", "-c", script, "sh", *command]
