"""The results of a comparison as values: differences, and what the flow leaves alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Aspect(StrEnum):
    """A category of comparison, in the order of the output."""

    TOPIC = "topics"
    PARTITIONS = "partitions"
    REPLICATION_FACTOR = "replication factors"
    CONFIG = "configs"
    ACL = "ACLs"
    QUOTA = "quotas"
    GROUP = "groups"


@dataclass(frozen=True, slots=True)
class Deviation:
    """A difference between the two clusters."""

    aspect: Aspect
    name: str
    """The source topic, the group, the ACL, or the entity of a quota."""
    detail: str = ""
    """The config, or the partition of a group."""
    source: str = ""
    target: str = ""
    left_alone: str = ""
    """Why the flow does not make it equal; empty if it should be equal."""

    @property
    def is_difference(self) -> bool:
        return not self.left_alone

    FIELDS = "aspect=aspect.name.lower name detail source target left_alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The counts of one aspect."""

    compared: int
    different: int
    left_alone: int


@dataclass(slots=True, kw_only=True)
class FlowComparison:
    """The results for one flow; filled during the comparison."""

    flow: str
    compared: dict[Aspect, int] = field(default_factory=dict)
    """Number of items compared; aspects that could not be compared are missing."""
    deviations: list[Deviation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Failed comparisons, and why."""

    def add(self, aspect: Aspect, compared: int, found: Iterable[Deviation]) -> None:
        self.compared[aspect] = compared
        self.deviations += found

    def note(self, line: str) -> None:
        """Add a note about a failed comparison, once."""
        if line not in self.notes:
            self.notes.append(line)

    @property
    def differences(self) -> list[Deviation]:
        """Deviations that the flow should have made equal."""
        return [one for one in self.deviations if one.is_difference]

    def totals(self) -> dict[Aspect, Total]:
        out = {}
        for aspect in Aspect:
            if aspect in self.compared:
                here = [one for one in self.deviations if one.aspect is aspect]
                different = sum(one.is_difference for one in here)
                out[aspect] = Total(
                    compared=self.compared[aspect],
                    different=different,
                    left_alone=len(here) - different,
                )
        return out

    def printed(self, *, with_left_alone: bool) -> dict[str, Any]:
        """Return what is printed for programs."""
        return {
            "flow": self.flow,
            "is_equal": not self.differences,
            "totals": {aspect.name.lower(): one for aspect, one in self.totals().items()},
            "deviations": self.deviations if with_left_alone else self.differences,
            "notes": self.notes,
        }
