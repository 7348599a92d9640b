"""Blocking work outside the supervisor's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twinlog.errors import TwinlogError


class InBackground(Protocol):
    """Runs a job in another thread, then calls back in the supervisor's thread."""

    def __call__(
        self,
        job: Callable[[], Any],
        then: Callable[[Any], None],
        otherwise: Callable[[TwinlogError], None],
    ) -> None: ...
