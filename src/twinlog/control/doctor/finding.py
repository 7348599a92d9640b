"""One reason why a flow is slow or has stopped, and the remedy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any


class Likelihood(IntEnum):
    """How certain it is that this holds the flow back, the most certain first."""

    CERTAIN = 1
    """Observed: its subject has stopped, or will lose records."""
    LIKELY = 2
    """A measurement indicates it."""
    POSSIBLE = 3
    """It has a cost of unknown size."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line with the observation and its number, and one with the remedy."""

    likelihood: Likelihood
    cause: str
    """A stable identifier for programs, such as `quota`."""
    what: str
    todo: str
    """A key to change, or a command."""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "likelihood": self.likelihood.name.lower()}
