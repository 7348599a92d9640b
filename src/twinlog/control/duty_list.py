"""Which duties a led flow has, in the order in which `--once` ends with a round of each."""

from __future__ import annotations

from typing import Final

from twinlog.control.duties import Duty, DutyFactory, LedFlow

DUTIES: Final[tuple[DutyFactory, ...]] = ()


def duties_of(flow: LedFlow) -> list[Duty]:
    """Those that the flow's configuration asks for."""
    made = (factory(flow) for factory in DUTIES)
    return [duty for duty in made if duty is not None]
