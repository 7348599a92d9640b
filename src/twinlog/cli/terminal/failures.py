"""Reports each failure once: a line per topic and code, and a line when it is over.

Many topics with the same code share a line with the first topic's message, because for example 25
topics deleted together are one event. The line at the end depends on the state at that time: a
topic that is mirrored again is over its failure, and a topic that is no longer mirrored was
released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from twinlog.cli.terminal.status.topic_table import since
from twinlog.codes import NOT_MIRRORED, PartitionState
from twinlog.control.watch.readiness import RESTING
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.quantities import duration, first_few, plural, ranges

PASSING_TROUBLE_MS: Final = 30_000
"""Retried failures are reported only if they last longer than this."""

TOPICS_EACH: Final = 3
"""If more topics than this get the same code in the same update, they share a line."""

FRESH_MS: Final = 5_000
"""A failure that began less than this before its line is reported without a start time."""

AGAIN_AFTER_S: Final = 600.0
"""A recurring failure is reported at most this often."""


class FailureKey(NamedTuple):
    """A code in one topic; the partitions share a line."""

    flow: str
    topic: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """Partitions of a topic that share a code."""

    key: FailureKey
    partitions: tuple[int, ...]
    message: str
    since_ms: int
    """0 if unknown."""

    def line(self, now_ms: int) -> str:
        where = f"{self.key.topic}-{self.partitions[0]}"
        if len(self.partitions) > 1:
            where = f"{self.key.topic}, partitions {ranges(list(self.partitions))}"
        message = self.message.removeprefix(f"{where}: ")
        return f"{self.key.flow}: {where}: {message} [{self.key.code}]{self.began(now_ms)}"

    def began(self, now_ms: int) -> str:
        """Return the start time as text, or "" if the failure has just begun."""
        is_old = self.since_ms and now_ms - self.since_ms > FRESH_MS
        return f", since {since(self.since_ms, now_ms)}" if is_old else ""


def failing(flows: Iterable[FlowSnapshot], now_ms: int) -> Iterator[Failing]:
    """Yield permanent failures, and retried failures that last long. Failures of the flow itself
    are left out because the flow reports them in lines of its own.
    """
    for flow in flows:
        groups: dict[FailureKey, list[PartitionSnapshot]] = {}
        for part in flow.partitions:
            if flow.speaks_for(part):
                continue
            waits = part.since_ms and now_ms - part.since_ms > PASSING_TROUBLE_MS
            if part.code and (part.state is PartitionState.FAILED or waits):
                key = FailureKey(flow.flow, part.topic, part.code)
                groups.setdefault(key, []).append(part)
        for key, parts in groups.items():
            numbers = tuple(part.partition for part in parts)
            began_ms = min((part.since_ms for part in parts if part.since_ms), default=0)
            message = parts[0].message
            yield Failing(key=key, partitions=numbers, message=message, since_ms=began_ms)


class FailureLines:
    """Writes failures when they begin and end, and remembers those already reported."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._reported_at: dict[FailureKey, float] = {}
        self._open: dict[FailureKey, float] = {}

    def update(self, now: float, now_ms: int, flows: Iterable[FlowSnapshot]) -> None:
        """Write new failures, and failures that are over; `now` is monotonic."""
        known = list(flows)
        found = {one.key: one for one in failing(known, now_ms)}
        troubled = {
            FailureKey(flow.flow, part.topic, part.code)
            for flow in known
            for part in flow.partitions
        }
        fresh: dict[tuple[str, str], list[Failing]] = {}
        for key, one in found.items():
            if key in self._open:
                continue
            self._open[key] = now
            if now - self._reported_at.get(key, now - AGAIN_AFTER_S) >= AGAIN_AFTER_S:
                self._reported_at[key] = now
                fresh.setdefault((key.flow, key.code), []).append(one)
        for group in fresh.values():
            if len(group) > TOPICS_EACH:
                self._write(_together(group, now_ms))
                continue
            for one in group:
                self._write(one.line(now_ms))
        self._forget_other_leaders(known)
        # a flow between two runs does not list all of its topics
        idle = {flow.flow for flow in known if flow.generation < 0}
        over = [key for key in self._open if key not in troubled and key.flow not in idle]
        self._say_ends(now, known, over)

    def _forget_other_leaders(self, flows: Iterable[FlowSnapshot]) -> None:
        """Forget failures of flows that another process leads: the leader reports them."""
        resting = {flow.flow for flow in flows if flow.state in RESTING}
        self._open = {key: at for key, at in self._open.items() if key.flow not in resting}

    def _say_ends(
        self, now: float, flows: Iterable[FlowSnapshot], ended: Iterable[FailureKey]
    ) -> None:
        mirrored = {
            (flow.flow, part.topic)
            for flow in flows
            for part in flow.partitions
            if part.state not in NOT_MIRRORED
        }
        said: dict[tuple[str, str, bool], dict[str, float]] = {}
        for key in ended:
            began = self._open.pop(key)
            if self._reported_at.get(key) == began:
                is_mirrored = (key.flow, key.topic) in mirrored
                said.setdefault((key.flow, key.code, is_mirrored), {})[key.topic] = began
        for (flow, code, is_mirrored), topics in said.items():
            for names in [[*topics]] if len(topics) > TOPICS_EACH else [[name] for name in topics]:
                lasted = duration(now - min(topics[name] for name in names))
                end = f"{code} is over after {lasted}"
                gone = f"released after {lasted}: no longer mirrored, last {code}"
                self._write(f"{flow}: {_several(names)}: {end if is_mirrored else gone}")


def _several(topics: list[str]) -> str:
    return (
        topics[0] if len(topics) == 1 else f"{plural(len(topics), 'topic')} ({first_few(topics)})"
    )


def _together(group: list[Failing], now_ms: int) -> str:
    """Return one line for many topics, with the message of the first."""
    one = group[0]
    key = one.key
    message = one.message.removeprefix(f"{key.topic}-{one.partitions[0]}: ")
    topics = _several([each.key.topic for each in group])
    return f"{key.flow}: {topics}: {message} [{key.code}]{one.began(now_ms)}"
