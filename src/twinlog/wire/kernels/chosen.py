"""The kernels that this process uses: the compiled ones, or their Python twin."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from twinlog.wire.kernels.library import NAME, Library, NotLoaded
from twinlog.wire.kernels.shapes import Kernels
from twinlog.wire.kernels.twin import TWIN

VARIABLE: Final = "TWINLOG_KERNELS"
"""`python` selects the twin, for a comparison or to rule out the library as a cause."""

KERNELS_MISSING: Final = "KERNELS_MISSING"


class Chosen:
    """The kernels in use, and the reason if they are not the compiled ones."""

    def __init__(self, path: Path) -> None:
        self.kernels: Kernels = TWIN
        self.why_slow: str | None = None
        if os.environ.get(VARIABLE) == "python":
            self.why_slow = f"{VARIABLE}=python selects the Python version"
            return
        try:
            self.kernels = Library(path)
        except NotLoaded as error:
            self.why_slow = str(error)

    @property
    def is_compiled(self) -> bool:
        return self.why_slow is None

    def warning(self, what: str) -> str:
        """Return the warning for uncompiled kernels.

        `what` says which work takes several times the CPU, with its verb.
        """
        return (
            f"the compiled kernels are not used ({self.why_slow}): {what} several times the CPU; "
            f"install a wheel of this platform, or a C compiler and then Twinlog again; unset "
            f"{VARIABLE} if it is set [{KERNELS_MISSING}]"
        )


CHOSEN: Final = Chosen(Path(__file__).with_name(NAME))
