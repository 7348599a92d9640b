"""All findings that follow from an observation, the most likely first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from twinlog.control.doctor import pace, standstill
from twinlog.control.doctor.observation import Finding, Observation

CHECKS: Final[tuple[Callable[[Observation], Iterator[Finding]], ...]] = (
    standstill.unreachable,
    standstill.not_running,
    standstill.failed,
    standstill.silent,
    standstill.paused,
    standstill.retention_near,
    standstill.no_lanes,
    standstill.stopped_by_codes,
    standstill.leaderless,
    standstill.under_min_isr,
    pace.limited,
    pace.quota,
    pace.open_transaction,
    pace.small_fetches,
    pace.few_lanes,
    pace.one_partition,
    pace.recoded,
    pace.decoded,
    pace.far_away,
)
"""Order of findings of the same likelihood."""


def printed(seen: Observation, found: list[Finding]) -> dict[str, Any]:
    """Return the measurements and findings of a flow, as they are printed for programs."""
    return {
        "flow": seen.flow,
        "state": seen.snapshot.state,
        "lag": seen.lag,
        "lag_ms": seen.lag_ms,
        "lanes": seen.snapshot.lanes,
        "bytes_per_second": None if seen.rate is None else round(seen.rate),
        "round_trips_ms": {
            one.alias: {str(node): round(ms, 3) for node, ms in one.round_trips_ms.items()}
            for one in (seen.source, seen.target)
        },
        "notes": seen.notes,
        "findings": found,
    }


def findings(seen: Observation) -> list[Finding]:
    """Return the findings, or an empty list if the flow is neither slow nor stopped."""
    found = [one for check in CHECKS for one in check(seen)]
    if not found:
        found = list(pace.at_its_limits(seen))
    return sorted(found, key=lambda one: one.likelihood)
