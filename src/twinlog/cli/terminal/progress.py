"""Shows a running mirror: bars per topic on a terminal, few plain lines anywhere else.

Plain output is meant for logs. With `once` it says how far it is at most every ten seconds; a
mirror that runs for weeks says every ten minutes what it did, so that a healthy hour has fewer than
20 lines. What changes in between (a flow that degrades, or recovers) is said when it happens, at
most once a minute for a flow.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final, Protocol, TextIO

from rich.console import Console
from rich.constrain import Constrain
from rich.live import Live
from rich.spinner import Spinner

from twinlog.cli.terminal.events import EventLines
from twinlog.cli.terminal.failures import FailureLines
from twinlog.cli.terminal.flow_states import StateLines
from twinlog.cli.terminal.mirror_screen import mirror_view
from twinlog.cli.terminal.output import write_while_it_is_read
from twinlog.cli.terminal.tables import text
from twinlog.control.watch.rates import Rates, TopicRate
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.quantities import count, duration, plural, size

ONCE_LINE_EVERY_S: Final = 10.0
LINE_EVERY_S: Final = 600.0
OTHER_ROWS: Final = 6
"""Lines of the terminal that topics must leave free."""
ECHO: Final = len("^C")
"""Columns that stay free: what the terminal itself writes behind the last line must not begin a new
one, or the next screen would leave the first line of this one behind.
"""


class ProgressScreen(Protocol):
    """Takes what a mirror reports once a second."""

    def update(self, flows: list[FlowSnapshot]) -> None:
        """All flows as they are now."""


class PlainProgress:
    """Lines for a log."""

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        once: bool,
        write_failure: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._failures = FailureLines(write_failure or write)
        self._states = StateLines(write)
        self._events = EventLines(write)
        self._once = once
        self._clock = clock
        self._rates = Rates()
        self._started: set[str] = set()
        self._last = clock()
        self._last_records = self._last_bytes = 0

    def update(self, flows: list[FlowSnapshot]) -> None:
        """Write what is worth a line."""
        now = self._clock()
        topics = self._rates.update(now, flows)
        for flow in flows:
            self._start_line(flow)
        self._events.update(flows)
        self._states.update(now, (flow for flow in flows if flow.flow in self._started))
        self._failures.update(now, _now_ms(), flows)
        if now - self._last >= (ONCE_LINE_EVERY_S if self._once else LINE_EVERY_S):
            if self._started:
                self._write(self._once_line(topics) if self._once else self._hour_line(topics, now))
            self._last = now
            self._last_records = sum(t.records for t in topics)
            self._last_bytes = sum(t.bytes for t in topics)

    def _start_line(self, flow: FlowSnapshot) -> None:
        if flow.flow in self._started or not flow.guarantee:
            return  # what the target can do is not known before a flow is set up
        self._started.add(flow.flow)
        topics = len({p.topic for p in flow.partitions})
        what = f"{plural(topics, 'topic')}, {plural(len(flow.partitions), 'partition')}"
        lanes = f", {plural(flow.lanes, 'lane')}" if flow.lanes else ""
        self._write(f"{flow.flow}: mirroring {what}{lanes}; guarantee: {flow.guarantee}")

    @staticmethod
    def _once_line(topics: list[TopicRate]) -> str:
        done, known = sum(t.records for t in topics), sum(t.known for t in topics)
        percent = f" ({100 * done // known} %)" if known else ""
        speed = _speed(sum(t.records_per_s for t in topics), sum(t.bytes_per_s for t in topics))
        what = _flows(topics)
        return f"{what}: copied {count(done)} of {count(known)} records{percent}, {speed}"

    def _hour_line(self, topics: list[TopicRate], now: float) -> str:
        records = sum(t.records for t in topics) - self._last_records
        volume = sum(t.bytes for t in topics) - self._last_bytes
        lag = sum(max(t.lag, 0) for t in topics)
        failed = sum(t.failed for t in topics)
        line = (
            f"{_flows(topics)}: copied {count(records)} records, {size(volume)} "
            f"in {duration(now - self._last)}; "
            f"{plural(sum(t.partitions for t in topics), 'partition')}, lag {count(lag)}"
        )
        return line + (f", {failed} FAILED (see `twinlog status`)" if failed else "")


def _flows(topics: list[TopicRate]) -> str:
    names = dict.fromkeys(topic.flow for topic in topics)
    return next(iter(names)) if len(names) == 1 else plural(len(names), "flow")


def _now_ms() -> int:
    return int(time.time() * 1000)


def _speed(records_per_s: float, bytes_per_s: float) -> str:
    return f"{count(records_per_s)} records/s, {size(bytes_per_s)}/s"


class BarProgress:
    """A screen with one row per topic, renewed once a second; events scroll above it."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._rates = Rates()
        self._failures = FailureLines(lambda line: self._above(line, "red"))
        # the log has said what is wrong, above the bars
        self._states = StateLines(self._above, lambda _: None, every_s=0.0)
        self._events = EventLines(self._above)
        start = Spinner("dots", text=text("starting", style="dim"))
        # a log that goes into a file stays there
        is_seen = sys.stderr.isatty()
        self._live = Live(start, console=console, refresh_per_second=8, redirect_stderr=is_seen)

    def _above(self, line: str, style: str = "") -> None:
        at = datetime.now().astimezone()
        self._console.print(text((f"{at:%H:%M:%S} ", "dim"), (line, style)))

    def start(self) -> None:
        self._live.start()
        # whoever ends the process at once, by a second Ctrl-C too, finds the cursor there
        self._console.show_cursor(True)

    def stop(self) -> None:
        self._live.stop()

    def update(self, flows: list[FlowSnapshot]) -> None:
        """Draw again."""
        now = self._clock()
        topics = self._rates.update(now, flows)
        self._events.update(flows)
        self._states.update(now, flows)
        self._failures.update(now, _now_ms(), flows)
        most_rows, width = self._console.height - OTHER_ROWS, self._console.width - ECHO
        view = mirror_view(flows, topics, most_rows, width, _now_ms())
        self._live.update(Constrain(view, width))


@contextmanager
def shown(*, once: bool, stream: TextIO, json_logs: bool = False) -> Iterator[ProgressScreen]:
    """The display that fits the stream, for as long as the mirror runs. Beside a log in JSON on the
    same terminal there are no bars: its lines would be broken above them.
    """
    if not stream.isatty() or (json_logs and sys.stderr.isatty()):
        yield PlainProgress(
            lambda line: write_while_it_is_read(line, stream),
            once=once,
            write_failure=lambda line: write_while_it_is_read(line, sys.stderr),
        )
        return
    bars = BarProgress(Console(file=stream))
    bars.start()
    with log_lines_above():
        try:
            yield bars
        finally:
            bars.stop()


@contextmanager
def log_lines_above() -> Iterator[None]:
    """Let log lines scroll above the bars: the live display took sys.stderr over."""
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.__stderr__
    ]
    for handler in handlers:
        handler.setStream(sys.stderr)
    try:
        yield
    finally:
        for handler in handlers:
            handler.setStream(sys.__stderr__)
