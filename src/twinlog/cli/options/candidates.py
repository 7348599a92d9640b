"""Completion candidates for options: flows, topics, clusters and codes, without querying brokers.

Candidates come from FILE, if the typed line already has it, and from mirrors that run on this
machine. If FILE cannot be read, there are no candidates, because completion must not print errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from twinlog.errors import TwinlogError

if TYPE_CHECKING:
    from twinlog.config.flow.schema import MirrorConfig

Items = list[str]

_ALL = ".*"


def flows(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Return the names of FILE's flows that begin with `incomplete`."""
    config = _config(ctx)
    return _items([] if config is None else [str(flow.flow) for flow in config.flows], incomplete)


def aliases(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Return the cluster aliases of FILE, as completions of a list separated by commas."""
    config = _config(ctx)
    names = [] if config is None else [cluster.alias for cluster in config.clusters]
    return _listed(names, incomplete)


def topics(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Return the entries of FILE's key `topics`, and the topics that its mirrors copy now."""
    config = _config(ctx)
    flows = () if config is None else config.flows
    entries = [entry for flow in flows for entry in flow.topics.entries if entry != _ALL]
    return _listed([*entries, *(topic for topic, _ in _mirrored(ctx))], incomplete)


def names_of_topics(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Return the names, on source and target, of topics that a mirror of FILE copies now."""
    return _items([name for both in _mirrored(ctx) for name in both], incomplete)


def codes(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Return the codes of Twinlog's messages."""
    from twinlog.codes import conditions

    return _items(conditions(), incomplete.upper())


def sandbox_clusters(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    from twinlog.sandbox.registry import status

    try:
        return _items([cluster.name for cluster in status()], incomplete)
    except TwinlogError:
        return []


def _items(names: Iterable[str], incomplete: str) -> Items:
    return [*dict.fromkeys(name for name in names if name.startswith(incomplete))]


def _listed(names: Iterable[str], incomplete: str) -> Items:
    """Complete the last name of a list separated by commas. Names in the list are not repeated."""
    before, comma, last = incomplete.rpartition(",")
    chosen = before.split(",")
    wanted = [name for name in names if name not in chosen and name.startswith(last)]
    return _items([f"{before}{comma}{name}" for name in wanted], incomplete)


def _file(ctx: click.Context) -> Path | None:
    """Return FILE from the typed line, or None. Click does not parse arguments after an option that
    lacks its value, so FILE may also be among the unparsed words.
    """
    path = ctx.params.get("file") or next(iter(ctx.params.get("files") or ()), None)
    if path is None:
        path = next((Path(word) for word in ctx.args if not word.startswith("-")), None)
    return path


def _config(ctx: click.Context) -> MirrorConfig | None:
    from twinlog.cli.options.run_options import secrets_folder
    from twinlog.config.load import load

    file = _file(ctx)
    try:
        return None if file is None else load(file, secrets=secrets_folder(ctx))
    except TwinlogError:
        return None


def _mirrored(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the names, on source and target, of each topic that mirrors of FILE copy now."""
    from twinlog.control.watch.status_file import running_mirrors

    file = _file(ctx)
    try:
        mirrors = [] if file is None else list(running_mirrors(file))
    except TwinlogError:
        return
    for mirror in mirrors:
        for flow in mirror.flows:
            yield from ((part.topic, part.target_topic) for part in flow.partitions)
