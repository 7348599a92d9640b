"""Rows of the status topic: what a flow looks like to the process that leads it, for those who look
from another host.

    key    ["flow", FLOW, "status"]
    value  {"v": 1, "at_ms": ..., "host": ..., "state": ..., ..., "unusual": [...]}

It holds totals and what is not normal. A row that is older than `lives_ms` says only who ran the
flow last.

A process that cannot set the flow up has no generation, and so no place among leaders. It writes
the same fields under a key of its own, which replaces no leader's row:

    key    ["flow", FLOW, "setup"]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from twinlog.codes import FlowState, PartitionState
from twinlog.errors import CorruptData
from twinlog.mirror.skips import Poison, Skip
from twinlog.mirror.state.generations import encode_row, read_row, row_key

LIVE_MS: Final = 45_000
"""A leader that has not written for so long, and for three of its intervals, may be gone."""

LONGEST_LIFE_MS: Final = 600_000
BEYOND: Final = 10**14
"""Times in milliseconds end before (in the year 5138), and so do numbers of records."""

MOST_UNUSUAL: Final = 50
MOST_BEHIND: Final = 50
_KIND: Final = "status"
_SET_UP: Final = "setup"

Row = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusual:
    """A partition that is not simply copied."""

    topic: str
    partition: int
    state: str
    code: str
    message: str
    poison: Poison | None = None
    """The record that holds it up, where that is known exactly; earlier releases do not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """A partition of which records were known that were not on the target."""

    topic: str
    partition: int
    upstream: int
    """All below it were."""
    end: int
    """Where the source's log ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What of the copy its leader has compared with the source."""

    mode: str
    """twinlog.verify"""
    at_ms: int
    """When last; 0: nothing yet."""
    records: int
    """That are equal on both sides."""
    differences: int
    is_complete: bool
    """All that was copied was compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How soon the source deletes what waits to be copied."""

    ms: int
    """For how long at least the next record is kept where that is shortest; -1: no end is in sight
    where it is known.
    """
    topic: str
    """Where that is."""
    near_deletion: tuple[str, ...]
    """Topics of which records will be deleted before they are copied, as things are; the first."""
    is_known: bool
    """Of every partition that is behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStatus:
    """One flow at one moment, as its leader saw it, or a process that could not set it up; figures
    are -1 while they are not known.
    """

    flow: str
    at_ms: int
    """Wall clock of the leader's host."""
    every_ms: int
    """How often it is written."""
    host: str
    pid: int
    generation: int
    """-1: it could not be set up."""
    state: str
    reason: str
    guarantee: str
    lanes: int
    since_ms: int
    records: int
    bytes: int
    loss_records: int
    loss_ms: int
    loss_unknown: int
    partitions: int
    unusual_partitions: int
    """How many there are, of which `unusual` has the first."""
    unusual: tuple[Unusual, ...]
    behind: tuple[Behind, ...] = ()
    """Those that lack most; the row of an earlier release has neither these nor what follows."""
    lag: int = -1
    """Records that wait, of partitions where that is known."""
    lag_unknown: int = -1
    """Partitions where it is not."""
    rpo_ms: int = -1
    """twinlog.rpo.seconds; -1: none is set."""
    rpo_excess: str = ""
    """Why it is not kept."""
    proof: Proof | None = None
    p50_ms: int = -1
    """So long half of the batches of the last minute were on their way; -1: there was none."""
    p99_ms: int = -1
    """So long 99 of 100 of them."""
    code: str = ""
    """Of what keeps it from its work."""
    kept: Kept | None = None
    """None: its leader is of an earlier release."""

    @property
    def where(self) -> str:
        """The host and process that wrote it."""
        return f"{self.host} (process {self.pid})"

    @property
    def is_of_leader(self) -> bool:
        """And not of a process that could not set the flow up."""
        return self.generation >= 0

    @property
    def lives_ms(self) -> int:
        """How old it may be and still tell of now."""
        return max(LIVE_MS, min(3 * self.every_ms, LONGEST_LIFE_MS))

    def is_of(self, now_ms: int) -> bool:
        """Whoever wrote it runs, as far as can be seen."""
        return self.state != FlowState.STOPPED and abs(now_ms - self.at_ms) <= self.lives_ms

    def encode(self) -> Row:
        """(key, value)"""
        value = asdict(self)
        del value["flow"]
        return encode_row(["flow", self.flow, _KIND if self.is_of_leader else _SET_UP], value)


def published_status(
    flow: str, rows: Iterable[tuple[bytes | None, bytes | None]]
) -> PublishedStatus | None:
    """That of the newest leader, and its newest; raises CorruptData where rows cannot be read and
    none else is there. One that lost its lead without knowing it may write behind its successor.
    """
    wanted = row_key("flow", flow, _KIND)
    found: list[PublishedStatus] = []
    problem: CorruptData | None = None
    for key, value in rows:
        if key != wanted:
            continue
        try:
            found = [] if value is None else [*found, _read(flow, wanted, value)]
        except CorruptData as error:
            problem = error
    if not found and problem is not None:
        raise problem
    return max(reversed(found), key=lambda one: (one.generation, one.at_ms), default=None)


def failed_set_up(
    flow: str, rows: Iterable[tuple[bytes | None, bytes | None]]
) -> PublishedStatus | None:
    """What a process wrote last that cannot set the flow up, where no leader wrote behind it: by
    the order of the log, whatever clocks say. One that fails no more says nothing of the others.
    Raises CorruptData where the last row cannot be read.
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
            one = _read(flow, wanted, value)
        except CorruptData:
            if value is since[-1]:
                raise
            continue
        process = one.host, one.pid
        if process not in known and one.state in (FlowState.FAILED, FlowState.DEGRADED):
            return one
        known.add(process)
    return None


def _read(flow: str, key: bytes, value: bytes) -> PublishedStatus:
    try:
        _, values = read_row(key, value)
        return _status(flow, values)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptData(
            f"the status that was written for {flow} cannot be read: {error!r}; it is rewritten "
            "every few seconds while the flow runs"
        ) from error


def _status(flow: str, values: dict[str, Any]) -> PublishedStatus:
    # what a later release says besides is left out
    unusual = tuple(
        Unusual(
            **{name: one[name] for name in _names(Unusual) - {"poison"}},
            poison=_poison(one.get("poison")),
        )
        for one in values["unusual"]
    )
    behind = tuple(
        Behind(**{name: one[name] for name in _names(Behind)}) for one in values.get("behind", ())
    )
    wanted = _names(PublishedStatus) - {"flow", "unusual", "behind", "proof", "kept"}
    found = PublishedStatus(
        flow=flow,
        unusual=unusual,
        behind=behind,
        proof=_proof(values.get("proof")),
        kept=_kept(values.get("kept")),
        **{name: values[name] for name in wanted if name in values or name not in _LATER},
    )
    for read in (found, *unusual, *behind):
        check_fields(read)
    FlowState(found.state)
    for one in unusual:
        PartitionState(one.state)
    return found


_LATER: Final = frozenset(
    ("lag", "lag_unknown", "rpo_ms", "rpo_excess", "p50_ms", "p99_ms", "code")
)
"""What rows of earlier releases do not say."""


def _proof(value: dict[str, Any] | None) -> Proof | None:
    if value is None:
        return None
    found = Proof(**{name: value[name] for name in _names(Proof)})
    check_fields(found)
    return found


def _kept(value: dict[str, Any] | None) -> Kept | None:
    if value is None:
        return None
    near = value["near_deletion"]
    if type(near) is not list or any(type(topic) is not str for topic in near):
        raise ValueError("near_deletion is no list of topics")
    found = Kept(**{name: value[name] for name in _names(Kept)} | {"near_deletion": tuple(near)})
    check_fields(found)
    return found


def _poison(value: dict[str, Any] | None) -> Poison | None:
    if value is None:
        return None
    skip = Skip(**{name: value["skip"][name] for name in _names(Skip)})
    is_range = type(skip.first) is type(skip.next) is int and 0 <= skip.first < skip.next < BEYOND
    if not is_range or type(skip.is_batch) is not bool or type(value["topic_id"]) is not str:
        raise ValueError("poison is no range of a topic")
    return Poison(skip=skip, topic_id=value["topic_id"])


def check_fields(one: Any) -> None:
    """Of a dataclass that was read; raises TypeError and ValueError."""
    for field in fields(one):
        value, kind = getattr(one, field.name), _KINDS.get(str(field.type))
        if kind is not None and type(value) is not kind:
            raise TypeError(f"{field.name} is of type {type(value).__name__}")
        if kind is int and abs(value) >= BEYOND:
            raise ValueError(f"{field.name} is no number of this world")


_KINDS: Final = {"str": str, "int": int, "bool": bool}


def _names(kind: type[Any]) -> set[str]:
    return {field.name for field in fields(kind)}
