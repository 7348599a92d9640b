"""The state of one source partition in a lane."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from twinlog.lane.sides.sections import SectionedRead
from twinlog.mirror.copy.fan_out import Copy

NO_NODE: Final = -1


class WaitsFor(Enum):
    """What a partition waits for before more of it is read."""

    __hash__ = object.__hash__  # faster than Enum's: the members are keys on every turn

    NOTHING = auto()
    """No fetch is wanted: everything is read, or it has a problem."""
    BROKER = auto()
    """Its leader must be found or connected."""
    RECORDS = auto()
    """It is in the fetch session of its broker."""
    SECTIONS = auto()
    """It is read ahead, beside the fetch session of its broker."""
    TARGET = auto()
    """It is left out of fetches until the target has acknowledged its batches."""
    BUDGET = auto()
    """It is left out until its topic's budget allows more."""


@dataclass(slots=True)
class SourceState:
    """The state of one source partition: its log, and the broker from which it is read."""

    copy: Copy
    source_end: int = -1
    waits_for: WaitsFor = WaitsFor.NOTHING
    node: int = NO_NODE
    """The broker from which it is read."""
    sectioned_read: SectionedRead | None = None
