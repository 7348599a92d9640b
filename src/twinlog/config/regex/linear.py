"""A matcher whose time grows linearly with the length of a name, for expressions sent by clients.

Python's `re` backtracks. For `(a+)+b` it may run practically forever, while it blocks all threads
of the process. This matcher follows all alternatives in parallel (Glushkov's automaton, one bit per
position). It supports only regular constructs: characters, classes, groups, `|` and quantifiers.
Look-around, references and possessive quantifiers are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from twinlog.config.regex.reader import RegexProblem

MOST_POSITIONS: Final = 400
"""Maximum number of characters in an expression, with `{n}` expanded. Each of them may cost a step
per character of a name.
"""
_KNOWN: Final = 4096
"""Number of characters for which the matching positions are cached."""


def linear_matcher(expression: str) -> Callable[[str], bool]:
    """Return a function that matches whole names. Raises RegexProblem with the column that Python
    reports.
    """
    parser: Any = import_module("re._parser")
    try:
        tree = parser.parse(expression)
    except re.error as error:
        raise RegexProblem(error.msg, (error.pos or 0) + 1) from error
    except (OverflowError, RecursionError) as error:
        raise RegexProblem("it is too large", 1) from error
    if tree.state.flags & ~re.UNICODE:
        raise RegexProblem("flags such as (?i) are not supported", 1)
    positions = _Positions()
    try:
        whole = positions.sequence(tree)
    except RecursionError as error:
        raise RegexProblem("it is too large", 1) from error
    return positions.matcher(whole)


@dataclass(frozen=True, slots=True)
class _Part:
    is_empty: bool
    """True if this part of the expression matches the empty text."""
    first: int = 0
    """Positions at which a match may begin, one bit for each."""
    last: int = 0


@dataclass(slots=True)
class _Positions:
    takes: list[Callable[[str], bool]] = field(default_factory=list)
    follow: list[int] = field(default_factory=list)

    def sequence(self, items: Iterable[Any]) -> _Part:
        done = _Part(is_empty=True)
        for code, argument in items:
            done = self._then(done, self._item(str(code), argument))
        return done

    def _then(self, left: _Part, right: _Part) -> _Part:
        self._link(left.last, right.first)
        return _Part(
            left.is_empty and right.is_empty,
            left.first | (right.first if left.is_empty else 0),
            right.last | (left.last if right.is_empty else 0),
        )

    def _link(self, ends: int, begins: int) -> None:
        for position in _bits(ends):
            self.follow[position] |= begins

    def _item(self, code: str, argument: Any) -> _Part:
        match code:
            case "SUBPATTERN":
                if argument[1] or argument[2]:
                    raise RegexProblem("flags such as (?i:) are not supported", 1)
                return self.sequence(argument[3])
            case "BRANCH":
                parts = [self.sequence(choice) for choice in argument[1]]
                whole = _Part(is_empty=False)
                for part in parts:
                    whole = _Part(
                        whole.is_empty or part.is_empty,
                        whole.first | part.first,
                        whole.last | part.last,
                    )
                return whole
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(*argument)
            case "LITERAL" | "NOT_LITERAL" | "IN" | "ANY":
                return self._character(char_test(code, argument))
            case "AT" if str(argument) in ("AT_BEGINNING", "AT_END"):
                raise RegexProblem("whole names are matched: remove ^ and $", 1)
            case _:
                raise RegexProblem(
                    f"{code.lower()} is not supported, because it may take too long", 1
                )

    def _repeat(self, low: int, high: Any, body: Any) -> _Part:
        is_endless = str(high) == "MAXREPEAT"
        times = max(int(low), 1) if is_endless else int(high)
        done, part = _Part(is_empty=True), _Part(is_empty=True)
        for count in range(times):
            before = len(self.takes)
            part = self.sequence(body)
            if len(self.takes) == before:
                break  # the body matches only the empty text, so more repetitions add nothing
            may_end = part.is_empty or count >= int(low)
            done = self._then(done, _Part(may_end, part.first, part.last))
        if is_endless:
            self._link(part.last, part.first)
        return done

    def _character(self, takes: Callable[[str], bool]) -> _Part:
        if len(self.takes) >= MOST_POSITIONS:
            raise RegexProblem(f"it has more than {MOST_POSITIONS} characters and repetitions", 1)
        self.takes.append(takes)
        self.follow.append(0)
        bit = 1 << (len(self.takes) - 1)
        return _Part(False, bit, bit)

    def matcher(self, whole: _Part) -> Callable[[str], bool]:
        takes, follow = self.takes, self.follow

        @lru_cache(maxsize=_KNOWN)
        def of(char: str) -> int:
            return sum(1 << index for index, take in enumerate(takes) if take(char))

        def matches(name: str) -> bool:
            if not name:
                return whole.is_empty
            reached, ways = 0, whole.first
            for char in name:
                reached = ways & of(char)
                if not reached:
                    return False
                ways = 0
                for position in _bits(reached):
                    ways |= follow[position]
            return bool(reached & whole.last)

        return matches


def _bits(value: int) -> Iterable[int]:
    while value:
        low = value & -value
        yield low.bit_length() - 1
        value ^= low


def char_test(code: str, argument: Any) -> Callable[[str], bool]:
    """Return a function that tests one character, in constant time even for a class."""
    if code == "ANY":
        return lambda char: char != "\n"
    if code == "LITERAL":
        return lambda char: ord(char) == argument
    if code == "NOT_LITERAL":
        return lambda char: ord(char) != argument
    ranges: list[tuple[int, int]] = []
    kinds: list[re.Pattern[str]] = []
    is_negated = False
    for kind, value in argument:
        match str(kind):
            case "NEGATE":
                is_negated = True
            case "LITERAL":
                ranges.append((value, value))
            case "RANGE":
                ranges.append(value)
            case _:
                kinds.append(re.compile(_CATEGORIES[str(value)]))

    def takes(char: str) -> bool:
        is_in = any(low <= ord(char) <= high for low, high in ranges)
        return (is_in or any(kind.match(char) is not None for kind in kinds)) != is_negated

    return takes


_CATEGORIES: Final = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
