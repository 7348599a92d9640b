r"""Detects repetitions that can match a text in exponentially many ways, such as `(a+)+`.

Python tries all these ways before it reports that a name does not match, and blocks all other
threads of the process in the meantime. Names are chosen by other users. Nested quantifiers alone
are not the problem: `([a-z]+\.)*` has them, but matches every text in only one way.

The repetition's characters are positions of Glushkov's automaton, which counts in how many ways one
position may follow another. If two ways lead from a position back to itself with the same text,
they can be combined any number of times. The automaton has two such ways if a cycle of pairs of
positions leaves the diagonal, or if a cycle contains a step that exists twice.
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

from twinlog.config.regex.linear import char_test

_ALPHABET: Final = [*map(chr, range(128)), "\x85", "\xe9", "\u2028"]
"""One character of each kind that the translated expressions distinguish."""
_EVERY: Final = (1 << len(_ALPHABET)) - 1
_UNROLLED: Final = 16
"""Counted repetitions are expanded up to this count. Higher counts are treated as unbounded."""
MOST_POSITIONS: Final = 80
"""Maximum characters of a repetition that is checked. A longer one has too many position pairs."""

_Pair = tuple[int, int]
_Graph = dict[_Pair, list[_Pair]]


@lru_cache(maxsize=512)
def has_exponential_ways(expression: str) -> bool:
    """Return True if the repetition, in the syntax of Python's `re`, can match a text in
    exponentially many ways.
    """
    parser: Any = import_module("re._parser")
    try:
        tree = parser.parse(expression, re.ASCII)
    except re.error:
        return False  # the repetition refers to a group outside, so parsing it alone fails
    automaton = _Automaton()
    try:
        automaton.read(tree)
    except _TooLargeError:
        return False
    return automaton.is_ambiguous()


class _TooLargeError(Exception):
    """Raised if an expression has more than MOST_POSITIONS positions."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Where matches of a part of the expression can begin and end."""

    empty: int
    """Number of ways to match the empty text, at most 2."""
    first: tuple[int, ...] = ()
    """Positions at which a match can begin, each as often as there are ways to reach it."""
    last: tuple[int, ...] = ()


_EMPTY: Final = _Part(1)


@dataclass(slots=True)
class _Automaton:
    masks: list[int] = field(default_factory=list)
    """The characters of `_ALPHABET` that each position matches, as bits."""
    follow: Counter[tuple[int, int]] = field(default_factory=Counter)

    def read(self, items: Iterable[Any]) -> _Part:
        """Add the positions of a parsed sequence, from left to right."""
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
                # these do not backtrack, so they are treated as one of their characters
                inner = _Automaton()
                body = argument[2] if code == "POSSESSIVE_REPEAT" else argument
                empty = inner.read(body).empty or (code == "POSSESSIVE_REPEAT" and not argument[0])
                character = self._character(reduce(or_, inner.masks, 0))
                return _Part(int(bool(empty)), character.first, character.last)
            case "GROUPREF":
                return self._repeat(0, 1, lambda: self._character(_EVERY))
            case "LITERAL" | "NOT_LITERAL" | "IN" | "ANY":
                return self._character(_mask(code, argument))
            case _:
                return _EMPTY  # anchors and look-around match no character

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
        last_mask = (len(self.masks) - 1,)
        return _Part(0, last_mask, last_mask)

    def is_ambiguous(self) -> bool:
        """Return True if two ways lead from a position back to itself with the same text."""
        after: dict[int, list[int]] = {}
        for end, begin in self.follow:
            after.setdefault(end, []).append(begin)

        def next_pairs(pair: tuple[int, int]) -> list[tuple[int, int]]:
            return [
                (begin, other)
                for begin in after.get(pair[0], ())
                for other in after.get(pair[1], ())
                if self.masks[begin] & self.masks[other]
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
        if any(begin != other and group[begin, other] in diagonal for begin, other in graph):
            return True
        return any(
            times > 1 and group[end, end] == group[begin, begin]
            for (end, begin), times in self.follow.items()
        )


def _mask(code: str, argument: Any) -> int:
    """Return the characters of `_ALPHABET` that a position matches, as bits. A literal matches in
    upper and lower case, because case may be folded.
    """
    if code == "LITERAL":
        folded = chr(argument).lower()
        return sum(1 << bit for bit, char in enumerate(_ALPHABET) if char.lower() == folded)
    takes = char_test(code, argument)
    return sum(1 << bit for bit, char in enumerate(_ALPHABET) if takes(char))


def _cycles(graph: _Graph) -> dict[_Pair, int]:
    """For each node, return the ID of its strongly connected component (Kosaraju's algorithm)."""
    ends: list[_Pair] = []
    seen: set[_Pair] = set()
    for root in graph:
        _finish(root, graph, seen, ends)
    back: _Graph = {node: [] for node in graph}
    for node, children in graph.items():
        for child in children:
            back[child].append(node)
    group: dict[_Pair, int] = {}
    grouped: set[_Pair] = set()
    for number, root in enumerate(reversed(ends)):
        members: list[_Pair] = []
        _finish(root, back, grouped, members)
        group.update(dict.fromkeys(members, number))
    return group


def _finish(root: _Pair, graph: _Graph, seen: set[_Pair], ends: list[_Pair]) -> None:
    """Append to `ends` all new nodes reachable from `root`, each after its own successors."""
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
