"""What a flow's risk is measured against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskLimits:
    """What people set, and what the source does."""

    rpo_seconds: int | None = None
    """twinlog.rpo.seconds"""
    retentions: Mapping[str, int] = field(default_factory=dict)
    """retention.ms of topics of the source, as far as it is known."""


NO_LIMITS: Final = RiskLimits()
"""Of a flow whose source is not watched: with `--once`."""
