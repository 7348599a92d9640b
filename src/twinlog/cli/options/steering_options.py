"""Options of all commands that control flows: `--flow`, `--reason`, `--dry-run`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinlog.cli.options import candidates
from twinlog.cli.options.flow_option import load_file, on_file, one_flow
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import Answer
from twinlog.config.values.times import in_iso
from twinlog.errors import UsageError
from twinlog.quantities import size

if TYPE_CHECKING:
    from twinlog.client.steering import Change, FlowSteering
    from twinlog.config.flow.schema import FlowConfig
    from twinlog.config.regex.patterns import NamePattern


Ask = Callable[["FlowSteering"], list["Change"]]


def steering_options(command: Any) -> Any:
    """Add FILE, --flow, --dry-run and --reason."""
    reason = option("--reason", default="", metavar="TEXT", help="Shown by `twinlog status`.")
    return chosen_flows(reason(command))


def chosen_flows(command: Any) -> Any:
    """Add FILE, --flow and --dry-run."""
    for one in (
        option("--dry-run", is_flag=True, help="Show what would change, and write nothing."),
        option(
            "--flow",
            "flows",
            multiple=True,
            metavar="'A->B'",
            shell_complete=candidates.flows,
            help="Only this flow of FILE, or the flows that match this regular expression; may be "
            "given several times.",
        ),
        on_file,
    ):
        command = one(command)
    return command


def topics_option(command: Any) -> Any:
    return option(
        "--topics",
        required=True,
        metavar="REGEX,...",
        shell_complete=candidates.topics,
        help="Source topics, in the syntax of the key `topics`.",
    )(command)


def names_of(topics: str) -> list[str]:
    """Return the entries of --topics."""
    names = [name.strip() for name in topics.split(",") if name.strip()]
    if not names:
        raise UsageError("--topics: name a topic, or a regular expression")
    return names


def topic_pattern(topics: str | None) -> NamePattern | None:
    """Return the pattern of --topics, or None for all topics."""
    from twinlog.client.steering import name_pattern

    return None if topics is None else name_pattern(names_of(topics))


def steer(
    file: Path,
    ask: Ask,
    *,
    flows: Sequence[str],
    reason: str,
    dry_run: bool,
    nothing: str = "",
) -> Answer:
    """Query every flow before writing anything: a flow that cannot be queried stops the command.

    `nothing`: the error if no flow has anything to change (exit code 2).
    """
    from twinlog.control.flow.wishes import wish

    chosen = _chosen(load_file(file).flows, flows)
    changes = wish(chosen, ask, reason=reason, dry_run=dry_run, nothing=nothing)
    said = [_said(change, dry_run=dry_run) for change in changes]
    if not dry_run and any(change.is_needed for change in changes):
        said.append(in_force(file))
    return Answer({"dry_run": dry_run, "changes": changes}, said)


def in_force(file: Path) -> str:
    """Return a line that says when the change is applied, and which command shows it."""
    status = shlex.join(["twinlog", "status", str(file)])
    return f"a running mirror applies it within 2 s, others when they start; see `{status}`"


def let_go(file: Path, *, flows: Sequence[str], dry_run: bool) -> Answer:
    """Remove producer quotas that the flows have left on the source."""
    from twinlog.client.producer_hold import Freed, ProducerHold
    from twinlog.cluster.client import prompt_client
    from twinlog.control.flow.wiring import flow_setup

    found: list[dict[str, Any]] = []
    said: list[str] = []
    for config in _chosen(load_file(file).flows, flows):
        setup = flow_setup(config)
        with prompt_client(setup.source) as source, prompt_client(setup.target) as target:
            hold = ProducerHold(str(config.flow), source, target)
            held = hold.read()
            done = Freed.NOTHING if dry_run or held is None else hold.free()
        rate = None if held is None else held.rates[-1]
        found.append(
            {
                "flow": str(config.flow),
                "bytes_per_second": rate,
                "is_removed": done is Freed.REMOVED,
            }
        )
        would = "no producer quota is set" if rate is None else done.value
        if rate is not None and dry_run:
            would = f"the quota of {size(rate)}/s for each user and broker would be removed"
        said.append(f"{config.flow}: {would}")
    return Answer({"dry_run": dry_run, "flows": found}, said)


def _chosen(flows: Sequence[FlowConfig], names: Sequence[str]) -> list[FlowConfig]:
    if not names:
        return [*flows]
    found = {str(one.flow): one for name in names for one in _matching(flows, name)}
    return [*found.values()]


def _matching(flows: Sequence[FlowConfig], name: str) -> list[FlowConfig]:
    """Return the flow of that name, else the flows whose whole names match."""
    from twinlog.config.regex.linear import linear_matcher
    from twinlog.config.regex.reader import RegexProblem

    wanted = name.replace(" ", "")
    if wanted in [str(one.flow) for one in flows]:
        return [one_flow(flows, name)]
    try:
        matches = linear_matcher(wanted)
    except RegexProblem as problem:
        raise UsageError(f"--flow: {wanted} is no regular expression: {problem}") from problem
    return [one for one in flows if matches(str(one.flow))] or [one_flow(flows, name)]


def _said(change: Change, *, dry_run: bool) -> str:
    intent, before = change.intent, change.before
    what = f"{intent.flow}: {intent.topic}" if intent.topic else intent.flow
    word = _word(change)
    if change.is_needed:
        return f"{what}: {'would be ' if dry_run else ''}{word}"
    if before is None:
        return f"{what}: is not {intent.kind.participle}"
    return f"{what}: {word} already, {before}, {in_iso(before.at_ms)}"


def _word(change: Change) -> str:
    intent = change.intent
    if not intent.is_set and intent.kind == "promote":
        return "demoted"
    if not intent.is_set:
        return "resumed" if intent.kind != "limit" else "limited only by its configuration"
    if intent.bytes_per_second is not None:
        return f"limited to {size(intent.bytes_per_second)}/s"
    return intent.kind.participle
