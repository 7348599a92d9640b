"""The data of a running mirror for monitoring: the last snapshots, their age, and readiness.

Written by the supervisor's thread once a second, read by the threads that answer requests.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from twinlog.config.series import ALL_SERIES, SeriesConfig
from twinlog.control.watch.accepts import asks_for
from twinlog.control.watch.history import LastHour
from twinlog.control.watch.readiness import WITHIN_S, Readiness
from twinlog.control.watch.series.readings import FlowTotals, PartitionRates, Reading
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.watch.vital import Vital
from twinlog.spark.jvm_use import JvmUse

SILENT_AFTER_S: Final = 15.0
"""Seconds after which a supervisor that does not report is considered hanging. It reports every
second."""

STARTS_WITHIN_S: Final = 60.0
"""Time limit for the first report."""

GZIP_LEVEL: Final = 1
"""Series are repetitive: the fastest level already reduces them to less than a tenth."""

PATHS: Final = ("/metrics", "/healthz", "/readyz")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
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
        vital: Vital | None = None,
        series: SeriesConfig = ALL_SERIES,
    ) -> None:
        self._vital = vital or Vital()
        self._clock = clock
        self._turned_at: float | None = None
        self._began = clock()
        self._readiness = Readiness(ready_within_s)
        self._rates = PartitionRates()
        self._totals = FlowTotals()
        self.history = LastHour()
        self._series = series
        self._reading: Reading | None = None
        self._jvm: JvmUse | None = None

    def update(self, flows: list[FlowSnapshot]) -> None:
        """Store the current snapshots of all flows."""
        now = self._clock()
        self._rates.update(now, flows)
        self.history.update(now, int(time.time() * 1000), flows)
        # one assignment, so that a concurrent reader sees either the old or the new values
        self._reading = Reading(
            at=now,
            flows=flows,
            readiness=self._readiness.update(now, flows),
            rate=self._rates.rate,
            totals=self._totals.update(flows),
            jvm=self._jvm,
        )
        self._turned_at = now

    def note_jvm(self, use: JvmUse | None) -> None:
        """Store the use of Spark's JVM, which the next report contains; thread-safe."""
        self._jvm = use

    def turned(self) -> None:
        """Record that the supervisor is alive, without a new report."""
        self._turned_at = self._clock()

    @property
    def reading(self) -> Reading | None:
        """Return the last report, or None before the first."""
        return self._reading

    @property
    def age_s(self) -> float:
        """Return the age of the last report."""
        reading = self._reading
        return 0.0 if reading is None else self._clock() - reading.at

    @property
    def silent_s(self) -> float | None:
        """Return how long the supervisor has not responded, or None if that is within the limit."""
        turned_at = self._turned_at
        since, limit = (
            (self._began, STARTS_WITHIN_S) if turned_at is None else (turned_at, SILENT_AFTER_S)
        )
        silent = self._clock() - since
        return silent if silent > limit else None

    def answer(self, path: str, accept: str = "", accept_encoding: str = "") -> HttpAnswer | None:
        """Return the response to a GET with these headers, or None if the path is unknown."""
        match path:
            case "/metrics":
                return self._metrics(accept, accept_encoding)
            case "/healthz":
                return self._health()
            case "/readyz":
                return self._ready()
            case _:
                return None

    def _metrics(self, accept: str, accept_encoding: str) -> HttpAnswer:
        from twinlog.control.watch.series.exposition import exposition

        nothing = Reading(at=self._clock(), flows=(), readiness=())
        body, content_type = exposition(self._reading or nothing, accept, self._series)
        if asks_for(accept_encoding, "gzip"):
            return HttpAnswer(
                status=200,
                content_type=content_type,
                body=gzip.compress(body, GZIP_LEVEL),
                encoding="gzip",
            )
        return HttpAnswer(status=200, content_type=content_type, body=body)

    def _health(self) -> HttpAnswer:
        silent, reason = self.silent_s, self._vital.dead
        if silent is None and reason is None:
            return _json(200, {"healthy": True})
        reason = reason or f"the supervisor has been silent for {silent:.0f} s"
        return _json(503, {"healthy": False, "reason": reason})

    def _ready(self) -> HttpAnswer:
        reading = self._reading
        flows = () if reading is None else reading.readiness
        is_ready = bool(flows) and self.silent_s is None and all(one.is_ready for one in flows)
        body = {"ready": is_ready, "flows": [asdict(one) for one in flows]}
        return _json(200 if is_ready else 503, body)


def _json(status: int, body: object) -> HttpAnswer:
    data = json.dumps(body).encode() + b"\n"
    return HttpAnswer(status=status, content_type="application/json", body=data)
