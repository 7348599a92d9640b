"""Lists of Java regular expressions that must match a whole name, as MM2's filters take them.

The entries of a list are joined with `|` before they are compiled, as MM2 does, so that `(foo,bar)`
(split at its comma) means the same here. A list without entries matches nothing, not even the empty
name.
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
    """What a filter key says: which names it matches."""

    entries: tuple[str, ...]
    _regex: re.Pattern[str] | None = field(repr=False, compare=False)
    _accepts: Callable[[str], bool] | None = field(default=None, repr=False, compare=False)
    """The user's filter in Python, in place of a list of expressions."""

    def matches(self, name: str) -> bool:
        if self._accepts is not None:
            return self._accepts(name)
        return self._regex is not None and self._regex.fullmatch(name) is not None

    @property
    def regex(self) -> re.Pattern[str] | None:
        """The one expression of the list, for who asks for its groups; None without entries."""
        return self._regex

    def __str__(self) -> str:
        return ", ".join(self.entries)


def compile_names(entries: Sequence[str]) -> NamePattern:
    """Compile a list; raises RegexProblem, whose column counts in `joined(entries)`.

    An entry that is a lone `*` is an error in Java and always meant as `.*`: it is taken so
    (`has_lone_star` tells, so that somebody can say it).
    """
    if not entries:
        return NamePattern((), None)
    return NamePattern(tuple(entries), compile_java(joined(entries)))


def joined(entries: Sequence[str]) -> str:
    """The one expression that a list stands for."""
    return "|".join(EVERYTHING if entry == _LONE_STAR else entry for entry in entries)


def has_lone_star(entries: Sequence[str]) -> bool:
    return _LONE_STAR in entries
