"""Forks lanes for `tests.support.lanes`, as Spark's Python daemon does. The modules are imported
once, because imports take most of a lane's start.

A line of JSON on standard input is a lane to start. Lines on standard output report its process ID,
and later how it ended. At the end of the input the daemon ends, but its lanes do not.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import select
import signal
import sys
import traceback
from contextlib import suppress
from typing import Any, Final, NoReturn

from twinlog.channel.frames import ChannelAddress
from twinlog.spark.lane import run_lane

CHUNK: Final = 1 << 16


def run(job: dict[str, Any]) -> None:
    """Run one attempt of a lane in this process."""
    run_lane(job["lane"], job["lease"], job["attempt"], ChannelAddress(**job["address"]))


def log_to_stderr() -> None:
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s lane %(message)s"
    )


def main() -> None:
    log_to_stderr()
    gc.freeze()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    text = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, CHUNK)
            _reap()
        if 0 in ready:
            more = os.read(0, CHUNK)
            if not more:
                os._exit(0)
            *lines, text = (text + more).split(b"\n")
            for line in lines:
                pid = os.fork()
                if pid == 0:
                    _be_lane(json.loads(line))
                _say(started=pid)


def _reap() -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _say(ended=ended[0], code=os.waitstatus_to_exitcode(ended[1]))


def _say(**words: int) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


def _be_lane(job: dict[str, Any]) -> NoReturn:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    code = 1
    try:
        run(job)
        code = 0
    except BaseException:  # noqa: BLE001 (nothing of the daemon may run in its child)
        traceback.print_exc()
    os._exit(code)


if __name__ == "__main__":
    main()
