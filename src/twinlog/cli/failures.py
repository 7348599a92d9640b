"""Says once what stands still and why: a line per topic and code, and one when it is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from twinlog.control.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.quantities import duration, ranges

PASSING_TROUBLE_MS: Final = 30_000
"""What is tried again and helps within this time is not worth a line."""

AGAIN_AFTER_S: Final = 600.0
"""A failure that comes and goes is said so seldom."""


class FailureKey(NamedTuple):
    """One reason in one topic; its partitions share a line."""

    flow: str
    topic: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """Partitions of a topic with one code."""

    key: FailureKey
    partitions: tuple[int, ...]
    message: str

    def __str__(self) -> str:
        where = f"{self.key.topic}-{self.partitions[0]}"
        if len(self.partitions) > 1:
            where = f"{self.key.topic}, partitions {ranges(list(self.partitions))}"
        message = self.message.removeprefix(f"{self.key.flow}: ").removeprefix(f"{where}: ")
        return f"{self.key.flow}: {where}: {message} [{self.key.code}]"


def failing(flows: Iterable[FlowSnapshot], now_ms: int) -> Iterator[Failing]:
    """What stands still for good, or for so long that somebody should know."""
    for flow in flows:
        groups: dict[FailureKey, list[PartitionSnapshot]] = {}
        for part in flow.partitions:
            waits = part.since_ms and now_ms - part.since_ms > PASSING_TROUBLE_MS
            if part.code and (part.state == "FAILED" or waits):
                key = FailureKey(flow.flow, part.topic, part.code)
                groups.setdefault(key, []).append(part)
        for key, parts in groups.items():
            numbers = tuple(part.partition for part in parts)
            yield Failing(key=key, partitions=numbers, message=parts[0].message)


class FailureLines:
    """Remembers what was said."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._told: dict[FailureKey, float] = {}
        self._open: dict[FailureKey, float] = {}

    def update(self, now: float, now_ms: int, flows: Iterable[FlowSnapshot]) -> None:
        """Say what is new, and what is over; `now` is monotonic."""
        known = list(flows)
        found = {one.key: one for one in failing(known, now_ms)}
        troubled = {
            FailureKey(flow.flow, part.topic, part.code)
            for flow in known
            for part in flow.partitions
        }
        for key, one in found.items():
            if key in self._open:
                continue
            self._open[key] = now
            if now - self._told.get(key, now - AGAIN_AFTER_S) >= AGAIN_AFTER_S:
                self._told[key] = now
                self._write(str(one))
        for key in [key for key in self._open if key not in troubled]:
            since = self._open.pop(key)
            if self._told.get(key) == since:
                lasted = duration(now - since)
                self._write(f"{key.flow}: {key.topic}: {key.code} is over after {lasted}")
