"""The limit of open files, judged before Spark's JVM starts: it fails there in many ways.

Spark's jars alone are 280 files, and a JVM with one task has 380 open. Under a lower limit it ends
with a class that is not found, or with a trace from deep inside, by what it opened last.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

from twinlog.errors import EnvironmentMissing

NEEDED: Final = 512
"""What the JVM has open, and some connections."""
WANTED: Final = 4096
"""A soft limit below what is needed is raised to this, or as far as the hard one goes."""


def ensure_open_files() -> None:
    """Raise the soft limit where it is too low; an error where the hard one is, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= NEEDED:
        return
    if hard == unlimited or hard >= NEEDED:
        more = WANTED if hard == unlimited else min(hard, WANTED)
        with suppress(OSError, ValueError):  # a sandbox may forbid it: then the low limit is said
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            return
    raise EnvironmentMissing(
        f"too few open files: {soft} are allowed (ulimit -n), and Spark's JVM needs {NEEDED}: "
        f"run `ulimit -n {WANTED}` before, or set LimitNOFILE={WANTED} in the systemd unit"
    )
