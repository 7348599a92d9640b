"""Selects the kernels (loops over records) of this process: compiled ones, or those in Python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from twinlog.wire.kernels.library import NAME, Library, NotLoaded
from twinlog.wire.kernels.shapes import Kernels
from twinlog.wire.kernels.twin import TWIN

VARIABLE: Final = "TWINLOG_KERNELS"
"""Environment variable. `python` selects the Python kernels, to compare them with the compiled
ones, or to rule out the compiled ones as the cause of a problem.
"""

KERNELS_MISSING: Final = "KERNELS_MISSING"


class ChosenKernels:
    """The kernels in use. `not_compiled_reason`: why they are the Python kernels, or None."""

    def __init__(self, path: Path) -> None:
        self.kernels: Kernels = TWIN
        self.not_compiled_reason: str | None = None
        if os.environ.get(VARIABLE) == "python":
            self.not_compiled_reason = f"{VARIABLE}=python selects the Python version"
            return
        try:
            self.kernels = Library(path)
        except NotLoaded as error:
            self.not_compiled_reason = str(error)

    @property
    def is_compiled(self) -> bool:
        return self.not_compiled_reason is None

    def warning(self, what: str) -> str:
        """Return the warning about missing kernels. `what` is a subject and a verb, and "several
        times the CPU time" completes the sentence.
        """
        todo = "install a wheel for this platform, or install a C compiler and reinstall Twinlog"
        if str(self.not_compiled_reason).startswith(VARIABLE):
            todo = f"unset {VARIABLE}"
        return (
            f"the compiled kernels are not used ({self.not_compiled_reason}), so {what} "
            f"several times the CPU time; {todo} [{KERNELS_MISSING}]"
        )


CHOSEN: Final = ChosenKernels(Path(__file__).with_name(NAME))
