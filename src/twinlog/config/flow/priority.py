"""`twinlog.priority`: how topics share a byte budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.config.regex.patterns import NamePattern
from twinlog.config.values.origin import Setting, refuse
from twinlog.config.values.types import to_list, to_names

DEFAULT_WEIGHT: Final = 1
MOST: Final = 1_000


@dataclass(frozen=True, slots=True)
class Priorities:
    """Topic patterns with their weights. The first pattern that matches applies."""

    entries: tuple[tuple[NamePattern, int], ...]

    def weight(self, topic: str) -> int:
        """Return the topic's weight in the budget."""
        found = (weight for pattern, weight in self.entries if pattern.matches(topic))
        return next(found, DEFAULT_WEIGHT)


def to_priorities(setting: Setting) -> Priorities:
    """Parse `payments.*:10, logs.*:1`: Java regular expressions for whole names, each with a
    weight.
    """
    entries = []
    for entry in to_list(setting):
        pattern, colon, weight = entry.rpartition(":")
        if not colon or not pattern or not weight.isascii() or not weight.isdigit():
            raise refuse(setting, f'"{entry}" is not pattern:weight', "write payments.*:10, logs:1")
        if not 1 <= int(weight) <= MOST:
            raise refuse(setting, f"the weight {weight} is out of range", f"use 1 to {MOST}")
        one = Setting(
            key=setting.key,
            value=pattern,
            file=setting.file,
            line=setting.line,
            from_provider=setting.from_provider,
        )
        entries.append((to_names(one), int(weight)))
    return Priorities(tuple(entries))
