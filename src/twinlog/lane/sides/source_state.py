"""What a lane knows of one partition at the source."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from twinlog.mirror.copy.fan_out import Copy

NO_NODE: Final = -1


class WaitsFor(Enum):
    """What a partition waits for before more of it is here."""

    NOTHING = auto()
    """No fetch is wanted: all is read, or it is in trouble."""
    BROKER = auto()
    """Its leader is to be found, or connected."""
    RECORDS = auto()
    """It is in the fetch session of its node."""
    TARGET = auto()
    """Left out of fetches until the target has taken what it holds."""
    BUDGET = auto()
    """Left out until its topic's budget allows more."""


@dataclass(slots=True)
class SourceState:
    """Of its log there, and who is asked for it."""

    copy: Copy
    source_end: int = -1
    log_start: int = -1
    waits_for: WaitsFor = WaitsFor.NOTHING
    node: int = NO_NODE
    """Whose session it is in."""
