"""`twinlog flow` and `twinlog topic`: control running flows and topics on any host.

To add an intent, add

- a kind in `mirror.state.intents`, and a method in `client.steering` if the intent has a value;
- a command here;
- a row of `control.web.api.endpoints`, and then docs/rest.md;
- its effect: in `control.flow.steering` during a run, in `control.flow.flow_setup` before a run;
- its display in `control.flow.snapshots`, `control.check.offline_status`,
  `control.doctor.observing`, and the page.

The paths of Kafka Connect's REST API write intents, too (`control.web.connect`).
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from twinlog.cli.commands.cutover import is_confirmed, require_an_answer
from twinlog.cli.options import candidates
from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.flow_option import (
    ChosenFlow,
    flow_option,
    load_file,
    names_of,
    on_file,
    one_flow,
)
from twinlog.cli.options.option import option, options, reason_option, yes_option
from twinlog.cli.terminal.output import Answer, write_line
from twinlog.config.keys.key_table import DEFINITIONS
from twinlog.config.values.times import in_iso
from twinlog.errors import UsageError
from twinlog.mirror.state.intents import RESUMED, IntentKind
from twinlog.quantities import size

if TYPE_CHECKING:
    from twinlog.client.skipping import SkipChange
    from twinlog.client.steering import Change, FlowSteering
    from twinlog.config.flow.schema import FlowConfig

Ask = Callable[["FlowSteering"], list["Change"]]


chosen_flows = options(
    on_file,
    option(
        "--flow",
        "flows",
        multiple=True,
        metavar="A:B",
        shell_complete=candidates.flows,
        help="Only this flow of FILE, as A:B or 'A->B', or the flows that match this regular "
        "expression; may be given several times.",
    ),
    option("--dry-run", is_flag=True, help="Show what would change, and write nothing."),
)
steering_options = options(chosen_flows, reason_option)
steered_topics = option(
    "--topics",
    required=True,
    metavar="REGEX,...",
    shell_complete=candidates.topics,
    help="Source topics, in the syntax of the key `topics`.",
)


def steer(  # noqa: PLR0913 (options of commands)
    file: Path,
    ask: Ask,
    *,
    flows: Sequence[str],
    reason: str,
    dry_run: bool,
    nothing: str = "",
    question: str = "",
    yes: bool = True,
) -> Answer:
    """Write the changes that `ask` returns for each chosen flow, and return the command's answer.
    All flows are queried before anything is written, so a failed query changes nothing.

    `nothing`: the error if no flow has anything to change (exit code 2). `question`: the question
    that the user must confirm first, unless `yes` is given.
    """
    from twinlog.control.flow.wishes import apply_intents

    require_an_answer(yes=yes, dry_run=dry_run)
    chosen = _chosen(load_file(file).flows, flows)
    if not (yes or dry_run):
        planned = [
            change
            for change in apply_intents(chosen, ask, reason=reason, dry_run=True)
            if change.is_needed
        ]
        for change in planned:
            write_line(_change_line(change, dry_run=True), sys.stderr)
        names = ",".join(change.intent.flow for change in planned)
        if planned and not is_confirmed(names, question):
            write_line("nothing was changed", sys.stderr)
            return Answer({}, exit_code=1)
        # change only the flows in the question; in the meantime, other flows may need a change, too
        shown = {change.intent.flow for change in planned}
        chosen = [flow for flow in chosen if str(flow.flow) in shown] or chosen
    changes = apply_intents(chosen, ask, reason=reason, dry_run=dry_run, nothing=nothing)
    lines = [_change_line(change, dry_run=dry_run) for change in changes]
    if not dry_run and any(change.is_needed for change in changes):
        lines.append(in_force(file))
    return Answer({"dry_run": dry_run, "changes": changes}, lines)


def in_force(file: Path) -> str:
    """Return a line that says when mirrors apply a change, and which command shows its effect."""
    status = shlex.join(["twinlog", "status", str(file)])
    return f"a running mirror applies it within 2 s, others at their start; see `{status}`"


def _chosen(flows: Sequence[FlowConfig], names: Sequence[str]) -> list[FlowConfig]:
    if not names:
        return [*flows]
    matching = {str(flow.flow): flow for name in names for flow in _matching(flows, name)}
    return [*matching.values()]


def _matching(flows: Sequence[FlowConfig], name: str) -> list[FlowConfig]:
    """Return the flow called `name`. If there is none, `name` is a regular expression: return the
    flows whose whole name matches. Raises UsageError if no flow matches.
    """
    from twinlog.config.regex.linear import linear_matcher
    from twinlog.config.regex.reader import RegexProblem

    wanted = name.replace(" ", "")
    if any(wanted in flow.flow.spellings for flow in flows):
        return [one_flow(flows, name)]
    try:
        matches = linear_matcher(wanted)
    except RegexProblem as problem:
        raise UsageError(f"--flow: {wanted} is no regular expression: {problem}") from problem
    return [flow for flow in flows if any(map(matches, flow.flow.spellings))] or [
        one_flow(flows, name)
    ]


def _change_line(change: Change, *, dry_run: bool) -> str:
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


KEY: Final = "twinlog.max.bytes.per.second"
"""The configuration key that `flow limit` overrides. The command has the same minimum."""


@click.group("flow", cls=CommandGroup)
def flow() -> None:
    """Pause, resume, limit or promote flows, on whatever host they run.

    Commands are stored on the flow's target, so they stay in effect after restarts. A flow that
    does not run now applies them when it starts.

    \b
    twinlog flow pause mm2.properties --reason 'brokers are upgraded'
    twinlog flow resume mm2.properties
    twinlog flow limit mm2.properties --bytes-per-second 50000000
    """


@flow.command("pause")
@steering_options
def pause_flows(file: Path, **arguments: Any) -> Answer:
    """Stop the copy of flows until `flow resume`: all of FILE, or those of --flow.

    Records in flight are copied first. A paused flow writes nothing to its clusters: no records,
    configs, ACLs, groups or heartbeats. Nothing is lost as long as the source retains its records.
    `status` shows who paused the flow and why.

    \b
    twinlog flow pause mm2.properties --reason 'brokers are upgraded'
    twinlog flow pause mm2.properties --flow A:B --dry-run
    """
    return steer(file, lambda steering: steering.changes(IntentKind.PAUSE), **arguments)


@flow.command("resume")
@steering_options
def resume_flows(file: Path, **arguments: Any) -> Answer:
    """Resume flows that are paused; each resumes at exactly the next record.

    Topics that were paused by name stay paused until `twinlog topic resume`.

    \b
    twinlog flow resume mm2.properties
    twinlog flow resume mm2.properties --flow A:B
    """
    return steer(
        file, lambda steering: steering.changes(IntentKind.PAUSE, is_set=False), **arguments
    )


@flow.command("unthrottle")
@chosen_flows
def unthrottle_flows(file: Path, *, flows: Sequence[str], dry_run: bool) -> Answer:
    """Remove the producer quotas that `twinlog.rpo.enforce=quota` set on the source.

    A mirror removes them itself. This command is for a mirror that was killed and will not be
    started again; a running mirror that still needs the quotas sets them again.

    \b
    twinlog flow unthrottle mm2.properties --dry-run
    twinlog flow unthrottle mm2.properties --flow A:B
    """
    from twinlog.client.producer_hold import ProducerHold, RemovalResult
    from twinlog.cluster.client import prompt_client
    from twinlog.control.flow.wiring import flow_setup

    results: list[dict[str, Any]] = []
    lines: list[str] = []
    for config in _chosen(load_file(file).flows, flows):
        setup = flow_setup(config)
        with prompt_client(setup.source) as source, prompt_client(setup.target) as target:
            hold = ProducerHold(str(config.flow), source, target)
            held = hold.read()
            done = RemovalResult.NOTHING if dry_run or held is None else hold.remove_quota_and_row()
        rate = None if held is None else held.rates[-1]
        results.append(
            {
                "flow": str(config.flow),
                "bytes_per_second": rate,
                "is_removed": done is RemovalResult.REMOVED,
            }
        )
        would = "no producer quota is set" if rate is None else done.value
        if rate is not None and dry_run:
            would = f"the quota of {size(rate)}/s for each user and broker would be removed"
        lines.append(f"{config.flow}: {would}")
    return Answer({"dry_run": dry_run, "flows": results}, lines)


@flow.command("limit")
@option(
    "--bytes-per-second",
    type=click.IntRange(min=DEFINITIONS[KEY].low),
    metavar="NUMBER",
    help="Maximum bytes per second of each flow. Batches count with their (compressed) size on the "
    "wire.",
)
@option("--none", "is_none", is_flag=True, help="Use the limit of the configuration.")
@steering_options
def limit_flows(
    file: Path, bytes_per_second: int | None, is_none: bool, **arguments: Any
) -> Answer:
    """Limit the bytes per second that flows copy, instead of the limit in FILE.

    \b
    twinlog flow limit mm2.properties --bytes-per-second 50000000
    twinlog flow limit mm2.properties --flow A:B --none
    """
    if (bytes_per_second is None) != is_none:
        raise UsageError("give either --bytes-per-second NUMBER or --none")
    return steer(file, lambda steering: steering.limit(bytes_per_second), **arguments)


@flow.command("promote")
@steering_options
@yes_option
def promote_flows(file: Path, **arguments: Any) -> Answer:
    """Make the remote topics of flows the originals: the flows stop copying permanently.

    The promotion stays in effect after restarts, and also applies to topics that are created later.
    The flows stop syncing configs, ACLs and groups too, and producers may write to the remote
    topics. `twinlog switchover run` and `twinlog failover run` also promote, after the steps that
    should precede a promotion. Without --yes, type the name of the flow to confirm; several names
    are separated by commas.

    \b
    twinlog flow promote mm2.properties --flow A:B --reason 'A is lost'
    twinlog flow promote mm2.properties --dry-run
    """
    question = "The remote topics become the originals."
    return steer(
        file, lambda steering: steering.changes(IntentKind.PROMOTE), question=question, **arguments
    )


@flow.command("demote")
@steering_options
@yes_option
def demote_flows(file: Path, **arguments: Any) -> Answer:
    """End the promotion of flows; each resumes copying at exactly the next record.

    If other clients have written to a remote topic since, its partitions stop with a code. Topics
    that were promoted by name stay promoted until `twinlog topic demote`. Refused if a failback has
    begun to replay the tail of a topic (REPLAYED): promote that topic by name first.

    \b
    twinlog flow demote mm2.properties --flow A:B
    twinlog flow demote mm2.properties --flow A:B --dry-run
    """
    arguments["question"] = "The mirror writes to the remote topics again."
    return steer(
        file, lambda steering: steering.changes(IntentKind.PROMOTE, is_set=False), **arguments
    )


@click.group("topic", cls=CommandGroup)
def topic() -> None:
    """Pause, resume, release or promote single topics of flows, or skip one record of them.

    \b
    twinlog topic pause mm2.properties --topics 'logs-.*'
    twinlog topic resume mm2.properties --topics 'logs-.*'
    twinlog topic release mm2.properties --topics orders
    twinlog topic skip mm2.properties orders --partition 0 --offset 4711 --dry-run
    """


@topic.command("skip")
@on_file
@click.argument("topic")
@option(
    "--partition",
    required=True,
    type=click.IntRange(min=0),
    metavar="P",
    help="The partition of TOPIC.",
)
@option(
    "--offset",
    required=True,
    type=click.IntRange(min=0),
    metavar="O",
    help="The source offset that `twinlog status` prints for this partition.",
)
@option(
    "--quarantine",
    is_flag=True,
    help="First write the record to mm2-twinlog-quarantine.SOURCE.internal on the target. The "
    "record is not transformed, so its values are not masked.",
)
@option(
    "--reason",
    default="",
    metavar="TEXT",
    help="Written to the mirror's log and the quarantine topic.",
)
@option("--dry-run", is_flag=True, help="Print what would change, and write nothing.")
@flow_option
def skip_record(  # noqa: PLR0913 (what the command was given)
    file: Path,
    topic: str,
    partition: int,
    offset: int,
    *,
    quarantine: bool,
    reason: str,
    dry_run: bool,
    flow: str | None,
) -> Answer:
    """Skip the record of TOPIC at which copying has stopped, and copy the records after it.

    Accepted only if the partition is stopped at exactly this offset with RECORD_TOO_LARGE,
    RECORD_REFUSED, CORRUPT_BATCH or RECORD_NOT_TRANSFORMED. If a batch cannot be decoded, all of
    its records are skipped. Run with --dry-run first: it prints the offsets that would be skipped.
    A skip cannot be undone: the record stays on the source, and the target never gets it.

    \b
    twinlog topic skip mm2.properties orders --partition 0 --offset 4711 --dry-run
    twinlog topic skip mm2.properties orders --partition 0 --offset 4711 --quarantine
    """
    from twinlog.client.skipping import RecordSkip
    from twinlog.model import TopicPartition

    with ChosenFlow(file, flow).open(RecordSkip, reason) as skipping:
        change = skipping.check(TopicPartition(topic, partition), offset)
        offsets: list[int] = []
        if not dry_run:
            offsets = skipping.quarantine(change) if quarantine else []
            skipping.write(change)
        name = skipping.quarantine_topic if quarantine else None
    fields = {
        "dry_run": dry_run,
        "change": change,
        "quarantine": None if name is None else {"topic": name, "offsets": offsets},
    }
    lines = [_skip_line(change, dry_run=dry_run)]
    if name is not None:
        where = "would be written" if dry_run else f"is at offset {', '.join(map(str, offsets))}"
        lines.append(f"quarantine: it {where} of {name}")
    if change.before is None and not dry_run:
        lines.append(in_force(file))
    return Answer(fields, lines)


@topic.command("pause")
@steered_topics
@steering_options
def pause_topics(file: Path, topics: str, **arguments: Any) -> Answer:
    """Stop the copy of topics until `topic resume`; other topics continue.

    --topics matches topics that exist on the source now: a topic that is created later is not
    paused.

    \b
    twinlog topic pause mm2.properties --topics orders --reason 'a consumer is repaired'
    twinlog topic pause mm2.properties --topics 'logs-.*,audit' --dry-run
    """
    return _write_intent(IntentKind.PAUSE, file, topics, **arguments)


@topic.command("resume")
@steered_topics
@steering_options
def resume_topics(file: Path, topics: str, **arguments: Any) -> Answer:
    """End the pause or release of topics; each resumes at exactly the next record.

    If other clients have written to a released topic since, its partitions stop with a code.

    \b
    twinlog topic resume mm2.properties --topics orders
    twinlog topic resume mm2.properties --topics '.*'
    """
    return _take_back(RESUMED, "is paused or released by name", file, topics, **arguments)


@topic.command("release")
@steered_topics
@steering_options
def release_topics(file: Path, topics: str, **arguments: Any) -> Answer:
    """Stop mirroring these topics. Other clients may then write to the remote topics.

    Remote topics stay as they are. The release overrides FILE, also after restarts. Configs,
    ACLs and groups of released topics are no longer synced.

    \b
    twinlog topic release mm2.properties --topics orders --reason 'moved to B'
    twinlog topic release mm2.properties --topics 'team-a-.*' --dry-run
    """
    return _write_intent(IntentKind.RELEASE, file, topics, **arguments)


@topic.command("promote")
@steered_topics
@steering_options
def promote_topics(file: Path, topics: str, **arguments: Any) -> Answer:
    """Make remote topics the originals: copying ends, and other clients may write to them.

    Like `topic release`, except that it is undone by `topic demote`, not by `topic resume`.

    \b
    twinlog topic promote mm2.properties --topics orders --reason 'its producers moved to B'
    twinlog topic promote mm2.properties --topics 'team-a-.*' --dry-run
    """
    return _write_intent(IntentKind.PROMOTE, file, topics, **arguments)


@topic.command("demote")
@steered_topics
@steering_options
def demote_topics(file: Path, topics: str, **arguments: Any) -> Answer:
    """End the promotion of topics; each resumes copying at exactly the next record.

    If other clients have written to a remote topic since, its partitions stop with a code. Refused
    for topics whose tail a failback has begun to replay (REPLAYED).

    \b
    twinlog topic demote mm2.properties --topics orders
    twinlog topic demote mm2.properties --topics 'team-a-.*' --dry-run
    """
    return _take_back([IntentKind.PROMOTE], "was promoted by name", file, topics, **arguments)


def _write_intent(kind: IntentKind, file: Path, topics: str, **arguments: Any) -> Answer:
    names = names_of(topics)
    nothing = f"--topics: no flow mirrors a topic that matches {topics}"
    return steer(
        file, lambda steering: steering.changes_to_set(kind, names), nothing=nothing, **arguments
    )


def _take_back(
    kinds: Sequence[IntentKind], what: str, file: Path, topics: str, **arguments: Any
) -> Answer:
    names = names_of(topics)
    nothing = f"--topics: no topic that matches {topics} {what}"
    return steer(
        file,
        lambda steering: steering.changes_to_remove(kinds, names),
        nothing=nothing,
        **arguments,
    )


def _skip_line(change: SkipChange, *, dry_run: bool) -> str:
    wanted = change.wanted
    what = f"{wanted.flow}: {wanted.topic}-{wanted.partition}: "
    what += f"{'batch' if wanted.skipped.is_batch else 'record'} {wanted.skipped} "
    if change.before is not None:
        reason = f", {change.before.reason}" if change.before.reason else ""
        return f"{what}is already skipped, by {change.before.who}, {in_iso(wanted.at_ms)}{reason}"
    return f"{what}{'would be' if dry_run else 'is'} skipped [{wanted.code}]"
