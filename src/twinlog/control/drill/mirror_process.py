"""The drill's own mirror: `twinlog mirror` in a process group that can be killed as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from twinlog.errors import FlowError

LINES: Final = 20
PROGRAM: Final = """
import os, signal, sys, threading, time
from twinlog.cli.main import run

def watch(parent):
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=watch, args=(int(sys.argv[1]),), daemon=True).start()
sys.exit(run(sys.argv[2:]))
"""
"""It ends when the drill ends, even if the drill is killed."""


class MirrorProcess:
    """Runs until it is killed. Its log is in memory, so a drill that is killed leaves no file."""

    def __init__(self, config: Path, *words: str, pass_fds: Collection[int] = ()) -> None:
        self._log = os.fdopen(os.memfd_create("mirror.log"), "rb")
        self._is_killed = False
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(os.getpid()), "mirror", str(config), *words],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=pass_fds,
            start_new_session=True,
        )

    def check(self) -> None:
        """Raise FlowError (DRILL_FAILED) with its last lines if it has ended by itself."""
        code = self._process.poll()
        if code is not None and not self._is_killed:
            raise FlowError(
                f"the drill's mirror ended with {code}; its last lines: {self._last_lines()}",
                code="DRILL_FAILED",
            )

    def kill(self) -> None:
        """Send SIGKILL to it and all of its processes; harmless if it has ended."""
        self._is_killed = True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def _last_lines(self) -> str:
        log = self._log.fileno()
        # its child processes may still write, and share the file position
        text = os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")
        return "".join(text.splitlines(keepends=True)[-LINES:]).strip()
