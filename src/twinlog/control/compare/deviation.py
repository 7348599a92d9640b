"""What a comparison finds: what differs, and what the flow leaves alone, as values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Aspect(StrEnum):
    """What is compared, in the order in which it is shown."""

    TOPIC = "topics"
    PARTITIONS = "partitions"
    REPLICATION_FACTOR = "replication factors"
    CONFIG = "configs"
    ACL = "ACLs"
    QUOTA = "quotas"
    GROUP = "groups"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """One thing that is not the same on both clusters."""

    aspect: Aspect
    name: str
    """Of the topic on the source, the group, the ACL or whom a quota is of."""
    detail: str = ""
    """Which config, or which partition of a group."""
    source: str
    target: str
    left_alone: str = ""
    """Why the flow does not make it equal; empty: it should be."""

    @property
    def is_difference(self) -> bool:
        return not self.left_alone

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "aspect": self.aspect.name.lower()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """Of one aspect."""

    compared: int
    different: int
    left_alone: int


@dataclass(slots=True, kw_only=True)
class FlowComparison:
    """One flow; filled while it is checked."""

    flow: str
    compared: dict[Aspect, int] = field(default_factory=dict)
    """How many things were checked; an aspect that could not be is not in it."""
    deviations: list[Deviation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be compared, and why."""

    def add(self, aspect: Aspect, compared: int, found: Iterable[Deviation]) -> None:
        self.compared[aspect] = compared
        self.deviations += found

    def note(self, line: str) -> None:
        """What could not be compared, once."""
        if line not in self.notes:
            self.notes.append(line)

    @property
    def differences(self) -> list[Deviation]:
        """What should be equal and is not."""
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

    def as_json(self, *, with_left_alone: bool) -> dict[str, Any]:
        shown = self.deviations if with_left_alone else self.differences
        return {
            "flow": self.flow,
            "is_equal": not self.differences,
            "totals": {a.name.lower(): asdict(total) for a, total in self.totals().items()},
            "deviations": [one.as_json() for one in shown],
            "notes": list(self.notes),
        }
