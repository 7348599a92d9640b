"""The verdict on numbered records: lost, doubled, moved, or not written by the drill."""

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
    """A defect of one partition."""

    part: str
    where: str
    """Such as `the target log of orders-0`."""
    what: str

    def __str__(self) -> str:
        return f"{self.part}: {self.where}: {self.what}"

    def as_json(self) -> dict[str, Any]:
        return {"part": self.part, "where": self.where, "what": self.what}


def findings(
    part: str, where: str, tp: TopicPartition, found: Sequence[int], wanted: Sequence[int]
) -> Iterator[Defect]:
    """Yield how records differ from the wanted ones: each number once, in ascending order."""

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
        yield finding(strange, "not written by the drill")
    firsts = list(dict.fromkeys(found))  # a doubled record does not count as moved as well
    if moved := [b for a, b in pairwise(firsts) if b < a]:
        yield finding(moved, "moved")


def read_again(found: Sequence[int]) -> int:
    """Return how many records were read more than once."""
    return len(found) - len({*found})
