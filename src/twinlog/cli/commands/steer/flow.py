"""`twinlog flow`: pause, resume, limit and promote flows on any host."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.option import option
from twinlog.cli.options.steering_options import chosen_flows, let_go, steer, steering_options
from twinlog.cli.terminal.output import Answer
from twinlog.config.keys.key_table import DEFINITIONS
from twinlog.errors import UsageError
from twinlog.mirror.state.intents import IntentKind

KEY: Final = "twinlog.max.bytes.per.second"
"""The key that a limit overrides, with the same bounds."""


@click.group("flow", cls=CommandGroup)
def flow() -> None:
    """Pause, resume, limit or promote flows, on whatever host they run.

    Commands are stored on the flow's target. They outlive every process, and a flow that starts
    later applies them when it starts.

    \b
    twinlog flow pause mm2.properties --reason 'brokers are upgraded'
    twinlog flow resume mm2.properties
    twinlog flow limit mm2.properties --bytes-per-second 50000000
    """


@flow.command("pause")
@steering_options
def pause(file: Path, **given: Any) -> Answer:
    """Stop the copy of flows until `flow resume`: all of FILE, or those of --flow.

    Records in flight are copied first. A paused flow writes nothing to its clusters: no records,
    configs, ACLs, groups or heartbeats. Nothing is lost as long as the source retains its records.
    `status` shows who paused the flow and why.

    \b
    twinlog flow pause mm2.properties --reason 'brokers are upgraded'
    twinlog flow pause mm2.properties --flow 'A->B' --dry-run
    """
    return steer(file, lambda one: one.want(IntentKind.PAUSE), **given)


@flow.command("resume")
@steering_options
def resume(file: Path, **given: Any) -> Answer:
    """Resume flows that are paused; each resumes at exactly the next record.

    Topics that were paused by name stay paused until `twinlog topic resume`.

    \b
    twinlog flow resume mm2.properties
    twinlog flow resume mm2.properties --flow 'A->B'
    """
    return steer(file, lambda one: one.take_back(IntentKind.PAUSE), **given)


@flow.command("unthrottle")
@chosen_flows
def unthrottle(file: Path, **given: Any) -> Answer:
    """Remove the producer quotas that `twinlog.rpo.enforce=quota` set on the source.

    A mirror removes them itself. This command is for a mirror that was killed and will not be
    started again; a running mirror that still needs the quotas sets them again.

    \b
    twinlog flow unthrottle mm2.properties --dry-run
    twinlog flow unthrottle mm2.properties --flow 'A->B'
    """
    return let_go(file, **given)


@flow.command("limit")
@option(
    "--bytes-per-second",
    type=click.IntRange(min=DEFINITIONS[KEY].low),
    metavar="NUMBER",
    help="Maximum bytes per second of each flow, as batches are on the wire.",
)
@option("--none", "is_none", is_flag=True, help="Use the limit of the configuration.")
@steering_options
def limit(file: Path, bytes_per_second: int | None, is_none: bool, **given: Any) -> Answer:
    """Limit the bytes per second that flows copy, instead of the limit in FILE.

    \b
    twinlog flow limit mm2.properties --bytes-per-second 50000000
    twinlog flow limit mm2.properties --flow 'A->B' --none
    """
    if (bytes_per_second is None) != is_none:
        raise UsageError("give either --bytes-per-second NUMBER or --none")
    return steer(file, lambda one: one.limit(bytes_per_second), **given)


@flow.command("promote")
@steering_options
def promote(file: Path, **given: Any) -> Answer:
    """Make the remote topics of flows the originals: the flows stop copying permanently.

    This also holds after restarts and for topics that are created later. The flows stop syncing
    configs, ACLs and groups too, and producers may write to the remote topics. `twinlog switchover`
    and `failover` include this step, after those that should precede it.

    \b
    twinlog flow promote mm2.properties --flow 'A->B' --reason 'A is lost'
    twinlog flow promote mm2.properties --dry-run
    """
    return steer(file, lambda one: one.want(IntentKind.PROMOTE), **given)


@flow.command("demote")
@steering_options
def demote(file: Path, **given: Any) -> Answer:
    """Take a promotion of flows back; each resumes copying at exactly the next record.

    If other clients have written to a remote topic since, its partitions stop with a code. Topics
    that were promoted by name stay promoted until `twinlog topic demote`. Refused if a failback has
    begun to replay the tail of a topic (REPLAYED): promote that topic by name first.

    \b
    twinlog flow demote mm2.properties --flow 'A->B'
    twinlog flow demote mm2.properties --flow 'A->B' --dry-run
    """
    return steer(file, lambda one: one.take_back(IntentKind.PROMOTE), **given)
