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
from typing import Final, Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from twinlog.cli.terminal.failures import FailureLines
from twinlog.cli.terminal.flow_states import StateLines
from twinlog.cli.terminal.output import write_while_it_is_read
from twinlog.cli.terminal.status.topic_table import state_style
from twinlog.cli.terminal.tables import Piece, row, text
from twinlog.codes import FlowState
from twinlog.control.watch.rates import Rates, TopicRate
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.quantities import count, duration, plural, size

ONCE_LINE_EVERY_S: Final = 10.0
LINE_EVERY_S: Final = 600.0
OTHER_ROWS: Final = 6
"""Lines of the terminal that topics must leave free."""


class Progress(Protocol):
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
    """A table with one bar per topic, redrawn once a second."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._rates = Rates()
        self._failures = FailureLines(lambda line: console.print(text(line, style="red")))
        # the log has said what is wrong, above the bars
        self._states = StateLines(lambda line: console.print(text(line)), lambda _: None)
        self._live = Live(text("starting ..."), console=console, refresh_per_second=4)

    def start(self) -> None:
        self._live.start()

    def stop(self) -> None:
        self._live.stop()

    def update(self, flows: list[FlowSnapshot]) -> None:
        """Draw anew."""
        now = self._clock()
        topics = self._rates.update(now, flows)
        self._states.update(now, flows)
        self._failures.update(now, _now_ms(), flows)
        self._live.update(mirror_view(flows, topics, self._console.height - OTHER_ROWS))


def mirror_view(
    flows: list[FlowSnapshot], topics: list[TopicRate], most_rows: int
) -> RenderableType:
    """The table that a terminal shows; topics with the longest lag come first when not all fit."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("topic", overflow="ellipsis", no_wrap=True)
    table.add_column("", width=20)
    for name in ("records", "of", "rec/s", "MB/s", "lag"):
        table.add_column(name, justify="right", no_wrap=True)
    shown = topics
    if len(topics) > most_rows:
        most = max(most_rows - 1, 1)
        shown = sorted(topics, key=lambda t: (-t.failed, -t.lag, -t.records_per_s))[:most]
    for topic in shown:
        _topic_row(table, topic, named=len(flows) > 1)
    parts: list[RenderableType] = [line for flow in flows for line in _heading(flow)]
    if topics:
        parts.append(table)
    if len(shown) < len(topics):
        parts.append(text(f"and {plural(len(topics) - len(shown), 'more topic')}", style="dim"))
    return Group(*parts)


def _heading(flow: FlowSnapshot) -> Iterator[RenderableType]:
    line: list[Piece] = [(flow.flow, "bold"), "  ", (flow.state, state_style(flow.state))]
    if flow.partitions:
        line.append(f"  {plural(len(flow.partitions), 'partition')}")
    if flow.lanes:
        line.append(f", {plural(flow.lanes, 'lane')}")
    elif flow.partitions and flow.state is FlowState.STARTING:
        line.append(", waiting for Spark")
    if flow.guarantee:
        line.append(f"  {flow.guarantee}")
    yield text(*line)
    if flow.reason:
        yield text(f"  {flow.why(_now_ms())}", style="yellow")


def _topic_row(table: Table, topic: TopicRate, *, named: bool) -> None:
    name: list[Piece] = [f"{topic.flow}  {topic.topic}" if named else topic.topic]
    if topic.failed:
        name.append((f"  {topic.failed} FAILED", "red"))
    row(
        table,
        text(*name),
        ProgressBar(total=max(topic.known, 1), completed=topic.records if topic.known else 1),
        count(topic.records),
        count(topic.known),
        count(topic.records_per_s),
        f"{topic.bytes_per_s / 1e6:.1f}",
        "?" if topic.lag < 0 else count(topic.lag),
    )


@contextmanager
def shown(*, once: bool, stream: TextIO) -> Iterator[Progress]:
    """The display that fits the stream, for as long as the mirror runs."""
    if not stream.isatty():
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
