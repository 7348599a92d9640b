"""The data of a running mirror for monitoring: the last snapshots, their age, and readiness.

The supervisor's thread writes these data once a second. The threads that respond to requests read
them.
"""

from __future__ import annotations

import gzip
import json
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Final, NamedTuple, TypeAlias

from twinlog.codes import FlowState
from twinlog.config.series import ALL_SERIES, SeriesConfig
from twinlog.control.watch.readiness import WITHIN_S, Readiness
from twinlog.control.watch.series.readings import FlowTotals, PartitionRates, Reading
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.spark.jvm_use import JvmUse
from twinlog.threads import ThreadWatch

# Reads the HTTP headers with which clients choose the form of a response.


def accepts_name(header: str, name: str) -> bool:
    """Return True if an `Accept` or `Accept-Encoding` header has the name with a weight above 0."""
    for part in header.lower().split(","):
        weights, *parameters = (piece.strip() for piece in part.split(";"))
        if weights == name:
            return not any(
                parameter.replace(" ", "").rstrip("0") in ("q=", "q=0.") for parameter in parameters
            )
    return False


# The last hour of each flow, and of the topics with the most traffic, for the page's charts.

EVERY_S: Final = 10.0
KEPT: Final = 360
"""Maximum number of rows per flow: an hour, in about 100 KB."""
TOPICS_EVERY_S: Final = 30.0
TOPIC_ROWS: Final = 120
"""Maximum number of rows per topic: an hour, in 2.9 KB (a row is three numbers of 8 bytes)."""
MOST_TOPICS: Final = 400
"""Maximum number of topics that have rows, over all flows. They need 1.2 MB."""

TopicKey: TypeAlias = tuple[str, str]
"""Flow and source topic."""


class HistoryRow(NamedTuple):
    """A flow at one moment; unknown values are None."""

    at_ms: int
    state: FlowState
    generation: int
    lag: int | None
    loss_records: int | None
    loss_ms: int | None
    records: int
    """Records and bytes that this process has copied since it leads the flow."""
    bytes: int
    p50_ms: int | None
    p99_ms: int | None


class TopicRow(NamedTuple):
    """A topic at one moment."""

    at_ms: int
    lag: int | None
    """Sum of the partitions' known lags, or None if no lag is known."""
    bytes: int
    """Bytes that this process has copied since it leads the flow."""


class LastHour:
    """The last hour of led flows. One thread calls `update`; any thread can read."""

    def __init__(self) -> None:
        self.topics = BusyTopics()
        self._rows: dict[str, deque[HistoryRow]] = {}
        self._next = self._next_topics = 0.0

    def update(self, now: float, now_ms: int, flows: Iterable[FlowSnapshot]) -> None:
        """Add rows of the flows that this process leads, if they are due at monotonic `now`."""
        if now < self._next:
            return
        self._next = now + EVERY_S
        led = [flow for flow in flows if flow.is_led_here]
        for flow in led:
            rows = self._rows.setdefault(flow.flow, deque(maxlen=KEPT))
            rows.append(_row(flow, now_ms))
        if now >= self._next_topics:
            self._next_topics = now + TOPICS_EVERY_S
            self.topics.update(now_ms, led)

    def rows(self, flow: str) -> list[HistoryRow]:
        """Return the rows of a flow, oldest first."""
        rows = self._rows.get(flow)
        # `copy` is atomic, while iterating is not: `update` might add a row in between
        return [] if rows is None else list(rows.copy())


def _row(flow: FlowSnapshot, now_ms: int) -> HistoryRow:
    latency = flow.latency
    return HistoryRow(
        at_ms=now_ms,
        state=flow.state,
        generation=flow.generation or 0,
        lag=flow.lag,
        loss_records=flow.loss_records,
        loss_ms=flow.loss_ms,
        records=flow.records,
        bytes=flow.bytes,
        p50_ms=None if latency is None else latency.p50_ms,
        p99_ms=None if latency is None else latency.p99_ms,
    )


class BusyTopics:
    """The last hour of the topics with the most traffic."""

    def __init__(self) -> None:
        self._rows: dict[TopicKey, array[int]] = {}
        """The rows of each topic, one after the other in one array."""
        self._bytes: dict[TopicKey, int] = {}
        """Bytes copied of each topic up to the last update."""

    def update(self, now_ms: int, flows: Iterable[FlowSnapshot]) -> None:
        """Add a row for each topic in the history. A topic that is not in the history replaces one
        that is, if its traffic since the last update exceeds the traffic of the replaced topic in
        its whole hour.
        """
        totals = {
            (flow.flow, topic): total
            for flow in flows
            for topic, total in _totals(flow.partitions).items()
        }
        moved = {key: total[1] - self._bytes.get(key, total[1]) for key, total in totals.items()}
        self._bytes = {key: total[1] for key, total in totals.items()}
        rows = {key: history for key, history in self._rows.items() if key in totals}
        _choose(rows, moved)
        for key, history in rows.items():
            history.fromlist([now_ms, *totals[key]])
            del history[: -3 * TOPIC_ROWS]
        self._rows = rows

    def rows(self, flow: str, topic: str) -> list[TopicRow]:
        """Return the rows of a topic, oldest first. Empty if the topic is not in the history."""
        history = self._rows.get((flow, topic), array("q"))[:]
        lags = (None if lag < 0 else lag for lag in history[1::3])
        return [*map(TopicRow, history[0::3], lags, history[2::3])]


def _totals(partitions: Iterable[PartitionSnapshot]) -> dict[str, list[int]]:
    """Return [lag, bytes] of each topic. An unknown lag is -1, as rows are arrays of numbers."""
    totals: dict[str, list[int]] = {}
    for part in partitions:
        total = totals.get(part.topic)
        if total is None:
            totals[part.topic] = [-1 if part.lag is None else part.lag, part.bytes]
            continue
        total[1] += part.bytes
        if part.lag is not None:
            total[0] = max(0, total[0]) + part.lag
    return totals


def _choose(rows: dict[TopicKey, array[int]], moved: Mapping[TopicKey, int]) -> None:
    """Add the busiest topics to the history `rows`. If there is no room, they replace less busy
    ones. `moved`: bytes of each topic since the last update.
    """
    traffic = {key: _traffic(history) + moved[key] for key, history in rows.items()}
    others = (key for key in moved if key not in rows)
    for key in nlargest(MOST_TOPICS, others, key=moved.__getitem__):
        if len(rows) >= MOST_TOPICS:
            least = min(traffic, key=traffic.__getitem__)
            if moved[key] <= traffic[least]:
                return
            del rows[least], traffic[least]
        rows[key], traffic[key] = array("q"), moved[key]


def _traffic(rows: Sequence[int]) -> int:
    """Return the bytes copied between the first and the last row of a topic."""
    return rows[-1] - rows[2] if rows else 0


SILENT_AFTER_S: Final = 15.0
"""The supervisor counts as hanging if its report, due every second, is missing for this long."""

STARTS_WITHIN_S: Final = 60.0
"""Seconds within which the supervisor must report for the first time."""

GZIP_LEVEL: Final = 1
"""The fastest level, which already reduces the repetitive series to less than a tenth."""

PATHS: Final = ("/metrics", "/healthz", "/readyz")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """An HTTP response."""

    status: int
    content_type: str
    body: bytes
    encoding: str = ""
    """Content encoding of the body; empty if none."""


class Monitor:
    """Answers `/metrics`, `/healthz` and `/readyz`."""

    def __init__(
        self,
        *,
        ready_within_s: float = WITHIN_S,
        clock: Callable[[], float] = time.monotonic,
        thread_watch: ThreadWatch | None = None,
        series: SeriesConfig = ALL_SERIES,
    ) -> None:
        self._thread_watch = thread_watch or ThreadWatch()
        self._clock = clock
        self._turned_at: float | None = None
        self._began = clock()
        self._readiness = Readiness(ready_within_s)
        self._rates = PartitionRates()
        self._totals = FlowTotals()
        self.history = LastHour()
        self._series = series
        self.reading: Reading | None = None
        """The last report, or None before the first."""
        self._jvm: JvmUse | None = None

    def update(self, flows: list[FlowSnapshot]) -> None:
        """Store the current snapshots of all flows."""
        now = self._clock()
        self._rates.update(now, flows)
        self.history.update(now, int(time.time() * 1000), flows)
        # one assignment, so that a concurrent reader sees either the old or the new values
        self.reading = Reading(
            at=now,
            flows=flows,
            readiness=self._readiness.update(now, flows),
            rate=self._rates.rate,
            totals=self._totals.update(flows),
            jvm=self._jvm,
        )
        self._turned_at = now

    def note_jvm(self, use: JvmUse | None) -> None:
        """Store the resource use of Spark's JVM for the next report; thread-safe."""
        self._jvm = use

    def on_turn(self) -> None:
        """Record that the supervisor is alive, without a new report."""
        self._turned_at = self._clock()

    @property
    def age_s(self) -> float:
        """Return the age of the last report in seconds, or 0 before the first report."""
        reading = self.reading
        return 0.0 if reading is None else self._clock() - reading.at

    @property
    def silent_s(self) -> float | None:
        """Return the seconds since the supervisor was last alive, or None if below the limit."""
        turned_at = self._turned_at
        since, limit = (
            (self._began, STARTS_WITHIN_S) if turned_at is None else (turned_at, SILENT_AFTER_S)
        )
        silent = self._clock() - since
        return silent if silent > limit else None

    def answer(self, path: str, accept: str = "", accept_encoding: str = "") -> HttpResponse:
        """Return the response to a GET of one of PATHS with these headers."""
        match path:
            case "/metrics":
                return self._metrics(accept, accept_encoding)
            case "/healthz":
                return self._health()
            case _:
                return self._ready()

    def _metrics(self, accept: str, accept_encoding: str) -> HttpResponse:
        from twinlog.control.watch.series.exposition import exposition

        nothing = Reading(at=self._clock(), flows=(), readiness=())
        body, content_type = exposition(self.reading or nothing, accept, self._series)
        if accepts_name(accept_encoding, "gzip"):
            return HttpResponse(
                status=200,
                content_type=content_type,
                body=gzip.compress(body, GZIP_LEVEL),
                encoding="gzip",
            )
        return HttpResponse(status=200, content_type=content_type, body=body)

    def _health(self) -> HttpResponse:
        silent, reason = self.silent_s, self._thread_watch.dead
        if silent is None and reason is None:
            return _json(200, {"healthy": True})
        reason = reason or f"the supervisor has been silent for {silent:.0f} s"
        return _json(503, {"healthy": False, "reason": reason})

    def _ready(self) -> HttpResponse:
        reading = self.reading
        flows = () if reading is None else reading.readiness
        is_ready = bool(flows) and self.silent_s is None and all(flow.is_ready for flow in flows)
        body = {"ready": is_ready, "flows": [flow.as_json() for flow in flows]}
        return _json(200 if is_ready else 503, body)


def _json(status: int, body: object) -> HttpResponse:
    data = json.dumps(body).encode() + b"\n"
    return HttpResponse(status=status, content_type="application/json", body=data)
