"""`twinlog flow`: pause, resume, limit and promote flows, wherever they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.option import option
from twinlog.cli.options.steering_options import chosen_flows, let_go, steer, steering_options
from twinlog.config.keys.key_table import DEFINITIONS
from twinlog.errors import UsageError
from twinlog.mirror.state.intents import IntentKind

KEY: Final = "twinlog.max.bytes.per.second"
"""What a limit takes the place of, and is bounded as."""


@click.group("flow", cls=CommandGroup)
def flow() -> None:
    """Pause, resume, limit or promote flows, wherever they run.

    What is wanted is kept on the flow's target: it outlives every process, and a flow that starts
    later starts as it is wanted.

    \b
    twinlog flow pause mm2.properties --reason 'brokers are upgraded'
    twinlog flow resume mm2.properties
    twinlog flow limit mm2.properties --bytes-per-second 50000000
    """


@flow.command("pause")
@steering_options
def pause(file: Path, **given: Any) -> int:
    """Stop the copy of flows until `flow resume`: all of FILE, or those of --flow.

    Records that are on their way arrive first. While it is paused a flow writes nothing to its
    clusters: no records, configs, ACLs, groups or heartbeats. Nothing is lost by it, as long as the
    source keeps its records. `status` says who paused it and why.

    \b
    twinlog flow pause mm2.properties --reason 'brokers are upgraded'
    twinlog flow pause mm2.properties --flow 'A->B' --dry-run
    """
    return steer("flow pause", file, lambda one: one.want(IntentKind.PAUSE), **given)


@flow.command("resume")
@steering_options
def resume(file: Path, **given: Any) -> int:
    """Take a pause of flows back; each resumes at exactly the next record.

    Topics that were paused by name stay paused: `twinlog topic resume`.

    \b
    twinlog flow resume mm2.properties
    twinlog flow resume mm2.properties --flow 'A->B'
    """
    return steer("flow resume", file, lambda one: one.take_back(IntentKind.PAUSE), **given)


@flow.command("unthrottle")
@chosen_flows
def unthrottle(file: Path, **given: Any) -> int:
    """Let producers of the source go that `twinlog.rpo.enforce=quota` held back.

    The mirror does it by itself. This is for a mirror that was killed and will not be started
    again; one that runs, and still asks for it, holds them back again.

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
    help="The most that each flow copies in a second, as batches are on the wire.",
)
@option("--none", "is_none", is_flag=True, help="As the configuration says.")
@steering_options
def limit(file: Path, bytes_per_second: int | None, is_none: bool, **given: Any) -> int:
    """Limit what flows copy in a second, in place of what FILE says.

    \b
    twinlog flow limit mm2.properties --bytes-per-second 50000000
    twinlog flow limit mm2.properties --flow 'A->B' --none
    """
    if (bytes_per_second is None) != is_none:
        raise UsageError("give either --bytes-per-second NUMBER or --none")
    return steer("flow limit", file, lambda one: one.limit(bytes_per_second), **given)


@flow.command("promote")
@steering_options
def promote(file: Path, **given: Any) -> int:
    """Make the remote topics of flows the originals: the flows copy nothing any more.

    Whatever restarts, and topics that are made later included. Configs, ACLs and groups are left
    alone too, and producers may write. `twinlog switchover` and `failover` do this as one of their
    steps, behind all that should come before it.

    \b
    twinlog flow promote mm2.properties --flow 'A->B' --reason 'A is lost'
    twinlog flow promote mm2.properties --dry-run
    """
    return steer("flow promote", file, lambda one: one.want(IntentKind.PROMOTE), **given)


@flow.command("demote")
@steering_options
def demote(file: Path, **given: Any) -> int:
    """Take a promotion of flows back: they copy on, at exactly the next record.

    A remote topic that others have written to since is found to be so, and stops with a
    code. Topics that were promoted by name stay so: `twinlog topic demote`. Refused if a failback
    has begun to replay the tail of a topic (REPLAYED): promote that topic by name first.

    \b
    twinlog flow demote mm2.properties --flow 'A->B'
    twinlog flow demote mm2.properties --flow 'A->B' --dry-run
    """
    return steer("flow demote", file, lambda one: one.take_back(IntentKind.PROMOTE), **given)
