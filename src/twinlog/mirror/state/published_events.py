"""Rows of the status topic: recent events of a flow, for readers on other hosts.

    key    ["flow", FLOW, "events"]
    value  {"v": 1, "host": ..., "pid": ..., "run": ...,
            "events": [{"number": ..., "at_ms": ..., ...}, ...]}

It is a separate row, not a part of the flow's status, because it is written when something has
happened, and not every few seconds. An event stays true whichever process leads the flow now, so
every row counts.
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
"""Total of the messages of one row."""
LONGEST_MESSAGE: Final = 300
LEVELS: Final = ("INFO", "WARNING", "ERROR", "CRITICAL")
_KIND: Final = "events"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedEvent:
    """One line of the log of the process that leads the flow."""

    number: int
    """Rising number within a run of a process."""
    at_ms: int
    level: str
    message: str
    code: str
    topic: str
    partition: int
    """-1: it concerns no partition."""
    person: str
    """The person who requested it, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedEvents:
    """The newest events of one process for one flow, oldest first."""

    flow: str
    host: str
    pid: int
    events: tuple[PublishedEvent, ...]
    run: str = ""
    """Unique ID of the run of a process. Rows of earlier releases have none."""

    @property
    def where(self) -> str:
        """The host and process that wrote them."""
        return f"{self.host} (process {self.pid})"

    def encode(self) -> Row:
        """Return (key, value)."""
        value = asdict(self)
        del value["flow"]
        return encode_row(["flow", self.flow, _KIND], value)


def within_bounds(events: Iterable[PublishedEvent]) -> tuple[PublishedEvent, ...]:
    """Return the newest events that fit into one row. Input and result are in order,
    oldest first.
    """
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
    """Return the events of every row, oldest first. Raises CorruptData if there are rows but none
    can be read.
    """
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
        # fields of later releases are ignored
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
            raise ValueError("host and run are too long")
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
        raise ValueError("invalid event")
    return found
