"""`twinlog status [FILE]`: print the state of flows, from running mirrors or from the clusters."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from dataclasses import replace as configured
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import to_builtins
from msgspec.structs import replace
from rich.text import Text

from twinlog.cli.options.command import Command
from twinlog.cli.options.flow_option import load_file, only_flow_option, with_flow
from twinlog.cli.options.format_option import format_option
from twinlog.cli.options.mirror_maker_1_options import (
    check_pair,
    configuration_of_pair,
    is_pair,
    pair_options,
)
from twinlog.cli.options.option import file_argument, option
from twinlog.cli.options.run_options import secrets_option, timeout_option
from twinlog.cli.terminal.output import ANSWER, Answer, Part, error_object, is_for_programs
from twinlog.cli.terminal.status import STALE_MS, rows, screen, totals, watch, with_flows
from twinlog.cli.terminal.tables import shown_width, text
from twinlog.codes import NOT_MIRRORED, FlowState, PartitionState
from twinlog.errors import TwinlogError
from twinlog.model import Flow

if TYPE_CHECKING:
    from twinlog.config.flow.schema import MirrorConfig
    from twinlog.control.watch.snapshot import FlowStatus, PartitionStatus
    from twinlog.control.watch.status_file import RunningMirror

EXIT_UNKNOWN: Final = 3
PROBLEM_STATES: Final = frozenset(
    {
        *(FlowState.FAILED, FlowState.DEGRADED, FlowState.PARTLY_FAILED),
        FlowState.STOPPED,
    }
)
NO_MIRROR_HERE: Final = (
    "no mirror{} runs here; `twinlog status FILE` reads the progress of a copy from its clusters"
)


def _pattern(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> re.Pattern[str] | None:
    try:
        return None if value is None else re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        raise click.BadParameter(f"{value!r} is no regular expression: {error}", ctx, parameter)  # noqa: B904 (the message says it)


@click.command("status", cls=Command)
@file_argument(required=False)
@only_flow_option
@option(
    "--topic",
    "topics",
    metavar="REGEX",
    callback=_pattern,
    help="Only topics whose whole name, on the source or the target, matches.",
)
@option("--lagging", is_flag=True, help="Only topics with lag or with a problem.")
@option("--watch", "is_watched", is_flag=True, help="Refresh every two seconds, until Ctrl-C.")
@timeout_option
@pair_options
@secrets_option
@format_option
def status(
    file: Path | None,
    flow: str | None,
    topics: re.Pattern[str] | None,
    lagging: bool,
    is_watched: bool,
    timeout_s: float,
    **arguments: Any,
) -> Answer | int:
    """Print the state of flows, topics and partitions, when it began, and their lag.

    Without FILE, all mirrors that run on this machine under your user are shown. With FILE, if no
    mirror runs it here, progress is read from both clusters of each flow. If the source does not
    respond, the output has only what the target shows: the number of copied records, the time of
    the newest one, and the offsets of groups that have checkpoints there.
    Instead of FILE, the flags of MirrorMaker 1 may be given.

    A topic has one row, or one for each state or problem of its partitions. On a terminal, columns
    that do not fit are left out; a pipe gets all columns.

    The exit code is 0 if all is well, 1 if there is a problem (also if no process runs the flow
    while records wait, or its process was killed), 2 for wrong usage, and 3 if the state is
    unknown. A limit or quota that slows a flow is not a problem.

    \b
    twinlog status
    twinlog status mm2.properties --flow A:B --watch
    twinlog status mm2.properties --topic 'orders.*' --lagging
    twinlog status mm2.properties --format json
    """
    if is_watched and is_for_programs():
        raise click.UsageError(f"--watch or --format {ANSWER.get().output}: give one of them")
    read: Callable[[], MirrorConfig] | None = None
    if file is not None:
        check_pair(file, arguments)
        read = partial(load_file, file)
    elif is_pair(arguments):
        file, read = configuration_of_pair(arguments)
    read_mirrors = partial(_mirrors, file, read, flow, timeout_s)
    nothing = NO_MIRROR_HERE.format("" if flow is None else f" of {flow}")
    if is_watched:
        shown = watch(
            lambda: _with_topics(read_mirrors()[1], topics), lagging=lagging, nothing=nothing
        )
        return exit_code(shown, int(time.time() * 1000))
    source, mirrors = read_mirrors()
    code = exit_code(mirrors, int(time.time() * 1000))
    mirrors = _with_topics(mirrors, topics)

    def fields() -> dict[str, Any]:
        shown = _lagging(mirrors) if lagging else mirrors
        sums = asdict(totals(flow for mirror in shown for flow in mirror.flows))
        return {"source": source, "mirrors": to_builtins(shown), "totals": sums}

    return Answer(
        fields,
        _text_parts(mirrors, topics, nothing, lagging=lagging),
        code,
        problems=_what_is_wrong(mirrors),
        version=2,
        errors=_errors(mirrors),
    )


def _text_parts(
    mirrors: Sequence[RunningMirror],
    topics: re.Pattern[str] | None,
    nothing: str,
    *,
    lagging: bool,
) -> Iterator[Part]:
    if not mirrors:
        yield nothing
        return
    now_ms = int(time.time() * 1000)
    yield from screen(mirrors, shown_width(), None, lagging=lagging, now_ms=now_ms)
    if topics and not any(flow.partitions for flow in _flows(mirrors)):
        yield f"no topic on the source or the target matches {topics.pattern}"


def _flows(mirrors: Iterable[RunningMirror]) -> Iterator[FlowStatus]:
    return (flow for mirror in mirrors for flow in mirror.flows)


def _mirrors(
    file: Path | None,
    read_file: Callable[[], MirrorConfig] | None,
    flow: str | None,
    timeout_s: float,
) -> tuple[str, list[RunningMirror]]:
    """Return (origin, mirrors). `origin`: `mirror` if mirrors run on this machine, or `clusters` if
    none runs here and the state was read from the clusters. `mirrors`: the flows with their state.
    """
    from twinlog.control.watch.status_file import running_mirrors

    mirrors = _of_flow(running_mirrors(file), flow)
    if file is None or read_file is None:
        return "mirror", mirrors

    def read() -> MirrorConfig:
        return with_flow(read_file(), flow)

    if not mirrors:
        return "clusters", [_mirror_offline(file, read(), timeout_s)]
    return "mirror", _with_other_leaders(file, mirrors, read, timeout_s)


def exit_code(mirrors: Iterable[RunningMirror], now_ms: int) -> int:
    """Return 1 if there is a problem, else 3 if a state is unknown, else 0."""
    known = list(mirrors)
    flows = list(_flows(known))
    ran = (mirror for mirror in known if mirror.pid is not None)
    silent = any(now_ms - mirror.written_ms > STALE_MS + mirror.every_ms for mirror in ran)
    failed = any(part.state is PartitionState.FAILED for f in flows for part in f.partitions)
    if silent or failed or any(map(_has_problem, flows)):
        return 1
    is_unknown = not known or any(flow.state is FlowState.UNKNOWN for flow in flows)
    return EXIT_UNKNOWN if is_unknown else 0


def _has_problem(flow: FlowStatus) -> bool:
    """Return True if a flow has a problem, or is not running although records may wait or its last
    process was not shut down cleanly.
    """
    is_idle = flow.state is FlowState.NOT_RUNNING
    if flow.source_problem:
        return True
    # ignore the lag of partitions that are no longer mirrored
    mirrored = (part for part in flow.partitions if part.state not in NOT_MIRRORED)
    waits = is_idle and (bool(flow.code) or any(part.lag != 0 for part in mirrored))
    differs = flow.verified is not None and flow.verified.differences > 0
    return waits or differs or flow.state in PROBLEM_STATES


def _errors(mirrors: Iterable[RunningMirror]) -> Iterator[dict[str, Any]]:
    """Yield an entry of the JSON field `errors` for each flow that failed or is unknown."""
    for flow in _flows(mirrors):
        is_gone = flow.state is FlowState.NOT_RUNNING and flow.code
        if flow.source_problem:
            yield error_object(flow.code, f"{flow.flow}: {flow.source_problem}")
        elif is_gone or flow.state in (FlowState.FAILED, FlowState.UNKNOWN):
            yield error_object(flow.code, f"{flow.flow}: {flow.reason}")


def _with_other_leaders(
    file: Path,
    mirrors: Sequence[RunningMirror],
    read: Callable[[], MirrorConfig],
    timeout_s: float,
) -> list[RunningMirror]:
    """Return the mirrors of this machine, with data from the clusters. If a process here is on
    standby for a flow, the flow gets the state that its leader on another host reports. Flows of
    the file that no process here runs (because of `--clusters`) are added.
    """
    flows = list(_flows(mirrors))
    led = {flow.flow for flow in flows if flow.state is not FlowState.STANDBY}
    waiting = {flow.flow: flow for flow in flows if flow.flow not in led}
    try:
        config = read()
    except TwinlogError as error:
        statuses = {
            name: replace(flow, reason=f"{flow.reason}; its leader was not queried: {error}")
            for name, flow in waiting.items()
        }
        return with_flows(mirrors, lambda flow: statuses.get(flow.flow, flow))
    own_flows = {flow.flow for flow in flows}
    missing = tuple(flow for flow in config.flows if str(flow.flow) not in own_flows)
    wanted = tuple(flow for flow in config.flows if str(flow.flow) in waiting)
    offline = (
        [_mirror_offline(file, configured(config, flows=missing), timeout_s)] if missing else []
    )
    statuses = {}
    for leader in _states_from_clusters(configured(config, flows=wanted), timeout_s):
        if leader.where:
            here_said = f"here: {waiting[leader.flow].reason}"
            reason = "; ".join(filter(None, (leader.reason, here_said)))
            statuses[leader.flow] = replace(leader, reason=reason)
    return [*with_flows(mirrors, lambda flow: statuses.get(flow.flow, flow)), *offline]


def _mirror_offline(file: Path, config: MirrorConfig, timeout_s: float) -> RunningMirror:
    from twinlog.control.watch.status_file import RunningMirror

    return RunningMirror(
        pid=None,
        config=str(file.resolve()),
        written_ms=int(time.time() * 1000),
        every_ms=0,
        flows=tuple(_states_from_clusters(config, timeout_s)),
    )


def _states_from_clusters(config: MirrorConfig, timeout_s: float) -> Iterator[FlowStatus]:
    """Yield each flow's state, read from its clusters, or only from the target if the source is
    down.
    """
    from twinlog.control.check.offline_status import offline_status

    statuses = offline_status(config, timeout_s, without_source=True)
    for flow, seen in zip(config.flows, statuses, strict=True):
        if seen.source_problem:
            from twinlog.control.cutover.target_alone import with_copies

            yield with_copies(flow, seen).status
        else:
            yield seen.status


def _what_is_wrong(mirrors: Iterable[RunningMirror]) -> Iterator[Text]:
    """Yield a line for each problem of a flow or topic, for -q."""
    for flow in _flows(mirrors):
        if flow.source_problem:
            yield text(f"{flow.flow}: not reached: {flow.source_problem}")
        if flow.reason:
            yield text(f"{flow.flow}: {flow.state}: {flow.reason}")
        for line in () if flow.verified is None else flow.verified.first_differences:
            yield text(f"{flow.flow}: {line} [COPY_DIFFERS]")
        for row in rows(flow):
            if row.trouble:
                yield text(f"{flow.flow}: {row.where}: {row.trouble}")


def _lagging(mirrors: Sequence[RunningMirror]) -> list[RunningMirror]:
    """Return the mirrors with only the topics that have a lag, an unknown lag, or a problem."""

    def kept(flow: FlowStatus) -> FlowStatus:
        topics = {row.topic for row in rows(flow) if row.is_behind}
        return replace(flow, partitions=tuple(p for p in flow.partitions if p.topic in topics))

    return with_flows(mirrors, kept)


def _with_topics(
    mirrors: list[RunningMirror], topics: re.Pattern[str] | None
) -> list[RunningMirror]:
    """Return the mirrors with only the topics that match by their name on source or target."""
    if topics is None:
        return mirrors

    def is_wanted(partition: PartitionStatus) -> bool:
        return bool(topics.fullmatch(partition.topic) or topics.fullmatch(partition.target_topic))

    return with_flows(
        mirrors, lambda flow: replace(flow, partitions=tuple(filter(is_wanted, flow.partitions)))
    )


def _of_flow(mirrors: Iterable[RunningMirror], name: str | None) -> list[RunningMirror]:
    """Return the mirrors that run the flow `name`, with only this flow, or all mirrors if None."""
    if name is None:
        return [*mirrors]
    wanted = name.replace(" ", "")
    kept = (
        replace(
            mirror,
            flows=tuple(one for one in mirror.flows if wanted in Flow.of(one.flow).spellings),
        )
        for mirror in mirrors
    )
    return [mirror for mirror in kept if mirror.flows]
