"""Counts rounds of a mirror in the test's process. Tests that nothing happens wait for rounds, not
for seconds.
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
"""Sent once a second by each lane."""


class Rounds:
    """Completed calls of a method, by a name made from their arguments."""

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
        """Wait until this many rounds have begun and ended. A running one does not count."""
        enough = self.ended[name] + 1 + count
        eventually(lambda: self.ended[name] >= enough, what=f"{count} rounds of {name}")


def lane_rounds(patch: pytest.MonkeyPatch) -> Rounds:
    """Count the messages of lanes to their driver, by kind."""
    return Rounds(patch, FlowRun, "on_message", lambda _run, _lane, what: type(what).__name__)
