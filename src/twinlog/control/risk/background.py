"""Work that may block, done beside the supervisor's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twinlog.errors import TwinlogError


class InBackground(Protocol):
    """Does a job elsewhere, then calls back in the supervisor's thread."""

    def __call__(
        self,
        job: Callable[[], Any],
        then: Callable[[Any], None],
        otherwise: Callable[[TwinlogError], None],
    ) -> None: ...
