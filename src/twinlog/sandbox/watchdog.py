"""Ends a cluster whose owner died without stopping it.

A kill -9 of a test run or a demo would leave brokers behind. The kernel's parent-death signal does
not serve: it fires when the *thread* that started a broker ends, and it ties a cluster that several
test processes share to the one that came first. So a small shell waits for the owner to be gone.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from twinlog.sandbox.processes import MarkedProcess, spawn

_SCRIPT = """
owner=$1 folder=$2 temporary=$3
while kill -0 "$owner" 2>/dev/null; do sleep 1; done
for file in "$folder"/node-*/pid; do
  pid=$(cat "$file" 2>/dev/null) || continue
  if grep -qsF "$folder/" "/proc/$pid/cmdline"; then kill -9 "$pid"; fi
done
if [ "$temporary" = yes ]; then sleep 1; rm -rf "$folder"; fi
"""


def start_watchdog(folder: Path, *, owner: int, temporary: bool) -> None:
    """Watch process `owner`; when it is gone, kill the folder's brokers (and remove the folder)."""
    process = spawn(
        [
            "sh",
            "-c",
            _SCRIPT,
            "twinlog-watchdog",
            str(owner),
            str(folder),
            "yes" if temporary else "no",
        ],
        marker=str(folder),
        output=Path(os.devnull),
    )
    (folder / "watchdog.pid").write_text(str(process.pid), encoding="ascii")


def stop_watchdog(folder: Path) -> None:
    file = folder / "watchdog.pid"
    if not file.exists():
        return
    process = MarkedProcess(pid=int(file.read_text(encoding="ascii")), marker=str(folder))
    file.unlink()
    if process.alive:
        os.killpg(process.pid, signal.SIGKILL)  # its session is its group: with its `sleep`
        process.kill()
