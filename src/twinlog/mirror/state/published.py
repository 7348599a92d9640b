"""Rows of the status topic: a flow's status as seen by its leader, for readers on other hosts.

    key    ["flow", FLOW, "status"]
    value  {"v": 1, "at_ms": ..., "host": ..., "state": ..., ..., "unusual": [...]}

A row has totals and the partitions that are not normal. A row older than `lives_ms` only shows
which process led the flow last.

A process that cannot set the flow up has no generation, and so no rank among leaders. It writes the
same fields under its own key, which replaces no leader's row:

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
"""A leader that has not written for this long, and for three of its intervals, may be gone."""

LONGEST_LIFE_MS: Final = 600_000
BEYOND: Final = 10**14
"""Times in milliseconds are below this (it is in the year 5138), and so are record counts."""

MOST_UNUSUAL: Final = 50
MOST_BEHIND: Final = 50
_KIND: Final = "status"
_SET_UP: Final = "setup"

Row = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusual:
    """A partition that is not copied normally."""

    topic: str
    partition: int
    state: str
    code: str
    message: str
    poison: Poison | None = None
    """The record that blocks it, if known exactly. Earlier releases do not write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """A partition with records known to be missing on the target."""

    topic: str
    partition: int
    upstream: int
    """All records below it were on the target."""
    end: int
    """End of the source's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """How much of the copy its leader has compared with the source."""

    mode: str
    """Value of twinlog.verify."""
    at_ms: int
    """Time of the last comparison; 0: none yet."""
    records: int
    """Records that are equal on both sides."""
    differences: int
    is_complete: bool
    """Whether all copied records were compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How soon the source deletes records that wait to be copied."""

    ms: int
    """The shortest time for which a next record is certainly kept; -1: no deletion expected."""
    topic: str
    """The topic with that time."""
    near_deletion: tuple[str, ...]
    """Topics of which records will be deleted before they are copied, at the current rate; the
    first ones.
    """
    is_known: bool
    """Whether it is known for every partition that lags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStatus:
    """One flow at one moment, as seen by its leader or by a process that could not set it up.
    Unknown figures are -1.
    """

    flow: str
    at_ms: int
    """Wall clock of the leader's host."""
    every_ms: int
    """Interval at which it is written."""
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
    """Total number of such partitions, of which `unusual` has the first."""
    unusual: tuple[Unusual, ...]
    behind: tuple[Behind, ...] = ()
    """The partitions that lack most. Rows of earlier releases have neither these nor the fields
    below.
    """
    lag: int = -1
    """Waiting records of partitions whose lag is known."""
    lag_unknown: int = -1
    """Partitions whose lag is unknown."""
    rpo_ms: int = -1
    """twinlog.rpo.seconds; -1: not set."""
    rpo_excess: str = ""
    """Why the RPO is exceeded."""
    proof: Proof | None = None
    p50_ms: int = -1
    """Median latency of the batches of the last minute; -1: there were none."""
    p99_ms: int = -1
    """99th percentile of it."""
    code: str = ""
    """Code of the problem that keeps it from working."""
    kept: Kept | None = None
    """None: its leader is of an earlier release."""

    @property
    def where(self) -> str:
        """The host and process that wrote it."""
        return f"{self.host} (process {self.pid})"

    @property
    def is_of_leader(self) -> bool:
        """Whether its writer was the leader, and not a process that could not set the flow up."""
        return self.generation >= 0

    @property
    def lives_ms(self) -> int:
        """Maximum age at which it is still considered current."""
        return max(LIVE_MS, min(3 * self.every_ms, LONGEST_LIFE_MS))

    def is_of(self, now_ms: int) -> bool:
        """Return whether its writer is running, as far as can be seen."""
        return self.state != FlowState.STOPPED and abs(now_ms - self.at_ms) <= self.lives_ms

    def encode(self) -> Row:
        """Return (key, value)."""
        value = asdict(self)
        del value["flow"]
        return encode_row(["flow", self.flow, _KIND if self.is_of_leader else _SET_UP], value)


def published_status(
    flow: str, rows: Iterable[tuple[bytes | None, bytes | None]]
) -> PublishedStatus | None:
    """Return the newest status of the newest leader.

    A leader that has lost its leadership without knowing it may write after its successor. Raises
    CorruptData if there are rows but none can be read.
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
    """Return the last status of a process that cannot set the flow up, if no leader wrote after it.

    The order of the log decides, whatever clocks show. A process that no longer fails says nothing
    about the others. Raises CorruptData if the last row cannot be read.
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
    # fields of later releases are ignored
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
"""Fields that rows of earlier releases lack."""


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
        raise ValueError("near_deletion is not a list of topics")
    found = Kept(**{name: value[name] for name in _names(Kept)} | {"near_deletion": tuple(near)})
    check_fields(found)
    return found


def _poison(value: dict[str, Any] | None) -> Poison | None:
    if value is None:
        return None
    skip = Skip(**{name: value["skip"][name] for name in _names(Skip)})
    is_range = type(skip.first) is type(skip.next) is int and 0 <= skip.first < skip.next < BEYOND
    if not is_range or type(skip.is_batch) is not bool or type(value["topic_id"]) is not str:
        raise ValueError("poison is not a range of a topic")
    return Poison(skip=skip, topic_id=value["topic_id"])


def check_fields(one: Any) -> None:
    """Check the fields of a dataclass that was read. Raises TypeError and ValueError."""
    for field in fields(one):
        value, kind = getattr(one, field.name), _KINDS.get(str(field.type))
        if kind is not None and type(value) is not kind:
            raise TypeError(f"{field.name} is of type {type(value).__name__}")
        if kind is int and abs(value) >= BEYOND:
            raise ValueError(f"{field.name} is out of range")


_KINDS: Final = {"str": str, "int": int, "bool": bool}


def _names(kind: type[Any]) -> set[str]:
    return {field.name for field in fields(kind)}
