"""`twinlog status [FILE]`: what the flows do, from running mirrors or the clusters alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from twinlog.cli.options.mirror_maker_1_options import (
    configuration_of_pair,
    is_pair,
    no_pair,
    pair_options,
)
from twinlog.cli.options.run_options import secrets_option
from twinlog.cli.terminal.output import Format, format_option, write_json, write_line
from twinlog.cli.terminal.tables import Piece, row, text, write_all
from twinlog.quantities import count, duration, first_few, plural, ranges

if TYPE_CHECKING:
    from twinlog.config.flow.schema import MirrorConfig

JSON_VERSION: Final = 1
STALE_MS: Final = 10_000
"""A mirror writes its numbers once a second."""


@click.command("status")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@pair_options
@secrets_option
@format_option
def status(file: Path | None, output: Format, **given: Any) -> int:
    """Show flows, topics and partitions with their state, their lag, and since when.

    Without FILE: all mirrors that run on this machine under your user. With FILE, and no mirror
    running it, the two clusters of each flow are asked how far the copy got. In place of FILE the
    flags of MirrorMaker 1 may be given.

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
            "flows": one.flows,
        }
        for one in running_mirrors(file)
    ]
    source = "mirror"
    if not mirrors and file is not None and read is not None:
        source = "clusters"
        mirrors = [_offline(file, read())]
    if output is Format.JSON:
        write_json("status", JSON_VERSION, {"source": source, "mirrors": mirrors})
    elif not mirrors:
        write_line(
            "no mirror runs here; `twinlog status FILE` asks the clusters of a configuration how "
            "far the copy got"
        )
    else:
        write_all(_parts(mirrors))
    return 1 if any(flow["state"] == "FAILED" for one in mirrors for flow in one["flows"]) else 0


def _offline(file: Path, config: MirrorConfig) -> dict[str, Any]:
    from twinlog.control.check.offline_status import offline_status

    return {
        "pid": None,
        "config": str(file.resolve()),
        "written_ms": int(time.time() * 1000),
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
                        yield text(f"{where}: {one_row.trouble}", style="red")
            yield from _skipped(flow)


def _skipped(flow: Mapping[str, Any]) -> Iterator[Text]:
    """Groups whose offsets on the target are left as they are, a line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for group, reason in sorted(flow.get("skipped_groups", {}).items()):
        by_reason.setdefault(reason, []).append(group)
    for reason, groups in by_reason.items():
        number = plural(len(groups), "group")
        yield text(f"  {number} left alone on the target ({first_few(groups)}): {reason}")


def _mirror_line(one: Mapping[str, Any], now_ms: int) -> Text:
    if one["pid"] is None:
        return text(
            f"{one['config']}: no mirror runs it here; as the clusters have it", style="dim"
        )
    age_ms = now_ms - one["written_ms"]
    line: list[Piece] = [f"{one['config']}: process {one['pid']}"]
    if age_ms > STALE_MS:
        line.append((f", silent for {duration(age_ms / 1000)}", "yellow"))
    return text(*line, style="dim")


def _flow_lines(flow: Mapping[str, Any], now_ms: int) -> Iterator[Text]:
    from twinlog.cli.terminal.progress import state_style

    line: list[Piece] = [
        (flow["flow"], "bold"),
        "  ",
        (flow["state"], state_style(flow["state"])),
    ]
    if flow["since_ms"]:
        word = "started" if flow["lanes"] == 0 else "since"
        line.append(f"  {word} {since(flow['since_ms'], now_ms)}")
    if flow["lanes"]:
        line.append(f"  {plural(flow['lanes'], 'lane')}")
    if flow["guarantee"]:
        line.append(f"  guarantee: {flow['guarantee']}")
    yield text(*line)
    if flow["reason"]:
        yield text(f"  {flow['reason']}", style="yellow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Partitions of one topic that have the same to say."""

    topic: str
    target_topic: str
    partitions: str
    state: str
    lag: int
    lag_ms: int
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
                records=sum(part["records"] for part in parts),
                since_ms=min(times) if times else flow["since_ms"],
                trouble=f"{parts[0]['message']} [{code}]" if code else "",
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
    for name in ("lag", "lag in time", "copied"):
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
            "?" if one.lag_ms < 0 else duration(one.lag_ms / 1000),
            count(one.records),
            since(one.since_ms, now_ms) if one.since_ms else "",
        )
    return table


def since(at_ms: int, now_ms: int) -> str:
    """`14:03:11 (5 min)`, with the date when it was another day; local time."""
    at, now = (datetime.fromtimestamp(ms / 1000).astimezone() for ms in (at_ms, now_ms))
    clock = f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M}"
    return f"{clock} ({duration(max(0, now_ms - at_ms) / 1000)})"
