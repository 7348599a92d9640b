"""`twinlog topology FILE`: print the flows that lead to a cluster, as its heartbeats show them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins
from rich.console import RenderableType

from twinlog.cli.options.candidates import aliases
from twinlog.cli.options.command import Command
from twinlog.cli.options.flow_option import load_file, on_file
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import Answer
from twinlog.cli.terminal.tables import plain_table, row, text
from twinlog.errors import UsageError
from twinlog.quantities import duration

if TYPE_CHECKING:
    from twinlog.client.topology import Topology
    from twinlog.config.flow.schema import MirrorConfig


@click.command("topology", cls=Command)
@on_file
@option(
    "--cluster",
    "alias",
    metavar="ALIAS",
    shell_complete=aliases,
    help="The cluster to read, by its alias in FILE; default: the first flow's target.",
)
def topology(file: Path, alias: str | None) -> Answer:
    """Print the flows and clusters upstream of a cluster, and how many hops away each is.

    The command reads the heartbeats topics of this cluster only, written by Twinlog or MirrorMaker
    2. FILE has the cluster's connection settings.

    \b
    twinlog topology mm2.properties
    twinlog topology mm2.properties --cluster us-west
    twinlog topology mm2.properties --format json
    """
    seen = _read(load_file(file), alias)
    return Answer(to_builtins(seen), _graph_parts(seen, int(time.time() * 1000)), version=2)


def _read(config: MirrorConfig, wanted: str | None) -> Topology:
    from twinlog.client.topology import read_topology
    from twinlog.cluster.client import prompt_client
    from twinlog.config.keys.client_keys import BOOTSTRAP_SERVERS, Role
    from twinlog.control.flow.wiring import cluster_settings
    from twinlog.mirror.names.filters import policy_of

    alias = wanted or config.flows[0].flow.target
    aliases = [cluster.alias for cluster in config.clusters]
    if alias not in aliases:
        raise UsageError(
            f"--cluster: {alias} is not a cluster of the file, which has {', '.join(aliases)}"
        )
    properties = config.cluster(alias).client_properties(Role.CONSUMER)
    if BOOTSTRAP_SERVERS not in properties:
        raise UsageError(f"--cluster: the file has no {alias}.{BOOTSTRAP_SERVERS}")
    flows = [flow for flow in config.flows if flow.flow.target == alias] or list(config.flows)
    with prompt_client(cluster_settings(alias, properties, "topology")) as client:
        return read_topology(client, policy_of(flows[0]), alias)


def _graph_parts(topology: Topology, now_ms: int) -> Iterator[RenderableType]:
    if not topology.flows:
        yield text(
            f"no heartbeats on {topology.cluster}: no mirror writes to it, or heartbeats are "
            "turned off (emit.heartbeats.enabled, heartbeats.replication.enabled)"
        )
    if topology.clusters:
        table = plain_table("cluster", "hops", "way", numbers=("hops",))
        for cluster in topology.clusters:
            row(table, cluster.alias, cluster.hops, " -> ".join(cluster.way))
        yield table
        yield text()
    if topology.flows:
        table = plain_table("flow", "hops", "last heartbeat", "", numbers=("hops",))
        for flow in topology.flows:
            note = "" if flow.copies else "heartbeats only: no topic of it is mirrored here"
            at_ms = flow.last_heartbeat_ms
            age = "" if at_ms is None else duration(max(0, now_ms - at_ms) / 1000)
            row(table, flow.flow, flow.hops, f"{age} ago" if age else "none", note)
        yield table
    for topic in topology.unread:
        yield text(
            f"{topic} could not be read (not authorized): only its name is used", style="yellow"
        )
