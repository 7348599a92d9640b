"""Shows a running mirror: bars per topic on a terminal, otherwise a few plain lines.

Plain output is meant for logs. With `once`, progress is written at most every ten seconds. A mirror
that runs for weeks writes a summary every ten minutes, so that a healthy hour has fewer than 20
lines. State changes, such as a flow that degrades or recovers, are written when they happen, but at
most once a minute per flow.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, TextIO

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.text import Text

from twinlog.cli.terminal.output import write_while_it_is_read
from twinlog.cli.terminal.reading import ECHO
from twinlog.cli.terminal.status import at_least, packed
from twinlog.cli.terminal.tables import Column, Piece, fitted_table, since, state_style, text
from twinlog.codes import NOT_MIRRORED, FlowState, PartitionState
from twinlog.control.watch.rates import Rates, TopicRate
from twinlog.control.watch.readiness import RESTING
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.quantities import count, duration, first_few, plural, ranges, size, total

ONCE_LINE_EVERY_S: Final = 10.0
LINE_EVERY_S: Final = 600.0
OTHER_ROWS: Final = 6
"""Number of terminal lines that are reserved for other texts than topics."""
TOPICS_EACH: Final = 3
"""Maximum number of new topics, or topics with the same new code, that get a line each. If one
update has more of them, they share a line.
"""


class PlainProgress:
    """Shows a running mirror as plain lines, for a log."""

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
        self._announced_flows: set[str] = set()
        self._last = clock()
        self._last_counts: dict[tuple[str, str], tuple[int, int]] = {}
        """Records and bytes when the last line was written, by flow and topic."""

    def update(self, flows: list[FlowSnapshot]) -> None:
        """Write the lines that are due, from the current snapshots of all flows."""
        now = self._clock()
        topics = self._rates.update(now, flows)
        for flow in flows:
            self._start_line(flow)
        self._events.update(flows)
        self._states.update(now, (flow for flow in flows if flow.flow in self._announced_flows))
        self._failures.update(now, _now_ms(), flows)
        if now - self._last >= (ONCE_LINE_EVERY_S if self._once else LINE_EVERY_S):
            if self._announced_flows:
                self._write(self._once_line(topics) if self._once else self._hour_line(topics, now))
            self._last = now
            self._last_counts = {(t.flow, t.topic): (t.records, t.bytes) for t in topics}

    def _start_line(self, flow: FlowSnapshot) -> None:
        if flow.flow in self._announced_flows or not flow.guarantee:
            return  # wait until the flow is set up, because the line contains its guarantee
        self._announced_flows.add(flow.flow)
        topics = len({p.topic for p in flow.partitions})
        what = f"{plural(topics, 'topic')}, {plural(len(flow.partitions), 'partition')}"
        lanes = f", {plural(flow.lanes, 'lane')}" if flow.lanes else ""
        self._write(f"{flow.flow}: mirroring {what}{lanes}; guarantee: {flow.guarantee}")

    @staticmethod
    def _once_line(topics: list[TopicRate]) -> str:
        done, known = sum(t.records for t in topics), sum(t.total for t in topics)
        if not known:
            return f"{_flows(topics)}: starting, no records to copy are known yet"
        records_per_s = sum(t.records_per_s for t in topics)
        bytes_per_s = sum(t.bytes_per_s for t in topics)
        return (
            f"{_flows(topics)}: copied {count(done)} of {count(known)} records "
            f"({100 * done // known} %), {count(records_per_s)} records/s, {size(bytes_per_s)}/s"
        )

    def _hour_line(self, topics: list[TopicRate], now: float) -> str:
        records = volume = 0
        for topic in topics:
            before = self._last_counts.get((topic.flow, topic.topic), (0, 0))
            # the counts of a flow that was set up again may have begun at 0
            records += max(0, topic.records - before[0])
            volume += max(0, topic.bytes - before[1])
        lag = total(t.lag for t in topics) or 0
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


class BarProgress:
    """Shows a running mirror as a screen with one row per topic. Events scroll above the screen."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._rates = Rates()
        self._failures = FailureLines(lambda line: self._print_above(line, "red"))
        # no lines about problems, because the log shows them above the bars
        self._states = StateLines(self._print_above, lambda _: None, every_s=0.0)
        self._events = EventLines(self._print_above)
        start = Spinner("dots", text=text("starting", style="dim"))
        # if stderr is redirected to a file, the log must go there, not above the bars
        is_seen = sys.stderr.isatty()
        self._live = Live(start, console=console, refresh_per_second=8, redirect_stderr=is_seen)

    def _print_above(self, line: str, style: str = "") -> None:
        at = datetime.now().astimezone()
        self._console.print(text((f"{at:%H:%M:%S} ", "dim"), (line, style)))

    def start(self) -> None:
        self._live.start()
        # `Live` hides the cursor; show it, because a killed process (a second Ctrl-C) could not
        self._console.show_cursor(True)

    def stop(self) -> None:
        self._live.stop()

    def update(self, flows: list[FlowSnapshot]) -> None:
        """Redraw the screen from the current snapshots of all flows."""
        now = self._clock()
        topics = self._rates.update(now, flows)
        self._events.update(flows)
        self._states.update(now, flows)
        self._failures.update(now, _now_ms(), flows)
        most_rows, width = self._console.height - OTHER_ROWS, self._console.width - ECHO
        view = mirror_view(flows, topics, most_rows, width, _now_ms())
        self._live.update(Constrain(view, width))


@contextmanager
def shown(
    *, once: bool, stream: TextIO, json_logs: bool = False
) -> Iterator[PlainProgress | BarProgress]:
    """Yield bars if the stream is a terminal, else plain lines. If JSON log lines go to the same
    terminal, plain lines are yielded, because bars would break the JSON lines.
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
    """Within the block, let log lines scroll above the bars of the live display."""
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


class EventLines:
    """Writes a line when a flow has a new topic, and when this process takes over from a leader."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._topics: dict[str, dict[str, bool]] = {}
        """By flow and topic: True if the topic is no longer mirrored."""
        self._waited: dict[str, str] = {}
        """The last shown reason of each flow for which this process is on standby."""

    def update(self, flows: Iterable[FlowSnapshot]) -> None:
        """Write a line for each change since the last call."""
        for flow in flows:
            self._leads(flow)
            self._log_topic_changes(flow)

    def _leads(self, flow: FlowSnapshot) -> None:
        if flow.state is FlowState.STANDBY:
            self._waited[flow.flow] = flow.reason
        elif (
            flow.generation is not None
            and (before := self._waited.pop(flow.flow, None)) is not None
        ):
            suffix = f"; before: {before}" if before else ""
            self._write(f"{flow.flow}: this process leads it now{suffix}")

    def _log_topic_changes(self, flow: FlowSnapshot) -> None:
        now: dict[str, list[bool]] = {}
        for part in flow.partitions:
            now.setdefault(part.topic, []).append(part.state in NOT_MIRRORED)
        before = self._topics.get(flow.flow)
        if now:
            self._topics[flow.flow] = {topic: all(gone) for topic, gone in now.items()}
        # no `before`: the flow was just set up, so all its topics are new; no `now`: it is being
        # set up again, and has no partitions yet
        if before is None or not now:
            return
        new = [topic for topic, gone in now.items() if topic not in before and not all(gone)]
        if len(new) > TOPICS_EACH:
            self._write(f"{flow.flow}: {plural(len(new), 'new topic')} ({first_few(new)})")
        for topic in new if len(new) <= TOPICS_EACH else ():
            number = plural(len(now[topic]), "partition")
            self._write(f"{flow.flow}: new topic {topic}, {number}")


SAME_FLOW_EVERY_S: Final = 60.0

UNREMARKABLE: Final = frozenset({FlowState.STARTING, FlowState.RUNNING})
OUTAGE: Final = frozenset({FlowState.DEGRADED, FlowState.FAILED})
"""States of an outage. A change between them does not begin a new problem."""
PASSING: Final = frozenset({FlowState.STARTING, FlowState.STOPPING, FlowState.STOPPED})
"""States in which a flow does not run. A change to them does not end a problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoggedState:
    state: str
    at: float
    since: float


class StateLines:
    """Writes a line when a flow enters an unusual state like DEGRADED, and when it runs again."""

    def __init__(
        self,
        write: Callable[[str], None],
        write_trouble: Callable[[str], None] | None = None,
        *,
        every_s: float = SAME_FLOW_EVERY_S,
    ) -> None:
        """`every_s`: minimum time between two lines about problems of the same flow, in seconds."""
        self._every_s = every_s
        self._write, self._write_trouble = write, write_trouble or write
        self._logged: dict[str, _LoggedState] = {}
        self._seen: dict[str, tuple[str, float]] = {}

    def update(self, now: float, flows: Iterable[FlowSnapshot]) -> None:
        """Write a line for each change that is due. `now`: monotonic time in seconds."""
        for flow in flows:
            self._flow(flow, now)

    def _flow(self, flow: FlowSnapshot, now: float) -> None:
        state, since = self._seen.get(flow.flow, ("", now))
        if state != flow.state:
            since = now
            self._seen[flow.flow] = (flow.state, now)
        last = self._logged.get(flow.flow)
        if flow.state in PASSING:
            return
        if flow.state in UNREMARKABLE:
            if last is not None and last.state == FlowState.STANDBY:
                del self._logged[flow.flow]  # no line, because EventLines reports a takeover
            elif last is not None and last.state not in UNREMARKABLE:
                self._write(f"{flow.flow}: {flow.state} again after {duration(now - last.since)}")
                self._logged[flow.flow] = _LoggedState(state=flow.state, at=now, since=now)
            return
        if last is not None and (last.state == flow.state or now - last.at < self._every_s):
            return
        if last is not None and last.state in OUTAGE and flow.state in OUTAGE:
            since = last.since
        self._logged[flow.flow] = _LoggedState(state=flow.state, at=now, since=since)
        reason = f": {flow.reason}" if flow.reason else ""
        self._write_trouble(f"{flow.flow}: {flow.state}{reason}")


# The screen of `twinlog mirror` on a terminal has a line for each flow and a row for each topic. A
# bar shows the progress of a topic that is not copied completely. Only errors are red.

BAR: Final = 14
COLUMNS: Final = (
    Column("topic", "left", 0),
    Column("", "left", 1),
    Column("records", "right", 0),
    Column("records/s", "right", 0),
    Column("bytes/s", "right", 2),
    Column("lag", "right", 3),
    Column("left", "right", 0),
)


def mirror_view(
    flows: list[FlowSnapshot], topics: list[TopicRate], most_rows: int, width: int, now_ms: int
) -> RenderableType:
    """Return the screen. If topics do not fit, those with failures and long lags are preferred."""
    shown = topics
    if len(topics) > most_rows:
        most = max(most_rows - 1, 1)
        shown = sorted(topics, key=lambda t: (-t.failed, -(t.lag or 0), -t.records_per_s))[:most]
    parts: list[RenderableType] = []
    for flow in flows:
        parts += _heading(
            flow, [topic for topic in topics if topic.flow == flow.flow], width, now_ms
        )
    if shown:
        named = len(flows) > 1
        parts.append(fitted_table(COLUMNS, [_cells(rate, named=named) for rate in shown], width))
    if len(shown) < len(topics):
        parts.append(text(f"  and {plural(len(topics) - len(shown), 'more topic')}", style="dim"))
    return Group(*parts)


def _heading(
    flow: FlowSnapshot, topics: list[TopicRate], width: int, now_ms: int
) -> Iterator[RenderableType]:
    line: list[Piece] = [(flow.flow, "bold"), (flow.state, state_style(flow.state))]
    if flow.since_ms:
        line.append(f"since {since(flow.since_ms, now_ms)}")
    if flow.guarantee:
        line.append(flow.guarantee)
    if flow.lanes:
        line.append(plural(flow.lanes, "lane"))
    if len(topics) > 1:
        speed = sum(topic.records_per_s for topic in topics)
        line += [f"lag {at_least(flow)}{count(flow.lag)}", f"{count(speed)} records/s"]
    yield from packed(line, width)
    if flow.state is FlowState.STARTING and not flow.reason:
        what = "querying both clusters"
        if flow.partitions:
            topic_count = len({part.topic for part in flow.partitions})
            # a flow with lanes is not starting Spark: it is set up again after an outage or a
            # reload
            what = "resuming" if flow.lanes else "starting Spark for"
            what = f"{what} {plural(topic_count, 'topic')}"
        yield Padding(Spinner("dots", text=text(what, style="dim")), (0, 0, 0, 2))
    if flow.reason:
        why = flow.why(now_ms)
        if flow.state is FlowState.STANDBY:
            why += "; this process is on standby"
        yield Padding(text(why, style="yellow"), (0, 0, 0, 2), expand=False)


def _cells(topic: TopicRate, *, named: bool) -> list[str | Text | ProgressBar]:
    name: list[Piece] = [f"  {topic.flow}  {topic.topic}" if named else f"  {topic.topic}"]
    if topic.failed:
        name.append((f"  {topic.failed} FAILED", "red"))
    copied = topic.copied  # by all processes that have run the flow, not only by this one
    total = copied + topic.lag if copied is not None and topic.lag else None
    bar: str | Text | ProgressBar = ""
    if topic.is_deleted:
        bar = "copy kept"
    elif total is not None and copied is not None:
        bar = ProgressBar(
            total=total,
            completed=copied,
            width=BAR,
            complete_style="green",
            finished_style="green",
        )
    elif topic.is_retrying:
        bar = text("retrying", style="yellow")
    elif topic.lag == 0:
        bar = "at the end"
    return [
        text(*name),
        bar,
        count(copied) if total is None else f"{count(copied)} of {count(total)}",
        count(topic.records_per_s),
        f"{size(topic.bytes_per_s)}/s",
        count(topic.lag),
        "" if total is None or topic.left_s is None else duration(topic.left_s),
    ]


# Each failure is reported by a line when it begins, and by one when it has ended. There is a line
# per topic and code. Many topics with the same code share a line with the first topic's message,
# because, for example, the deletion of 25 topics together is one event. The last line says that the
# failure is over if the topic is mirrored again, or that the topic was released if it is not.

PASSING_TROUBLE_MS: Final = 30_000
"""Milliseconds for which a retried failure must last before it is reported."""

FRESH_MS: Final = 5_000
"""Age in milliseconds up to which a failure is reported without its start time."""

AGAIN_AFTER_S: Final = 600.0
"""Minimum time between two reports of the same failure, in seconds."""


class FailureKey(NamedTuple):
    """Identifies a failure by flow, topic and code. The topic's partitions share one line."""

    flow: str
    topic: str
    code: str


def failing(
    flows: Iterable[FlowSnapshot], now_ms: int
) -> dict[FailureKey, list[PartitionSnapshot]]:
    """Return permanent failures, and retried failures that have lasted for PASSING_TROUBLE_MS, with
    their partitions. Failures of a flow as a whole are left out, because StateLines reports them.
    """
    out: dict[FailureKey, list[PartitionSnapshot]] = {}
    for flow in flows:
        for part in flow.partitions:
            if flow.shows_problem(part.code, part.message):
                continue
            waits = part.since_ms and now_ms - part.since_ms > PASSING_TROUBLE_MS
            if part.code and (part.state is PartitionState.FAILED or waits):
                key = FailureKey(flow.flow, part.topic, part.code)
                out.setdefault(key, []).append(part)
    return out


class FailureLines:
    """Writes a line when partitions of a topic fail, and when that failure is over."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._reported_at: dict[FailureKey, float] = {}
        self._open: dict[FailureKey, float] = {}

    def update(self, now: float, now_ms: int, flows: Iterable[FlowSnapshot]) -> None:
        """Write a line for each failure that has begun or ended. `now`: monotonic time."""
        known = list(flows)
        troubled = {
            FailureKey(flow.flow, part.topic, part.code)
            for flow in known
            for part in flow.partitions
        }
        fresh: dict[tuple[str, str], list[tuple[FailureKey, list[PartitionSnapshot]]]] = {}
        for key, parts in failing(known, now_ms).items():
            if key in self._open:
                continue
            self._open[key] = now
            if now - self._reported_at.get(key, now - AGAIN_AFTER_S) >= AGAIN_AFTER_S:
                self._reported_at[key] = now
                fresh.setdefault((key.flow, key.code), []).append((key, parts))
        for group in fresh.values():
            for failures in [group] if len(group) > TOPICS_EACH else [[each] for each in group]:
                self._write(_failing_line(failures, now_ms))
        # forget failures of flows that are paused or promoted, or that another process leads now
        resting = {flow.flow for flow in known if flow.state in RESTING}
        self._open = {key: at for key, at in self._open.items() if key.flow not in resting}
        # between two runs, a flow does not list all of its topics, so none of its failures counts
        # as ended
        idle = {flow.flow for flow in known if flow.generation is None}
        over = [key for key in self._open if key not in troubled and key.flow not in idle]
        self._say_ends(now, known, over)

    def _say_ends(
        self, now: float, flows: Iterable[FlowSnapshot], ended: Iterable[FailureKey]
    ) -> None:
        mirrored = {
            (flow.flow, part.topic)
            for flow in flows
            for part in flow.partitions
            if part.state not in NOT_MIRRORED
        }
        topics_by_end: dict[tuple[str, str, bool], dict[str, float]] = {}
        for key in ended:
            began = self._open.pop(key)
            if self._reported_at.get(key) == began:
                is_mirrored = (key.flow, key.topic) in mirrored
                topics_by_end.setdefault((key.flow, key.code, is_mirrored), {})[key.topic] = began
        for (flow, code, is_mirrored), topics in topics_by_end.items():
            for names in [[*topics]] if len(topics) > TOPICS_EACH else [[name] for name in topics]:
                lasted = duration(now - min(topics[name] for name in names))
                end = f"{code} is over after {lasted}"
                released = f"released after {lasted}: no longer mirrored, last {code}"
                self._write(f"{flow}: {_topics_text(names)}: {end if is_mirrored else released}")


def _topics_text(topics: list[str]) -> str:
    return (
        topics[0] if len(topics) == 1 else f"{plural(len(topics), 'topic')} ({first_few(topics)})"
    )


def _failing_line(failures: list[tuple[FailureKey, list[PartitionSnapshot]]], now_ms: int) -> str:
    """Return one line for all failures, with the message of the first one, and its start time
    unless it has just begun.
    """
    key, parts = failures[0]
    where = f"{key.topic}-{parts[0].partition}"
    if len(failures) == 1 and len(parts) > 1:
        where = f"{key.topic}, partitions {ranges([part.partition for part in parts])}"
    message = parts[0].message.removeprefix(f"{where}: ")
    if len(failures) > 1:
        where = _topics_text([each.topic for each, _ in failures])
    began_ms = min((part.since_ms for part in parts if part.since_ms), default=0)
    is_old = began_ms and now_ms - began_ms > FRESH_MS
    began = f", since {since(began_ms, now_ms)}" if is_old else ""
    return f"{key.flow}: {where}: {message} [{key.code}]{began}"
