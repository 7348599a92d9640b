"""Runs commands that are killed (SIGKILL) before or after a call in one of their steps.

A line of JSON on standard input is a command to run. A line on standard output reports how it
ended. Each command is forked from this process, which has already imported its modules, because
imports take most of a command's time.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from typing import Any, NoReturn
from unittest.mock import patch

from twinlog.cli.main import COMMANDS, run
from twinlog.control.cutover.switchover import FenceKind


def main() -> None:
    for line in sys.stdin:
        job: dict[str, Any] = json.loads(line)
        for name in (job["where"], COMMANDS[job["words"][0]]):
            importlib.import_module(name.partition(":")[0])
        pid = os.fork()
        if pid == 0:
            _be_command(job)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 (the test reads it)


def _be_command(job: dict[str, Any]) -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.clear()
    os.environ.update(job["environment"])
    code = 1
    try:
        code = _run(job["moment"], job["where"], job["words"])
    except BaseException:  # noqa: BLE001 (nothing of the parent may run in its child)
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)


def _run(moment: str, where: str, words: list[str]) -> int:
    """Run a command, and kill it before or after the call of `where`, as `moment` says. `where`
    names a function or method as module:name.
    """
    module, _, path = where.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for one in outer:
        owner = getattr(owner, one)
    real = getattr(owner, name)

    def dying(*arguments: Any, **named: Any) -> Any:
        if moment == "behind":
            real(*arguments, **named)
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    # these tests are about what a killed command leaves, so the command need not wait long for
    # evidence
    with patch.object(owner, name, dying), patch.object(FenceKind, "still_s", 0.2):
        return run(words)


if __name__ == "__main__":
    main()
