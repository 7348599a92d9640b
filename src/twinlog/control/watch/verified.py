"""How much of its copy a running mirror has verified (`control.duties.verification`).

Written by the duty's thread, read by the supervisor's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

CODE: Final = "COPY_DIFFERS"
MOST_SHOWN: Final = 20
"""Maximum number of differences that are kept as text. Further differences are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Progress of the verification since this process leads the flow. Records, bytes and
    differences only grow.
    """

    mode: str
    """The value of twinlog.verify."""
    at_ms: int = 0
    """Time of the last comparison; 0 if there was none."""
    records: int = 0
    """Number of records that are equal on both sides."""
    bytes: int = 0
    """Bytes of the target's batches that were read."""
    cpu_ms: int = 0
    """CPU time of the verification in ms."""
    differences: int = 0
    """Number of ranges that differ; `twinlog verify` shows all current differences."""
    first_differences: tuple[str, ...] = ()
    is_complete: bool = False
    """With `full`: whether all records that were copied until a moment ago have been compared."""


def with_differences(errors: Mapping[str, int], verified: Verified | None) -> Mapping[str, int]:
    """Return the number of occurrences of each code. Differences count as COPY_DIFFERS."""
    number = 0 if verified is None else verified.differences
    return {**errors, CODE: number} if number else errors


@dataclass(slots=True, kw_only=True)
class VerifiedReport:
    """Collects the progress of the verification of one led flow."""

    last: Verified | None = None
    """Progress of the verification, or None if verification is off."""
    _known: set[str] = field(default_factory=set)

    def add_compared(self, records: int, size: int, at_ms: int, cpu_ms: int) -> None:
        """Record that a section of the copy was compared."""
        last = self._required_last
        self.last = replace(
            last,
            at_ms=at_ms,
            records=last.records + records,
            bytes=last.bytes + size,
            cpu_ms=cpu_ms,
        )

    def add_difference(self, line: str) -> bool:
        """Record that a range differs. Return False if it was already reported."""
        if line in self._known:
            return False
        last = self._required_last
        if len(self._known) < MOST_SHOWN:
            self._known.add(line)
        shown = (*last.first_differences, line)[:MOST_SHOWN]
        self.last = replace(last, differences=last.differences + 1, first_differences=shown)
        return True

    def set_complete(self, *, is_complete: bool) -> None:
        """Record whether everything has been compared."""
        if self._required_last.is_complete is not is_complete:
            self.last = replace(self._required_last, is_complete=is_complete)

    @property
    def _required_last(self) -> Verified:
        assert self.last is not None  # noqa: S101 (a duty runs only where it is on)
        return self.last
