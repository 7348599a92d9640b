"""Settings by topic pattern. `twinlog.start` defines where the copy of a partition starts if it was
never copied. `twinlog.priority` defines how topics share the bytes per second that a flow's limit
permits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from twinlog.config.regex.patterns import NamePattern
from twinlog.config.values.origin import Setting, refuse
from twinlog.config.values.times import NoTime, in_iso, to_milliseconds
from twinlog.config.values.types import to_list, to_names
from twinlog.errors import ConfigError
from twinlog.model import EARLIEST, StartAt, StartKind, TopicPartition

EXAMPLE: Final = (
    "write payments.*:latest, orders:2026-11-01T00:00:00Z, audit:0=120;1=77, .*:earliest"
)
_RESETS: Final = (StartKind.EARLIEST.value, StartKind.LATEST.value)
_TIME: Final = re.compile(r"(?:^|:)([0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ].*)?)$")
_OFFSETS: Final = re.compile(r"[0-9]{1,9}=[0-9]{1,18}(?:;[0-9]{1,9}=[0-9]{1,18})*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStart:
    """Where the copy of a topic starts, from an entry of `twinlog.start` or from the default."""

    text: str
    rest: StartAt
    """The start of partitions that `offsets` does not list."""
    offsets: tuple[tuple[int, int], ...] = ()
    """Pairs of a partition and the offset at which its copy starts."""

    def at(self, partition: int) -> StartAt:
        """Return where the copy of this partition starts."""
        offset = dict(self.offsets).get(partition)
        return self.rest if offset is None else StartAt(StartKind.OFFSET, offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """Topic patterns with their starts. The first pattern that matches applies."""

    entries: tuple[tuple[NamePattern, TopicStart], ...] = ()
    otherwise: TopicStart
    new_from_earliest: bool = False
    """True to copy all records of partitions created after the first run (twinlog.start.new)."""

    def topic(self, topic: str) -> TopicStart:
        matching = (start for pattern, start in self.entries if pattern.matches(topic))
        return next(matching, self.otherwise)

    def at(self, tp: TopicPartition, *, is_new: bool = False) -> StartAt:
        """Return where the copy of a source partition starts. `is_new`: the partition was created
        after the flow's first run.
        """
        start_at = self.topic(tp.topic).at(tp.partition)
        if is_new and self.new_from_earliest and start_at.kind is not StartKind.OFFSET:
            return EARLIEST
        return start_at

    def __str__(self) -> str:
        entries = [f"{pattern}:{start.text}" for pattern, start in self.entries]
        return ", ".join([*entries, self.otherwise.text])


def to_starts(setting: Setting, reset: StartKind) -> Starts:
    """Parse entries `pattern:start`, or a start alone for all topics.

    A start is `earliest`, `latest`, a time in ISO 8601 or in ms, or offsets such as `0=120;1=77`.
    Topics without an entry, and partitions without an offset, start at `reset` (auto.offset.reset).
    """
    entries = [_entry(setting, text, reset) for text in to_list(setting)]
    for pattern, start in entries[:-1]:
        if pattern is None:
            todo = f"put {start.text} last, for all other topics"
            raise refuse(setting, f'entries after "{start.text}" have no effect', todo)
    otherwise = _reset_start(reset)
    if entries and entries[-1][0] is None:
        otherwise = entries.pop()[1]
    named = tuple((pattern, start) for pattern, start in entries if pattern is not None)
    return Starts(entries=named, otherwise=otherwise)


def _entry(setting: Setting, text: str, reset: StartKind) -> tuple[NamePattern | None, TopicStart]:
    time = _TIME.search(text)
    if time is not None:
        pattern, value = text[: time.start()], time[1]
    else:
        pattern, _, value = text.rpartition(":")
    start = _start(setting, value.strip(), reset)
    if time is None and not pattern and text.startswith(":"):
        raise refuse(setting, f'"{text}" has no topic pattern', EXAMPLE)
    if not pattern:
        return None, start
    return to_names(replace(setting, value=pattern.strip())), start


def _start(setting: Setting, value: str, reset: StartKind) -> TopicStart:
    if value in _RESETS:
        return _reset_start(StartKind(value))
    if _OFFSETS.fullmatch(value):
        return _parse_offsets(setting, value, reset)
    try:
        ms = to_milliseconds(value)
    except NoTime as problem:
        raise _start_refused(setting, value, problem) from None
    return TopicStart(text=in_iso(ms), rest=StartAt(StartKind.TIMESTAMP, ms))


def _parse_offsets(setting: Setting, value: str, reset: StartKind) -> TopicStart:
    pairs = [pair.partition("=") for pair in value.split(";")]
    offsets = {int(partition): int(offset) for partition, _, offset in pairs}
    if len(offsets) < len(pairs):
        raise refuse(setting, f'"{value}" has a partition twice', "remove one of them")
    return TopicStart(
        text=value, rest=_reset_start(reset).rest, offsets=tuple(sorted(offsets.items()))
    )


def _start_refused(setting: Setting, value: str, problem: NoTime) -> ConfigError:
    if value.isdigit():
        return refuse(setting, problem.what, f"{problem.todo}; 0={value} for an offset")
    if value[:1].isdigit() and "-" in value and "=" not in value:
        return refuse(setting, problem.what, problem.todo)
    what = f'"{value}" is not a start: use earliest, latest, a time, or offsets of partitions'
    return refuse(setting, what, EXAMPLE)


def _reset_start(reset: StartKind) -> TopicStart:
    return TopicStart(text=reset.value, rest=StartAt(reset))


DEFAULT_WEIGHT: Final = 1
MOST: Final = 1_000


@dataclass(frozen=True, slots=True)
class Priorities:
    """Topic patterns with their weights. The first pattern that matches applies."""

    entries: tuple[tuple[NamePattern, int], ...]

    def weight(self, topic: str) -> int:
        """Return the weight of a topic: its share of the flow's bytes per second, relative to other
        topics.
        """
        matching = (weight for pattern, weight in self.entries if pattern.matches(topic))
        return next(matching, DEFAULT_WEIGHT)


def to_priorities(setting: Setting) -> Priorities:
    """Parse `payments.*:10, logs.*:1`: Java regular expressions for whole names, with weights."""
    entries = []
    for entry in to_list(setting):
        pattern, colon, weight = entry.rpartition(":")
        if not colon or not pattern or not weight.isascii() or not weight.isdigit():
            raise refuse(setting, f'"{entry}" is not pattern:weight', "write payments.*:10, logs:1")
        if not 1 <= int(weight) <= MOST:
            raise refuse(setting, f"the weight {weight} is out of range", f"use 1 to {MOST}")
        entries.append((to_names(replace(setting, value=pattern)), int(weight)))
    return Priorities(tuple(entries))
