"""Processes that outlive the process that started them."""

from __future__ import annotations

import os
import select
from pathlib import Path

from twinlog.sandbox.processes import spawn

AT_ONCE_S = 5.0


def test_nothing_of_the_starter_is_held_open(tmp_path: Path) -> None:
    """A process that was started does not keep the starter's descriptors open. So `twinlog sandbox
    up | tee log` ends although brokers keep running, and a script's lock is released.
    """
    read, write = os.pipe()
    os.set_inheritable(write, True)
    process = spawn(["sleep", "600.25"], marker="600.25", output=tmp_path / "output")
    try:
        os.close(write)
        assert select.select([read], [], [], AT_ONCE_S)[0] == [read], "the pipe has ended"
        assert os.read(read, 1) == b""
        assert process.alive
    finally:
        process.kill()
        os.close(read)
