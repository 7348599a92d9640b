"""One reason why a flow is slow or has stopped, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any


class Likelihood(IntEnum):
    """How sure it is that it holds the flow back; the surest first."""

    CERTAIN = 1
    """It is seen: what it is about has stopped, or will lose records."""
    LIKELY = 2
    """A number says so."""
    POSSIBLE = 3
    """It costs something; nothing says how much."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of what is seen, with its number, and one of what to do."""

    likelihood: Likelihood
    cause: str
    """A word for programs, which never changes its meaning: `quota`."""
    what: str
    todo: str
    """A key to change, or a command."""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "likelihood": self.likelihood.name.lower()}
