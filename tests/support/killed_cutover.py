"""A cutover command that dies of SIGKILL before or behind one call of one of its steps."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any
from unittest.mock import patch

from twinlog.cli.main import run
from twinlog.control.cutover.switchover import FenceKind


def main(moment: str, where: str, *words: str) -> None:
    """`moment`: before or behind; `where`: module:name of a function, or of a class's."""
    module, _, path = where.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for one in outer:
        owner = getattr(owner, one)
    real = getattr(owner, name)

    def dying(*arguments: Any, **named: Any) -> Any:
        if moment == "behind":
            real(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    # it is about what is there behind a death, not about how long a proof takes
    with patch.object(owner, name, dying), patch.object(FenceKind, "still_s", 0.2):
        sys.exit(run(words))


if __name__ == "__main__":
    main(*sys.argv[1:])
