"""Counts rounds of what a mirror in the test's process does again and again: to see that nothing
comes of them takes rounds, not seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.eventually import eventually
from twinlog.control.running.flow_run import FlowRun

__all__ = ["REPORT", "Rounds", "lane_rounds"]

REPORT = "Progress"
"""Once a second, from each lane."""


class Rounds:
    """Calls of a method that have ended, by a name that is made of their arguments."""

    def __init__(
        self, patch: pytest.MonkeyPatch, owner: type, method: str, name: Callable[..., str]
    ) -> None:
        self.ended = Counter[str]()
        call = getattr(owner, method)

        def counted(*arguments: Any) -> Any:
            try:
                return call(*arguments)
            finally:
                self.ended[name(*arguments)] += 1

        patch.setattr(owner, method, counted)

    def pass_by(self, name: str, count: int = 2) -> None:
        """So many begin and end from now on; one that is under way is not counted."""
        enough = self.ended[name] + 1 + count
        eventually(lambda: self.ended[name] >= enough, what=f"{count} rounds of {name}")


def lane_rounds(patch: pytest.MonkeyPatch) -> Rounds:
    """What lanes tell their driver, by its kind."""
    return Rounds(patch, FlowRun, "on_message", lambda _run, _lane, what: type(what).__name__)
