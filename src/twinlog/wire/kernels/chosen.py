"""Which kernels this process has: the compiled ones, or their twin."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from twinlog.wire.kernels.library import NAME, Library, NotLoaded
from twinlog.wire.kernels.shapes import Kernels
from twinlog.wire.kernels.twin import TWIN

VARIABLE: Final = "TWINLOG_KERNELS"
"""`python` asks for the twin, to compare or to rule the library out."""

KERNELS_MISSING: Final = "KERNELS_MISSING"


class Chosen:
    """What is used, and why it is not the library."""

    def __init__(self, path: Path) -> None:
        self.kernels: Kernels = TWIN
        self.why_slow: str | None = None
        if os.environ.get(VARIABLE) == "python":
            self.why_slow = f"{VARIABLE}=python asks for it"
            return
        try:
            self.kernels = Library(path)
        except NotLoaded as error:
            self.why_slow = str(error)

    @property
    def is_compiled(self) -> bool:
        return self.why_slow is None

    def warning(self, what: str) -> str:
        """Of those that are not compiled: what takes several times the CPU, and what to do."""
        return (
            f"the compiled kernels are not used ({self.why_slow}): {what} several times the CPU; "
            f"install a wheel of this platform, or a C compiler and then Twinlog again; unset "
            f"{VARIABLE} if it is set [{KERNELS_MISSING}]"
        )


CHOSEN: Final = Chosen(Path(__file__).with_name(NAME))
