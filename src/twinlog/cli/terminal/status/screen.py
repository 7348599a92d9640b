"""What `twinlog status` prints: a line for each flow, a row for each topic, totals.

On a terminal, columns that do not fit are left out by rank, first those that the flow's line or
another column also shows. If stdout is not a terminal, everything is printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from twinlog.cli.terminal.status.rows import Row, Totals, is_lag_old, rows, totals, troubles
from twinlog.cli.terminal.status.topic_table import GAP, since, state_style, table
from twinlog.cli.terminal.tables import Piece, row, text
from twinlog.codes import FlowState
from twinlog.quantities import count, duration, first_few, plural

STALE_MS: Final = 10_000
"""A mirror whose numbers are this much overdue hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownParts:
    """What to show."""

    width: int
    most_rows: int | None = None
    """Maximum number of topic rows, or None for no limit."""
    lagging: bool = False
    """Only topics with lag."""


def screen(
    mirrors: Sequence[Mapping[str, Any]], wanted: ShownParts, now_ms: int
) -> Iterator[RenderableType]:
    """Yield all lines about these mirrors."""
    flows = [flow for one in mirrors for flow in one["flows"]]
    left = wanted.most_rows
    number = 0
    for one in mirrors:
        yield _mirror_line(one, now_ms)
        for flow in one["flows"]:
            yield from _flow_lines(flow, wanted.width, now_ms)
            found = [each for each in rows(flow) if each.is_behind or not wanted.lagging]
            number += len(found)
            shown = found if left is None else _most_urgent(found, left)
            left = None if left is None else left - len(shown)
            if shown:
                yield table(shown, wanted.width, now_ms)
            if len(shown) < len(found):
                yield text(f"  and {plural(len(found) - len(shown), 'more row')}", style="dim")
            for alike in troubles(flow, shown):
                yield _trouble_line(alike, now_ms)
            if flow.get("groups"):
                yield group_table(flow["groups"], wanted.width)
            yield from _group_lines("left alone on the target", flow["skipped_groups"])
            yield from _group_lines("without a checkpoint", flow["groups_without_checkpoint"])
    if number > 1 or len(flows) > 1:
        yield from packed(_total(flows), wanted.width)


def _most_urgent(found: list[Row], most: int) -> list[Row]:
    """Return `most` rows: first those with a message, then the longest lags; in their original
    order.
    """
    if len(found) <= most:
        return found
    urgent = sorted(found, key=lambda one: (not one.message, -one.lag, -one.records_per_s))
    kept = {id(one) for one in urgent[: max(most, 0)]}
    return [one for one in found if id(one) in kept]


def _mirror_line(one: Mapping[str, Any], now_ms: int) -> Text:
    if one["pid"] is None:
        return text(
            f"{one['config']}: not run by this user on this machine; state read from the clusters",
            style="dim",
        )
    age_ms = now_ms - one["written_ms"]
    line: list[Piece] = [f"{one['config']}: process {one['pid']}"]
    if age_ms > STALE_MS + one["every_ms"]:
        line.append((f", silent for {duration(age_ms / 1000)}", "yellow"))
    return text(*line, style="dim")


def _flow_lines(flow: Mapping[str, Any], width: int, now_ms: int) -> Iterator[RenderableType]:
    from twinlog.control.watch.snapshot import with_next_try

    pieces: list[Piece] = [(flow["flow"], "bold"), (flow["state"], state_style(flow["state"]))]
    if flow["since_ms"]:
        # the clusters only show when the flow started, not since when it has been stopped
        word = "started" if flow["state"] == FlowState.NOT_RUNNING else "since"
        pieces.append(f"{word} {since(flow['since_ms'], now_ms)}")
    if flow["guarantee"]:
        pieces.append(flow["guarantee"])
    if flow["partitions"]:
        pieces += _figures(totals([flow]), before=at_least(flow))
    yield from packed(pieces, width)
    if flow["where"]:
        ago = duration(max(0, now_ms - flow["as_of_ms"]) / 1000)
        yield _indented(f"on {flow['where']}, as of {ago} ago", "dim")
    if flow.get("source_problem"):
        yield _indented(f"not reached: {flow['source_problem']}", "yellow")
    if flow["reason"]:
        # a process of an earlier release does not report its next try
        reason = with_next_try(flow["reason"], flow.get("next_try_ms", 0), now_ms)
        yield _indented(reason, "yellow")
    is_said = "RPO_EXCEEDED" in flow["reason"]
    if not is_said and (flow["loss_ms"] >= 0 or flow["loss_unknown"]):
        yield _indented(loss_line(flow))
    if flow.get("verified"):  # missing from a process of an earlier release
        yield from _verified_lines(flow["verified"], now_ms)


def at_least(flow: Mapping[str, Any]) -> str:
    """Return the prefix of numbers that may have grown since."""
    states = (part["state"] for part in flow["partitions"])
    return "at least " if is_lag_old(flow["state"], states) else ""


def _figures(of: Totals, *, before: str = "") -> Iterator[str]:
    if of.lag == 0 and not before:
        yield "lag 0"
    elif of.lag >= 0:
        age = "" if of.lag_ms < 0 else f" / {duration(of.lag_ms / 1000)}"
        yield f"lag {before}{count(of.lag)}{age}"
    else:
        yield "lag unknown"
    if of.records_per_s >= 0:
        yield f"{count(of.records_per_s)} records/s"


def packed(pieces: Iterable[Piece], width: int) -> Iterator[Text]:
    """Yield the pieces in as few lines as possible. A piece that fits on a line is not broken."""
    line = text()
    for piece in pieces:
        one = text(piece)
        if line.cell_len and line.cell_len + GAP + one.cell_len > width:
            yield line
            line = text("  ")
        elif line.cell_len:
            line.append(" " * GAP)
        line.append_text(one)
    yield line


def _indented(line: str, style: str = "") -> Padding:
    return Padding(text(line, style=style), (0, 0, 0, 2), expand=False)


def _verified_lines(verified: Mapping[str, Any], now_ms: int) -> Iterator[RenderableType]:
    """Yield the results of the mirror's own comparison."""
    if not verified["at_ms"]:
        return
    ago = duration(max(0, now_ms - verified["at_ms"]) / 1000)
    line = f"verified: {count(verified['records'])} records are equal, the last {ago} ago"
    if verified["is_complete"]:
        line += ", all that is copied"
    number = verified["differences"]
    if not number:
        yield _indented(line)
        return
    yield _indented(f"{line}; {plural(number, 'range')} differ [COPY_DIFFERS]", "red")
    for one in verified["first_differences"]:
        yield _indented(f"  {one}", "red")


def loss_line(flow: Mapping[str, Any]) -> str:
    """Return what would be lost if the source were lost now."""
    records, ago = flow["loss_records"], duration(flow["loss_ms"] / 1000)
    if flow["loss_ms"] < 0:
        return "what would be lost without the source is not known"
    if records < 0:
        line = f"without the source, records of the last {ago} would be lost"
    elif records > 0:
        number = f"{at_least(flow)}{plural(records, 'record')}"
        line = f"without the source, {number} of the last {ago} would be lost"
    else:
        line = f"without the source, nothing that it had {ago} ago would be lost"
    unknown = flow["loss_unknown"]
    return f"{line}; of {plural(unknown, 'partition')} it is not known" if unknown else line


def _trouble_line(alike: Sequence[Row], now_ms: int) -> RenderableType:
    first = alike[0]
    where = first.where
    if len(alike) > 1:
        where = f"{plural(len(alike), 'row')} ({first_few(one.topic for one in alike)})"
    style = "red" if state_style(first.state) == "red" else "yellow"
    began_ms = min((one.since_ms for one in alike if one.since_ms), default=0)
    began = f", since {since(began_ms, now_ms)}" if began_ms else ""
    return _indented(f"{where}: {first.trouble}{began}", style)


def _group_lines(what: str, reasons: Mapping[str, str]) -> Iterator[RenderableType]:
    """Yield a line for each reason, with its groups; `reasons` is by group."""
    by_reason: dict[str, list[str]] = {}
    for group, reason in sorted(reasons.items()):
        by_reason.setdefault(reason, []).append(group)
    for reason, groups in by_reason.items():
        number = plural(len(groups), "group")
        yield _indented(f"{number} {what} ({first_few(groups)}): {reason}")


def _total(flows: Sequence[Mapping[str, Any]]) -> Iterator[Piece]:
    of = totals(flows)
    numbers = ((of.flows, "flow"), (of.topics, "topic"), (of.partitions, "partition"))
    yield (f"total: {', '.join(plural(number, word) for number, word in numbers)}", "bold")
    yield from _figures(of, before=max(map(at_least, flows), default=""))
    if of.copied >= 0:
        yield f"{count(of.copied)} records copied"


def group_table(positions: Iterable[Mapping[str, Any]], width: int) -> Table:
    """Return a table with a row for each group and topic."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in positions:
        groups.setdefault((one["group"], one["topic"]), []).append(one)
    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", width=None)
    name = max(12, (width - 40) // 2)
    shown.add_column("  group", no_wrap=True, overflow="ellipsis", max_width=name)
    shown.add_column("topic", no_wrap=True, overflow="ellipsis", max_width=name)
    shown.add_column("parts", justify="right", no_wrap=True)
    shown.add_column("left to read", justify="right", no_wrap=True)
    shown.add_column("offsets", overflow="fold")
    for (group, topic), found in groups.items():
        row(
            shown,
            f"  {group}",
            topic,
            str(len(found)),
            _left(found),
            _offsets(found),
        )
    return shown


def _left(found: Iterable[Mapping[str, Any]]) -> str:
    """Return the number of records between a group's offset, current or to be set, and the end of
    the copy.
    """
    positions = [(max(one["at"], one["resumes_at"]), one["end"]) for one in found]
    known = [max(0, end - at) for at, end in positions if min(at, end) >= 0]
    return count(sum(known)) if len(known) == len(positions) else "?"


def _offsets(found: list[Mapping[str, Any]]) -> str:
    """Return whether the offsets are set on the target, and whether they are exact."""
    unset = sum(one["at"] < 0 for one in found)
    inexact = next((one["why_not_exact"] for one in found if one["why_not_exact"]), "")
    if unset == len(found):
        line = "not set: `failover` sets them"
    else:
        line = f"set, but of {unset} not" if unset else "set"
    return f"{line}; not exact: {inexact}" if inexact else line
