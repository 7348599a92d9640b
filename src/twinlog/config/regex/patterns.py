"""Lists of Java regular expressions that must match a whole name, as in MirrorMaker 2's filters.

The entries are joined with `|` before they are compiled, as in MirrorMaker 2, so `(foo,bar)` (split
at its comma) has the same meaning. A list without entries matches nothing, not even the empty name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from twinlog.config.regex.java_regex import compile_java

EVERYTHING = ".*"
_LONE_STAR = "*"


@dataclass(frozen=True, slots=True)
class NamePattern:
    """The names that a filter key matches."""

    entries: tuple[str, ...]
    regex: re.Pattern[str] | None = field(repr=False, compare=False)
    """The joined expression, for access to its groups, or None without entries."""
    _accepts: Callable[[str], bool] | None = field(default=None, repr=False, compare=False)
    """The user's filter in Python, in place of a list of expressions."""

    is_negated: bool = False

    def matches(self, name: str) -> bool:
        if self._accepts is not None:
            return self._accepts(name)
        is_match = self.regex is not None and self.regex.fullmatch(name) is not None
        return is_match is not self.is_negated

    def __str__(self) -> str:
        return f"{'all but ' if self.is_negated else ''}{', '.join(self.entries)}"


def compile_names(entries: Sequence[str]) -> NamePattern:
    """Compile a list. Raises RegexProblem, whose column is one of `joined(entries)`.

    An entry `*` is invalid in Java and always meant as `.*`, so it is read as that. `has_lone_star`
    detects it, so that callers can warn.
    """
    if not entries:
        return NamePattern((), None)
    return NamePattern(tuple(entries), compile_java(joined(entries)))


def joined(entries: Sequence[str]) -> str:
    """Return the expression that a list stands for."""
    return "|".join(EVERYTHING if entry == _LONE_STAR else entry for entry in entries)


def has_lone_star(entries: Sequence[str]) -> bool:
    return _LONE_STAR in entries
