"""The limits that a flow's risk is measured against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskLimits:
    """The configured objective, and the source's retention."""

    rpo_seconds: int | None = None
    """The value of twinlog.rpo.seconds."""
    retentions: Mapping[str, int] = field(default_factory=dict)
    """retention.ms of the source's topics, as far as known."""


NO_LIMITS: Final = RiskLimits()
"""For a flow whose source is not watched, as with `--once`."""
