"""Whether a repetition can read one text in exponentially many ways, as `(a+)+` can.

Python tries them all before it says that a name does not match, and holds every other thread of the
process meanwhile; the names come from others. What counts are not nested quantifiers but the ways:
`([a-z]+\\.)*` nests them, and reads every text in one way only.

The repetition's characters are positions (Glushkov's automaton), with how often one may follow
another. Two ways back to the same position by the same text, once found, can be gone through again
and again: they are a cycle of pairs of positions that leaves the diagonal, or a follower that is
reached twice in one step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from importlib import import_module
from operator import or_
from typing import Any, Final

from twinlog.config.regex.linear import CATEGORIES

_ALPHABET: Final = [*map(chr, range(128)), "\x85", "\xe9", "\u2028"]
"""One of each kind that the translated expressions tell apart."""
_EVERY: Final = (1 << len(_ALPHABET)) - 1
_UNROLLED: Final = 16
"""Counted repetitions are written out up to this count, and taken for endless above."""
MOST_POSITIONS: Final = 80
"""A repetition with more characters in it is not judged: pairs of them are too many."""

_Pair = tuple[int, int]
_Graph = dict[_Pair, list[_Pair]]


@lru_cache(maxsize=512)
def has_exponential_ways(expression: str) -> bool:
    """Judge one repetition, as Python's `re` reads it."""
    parser: Any = import_module("re._parser")
    try:
        tree = parser.parse(expression, re.ASCII)
    except re.error:
        return False  # it names a group outside of it
    automaton = _Automaton()
    try:
        automaton.read(tree)
    except _TooLargeError:
        return False
    return automaton.is_ambiguous()


class _TooLargeError(Exception):
    """More positions than are judged."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What a piece of the expression begins and ends with."""

    empty: int
    """In how many ways it reads nothing; more than two are two."""
    first: tuple[int, ...] = ()
    """Positions, each as often as there are ways to it."""
    last: tuple[int, ...] = ()


_EMPTY: Final = _Part(1)


@dataclass(slots=True)
class _Automaton:
    masks: list[int] = field(default_factory=list)
    """Which characters of the alphabet each position takes."""
    follow: Counter[tuple[int, int]] = field(default_factory=Counter)

    def read(self, items: Iterable[Any]) -> _Part:
        """A sequence, from left to right."""
        done = _EMPTY
        for code, argument in items:
            done = self._then(done, self._item(str(code), argument))
        return done

    def _then(self, left: _Part, right: _Part) -> _Part:
        self._link(left.last, right.first)
        return _Part(
            min(left.empty * right.empty, 2),
            left.first + right.first * left.empty,
            left.last * right.empty + right.last,
        )

    def _link(self, ends: Sequence[int], begins: Sequence[int]) -> None:
        for end in ends:
            for begin in begins:
                self.follow[end, begin] += 1

    def _item(self, code: str, argument: Any) -> _Part:  # noqa: PLR0911 (a table)
        match code:
            case "SUBPATTERN":
                return self.read(argument[3])
            case "BRANCH":
                parts = [self.read(choice) for choice in argument[1]]
                return _Part(
                    min(sum(part.empty for part in parts), 2),
                    tuple(position for part in parts for position in part.first),
                    tuple(position for part in parts for position in part.last),
                )
            case "MAX_REPEAT" | "MIN_REPEAT":
                low, high, body = argument
                return self._repeat(int(low), int(high), lambda: self.read(body))
            case "POSSESSIVE_REPEAT" | "ATOMIC_GROUP":
                # what they took is not tried in another way: as one character of theirs
                inner = _Automaton()
                body = argument[2] if code == "POSSESSIVE_REPEAT" else argument
                empty = inner.read(body).empty or (code == "POSSESSIVE_REPEAT" and not argument[0])
                one = self._character(_union(inner.masks))
                return _Part(int(bool(empty)), one.first, one.last)
            case "GROUPREF":
                return self._repeat(0, 1, lambda: self._character(_EVERY))
            case "LITERAL" | "NOT_LITERAL" | "IN" | "ANY":
                return self._character(_mask(code, argument))
            case _:
                return _EMPTY  # anchors and looks around take no character

    def _repeat(self, low: int, high: int, body: Callable[[], _Part]) -> _Part:
        if high > _UNROLLED:
            part = body()
            self._link(part.last, part.first)
            return _Part(part.empty if low else 1, part.first, part.last)
        done = _EMPTY
        for count in range(high):
            part = body()
            empty = min(part.empty + (count >= low), 2)
            done = self._then(done, _Part(empty, part.first, part.last))
        return done

    def _character(self, mask: int) -> _Part:
        if len(self.masks) >= MOST_POSITIONS:
            raise _TooLargeError
        self.masks.append(mask)
        here = (len(self.masks) - 1,)
        return _Part(0, here, here)

    def is_ambiguous(self) -> bool:
        """Whether two ways lead from a position back to it by the same text."""
        after: dict[int, list[int]] = {}
        for end, begin in self.follow:
            after.setdefault(end, []).append(begin)

        def next_pairs(pair: tuple[int, int]) -> list[tuple[int, int]]:
            return [
                (one, other)
                for one in after.get(pair[0], ())
                for other in after.get(pair[1], ())
                if self.masks[one] & self.masks[other]
            ]

        graph: _Graph = {}
        waiting = [(position, position) for position in range(len(self.masks))]
        while waiting:
            pair = waiting.pop()
            if pair not in graph:
                graph[pair] = next_pairs(pair)
                waiting += graph[pair]
        group = _cycles(graph)
        diagonal = {group[p, p] for p in range(len(self.masks))}
        if any(one != other and group[one, other] in diagonal for one, other in graph):
            return True
        return any(
            times > 1 and group[end, end] == group[begin, begin]
            for (end, begin), times in self.follow.items()
        )


def _mask(code: str, argument: Any) -> int:
    """The characters that one position takes; a case that is folded takes both."""
    if code == "ANY":
        return _EVERY
    if code == "LITERAL":
        return _of(lambda char: char.lower() == chr(argument).lower())
    if code == "NOT_LITERAL":
        return _of(lambda char: char != chr(argument))
    mask, negated = 0, False
    for kind, value in argument:
        match str(kind):
            case "NEGATE":
                negated = True
            case "LITERAL":
                mask |= _of(lambda char, wanted=value: ord(char) == wanted)  # type: ignore[misc]
            case "RANGE":
                low, high = value
                mask |= _of(lambda char, a=low, b=high: a <= ord(char) <= b)  # type: ignore[misc]
            case _:
                known = re.compile(CATEGORIES.get(str(value), "(?s:.)"), re.ASCII)
                mask |= _of(lambda char, which=known: which.match(char) is not None)  # type: ignore[misc]
    return _EVERY & ~mask if negated else mask


def _union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


def _of(takes: Callable[[str], bool]) -> int:
    return sum(1 << bit for bit, char in enumerate(_ALPHABET) if takes(char))


def _cycles(graph: _Graph) -> dict[_Pair, int]:
    """Which nodes lead to each other: a number for each such group (Kosaraju's algorithm)."""
    ends: list[_Pair] = []
    seen: set[_Pair] = set()
    for root in graph:
        _finish(root, graph, seen, ends)
    back: _Graph = {node: [] for node in graph}
    for node, children in graph.items():
        for child in children:
            back[child].append(node)
    group: dict[_Pair, int] = {}
    gone: set[_Pair] = set()
    for number, root in enumerate(reversed(ends)):
        members: list[_Pair] = []
        _finish(root, back, gone, members)
        group.update(dict.fromkeys(members, number))
    return group


def _finish(root: _Pair, graph: _Graph, seen: set[_Pair], ends: list[_Pair]) -> None:
    """Append what is reached from here and new, each node behind those that it leads to."""
    if root in seen:
        return
    seen.add(root)
    work = [(root, iter(graph[root]))]
    while work:
        node, children = work[-1]
        child = next((each for each in children if each not in seen), None)
        if child is None:
            ends.append(node)
            work.pop()
        else:
            seen.add(child)
            work.append((child, iter(graph[child])))
