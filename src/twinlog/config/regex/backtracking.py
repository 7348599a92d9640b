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
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from twinlog.config.regex.linear import EMPTY, Automaton, ExpressionPart, bits
from twinlog.config.regex.reader import RegexProblem

_ALPHABET: Final = [*map(chr, range(128)), "\x85", "\xe9", "\u2028"]
"""One character of each kind that the translated expressions distinguish."""
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
    automaton = _Ways()
    try:
        automaton.sequence(tree)
    except RegexProblem:
        return False  # it has too many positions
    return automaton.is_ambiguous()


class _Ways(Automaton):
    most_positions = MOST_POSITIONS
    refuses_flags = False

    def repeat(self, low: int, high: Any, body: Any) -> ExpressionPart:
        if high > _UNROLLED:
            part = self.sequence(body)
            self.link(part.last, part.first)
            return part if low else replace(part, empty=1)
        done = EMPTY
        for count in range(high):
            part = self.sequence(body)
            done = self.then(done, part | EMPTY if count >= low else part)
        return done

    def other(self, code: str, argument: Any) -> ExpressionPart:
        match code:
            case "POSSESSIVE_REPEAT" | "ATOMIC_GROUP":
                # these do not backtrack, so they are treated as one of their characters
                inner = _Ways()
                is_repeat = code == "POSSESSIVE_REPEAT"
                empty = inner.sequence(argument[2] if is_repeat else argument).empty
                is_empty = bool(empty or (is_repeat and not argument[0]))
                one = self.character(lambda char: any(takes(char) for takes in inner.takes))
                return replace(one, empty=int(is_empty))
            case "GROUPREF":
                return replace(self.character(lambda _: True), empty=1)
            case _:
                return EMPTY  # anchors and look-around match no character

    def char_test(self, code: str, argument: Any) -> Callable[[str], bool]:
        """Return a test of one character. A literal matches in upper and lower case, because case
        may be folded.
        """
        if code == "LITERAL":
            return lambda char: char.lower() == chr(argument).lower()
        return super().char_test(code, argument)

    def is_ambiguous(self) -> bool:
        """Return True if two ways lead from a position back to itself with the same text."""
        after = [[*bits(positions.once)] for positions in self.follow]
        masks = [
            sum(1 << bit for bit, char in enumerate(_ALPHABET) if takes(char))
            for takes in self.takes
        ]

        def next_pairs(pair: tuple[int, int]) -> list[tuple[int, int]]:
            return [
                (begin, other)
                for begin in after[pair[0]]
                for other in after[pair[1]]
                if masks[begin] & masks[other]
            ]

        graph: _Graph = {}
        waiting = [(position, position) for position in range(len(masks))]
        while waiting:
            pair = waiting.pop()
            if pair not in graph:
                graph[pair] = next_pairs(pair)
                waiting += graph[pair]
        group = _cycles(graph)
        diagonal = {group[p, p] for p in range(len(masks))}
        if any(begin != other and group[begin, other] in diagonal for begin, other in graph):
            return True
        return any(
            group[end, end] == group[begin, begin]
            for end, positions in enumerate(self.follow)
            for begin in bits(positions.twice)
        )


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
