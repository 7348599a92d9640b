"""The quota that a flow set on its source's producers, as a row of the state topic.

The next leader, or a command, uses it to remove a quota that a killed process left behind.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from twinlog.errors import CorruptData
from twinlog.mirror.state.generations import encode_row, read_row

_KIND: Final = "producers-held"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldProducers:
    """One row. The newest counts."""

    flow: str
    rates: tuple[int, ...]
    """Every quota that was set or was about to be set, in bytes per second, newest last. Empty:
    there is no quota any more.
    """
    at_ms: int

    def encode(self) -> tuple[bytes, bytes]:
        value = {"rates": self.rates, "at_ms": self.at_ms}
        return encode_row(["flow", self.flow, _KIND], value)


def is_held_row(key: bytes | None, flow: str) -> bool:
    """Return whether it is the row of this flow."""
    try:
        return bool(json.loads(key or b"null") == ["flow", flow, _KIND])
    except ValueError:
        return False


def held_producers(key: bytes, value: bytes | None) -> HeldProducers | None:
    """Return the row's content, or None if producers are not throttled. Raises CorruptData."""
    if value is None:
        return None
    parts, fields = read_row(key, value)
    try:
        rates = tuple(int(rate) for rate in fields["rates"])
        held = HeldProducers(flow=parts[1], rates=rates, at_ms=int(fields["at_ms"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptData(
            f"the row of held producers in the state topic cannot be read: {error!r}",
            code="STATE_CORRUPT",
        ) from error
    return held if held.rates else None
