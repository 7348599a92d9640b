"""Rows of the status topic: what happened lately to a flow, for those who look from another host.

    key    ["flow", FLOW, "events"]
    value  {"v": 1, "host": ..., "pid": ..., "run": ...,
            "events": [{"number": ..., "at_ms": ..., ...}, ...]}

A row of its own, and not a part of the flow's status: it is written when something has happened,
and not every few seconds. An event stays true whoever leads the flow by now, so every row counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from twinlog.errors import CorruptData
from twinlog.mirror.state.generations import encode_row, read_row, row_key
from twinlog.mirror.state.published import Row, check_fields

MOST_EVENTS: Final = 20
MOST_CHARACTERS: Final = 2000
"""Of the messages of one row together."""
LONGEST_MESSAGE: Final = 300
LEVELS: Final = ("INFO", "WARNING", "ERROR", "CRITICAL")
_KIND: Final = "events"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedEvent:
    """One line of the log of the process that leads the flow."""

    number: int
    """Of that run of a process; they grow."""
    at_ms: int
    level: str
    message: str
    code: str
    topic: str
    partition: int
    """-1: it is about none."""
    person: str
    """Who wanted it, where somebody did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedEvents:
    """The newest of one process about one flow, the oldest first."""

    flow: str
    host: str
    pid: int
    events: tuple[PublishedEvent, ...]
    run: str = ""
    """What no other run of any process has; the row of an earlier release has none."""

    @property
    def where(self) -> str:
        """The host and process that wrote them."""
        return f"{self.host} (process {self.pid})"

    def encode(self) -> Row:
        """(key, value)"""
        value = asdict(self)
        del value["flow"]
        return encode_row(["flow", self.flow, _KIND], value)


def within_bounds(events: Iterable[PublishedEvent]) -> tuple[PublishedEvent, ...]:
    """The newest that fit into one row; `events` and what is given: the oldest first."""
    kept: list[PublishedEvent] = []
    left = MOST_CHARACTERS
    for one in reversed([*events][-MOST_EVENTS:]):
        left -= len(one.message)
        if left < 0:
            break
        kept.append(one)
    return tuple(reversed(kept))


def published_events(
    flow: str, rows: Iterable[tuple[bytes | None, bytes | None]]
) -> tuple[PublishedEvents, ...]:
    """Of every row, the oldest first; raises CorruptData where none of them can be read."""
    wanted = row_key("flow", flow, _KIND)
    found: list[PublishedEvents] = []
    problem: CorruptData | None = None
    for key, value in rows:
        if key != wanted or value is None:
            continue
        try:
            found.append(_read(flow, wanted, value))
        except CorruptData as error:
            problem = error
    if not found and problem is not None:
        raise problem
    return tuple(found)


def _read(flow: str, key: bytes, value: bytes) -> PublishedEvents:
    try:
        _, values = read_row(key, value)
        # what a later release says besides is left out
        events = tuple(_event(one) for one in values["events"][-MOST_EVENTS:])
        found = PublishedEvents(
            flow=flow,
            host=values["host"],
            pid=values["pid"],
            events=events,
            run=values.get("run", ""),
        )
        check_fields(found)
        if len(found.host) + len(found.run) > MOST_CHARACTERS:
            raise ValueError("no host of ours")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptData(
            f"the events that were written for {flow} cannot be read: {error!r}; they are "
            "rewritten when something happens to it"
        ) from error
    return found


def _event(value: dict[str, Any]) -> PublishedEvent:
    found = PublishedEvent(**{one.name: value[one.name] for one in fields(PublishedEvent)})
    check_fields(found)
    texts = found.message, found.code, found.topic, found.person
    if found.level not in LEVELS or found.at_ms < 0 or sum(map(len, texts)) > MOST_CHARACTERS:
        raise ValueError("no event of ours")
    return found
