"""The quota that a flow has set for its source's producers, as a row of the state topic.

The next leader, or a command, uses the row to remove a quota that a killed process has left.
"""

from __future__ import annotations

import json
from typing import Final

from twinlog.mirror.state.state_row import StateRow, read_row, row

HELD: Final = "producers-held"


@row(HELD)
class HeldProducers(StateRow, frozen=True, kw_only=True):
    """The producer quotas that one flow has set on its source. A flow's newest row counts."""

    rates: tuple[int, ...]
    """Every quota that the flow has set or was about to set, in bytes per second, the newest last.
    Empty if the quota was removed.
    """
    at_ms: int


def is_held_row(key: bytes | None, flow: str) -> bool:
    try:
        return bool(json.loads(key or b"null") == ["flow", flow, HELD])
    except ValueError:
        return False


def held_producers(key: bytes | None, value: bytes | None) -> HeldProducers | None:
    """Decode the row. Return None if it states that no quota is set. Raises CorruptData if the row
    is invalid.
    """
    if key is None or value is None:
        return None
    held = HeldProducers.decode(*read_row(key, value))
    return held if held.rates else None
