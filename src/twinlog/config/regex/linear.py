"""A matcher whose time grows linearly with the length of a name, for expressions sent by clients.

Python's `re` backtracks. For `(a+)+b` it may run practically forever, while it blocks all threads
of the process. This matcher follows all alternatives in parallel (Glushkov's automaton, one bit per
position). It supports only regular constructs: characters, classes, groups, `|` and quantifiers.
Look-around, references and possessive quantifiers are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce
from importlib import import_module
from operator import or_
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
    automaton = Automaton()
    try:
        whole = automaton.sequence(tree)
    except RecursionError as error:
        raise RegexProblem("it is too large", 1) from error
    return automaton.matcher(whole)


@dataclass(frozen=True, slots=True)
class PositionSet:
    """Some of an automaton's positions, one bit for each."""

    once: int = 0
    """Positions that can be reached in one way or several."""
    twice: int = 0
    """Positions that can be reached in several ways."""

    def __add__(self, other: PositionSet) -> PositionSet:
        twice = self.twice | other.twice | (self.once & other.once)
        return PositionSet(self.once | other.once, twice)

    def __mul__(self, ways: int) -> PositionSet:
        return (
            PositionSet(self.once, self.once if ways > 1 else self.twice) if ways else PositionSet()
        )


@dataclass(frozen=True, slots=True)
class ExpressionPart:
    """Where matches of a part of the expression can begin and end."""

    empty: int
    """Number of ways to match the empty text, at most 2."""
    first: PositionSet = PositionSet()
    last: PositionSet = PositionSet()

    def __or__(self, other: ExpressionPart) -> ExpressionPart:
        empty = min(self.empty + other.empty, 2)
        return ExpressionPart(empty, self.first + other.first, self.last + other.last)


EMPTY: Final = ExpressionPart(1)


class Automaton:
    """The automaton of an expression. Methods that read a part of the expression, as parsed by
    `re`, add its positions.
    """

    most_positions = MOST_POSITIONS
    refuses_flags = True

    def __init__(self) -> None:
        self.takes: list[Callable[[str], bool]] = []
        """Tests if a position matches a character."""
        self.follow: list[PositionSet] = []
        """For each position, those that may come next."""

    def sequence(self, items: Iterable[Any]) -> ExpressionPart:
        done = EMPTY
        for code, argument in items:
            done = self.then(done, self._item(str(code), argument))
        return done

    def then(self, left: ExpressionPart, right: ExpressionPart) -> ExpressionPart:
        self.link(left.last, right.first)
        return ExpressionPart(
            min(left.empty * right.empty, 2),
            left.first + right.first * left.empty,
            left.last * right.empty + right.last,
        )

    def link(self, ends: PositionSet, begins: PositionSet) -> None:
        for position in bits(ends.once):
            self.follow[position] += begins * (1 + (ends.twice >> position & 1))

    def _item(self, code: str, argument: Any) -> ExpressionPart:
        match code:
            case "SUBPATTERN":
                if self.refuses_flags and (argument[1] or argument[2]):
                    raise RegexProblem("flags such as (?i:) are not supported", 1)
                return self.sequence(argument[3])
            case "BRANCH":
                return reduce(or_, map(self.sequence, argument[1]))
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self.repeat(*argument)
            case "LITERAL" | "NOT_LITERAL" | "IN" | "ANY":
                return self.character(self.char_test(code, argument))
            case _:
                return self.other(code, argument)

    def repeat(self, low: int, high: Any, body: Any) -> ExpressionPart:
        is_endless = str(high) == "MAXREPEAT"
        times = max(int(low), 1) if is_endless else int(high)
        done = part = EMPTY
        for count in range(times):
            before = len(self.takes)
            part = self.sequence(body)
            if len(self.takes) == before:
                break  # the body matches only the empty text, so more repetitions add nothing
            done = self.then(done, part | EMPTY if count >= int(low) else part)
        if is_endless:
            self.link(part.last, part.first)
        return done

    def other(self, code: str, argument: Any) -> ExpressionPart:
        if code == "AT" and str(argument) in ("AT_BEGINNING", "AT_END"):
            raise RegexProblem("whole names are matched: remove ^ and $", 1)
        raise RegexProblem(f"{code.lower()} is not supported, because it may take too long", 1)

    def character(self, takes: Callable[[str], bool]) -> ExpressionPart:
        if len(self.takes) >= self.most_positions:
            most = self.most_positions
            raise RegexProblem(f"it has more than {most} characters and repetitions", 1)
        self.takes.append(takes)
        self.follow.append(PositionSet())
        at = PositionSet(1 << (len(self.takes) - 1))
        return ExpressionPart(0, at, at)

    def matcher(self, whole: ExpressionPart) -> Callable[[str], bool]:
        """Return a function that matches whole names."""
        takes, follow = self.takes, [positions.once for positions in self.follow]

        @lru_cache(maxsize=_KNOWN)
        def of(char: str) -> int:
            return sum(1 << index for index, take in enumerate(takes) if take(char))

        def matches(name: str) -> bool:
            if not name:
                return whole.empty > 0
            reached, ways = 0, whole.first.once
            for char in name:
                reached = ways & of(char)
                if not reached:
                    return False
                ways = 0
                for position in bits(reached):
                    ways |= follow[position]
            return bool(reached & whole.last.once)

        return matches

    def char_test(self, code: str, argument: Any) -> Callable[[str], bool]:
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


def bits(value: int) -> Iterable[int]:
    """Yield the numbers of the bits that are set."""
    while value:
        low = value & -value
        yield low.bit_length() - 1
        value ^= low


_CATEGORIES: Final = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
