"""The demo's brokers, while they run: without one of them there is nothing to show.

A mirror rides out a broker that is away, and the demo's would wait for ever for one that will not
come back: its folder goes with the demo.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from twinlog.errors import EnvironmentMissing
from twinlog.quantities import size
from twinlog.sandbox.brokers import LocalCluster

FULL_BELOW_BYTES: Final = 64 * 1024 * 1024
"""What a broker and its log need in the demo; with less a disk counts as full."""

LONGEST_REASON: Final = 300
_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded")
# a broker logs errors that it survives: what says that it ends, and no other
_ENDS: Final = re.compile(
    r"^\S+ (?:ERROR|FATAL) [^:\s]+: (.*(?i:shutdown broker|fatal|halting|exiting).*)$", re.MULTILINE
)
_OF_JAVA: Final = re.compile(
    r"^.*(?:OutOfMemoryError|insufficient memory|Could not create the Java).*$", re.MULTILINE
)


def ended_broker(clusters: Iterable[LocalCluster]) -> EnvironmentMissing | None:
    """Which one ended by itself, why, and what to do; None while all run."""
    for cluster in clusters:
        if cluster.folder is None or len(cluster.broker_pids) == cluster.brokers:
            continue
        free = shutil.disk_usage(cluster.folder).free
        return EnvironmentMissing(said_of(cluster.name, cluster.logs(), cluster.folder, free))
    return None


def said_of(name: str, log: str, folder: Path, free: int) -> str:
    """`log` is the end of the broker's; `free` are bytes on the disk of its folder."""
    full, java, errors = _FULL.search(log), _OF_JAVA.search(log), _ENDS.findall(log)
    if full is not None or free < FULL_BELOW_BYTES:
        # then its log may have had no room for the reason
        why = full[0] if full is not None else f"its disk has {size(free)} left"
        todo = f"make room on the disk of {folder.parent}, or set TMPDIR to a folder with room"
    elif java is not None or errors:
        why = java[0].strip() if java is not None else errors[-1].strip()
        todo = "mend what that names"
    else:
        why = "its log does not say why, as after a kill, by somebody or by the kernel"
        todo = "see that memory is free (`dmesg` names what the kernel killed)"
    return f"the demo's broker of {name} ended: {why[:LONGEST_REASON]}; {todo}, and start it again"
