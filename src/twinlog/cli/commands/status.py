"""`twinlog status [FILE]`: what the flows do, from running mirrors or the clusters alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from twinlog.cli.options.command import Command
from twinlog.cli.options.format_option import format_option
from twinlog.cli.options.mirror_maker_1_options import (
    configuration_of_pair,
    is_pair,
    no_pair,
    pair_options,
)
from twinlog.cli.options.run_options import secrets_option
from twinlog.cli.terminal.loudness import is_quiet
from twinlog.cli.terminal.output import Format, error_object, write_line, write_object
from twinlog.cli.terminal.tables import Piece, row, text, write_all, write_warnings
from twinlog.codes import FlowState, PartitionState
from twinlog.errors import TwinlogError
from twinlog.quantities import count, duration, first_few, plural, ranges

if TYPE_CHECKING:
    from twinlog.config.flow.schema import MirrorConfig

JSON_VERSION: Final = 1
NOBODY_KNOWS: Final = 3
NOT_WELL: Final = frozenset(
    {
        *(FlowState.FAILED, FlowState.DEGRADED, FlowState.PARTLY_FAILED),
        FlowState.STOPPED,
    }
)
STALE_MS: Final = 10_000
"""Beyond the time after which a mirror writes its numbers again: it hangs."""


@click.command("status", cls=Command)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@pair_options
@secrets_option
@format_option
def status(file: Path | None, output: Format, **given: Any) -> int:
    """Show flows, topics and partitions with their state, their lag, and since when.

    Without FILE: all mirrors that run on this machine under your user. With FILE, and no mirror
    running it, the two clusters of each flow are asked how far the copy got. In place of FILE the
    flags of MirrorMaker 1 may be given.

    It ends with 0 where all is well, 1 where something is not (or records wait and nobody runs the
    flow), 2 for wrong usage, and 3 where nobody knows.

    \b
    twinlog status
    twinlog status mm2.properties
    twinlog status mm2.properties --format json
    """
    from twinlog.cli.options.configuration import load_file
    from twinlog.control.watch.status_file import running_mirrors

    read: Callable[[], MirrorConfig] | None = None
    if file is not None:
        no_pair(given)
        read = partial(load_file, file)
    elif is_pair(given):
        file, read = configuration_of_pair(given)
    mirrors: list[dict[str, Any]] = [
        {
            "pid": one.pid,
            "config": one.config,
            "written_ms": one.written_ms,
            "every_ms": one.every_ms,
            "flows": one.flows,
        }
        for one in running_mirrors(file)
    ]
    source = "mirror"
    if not mirrors and file is not None and read is not None:
        source = "clusters"
        mirrors = [_offline(file, read())]
    elif file is not None and read is not None:
        mirrors += _told_elsewhere(file, mirrors, read)
    if output.is_for_programs:
        body = {"source": source, "mirrors": mirrors}
        write_object(output, "status", JSON_VERSION, body, _errors(mirrors))
    elif not mirrors:
        write_line(
            "no mirror runs here; `twinlog status FILE` asks the clusters of a configuration how "
            "far the copy got"
        )
    else:
        write_all(_parts(mirrors))
        if is_quiet():
            write_warnings(_what_is_wrong(mirrors))
    return exit_code(mirrors, int(time.time() * 1000))


def exit_code(mirrors: Iterable[Mapping[str, Any]], now_ms: int) -> int:
    """0 all is well, 1 something is not, 3 nobody knows."""
    known = list(mirrors)
    flows = [flow for one in known for flow in one["flows"]]
    ran = (one for one in known if one["pid"] is not None)
    silent = any(now_ms - one["written_ms"] > STALE_MS + one.get("every_ms", 0) for one in ran)
    failed = any(part["state"] == PartitionState.FAILED for f in flows for part in f["partitions"])
    if silent or failed or any(map(_is_not_well, flows)):
        return 1
    is_unknown = not known or any(flow["state"] == FlowState.UNKNOWN for flow in flows)
    return NOBODY_KNOWS if is_unknown else 0


def _is_not_well(flow: Mapping[str, Any]) -> bool:
    """Something is wrong with it, or nobody runs it while there is something to copy, or may be."""
    is_idle = flow["state"] == FlowState.NOT_RUNNING
    waits = is_idle and any(part["lag"] != 0 for part in flow["partitions"])
    differs = bool((flow.get("verified") or {}).get("differences"))
    return waits or differs or flow["state"] in NOT_WELL


def _errors(mirrors: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Of flows that failed, for programs."""
    for flow in (flow for one in mirrors for flow in one["flows"]):
        if flow["state"] in (FlowState.FAILED, FlowState.UNKNOWN):
            yield error_object(flow["code"], f"{flow['flow']}: {flow['reason']}")


def _told_elsewhere(
    file: Path, mirrors: Sequence[dict[str, Any]], read: Callable[[], MirrorConfig]
) -> Iterator[dict[str, Any]]:
    """In place of flows that a process here stands by for: what their leaders say. What is yielded
    are flows of the file that no process here has (`--clusters`).
    """
    from twinlog.control.check.offline_status import offline_status

    flows: list[dict[str, Any]] = [flow for one in mirrors for flow in one["flows"]]
    waiting = [flow for flow in flows if flow["state"] == FlowState.STANDBY]
    try:
        config = read()
    except TwinlogError as error:
        for flow in waiting:
            flow["reason"] = f"{flow['reason']}; its leader is not asked: {error}"
        return
    names, here = {flow["flow"] for flow in waiting}, {flow["flow"] for flow in flows}
    missing = tuple(flow for flow in config.flows if str(flow.flow) not in here)
    if missing:
        yield _offline(file, replace(config, flows=missing))
    wanted = tuple(flow for flow in config.flows if str(flow.flow) in names)
    leaders = {told.flow: told for told in offline_status(replace(config, flows=wanted))}
    for flow in waiting:
        told = leaders.get(flow["flow"])
        if told is not None and told.where:
            reason = "; ".join(filter(None, (told.reason, f"here: {flow['reason']}")))
            flow.update(replace(told, reason=reason).as_json())


def _offline(file: Path, config: MirrorConfig) -> dict[str, Any]:
    from twinlog.control.check.offline_status import offline_status

    return {
        "pid": None,
        "config": str(file.resolve()),
        "written_ms": int(time.time() * 1000),
        "every_ms": 0,
        "flows": [flow.as_json() for flow in offline_status(config)],
    }


def _parts(mirrors: Iterable[Mapping[str, Any]]) -> Iterator[RenderableType]:
    now_ms = int(time.time() * 1000)
    for one in mirrors:
        yield _mirror_line(one, now_ms)
        for flow in one["flows"]:
            yield from _flow_lines(flow, now_ms)
            if flow["partitions"]:
                found = rows(flow)
                yield _table(found, now_ms)
                for one_row in found:
                    if one_row.trouble:
                        where = f"  {one_row.topic}, {one_row.partitions}"
                        style = "yellow" if one_row.state == PartitionState.PAUSED else "red"
                        yield text(f"{where}: {one_row.trouble}", style=style)
            yield from _group_lines("left alone on the target", flow["skipped_groups"])
            yield from _group_lines("without a checkpoint", flow["groups_without_checkpoint"])


def _what_is_wrong(mirrors: Iterable[Mapping[str, Any]]) -> Iterator[Text]:
    """A line for each flow and each topic that has something to say of its state."""
    for flow in (flow for one in mirrors for flow in one["flows"]):
        if flow["reason"]:
            yield text(f"{flow['flow']}: {flow['state']}: {flow['reason']}")
        for line in (flow.get("verified") or {}).get("first_differences", ()):
            yield text(f"{flow['flow']}: {line} [COPY_DIFFERS]")
        for one in rows(flow):
            if one.trouble:
                yield text(f"{flow['flow']}: {one.topic}, {one.partitions}: {one.trouble}")


def _group_lines(what: str, reasons: Mapping[str, str]) -> Iterator[Text]:
    """Groups with the same to say share a line; `reasons`: by group."""
    by_reason: dict[str, list[str]] = {}
    for group, reason in sorted(reasons.items()):
        by_reason.setdefault(reason, []).append(group)
    for reason, groups in by_reason.items():
        number = plural(len(groups), "group")
        yield text(f"  {number} {what} ({first_few(groups)}): {reason}")


def _mirror_line(one: Mapping[str, Any], now_ms: int) -> Text:
    if one["pid"] is None:
        return text(
            f"{one['config']}: no mirror of this user runs it here; as the clusters have it",
            style="dim",
        )
    age_ms = now_ms - one["written_ms"]
    line: list[Piece] = [f"{one['config']}: process {one['pid']}"]
    if age_ms > STALE_MS + one["every_ms"]:
        line.append((f", silent for {duration(age_ms / 1000)}", "yellow"))
    return text(*line, style="dim")


def _flow_lines(flow: Mapping[str, Any], now_ms: int) -> Iterator[Text]:
    from twinlog.cli.terminal.progress import state_style
    from twinlog.control.watch.snapshot import with_next_try

    line: list[Piece] = [
        (flow["flow"], "bold"),
        "  ",
        (flow["state"], state_style(flow["state"])),
    ]
    if flow["since_ms"]:
        # what the clusters tell is when it began, not how long it has stood still
        word = "started" if flow["state"] == FlowState.NOT_RUNNING else "since"
        line.append(f"  {word} {since(flow['since_ms'], now_ms)}")
    if flow["lanes"]:
        line.append(f"  {plural(flow['lanes'], 'lane')}")
    if flow["guarantee"]:
        line.append(f"  guarantee: {flow['guarantee']}")
    yield text(*line)
    if flow["where"]:
        ago = duration(max(0, now_ms - flow["as_of_ms"]) / 1000)
        yield text(f"  on {flow['where']}, as of {ago} ago", style="dim")
    if flow["reason"]:
        # a process of an earlier release does not say when it tries again
        reason = with_next_try(flow["reason"], flow.get("next_try_ms", 0), now_ms)
        yield text(f"  {reason}", style="yellow")
    is_said = "RPO_EXCEEDED" in flow["reason"]
    if not is_said and (flow["loss_ms"] >= 0 or flow["loss_unknown"]):
        yield text(f"  {loss_line(flow)}")
    if flow.get("verified"):  # a process of an earlier release does not say it
        yield from _verified_lines(flow["verified"], now_ms)


def _verified_lines(verified: Mapping[str, Any], now_ms: int) -> Iterator[Text]:
    """What the mirror has compared of its own copy."""
    if not verified["at_ms"]:
        return
    ago = duration(max(0, now_ms - verified["at_ms"]) / 1000)
    line = f"  verified: {count(verified['records'])} records are equal, the last {ago} ago"
    if verified["is_complete"]:
        line += ", all that is copied"
    number = verified["differences"]
    if not number:
        yield text(line)
        return
    yield text(f"{line}; {plural(number, 'range')} differ [COPY_DIFFERS]", style="red")
    for one in verified["first_differences"]:
        yield text(f"    {one}", style="red")


def loss_line(flow: Mapping[str, Any]) -> str:
    """What would be lost if the source were gone now."""
    records, ago = flow["loss_records"], duration(flow["loss_ms"] / 1000)
    if flow["loss_ms"] < 0:
        return "what would be lost without the source is not known"
    if records < 0:
        line = f"without the source, records of the last {ago} would be lost"
    elif records > 0:
        line = f"without the source, {count(records)} records of the last {ago} would be lost"
    else:
        line = f"without the source, nothing that it had {ago} ago would be lost"
    unknown = flow["loss_unknown"]
    return f"{line}; of {plural(unknown, 'partition')} it is not known" if unknown else line


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Partitions of one topic that have the same to say."""

    topic: str
    target_topic: str
    partitions: str
    state: str
    lag: int
    lag_ms: int
    loss_ms: int
    records: int
    since_ms: int
    trouble: str


def rows(flow: Mapping[str, Any]) -> list[Row]:
    """One row per topic and state, and per reason of a failure."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for part in flow["partitions"]:
        groups.setdefault((part["topic"], part["state"], part["code"]), []).append(part)
    out = []
    for (topic, state, code), parts in groups.items():
        lags = [part["lag"] for part in parts if part["lag"] >= 0]
        times = [part["since_ms"] for part in parts if part["since_ms"]]
        out.append(
            Row(
                topic=topic,
                target_topic=parts[0]["target_topic"],
                partitions=ranges([part["partition"] for part in parts]),
                state=state,
                lag=sum(lags) if lags else -1,
                lag_ms=max(part["lag_ms"] for part in parts),
                loss_ms=max(part["loss_ms"] for part in parts),
                records=sum(part["records"] for part in parts),
                since_ms=min(times, default=0),
                trouble=f"{parts[0]['message']} [{code}]" if code else parts[0]["message"],
            )
        )
    return out


def _table(found: Iterable[Row], now_ms: int) -> Table:
    from twinlog.cli.terminal.progress import state_style

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("  topic", no_wrap=True)
    table.add_column("remote topic", no_wrap=True)
    table.add_column("partitions", min_width=10, overflow="fold")
    table.add_column("state", no_wrap=True)
    for name in ("lag", "lag in time", "loss", "copied"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("since", no_wrap=True)
    for one in found:
        row(
            table,
            f"  {one.topic}",
            one.target_topic,
            one.partitions,
            text(one.state, style=state_style(one.state)),
            "?" if one.lag < 0 else count(one.lag),
            *("?" if ms < 0 else duration(ms / 1000) for ms in (one.lag_ms, one.loss_ms)),
            count(one.records),
            since(one.since_ms, now_ms) if one.since_ms else "",
        )
    return table


def since(at_ms: int, now_ms: int) -> str:
    """`14:03:11 (5 min)`, with the date when it was another day; local time."""
    at, now = (datetime.fromtimestamp(ms / 1000).astimezone() for ms in (at_ms, now_ms))
    clock = f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M}"
    return f"{clock} ({duration(max(0, now_ms - at_ms) / 1000)})"
