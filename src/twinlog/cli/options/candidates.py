"""What a shell offers for options: flows, topics, clusters, codes, as far as no broker is needed.

They come from FILE, as far as it stands on the line already, and from the mirrors that run here.
Where FILE cannot be read nothing is offered: a line that is being typed is no place for errors.
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
    """The flows of FILE."""
    config = _config(ctx)
    return _items([] if config is None else [str(one.flow) for one in config.flows], incomplete)


def aliases(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """The clusters of FILE; several are separated by commas."""
    config = _config(ctx)
    names = [] if config is None else [one.alias for one in config.clusters]
    return _listed(names, incomplete)


def topics(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """What the key `topics` of FILE names, and topics that a mirror of it copies now."""
    return _listed([*_entries(ctx), *(one for one, _ in _mirrored(ctx))], incomplete)


def names_of_topics(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """One topic, by its name on either side."""
    return _items([name for both in _mirrored(ctx) for name in both], incomplete)


def codes(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Codes of messages."""
    from twinlog.codes import CONDITIONS

    return _items(CONDITIONS, incomplete.upper())


def sandbox_clusters(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
    """Clusters of the sandbox."""
    from twinlog.sandbox.registry import status

    try:
        return _items([one.name for one in status()], incomplete)
    except TwinlogError:
        return []


def _items(names: Iterable[str], incomplete: str) -> Items:
    return [*dict.fromkeys(name for name in names if name.startswith(incomplete))]


def _listed(names: Iterable[str], incomplete: str) -> Items:
    """The last of several names, behind those that are there."""
    before, comma, last = incomplete.rpartition(",")
    there = before.split(",")
    wanted = [name for name in names if name not in there and name.startswith(last)]
    return _items([f"{before}{comma}{name}" for name in wanted], incomplete)


def _file(ctx: click.Context) -> Path | None:
    """FILE of the line. An option without its value yet keeps click from reading arguments."""
    given = ctx.params.get("file") or next(iter(ctx.params.get("files") or ()), None)
    if given is None:
        given = next((Path(word) for word in ctx.args if not word.startswith("-")), None)
    return given


def _config(ctx: click.Context) -> MirrorConfig | None:
    from twinlog.cli.options.run_options import secrets_folder
    from twinlog.config.load import load

    file = _file(ctx)
    try:
        return None if file is None else load(file, secrets=secrets_folder(ctx))
    except TwinlogError:
        return None


def _entries(ctx: click.Context) -> Iterator[str]:
    config = _config(ctx)
    for flow in () if config is None else config.flows:
        yield from (entry for entry in flow.topics.entries if entry != _ALL)


def _mirrored(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Topics of the running mirrors of FILE: on the source, on the target."""
    from twinlog.control.watch.status_file import running_mirrors

    file = _file(ctx)
    try:
        mirrors = [] if file is None else list(running_mirrors(file))
    except TwinlogError:
        return
    for mirror in mirrors:
        for flow in mirror.flows:
            yield from ((part["topic"], part["target_topic"]) for part in flow["partitions"])
