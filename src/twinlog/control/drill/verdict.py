"""What became of numbered records: lost, doubled, moved, or none of the drill's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from twinlog.model import TopicPartition
from twinlog.quantities import first_few, plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """What is wrong with one partition."""

    part: str
    where: str
    """As `the target log of orders-0`."""
    what: str

    def __str__(self) -> str:
        return f"{self.part}: {self.where}: {self.what}"

    def as_json(self) -> dict[str, Any]:
        return {"part": self.part, "where": self.where, "what": self.what}


def findings(
    part: str, where: str, tp: TopicPartition, found: Sequence[int], wanted: Sequence[int]
) -> Iterator[Defect]:
    """How records differ from what is wanted: each number once, in ascending order."""

    def finding(numbers: Sequence[int], what: str) -> Defect:
        shown = first_few(str(number) for number in numbers)
        text = f"{plural(len(numbers), 'record')} {what}: {shown}"
        return Defect(part=part, where=f"{where} {tp}", what=text)

    counts = Counter(found)
    if lost := sorted({*wanted} - {*counts}):
        yield finding(lost, "lost")
    if doubled := sorted(number for number, times in counts.items() if times > 1):
        yield finding(doubled, "doubled")
    if strange := sorted({*counts} - {*wanted}):
        yield finding(strange, "none of the drill's")
    firsts = list(dict.fromkeys(found))  # a doubled one is not moved as well
    if moved := [b for a, b in pairwise(firsts) if b < a]:
        yield finding(moved, "moved")


def read_again(found: Sequence[int]) -> int:
    """How many were read before; what a group reads twice."""
    return len(found) - len({*found})
