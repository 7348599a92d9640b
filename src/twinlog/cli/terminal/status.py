"""The output of `twinlog status`: a line for each flow, one or more rows for each topic, totals.

A topic has several rows only if its partitions differ in problems or unusual states. The usual
states of a healthy copy share a row, because separate rows would come and go with every refresh.

On a terminal, columns that do not fit are left out by rank: first those that the flow's line or
another column also shows. If stdout is not a terminal, everything is printed. `watch` refreshes the
screen every two seconds.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from twinlog.cli.terminal.tables import (
    GAP,
    PIPED_WIDTH,
    Cell,
    Column,
    Piece,
    fitted_table,
    indented,
    plain_table,
    row,
    since,
    state_style,
    text,
    write_all,
)
from twinlog.codes import FlowState, PartitionState
from twinlog.quantities import count, duration, first_few, largest, plural, ranges, total

if TYPE_CHECKING:
    from twinlog.control.watch.snapshot import FlowStatus, GroupPosition, PartitionStatus
    from twinlog.control.watch.status_file import RunningMirror
    from twinlog.control.watch.verified import Verified

AS_USUAL: Final = (
    PartitionState.NEW,
    PartitionState.BEHIND,
    PartitionState.PENDING,
    PartitionState.STARTING,
    PartitionState.DRAINING,
    PartitionState.COPYING,
    PartitionState.DONE,
    PartitionState.AT_END,
)
"""States of a healthy copy. A topic's partitions in these states share a row. The row shows the
state that comes first in this list.
"""

ONLY: Final = "all 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the output: a topic's partitions with the same state or problem. None: unknown."""

    topic: str
    target_topic: str
    partitions: str
    """The row's partitions as text: `all 4`, or their numbers if the topic has several rows."""
    state: str
    lag: int | None
    lag_ms: int | None
    loss_ms: int | None
    copied: int | None
    """Number of records that the flow has copied since its beginning, in all processes."""
    records_per_s: float | None
    """Records per second of the whole topic, in its first row. None in its other rows."""
    since_ms: int
    newest_ms: int | None
    """Timestamp of the newest record on the target if the source is unavailable, else None."""
    code: str
    message: str

    @property
    def where(self) -> str:
        return f"{self.topic}-0" if self.partitions == ONLY else f"{self.topic}, {self.partitions}"

    @property
    def trouble(self) -> str:
        return f"{self.message} [{self.code}]" if self.code else self.message

    @property
    def is_behind(self) -> bool:
        """True if the lag is unknown or not 0, or if the row has a message."""
        return self.lag != 0 or bool(self.message)


def rows(flow: FlowStatus) -> list[Row]:
    """Return a row per topic, or several if partitions differ in problems or unusual states."""
    topics: dict[str, dict[tuple[str, str], list[PartitionStatus]]] = {}
    for part in flow.partitions:
        code = "" if flow.shows_problem(part.code, part.message) else part.code
        state = "" if not code and part.state in AS_USUAL else part.state
        topics.setdefault(part.topic, {}).setdefault((state, code), []).append(part)
    return [
        _row(parts, is_alone=len(groups) == 1, rate=None if number else flow.rates.get(topic))
        for topic, groups in topics.items()
        for number, parts in enumerate(groups.values())
    ]


def _row(partitions: list[PartitionStatus], *, is_alone: bool, rate: float | None) -> Row:
    first = partitions[0]
    numbers = [part.partition for part in partitions]
    states = {part.state for part in partitions}
    return Row(
        topic=first.topic,
        target_topic=first.target_topic,
        partitions=_partitions_text(numbers, is_alone=is_alone),
        state=next((state for state in AS_USUAL if state in states), first.state),
        lag=total(part.lag for part in partitions),
        lag_ms=largest(part.lag_ms for part in partitions),
        loss_ms=largest(part.loss_ms for part in partitions),
        copied=total(part.copied for part in partitions),
        records_per_s=rate,
        since_ms=min((part.since_ms for part in partitions if part.since_ms), default=0),
        newest_ms=largest(part.newest_ms for part in partitions),
        code=first.code,
        message=first.message,
    )


def _partitions_text(numbers: list[int], *, is_alone: bool) -> str:
    """Return the partitions as text, such as `all 4` or `0-2, 5`. A topic's only partition 0 is
    `all 1`, because `0` could be misread as a count.
    """
    if numbers == [0] and is_alone:
        return ONLY
    return f"all {len(numbers)}" if is_alone and len(numbers) > 1 else ranges(numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    flows: int
    topics: int
    partitions: int
    lag: int | None
    lag_ms: int | None
    copied: int | None
    records_per_s: float | None


def totals(flows: Iterable[FlowStatus]) -> Totals:
    known = list(flows)
    parts = [part for flow in known for part in flow.partitions]
    topics = {(flow.flow, part.topic) for flow in known for part in flow.partitions}
    rates = [
        rate for flow in known for topic, rate in flow.rates.items() if (flow.flow, topic) in topics
    ]
    return Totals(
        flows=len({flow.flow for flow in known}),  # leader and standby show the same flow
        topics=len(topics),
        partitions=len(parts),
        lag=total(part.lag for part in parts),
        lag_ms=largest(part.lag_ms for part in parts),
        copied=total(part.copied for part in parts),
        records_per_s=sum(rates) if rates else None,
    )


def troubles(flow: FlowStatus, shown_rows: Iterable[Row]) -> Iterator[tuple[Row, ...]]:
    """Yield groups of rows with the same problem, except problems that are shown with the flow."""
    same: dict[tuple[str, str, str], list[Row]] = {}
    for shown_row in shown_rows:
        if shown_row.trouble and not flow.shows_problem(shown_row.code, shown_row.message):
            key = (shown_row.state, shown_row.code, shown_row.message)
            same.setdefault(key, []).append(shown_row)
    yield from map(tuple, same.values())


STALE_MS: Final = 10_000
"""A mirror is shown as silent if its next report is overdue by this many milliseconds."""


def screen(
    mirrors: Sequence[RunningMirror], width: int, left: int | None, *, lagging: bool, now_ms: int
) -> Iterator[RenderableType]:
    """Yield all lines and tables about these mirrors, and their totals. `left`: maximum number of
    topic rows, or None for no limit. `lagging`: show only topics with a lag or a problem.
    """
    flows = [flow for mirror in mirrors for flow in mirror.flows]
    number = 0
    for mirror in mirrors:
        yield _mirror_line(mirror, now_ms)
        for flow in mirror.flows:
            yield from _flow_lines(flow, width, now_ms)
            shown_rows = [each for each in rows(flow) if each.is_behind or not lagging]
            number += len(shown_rows)
            shown = shown_rows if left is None else _most_urgent(shown_rows, left)
            left = None if left is None else left - len(shown)
            if shown:
                yield table(shown, width, now_ms)
            if len(shown) < len(shown_rows):
                yield text(f"  and {plural(len(shown_rows) - len(shown), 'more row')}", style="dim")
            for alike in troubles(flow, shown):
                yield _trouble_line(alike, now_ms)
            if flow.groups:
                yield group_table(flow.groups, width)
            yield from _group_lines("not changed on the target", flow.skipped_groups)
            yield from _group_lines("without a checkpoint", flow.groups_without_checkpoint)
    if number > 1 or len(flows) > 1:
        yield from packed(_total(flows), width)


COLUMNS: Final = (
    Column("topic", "left", 0),
    Column("remote topic", "left", 2),
    Column("parts", "left", 0),
    Column("state", "left", 0),
    Column("lag", "right", 0),
    Column("age", "right", 0),
    Column("loss", "right", 3),
    Column("copied", "right", 1),
    Column("records/s", "right", 0),
    Column("newest record", "left", 0),
    Column("since", "left", 4),
)
ALWAYS_SHOWN: Final = 5
"""Number of columns, from the left, that are shown even if all of their values are unknown."""
UNKNOWN_CELLS: Final = ("", "?")


def table(shown_rows: Iterable[Row], width: int, now_ms: int) -> Table:
    """Return a table of these rows. Columns that do not fit or have no known value are left out."""
    cells = [_cells(row, now_ms) for row in shown_rows]
    # values are unknown if the source is unavailable, and rates if clusters are queried only once
    kept = [
        number
        for number in range(len(COLUMNS))
        if number < ALWAYS_SHOWN or any(str(row[number]) not in UNKNOWN_CELLS for row in cells)
    ]
    columns = [COLUMNS[number] for number in kept]
    return fitted_table(columns, [[row[number] for number in kept] for row in cells], width)


def _cells(row: Row, now_ms: int) -> list[Cell]:
    return [
        f"  {row.topic}",
        row.target_topic,
        row.partitions,
        text(row.state, style=state_style(row.state)),
        count(row.lag),
        *("?" if ms is None else duration(ms / 1000) for ms in (row.lag_ms, row.loss_ms)),
        count(row.copied),
        "" if row.records_per_s is None else count(row.records_per_s),
        since(row.newest_ms, now_ms) if row.newest_ms else "",
        since(row.since_ms, now_ms) if row.since_ms else "",
    ]


def _most_urgent(shown_rows: list[Row], limit: int) -> list[Row]:
    """Return up to `limit` rows in their order, preferably those with a message or a long lag."""
    if len(shown_rows) <= limit:
        return shown_rows
    urgent = sorted(
        shown_rows, key=lambda row: (not row.message, -(row.lag or 0), -(row.records_per_s or 0))
    )
    kept = {id(row) for row in urgent[: max(limit, 0)]}
    return [row for row in shown_rows if id(row) in kept]


def _mirror_line(mirror: RunningMirror, now_ms: int) -> Text:
    if mirror.pid is None:
        return text(
            f"{mirror.config}: not run by this user on this machine; state read from the clusters",
            style="dim",
        )
    age_ms = now_ms - mirror.written_ms
    line: list[Piece] = [f"{mirror.config}: process {mirror.pid}"]
    if age_ms > STALE_MS + mirror.every_ms:
        line.append((f", silent for {duration(age_ms / 1000)}", "yellow"))
    return text(*line, style="dim")


def _flow_lines(flow: FlowStatus, width: int, now_ms: int) -> Iterator[RenderableType]:
    pieces: list[Piece] = [(flow.flow, "bold"), (flow.state, state_style(flow.state))]
    if flow.since_ms:
        # clusters show when a flow was started, but not when it was stopped
        word = "started" if flow.state is FlowState.NOT_RUNNING else "since"
        pieces.append(f"{word} {since(flow.since_ms, now_ms)}")
    if flow.guarantee:
        pieces.append(flow.guarantee)
    if flow.partitions:
        pieces += _figures(totals([flow]), before=at_least(flow))
    yield from packed(pieces, width)
    if flow.where:
        ago = duration(max(0, now_ms - flow.as_of_ms) / 1000)
        yield indented(f"on {flow.where}, reported {ago} ago", "dim")
    if flow.source_problem:
        yield indented(f"not reached: {flow.source_problem}", "yellow")
    if flow.reason:
        yield indented(flow.why(now_ms), "yellow")
    if "RPO_EXCEEDED" not in flow.reason and (flow.loss_ms is not None or flow.loss_unknown):
        yield indented(loss_line(flow))
    if flow.verified is not None:
        yield from _verified_lines(flow.verified, now_ms)


def at_least(flow: FlowStatus) -> str:
    """Return the prefix for a flow's lag: `at least ` if the lag is outdated, else empty. In an
    outage, the lag is the last known one, but the source may have grown since.
    """
    is_retrying = PartitionState.RETRYING in (part.state for part in flow.partitions)
    return "at least " if flow.state == FlowState.DEGRADED and is_retrying else ""


def _figures(of: Totals, *, before: str = "") -> Iterator[str]:
    if of.lag == 0 and not before:
        yield "lag 0"
    elif of.lag is not None:
        age = "" if of.lag_ms is None else f" / {duration(of.lag_ms / 1000)}"
        yield f"lag {before}{count(of.lag)}{age}"
    else:
        yield "lag unknown"
    if of.records_per_s is not None:
        yield f"{count(of.records_per_s)} records/s"


def packed(pieces: Iterable[Piece], width: int) -> Iterator[Text]:
    """Yield lines of as many pieces as fit. A piece is broken only if it is longer than a line."""
    line = text()
    for piece in pieces:
        part = text(piece)
        if line.cell_len and line.cell_len + GAP + part.cell_len > width:
            yield line
            line = text("  ")
        elif line.cell_len:
            line.append(" " * GAP)
        line.append_text(part)
    yield line


def _verified_lines(verified: Verified, now_ms: int) -> Iterator[RenderableType]:
    """Yield lines about the comparison of records that the mirror itself runs in the background."""
    if not verified.at_ms:
        return
    ago = duration(max(0, now_ms - verified.at_ms) / 1000)
    line = f"verified: {count(verified.records)} records are equal, the last {ago} ago"
    if verified.is_complete:
        line += ", all that is copied"
    number = verified.differences
    if not number:
        yield indented(line)
        return
    yield indented(f"{line}; {plural(number, 'range')} differ [COPY_DIFFERS]", "red")
    for difference in verified.first_differences:
        yield indented(f"  {difference}", "red")


def loss_line(flow: FlowStatus) -> str:
    """Return a line about the records that would be lost if the source were lost now."""
    if flow.loss_ms is None:
        return "the loss if the source failed is unknown"
    records, ago = flow.loss_records, duration(flow.loss_ms / 1000)
    if records is None:
        line = f"without the source, records of the last {ago} would be lost"
    elif records > 0:
        number = f"{at_least(flow)}{plural(records, 'record')}"
        # without an age if it is 0, because the age of the partitions with a loss is unknown
        age = f" of the last {ago}" if flow.loss_ms else ""
        line = f"without the source, {number}{age} would be lost"
    else:
        line = f"without the source, nothing that it had {ago} ago would be lost"
    unknown = flow.loss_unknown
    return f"{line}; unknown for {plural(unknown, 'partition')}" if unknown else line


def _trouble_line(alike: Sequence[Row], now_ms: int) -> RenderableType:
    first = alike[0]
    where = first.where
    if len(alike) > 1:
        where = f"{plural(len(alike), 'row')} ({first_few(row.topic for row in alike)})"
    style = "red" if state_style(first.state) == "red" else "yellow"
    began_ms = min((row.since_ms for row in alike if row.since_ms), default=0)
    began = f", since {since(began_ms, now_ms)}" if began_ms else ""
    return indented(f"{where}: {first.trouble}{began}", style)


def _group_lines(what: str, reasons: Mapping[str, str]) -> Iterator[RenderableType]:
    """Yield a line for each reason, with its groups. `reasons`: the reason of each group."""
    by_reason: dict[str, list[str]] = {}
    for group, reason in sorted(reasons.items()):
        by_reason.setdefault(reason, []).append(group)
    for reason, groups in by_reason.items():
        number = plural(len(groups), "group")
        yield indented(f"{number} {what} ({first_few(groups)}): {reason}")


def _total(flows: Sequence[FlowStatus]) -> Iterator[Piece]:
    of = totals(flows)
    numbers = ((of.flows, "flow"), (of.topics, "topic"), (of.partitions, "partition"))
    yield (f"total: {', '.join(plural(number, word) for number, word in numbers)}", "bold")
    yield from _figures(of, before=max(map(at_least, flows), default=""))
    if of.copied is not None:
        yield f"{count(of.copied)} records copied"


def group_table(positions: Iterable[GroupPosition], width: int) -> Table:
    """Return the table of consumer groups, with a row for each group and topic."""
    groups: dict[tuple[str, str], list[GroupPosition]] = {}
    for position in positions:
        groups.setdefault((position.group, position.topic), []).append(position)
    shown = plain_table(numbers=())
    name = max(12, (width - 40) // 2)
    shown.add_column("  group", no_wrap=True, overflow="ellipsis", max_width=name)
    shown.add_column("topic", no_wrap=True, overflow="ellipsis", max_width=name)
    shown.add_column("parts", justify="right", no_wrap=True)
    shown.add_column("left to read", justify="right", no_wrap=True)
    shown.add_column("offsets", overflow="fold")
    for (group, topic), group_positions in groups.items():
        left, offsets = _records_left(group_positions), _offsets(group_positions)
        row(shown, f"  {group}", topic, len(group_positions), left, offsets)
    return shown


def _records_left(group_positions: Iterable[GroupPosition]) -> str:
    """Return how many records a group has left to read up to the end of the copy, or `?`. It
    resumes at its offset on the target, or at the offset to be set there if that is larger.
    """
    positions = [
        (largest((position.at, position.resumes_at)), position.end) for position in group_positions
    ]
    left = [max(0, end - at) for at, end in positions if at is not None and end is not None]
    return count(sum(left)) if len(left) == len(positions) else "?"


def _offsets(positions: list[GroupPosition]) -> str:
    """Return a text that says whether a group's offsets are set on the target and are exact."""
    unset = sum(position.at is None for position in positions)
    inexact = next((position.why_not_exact for position in positions if position.why_not_exact), "")
    if unset == len(positions):
        line = "not set: `failover` sets them"
    else:
        line = f"set, but of {unset} not" if unset else "set"
    return f"{line}; not exact: {inexact}" if inexact else line


EVERY_S: Final = 2.0
OTHER_LINES: Final = 10
"""Number of terminal lines that are reserved for other texts than topics."""

Mirrors: TypeAlias = "list[RunningMirror]"


class Speeds:
    """Computes the rates of flows that no mirror on this machine runs, from successive results."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[float, int | None]] = {}

    def fill_in(self, mirrors: Iterable[RunningMirror], now: float) -> Mirrors:
        """Return the mirrors with missing rates filled in. `now`: monotonic time in seconds."""
        last, self._seen = self._seen, {}

        def with_rates(flow: FlowStatus) -> FlowStatus:
            if flow.rates:
                return flow
            topics: dict[str, list[int | None]] = {}
            for part in flow.partitions:
                topics.setdefault(part.topic, []).append(part.copied)
            rates = {}
            for topic, numbers in topics.items():
                copied, key = total(numbers), (flow.flow, topic)
                at, before = last.get(key, (now, None))
                if copied is not None and before is not None and now > at:
                    rates[topic] = max(0, copied - before) / (now - at)
                self._seen[key] = (now, copied)
            return replace(flow, rates=rates)

        return with_flows(mirrors, with_rates)


def with_flows(
    mirrors: Iterable[RunningMirror], change: Callable[[FlowStatus], FlowStatus]
) -> Mirrors:
    return [replace(mirror, flows=tuple(map(change, mirror.flows))) for mirror in mirrors]


def watch(read: Callable[[], Mirrors], *, lagging: bool, nothing: str) -> Mirrors:
    """Call `read` every two seconds and show its result, until Ctrl-C. Return the last result. On a
    terminal an alternate screen is used, so the previous content reappears at the end.
    """
    speeds = Speeds()
    mirrors: Mirrors = []

    def parts(width: int, most: int | None) -> Iterator[RenderableType]:
        now = datetime.now().astimezone()
        yield text(f"{now:%H:%M:%S}, every {EVERY_S:.0f} s; Ctrl-C ends it", style="dim")
        if not mirrors:
            yield text(nothing)
        yield from screen(mirrors, width, most, lagging=lagging, now_ms=int(time.time() * 1000))

    def step() -> None:
        mirrors[:] = speeds.fill_in(read(), time.monotonic())

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if not sys.stdout.isatty():
            while True:
                step()
                write_all([*parts(PIPED_WIDTH, None), text()])
                time.sleep(EVERY_S)
        console = Console(file=sys.stdout, highlight=False)
        with Live(console=console, screen=True, auto_refresh=False) as live:
            live.update(text("querying ..."), refresh=True)
            while True:
                step()
                most = max(1, console.height - OTHER_LINES)
                live.update(Group(*parts(console.width, most)), refresh=True)
                time.sleep(EVERY_S)
    except KeyboardInterrupt:
        return mirrors
    finally:
        signal.signal(signal.SIGTERM, before)
