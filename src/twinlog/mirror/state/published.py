"""Rows of the status topic: a flow's status as its leader sees it, and its recent events, for
readers on other hosts.

    key    ["flow", FLOW, "status"]
    value  {"v": 1, "at_ms": ..., "host": ..., "state": ..., ..., "unusual": [...]}

A row has totals, and details of the partitions that are not copied normally. A row older than
`lives_ms` only shows which process led the flow last.

A process that cannot set the flow up has no generation, and so no rank among leaders. It writes the
same fields under another key, so that no leader's row is replaced:

    key    ["flow", FLOW, "setup"]

Events have a separate row, which is written when something has happened, not every few seconds. An
event stays true whichever process leads the flow later, so every row counts:

    key    ["flow", FLOW, "events"]
    value  {"v": 1, "host": ..., "pid": ..., "run": ...,
            "events": [{"number": ..., "at_ms": ..., ...}, ...]}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Meta, Struct

from twinlog.codes import FlowState, PartitionState
from twinlog.errors import CorruptData
from twinlog.mirror.skips import Poison
from twinlog.mirror.state.state_row import (
    BEYOND,
    Bounded,
    Rows,
    StateRow,
    Total,
    one_of,
    read_row,
    row,
    row_key,
)

LIVE_MS: Final = 45_000
"""A leader may be gone if it has written no row for this long (ms) and for three times
`every_ms`.
"""

LONGEST_LIFE_MS: Final = 600_000
MOST_UNUSUAL: Final = 50
MOST_BEHIND: Final = 50
_KIND: Final = "status"
_SET_UP: Final = "setup"

Row = tuple[bytes, bytes]


class Unusual(Struct, frozen=True, kw_only=True):
    """A partition that is not copied normally."""

    topic: str
    partition: Bounded
    state: Annotated[str, one_of(PartitionState)]
    code: str
    message: str
    poison: Poison | None = None
    """The record that has stopped the partition, if known. Rows of earlier releases have none."""

    def __post_init__(self) -> None:
        skip = self.poison and self.poison.skip
        if skip and not 0 <= skip.first < skip.next < BEYOND:
            raise ValueError("poison is not a range")


class Behind(Struct, frozen=True, kw_only=True):
    """A partition whose source has records that are known to be missing on the target."""

    topic: str
    partition: Bounded
    upstream: Bounded
    """All records below this upstream offset were on the target."""
    end: Bounded
    """Log end of the source partition."""


class Proof(Struct, frozen=True, kw_only=True):
    """How much of the copy the leader has compared with the source."""

    mode: str
    """Value of twinlog.verify."""
    at_ms: Bounded
    """Time of the last comparison in ms since 1970, or 0 before the first one."""
    records: Bounded
    """Number of records that were compared and are equal in both clusters."""
    differences: Bounded
    is_complete: bool
    """Whether all copied records were compared."""


class Kept(Struct, frozen=True, kw_only=True):
    """How soon the source deletes records that wait to be copied."""

    ms: Bounded | None
    """Time (ms) for which the source certainly keeps waiting records, or None if no deletion is
    expected.
    """
    topic: str
    """The topic whose waiting records are kept for this time."""
    near_deletion: tuple[str, ...]
    """Topics that will lose records before they are copied, at the current rate of the copy. Only
    the first such topics are listed.
    """
    is_known: bool
    """Whether the time is known for every partition that lags."""


@row(
    _KIND,
    code=CorruptData.code,
    advice="; it is rewritten every few seconds while the flow runs",
    as_minus_one=(
        *("generation", "loss_records", "loss_ms", "lag", "lag_unknown", "rpo_ms"),
        *("p50_ms", "p99_ms", "ms"),
    ),
)
class PublishedStatus(StateRow, frozen=True, kw_only=True):
    """The status of a flow, written by its leader or by a process that could not set the flow up.

    Unknown figures are None, which is stored as -1.
    """

    at_ms: Bounded
    """Time of the status, by the wall clock of the writer's host."""
    every_ms: Bounded
    """Interval at which the writer updates its status."""
    host: str
    pid: Bounded
    generation: Bounded | None
    """The writer's generation, or None if the writer could not set the flow up."""
    state: Annotated[str, one_of(FlowState)]
    reason: str
    guarantee: str
    lanes: Bounded
    since_ms: Bounded
    records: Total
    bytes: Total
    loss_records: Bounded | None
    loss_ms: Bounded | None
    loss_unknown: Bounded
    partitions: Bounded
    unusual_partitions: Bounded
    """Number of partitions that are not copied normally. `unusual` has only the first ones."""
    unusual: tuple[Unusual, ...]
    behind: tuple[Behind, ...] = ()
    """The partitions that lack the most records. Rows of earlier releases lack this field and all
    fields below.
    """
    lag: Bounded | None = None
    """Number of waiting records of partitions whose lag is known."""
    lag_unknown: Bounded | None = None
    """Number of partitions whose lag is unknown."""
    rpo_ms: Bounded | None = None
    """The configured twinlog.rpo.seconds in ms, or None if it is not set."""
    rpo_excess: str = ""
    """The reason why the RPO is exceeded, or empty."""
    proof: Proof | None = None
    p50_ms: Bounded | None = None
    """Median latency of the batches of the last minute, or None if there were none."""
    p99_ms: Bounded | None = None
    """99th percentile of the batches' latencies in the last minute, or None if there were no
    batches.
    """
    code: str = ""
    """Code of the problem because of which the flow does not work, or empty."""
    kept: Kept | None = None
    """How soon the source deletes waiting records, or None in rows of earlier releases."""

    @property
    def where(self) -> str:
        """The host and process that wrote the status."""
        return f"{self.host} (process {self.pid})"

    @property
    def rank(self) -> int:
        """The writer's generation, by which rows are compared. If it has none: -1, which is below
        every generation.
        """
        return -1 if self.generation is None else self.generation

    @property
    def is_of_leader(self) -> bool:
        """Whether the writer was the leader, and not a process that could not set the flow up."""
        return self.generation is not None

    @property
    def lives_ms(self) -> int:
        """Maximum age in ms at which the status is considered current."""
        return max(LIVE_MS, min(3 * self.every_ms, LONGEST_LIFE_MS))

    def is_current(self, now_ms: int) -> bool:
        """Return True if the status shows that its writer was running at `now_ms`: it is not
        stopped, and the status is not older than `lives_ms`.
        """
        return self.state != FlowState.STOPPED and abs(now_ms - self.at_ms) <= self.lives_ms

    @property
    def row_kind(self) -> tuple[str, ...]:
        return (_KIND if self.is_of_leader else _SET_UP,)


def published_status(flow: str, rows: Rows) -> PublishedStatus | None:
    """Return the newest status of the newest leader, or None if there is no row.

    The last row may be of an earlier leader that has not noticed its successor. Raises CorruptData
    if there are rows but none can be read.
    """
    wanted = row_key("flow", flow, _KIND)
    statuses: list[PublishedStatus] = []
    problem: CorruptData | None = None
    for key, value in rows:
        if key != wanted:
            continue
        try:
            statuses = [] if value is None else [*statuses, _read(wanted, value)]
        except CorruptData as error:
            problem = error
    if not statuses and problem is not None:
        raise problem
    return max(reversed(statuses), key=lambda status: (status.rank, status.at_ms), default=None)


def failed_set_up(flow: str, rows: Rows) -> PublishedStatus | None:
    """Return the last status of a process that cannot set the flow up. Return None if there is no
    such status, or a leader has written a later one.

    The order of the log decides, not the clocks. If one process no longer fails, the failures of
    other processes still count. Raises CorruptData if the last row cannot be read.
    """
    leaders, wanted = row_key("flow", flow, _KIND), row_key("flow", flow, _SET_UP)
    since: list[bytes] = []
    for key, value in rows:
        if key == leaders or (key == wanted and value is None):
            since.clear()
        elif key == wanted and value is not None:
            since.append(value)
    known: set[tuple[str, int]] = set()
    for value in reversed(since):
        try:
            status = _read(wanted, value)
        except CorruptData:
            if value is since[-1]:
                raise
            continue
        process = status.host, status.pid
        if process not in known and status.state in (FlowState.FAILED, FlowState.DEGRADED):
            return status
        known.add(process)
    return None


def _read(key: bytes, value: bytes) -> PublishedStatus:
    return PublishedStatus.decode(*read_row(key, value))


MOST_EVENTS: Final = 20
MOST_CHARACTERS: Final = 2000
"""Maximum total length of the messages in one row."""
LONGEST_MESSAGE: Final = 300
LEVELS: Final = ("INFO", "WARNING", "ERROR", "CRITICAL")
_EVENTS: Final = "events"


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
    """The partition, or None if the event concerns none. None is stored as -1."""
    person: str
    """The operator whose command caused the event, or empty."""


@row(
    _EVENTS,
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
        """The host and process that wrote the events."""
        return f"{self.host} (process {self.pid})"


def within_bounds(events: Iterable[PublishedEvent]) -> tuple[PublishedEvent, ...]:
    """Return the newest of these events, as many as fit into one row. Their order is not
    changed.
    """
    kept: list[PublishedEvent] = []
    left = MOST_CHARACTERS
    for event in reversed([*events][-MOST_EVENTS:]):
        left -= len(event.message)
        if left < 0:
            break
        kept.append(event)
    return tuple(reversed(kept))


def published_events(flow: str, rows: Rows) -> tuple[PublishedEvents, ...]:
    """Return the events of every row, oldest first. Raises CorruptData if there are rows but none
    can be read.
    """
    wanted = row_key("flow", flow, _EVENTS)
    readable: list[PublishedEvents] = []
    problem: CorruptData | None = None
    for key, value in rows:
        if key != wanted or value is None:
            continue
        try:
            readable.append(_read_events(wanted, value))
        except CorruptData as error:
            problem = error
    if not readable and problem is not None:
        raise problem
    return tuple(readable)


def _read_events(key: bytes, value: bytes) -> PublishedEvents:
    parts, fields = read_row(key, value)
    events = fields.get("events")
    newest = events[-MOST_EVENTS:] if isinstance(events, list) else events
    row = PublishedEvents.decode(parts, {**fields, "events": newest})
    texts = [(event.message, event.code, event.topic, event.person) for event in row.events]
    if any(sum(map(len, each)) > MOST_CHARACTERS for each in (*texts, (row.host, row.run))):
        raise PublishedEvents.corrupt_error("its texts are too long")
    return row
