"""What `twinlog mirror` shows on a terminal: a line for each flow, a row for each topic.

A bar is there while something waits: how far the copy is of where the source ends. Red is for
errors alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.text import Text

from twinlog.cli.terminal.status.rows import is_lag_old
from twinlog.cli.terminal.status.screen import packed
from twinlog.cli.terminal.status.topic_table import Column, fitted_table, since, state_style
from twinlog.cli.terminal.tables import Piece, text
from twinlog.codes import FlowState
from twinlog.control.watch.rates import TopicRate
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.quantities import count, duration, plural, size

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
    """What a terminal shows; topics with the longest lag come first when not all fit."""
    shown = topics
    if len(topics) > most_rows:
        most = max(most_rows - 1, 1)
        shown = sorted(topics, key=lambda t: (-t.failed, -t.lag, -t.records_per_s))[:most]
    parts: list[RenderableType] = []
    for flow in flows:
        parts += _heading(flow, [one for one in topics if one.flow == flow.flow], width, now_ms)
    if shown:
        named = len(flows) > 1
        parts.append(fitted_table(COLUMNS, [_cells(one, named=named) for one in shown], width))
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
        speed = sum(one.records_per_s for one in topics)
        old = is_lag_old(flow.state, (one.state for one in flow.partitions))
        line += [
            f"lag {'at least ' if old else ''}{_known(flow.lag)}",
            f"{count(speed)} records/s",
        ]
    yield from packed(line, width)
    if flow.state is FlowState.STARTING and not flow.reason:
        what = "asking both clusters"
        if flow.partitions:
            topic_count = len({part.topic for part in flow.partitions})
            # with lanes it runs already: the flow was set up again, behind an outage or a reload
            what = "resuming" if flow.lanes else "starting Spark for"
            what = f"{what} {plural(topic_count, 'topic')}"
        yield Padding(Spinner("dots", text=text(what, style="dim")), (0, 0, 0, 2))
    if flow.reason:
        why = flow.why(now_ms)
        if flow.state is FlowState.STANDBY:
            why += "; this process is ready to take over"
        yield Padding(text(why, style="yellow"), (0, 0, 0, 2), expand=False)


def _cells(topic: TopicRate, *, named: bool) -> list[str | Text | ProgressBar]:
    name: list[Piece] = [f"  {topic.flow}  {topic.topic}" if named else f"  {topic.topic}"]
    if topic.failed:
        name.append((f"  {topic.failed} FAILED", "red"))
    copied = topic.copied  # of the copy: what this process alone has copied would look like it
    waits = topic.lag > 0 and copied >= 0
    bar: str | Text | ProgressBar = ""
    if topic.is_deleted:
        bar = "copy kept"
    elif waits:
        bar = ProgressBar(
            total=copied + topic.lag,
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
        f"{count(copied)} of {count(copied + topic.lag)}" if waits else _known(copied),
        count(topic.records_per_s),
        f"{size(topic.bytes_per_s)}/s",
        _known(topic.lag),
        duration(topic.left_s) if waits and topic.left_s >= 0 else "",
    ]


def _known(number: int) -> str:
    return "?" if number < 0 else count(number)
