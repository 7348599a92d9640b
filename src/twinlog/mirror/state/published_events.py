"""Rows of the status topic: recent events of a flow, for readers on other hosts.

    key    ["flow", FLOW, "events"]
    value  {"v": 1, "host": ..., "pid": ..., "run": ...,
            "events": [{"number": ..., "at_ms": ..., ...}, ...]}

Events are a separate row, not a part of the flow's status, because it is written when something has
happened, and not every few seconds. An event stays true whichever process leads the flow now, so
every row counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Meta, Struct

from twinlog.errors import CorruptData
from twinlog.mirror.state.state_row import BEYOND, Bounded, StateRow, one_of, read_row, row, row_key

MOST_EVENTS: Final = 20
MOST_CHARACTERS: Final = 2000
"""Maximum total length of the messages in one row."""
LONGEST_MESSAGE: Final = 300
LEVELS: Final = ("INFO", "WARNING", "ERROR", "CRITICAL")
_KIND: Final = "events"


class PublishedEvent(Struct, frozen=True, kw_only=True):
    """One line of the log of the process that leads the flow."""

    number: Bounded
    """Number of the event, which rises within a run of a process."""
    at_ms: Annotated[int, Meta(ge=0, lt=BEYOND)]
    level: Annotated[str, one_of(LEVELS)]
    message: str
    code: str
    topic: str
    partition: Bounded | None
    """The partition, or None if the event concerns none; in the row -1."""
    person: str
    """The operator who requested it, if any."""


@row(
    _KIND,
    as_minus_one=("partition",),
    code=CorruptData.code,
    advice="; they are rewritten when something happens to it",
)
class PublishedEvents(StateRow, frozen=True, kw_only=True):
    """The newest events of one process for one flow, oldest first."""

    host: str
    pid: Bounded
    events: tuple[PublishedEvent, ...]
    run: str = ""
    """Unique ID of the run of the process. Rows of earlier releases have none."""

    @property
    def where(self) -> str:
        """The host and process that wrote them."""
        return f"{self.host} (process {self.pid})"


def within_bounds(events: Iterable[PublishedEvent]) -> tuple[PublishedEvent, ...]:
    """Return the newest events that fit into one row, in order like the input."""
    kept: list[PublishedEvent] = []
    left = MOST_CHARACTERS
    for event in reversed([*events][-MOST_EVENTS:]):
        left -= len(event.message)
        if left < 0:
            break
        kept.append(event)
    return tuple(reversed(kept))


def published_events(
    flow: str, rows: Iterable[tuple[bytes | None, bytes | None]]
) -> tuple[PublishedEvents, ...]:
    """Return the events of every row, oldest first. Raises CorruptData if there are rows but none
    can be read.
    """
    wanted = row_key("flow", flow, _KIND)
    readable: list[PublishedEvents] = []
    problem: CorruptData | None = None
    for key, value in rows:
        if key != wanted or value is None:
            continue
        try:
            readable.append(_read(wanted, value))
        except CorruptData as error:
            problem = error
    if not readable and problem is not None:
        raise problem
    return tuple(readable)


def _read(key: bytes, value: bytes) -> PublishedEvents:
    parts, fields = read_row(key, value)
    events = fields.get("events")
    newest = events[-MOST_EVENTS:] if isinstance(events, list) else events
    row = PublishedEvents.decode(parts, {**fields, "events": newest})
    texts = [(event.message, event.code, event.topic, event.person) for event in row.events]
    if any(sum(map(len, each)) > MOST_CHARACTERS for each in (*texts, (row.host, row.run))):
        raise PublishedEvents.corrupt("its texts are too long")
    return row
