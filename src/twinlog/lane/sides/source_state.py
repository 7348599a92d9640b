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

    __hash__ = object.__hash__  # faster than Enum's hash; the members are dict keys on every turn

    NOTHING = auto()
    """No fetch is needed, because everything is read or the partition has a problem."""
    BROKER = auto()
    """The partition's leader must be found or connected."""
    RECORDS = auto()
    """The partition is in the fetch session of its broker."""
    SECTIONS = auto()
    """The partition is read ahead in sections, beside the fetch session of its broker."""
    TARGET = auto()
    """The partition is left out of fetches until the target has acknowledged its batches."""
    BUDGET = auto()
    """The partition is left out of fetches until its topic's byte budget (`pace`) allows more."""


@dataclass(slots=True)
class SourceState:
    """The state of one source partition: its log, and the broker from which it is read."""

    copy: Copy
    source_end: int = -1
    waits_for: WaitsFor = WaitsFor.NOTHING
    node: int = NO_NODE
    """The broker from which the partition is read, or NO_NODE."""
    sectioned_read: SectionedRead | None = None
