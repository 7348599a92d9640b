"""`twinlog sandbox`: local Kafka clusters that outlive the command that starts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from twinlog.cli.options.candidates import sandbox_clusters
from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.format_option import format_option
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import Answer, write_line
from twinlog.errors import UsageError
from twinlog.quantities import plural

if TYPE_CHECKING:
    from twinlog.sandbox.registry import SandboxCluster

DEFAULT_NAMES: Final = ("source", "target")


@click.group("sandbox", cls=CommandGroup)
def sandbox() -> None:
    """Start, show and stop real Kafka clusters (KRaft) on this machine.

    Data and logs are in TWINLOG_SANDBOX, by default ~/.cache/twinlog/sandbox (or below
    XDG_CACHE_HOME, if that is set).

    \b
    twinlog sandbox up
    twinlog sandbox fill --cluster source
    twinlog sandbox down
    """


_name_option = option(
    "--cluster",
    "names",
    multiple=True,
    metavar="NAME",
    shell_complete=sandbox_clusters,
    help="A cluster's name; may be given several times.",
)


@sandbox.command("up")
@_name_option
@option(
    "--brokers",
    type=click.IntRange(min=1, max=9),
    default=1,
    show_default=True,
    help="Brokers of each cluster; with 3, leaders can move.",
)
@format_option
def up(names: tuple[str, ...], brokers: int) -> Answer:
    """Start clusters (by default two: source and target), except those that already run.

    \b
    twinlog sandbox up
    twinlog sandbox up --cluster source --cluster target --brokers 3
    """
    from twinlog.sandbox import registry

    return _answer(registry.up(names or DEFAULT_NAMES, brokers))


@sandbox.command("status")
@format_option
def status() -> Answer:
    """Show the clusters that were started.

    \b
    twinlog sandbox status
    twinlog sandbox status --format json
    """
    from twinlog.sandbox import registry

    return _answer(registry.status())


@sandbox.command("fill")
@option(
    "--cluster",
    "name",
    required=True,
    metavar="NAME",
    shell_complete=sandbox_clusters,
    help="The cluster to fill.",
)
@option(
    "--records",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="Total number of records in three topics.",
)
def fill(name: str, records: int) -> int:
    """Produce a shop's orders into a cluster, as data to mirror.

    \b
    twinlog sandbox fill --cluster source --records 1000000
    """
    from twinlog.demo.shop import fill as produce
    from twinlog.sandbox import registry

    known = {cluster.name: cluster for cluster in registry.status()}
    if name not in known or not known[name].running:
        raise UsageError(f"no cluster {name!r} runs; start it: twinlog sandbox up --cluster {name}")
    for topic, count in produce(known[name].bootstrap, records).items():
        write_line(f"{topic}: {count:,} records")
    return 0


@sandbox.command("down")
@_name_option
@format_option
def down(names: tuple[str, ...]) -> Answer:
    """Stop clusters (by default all) and remove their data.

    \b
    twinlog sandbox down
    twinlog sandbox down --cluster target
    """
    from twinlog.sandbox import registry

    ended = registry.down(names)
    text = [f"{cluster.name}: stopped, its data is removed" for cluster in ended]
    return Answer({"clusters": ended}, text or ["there are no clusters"])


def _answer(clusters: Sequence[SandboxCluster]) -> Answer:
    text = []
    for cluster in clusters:
        state = "running"
        if not cluster.running:
            state = f"{len(cluster.pids)} of {cluster.brokers} brokers run"
        text.append(
            f"{cluster.name}: {cluster.bootstrap}  {plural(cluster.brokers, 'broker')}, {state}, "
            f"{cluster.folder}"
        )
    text = text or ["there are no clusters; `twinlog sandbox up` starts two"]
    return Answer({"clusters": clusters}, text)
