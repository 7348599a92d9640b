"""Counts rounds of a mirror in the test's process. A test that expects no change waits for some
rounds, instead of some seconds.
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
"""Name of the message that each lane sends once a second."""


class Rounds:
    """Counts completed calls of a method, by a name that is derived from the call's arguments."""

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
        """Wait until `count` rounds of this name have begun and ended. A round that is already
        running does not count.
        """
        enough = self.ended[name] + 1 + count
        eventually(lambda: self.ended[name] >= enough, what=f"{count} rounds of {name}")


def lane_rounds(patch: pytest.MonkeyPatch) -> Rounds:
    """Return a counter of the messages of lanes to their driver, by kind."""
    return Rounds(patch, FlowRun, "on_message", lambda _run, _lane, what: type(what).__name__)
