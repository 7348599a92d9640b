"""`twinlog support-bundle FILE...`: write an archive for the support of a mirror."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twinlog.cli.options.command import Command
from twinlog.cli.options.flow_option import load_file
from twinlog.cli.options.format_option import format_option
from twinlog.cli.options.mirror_maker_1_options import (
    check_pair,
    configuration_of_pair,
    pair_options,
)
from twinlog.cli.options.option import file_argument, option
from twinlog.cli.options.run_options import secrets_option
from twinlog.cli.terminal.output import Answer
from twinlog.errors import TwinlogError
from twinlog.quantities import size

if TYPE_CHECKING:
    from twinlog.config.flow.schema import MirrorConfig


@click.command("support-bundle", cls=Command)
@file_argument("files", metavar="FILE...", nargs=-1)
@pair_options
@option(
    "--output",
    "archive",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PATH",
    help="The archive; default: twinlog-support-DATE-TIME.tar.gz in this folder.",
)
@option(
    "--log-file",
    "logs",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    help="A log file of the mirror; its last part is included. May be repeated.",
)
@secrets_option
@format_option
def support_bundle(
    files: tuple[Path, ...],
    archive: Path | None,
    logs: tuple[Path, ...],
    **arguments: Any,
) -> Answer:
    """Write an archive about the mirror of FILE: configuration, versions, states, recent events.

    Several files go into one archive. Instead of FILE, the flags of MirrorMaker 1 may be given.

    Secrets are left out. The archive has names of topics, clusters and hosts: check it before you
    send it.

    \b
    twinlog support-bundle mm2.properties
    twinlog support-bundle west.properties east.properties
    """
    from twinlog.control.support_bundle import collect, write_bundle

    archive = archive or Path(f"twinlog-support-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    # both files of MirrorMaker 1, because `_configurations` yields only the first one
    more = [path for name in ("consumer", "producer") if (path := arguments[name]) is not None]
    parts = collect(dict(_configurations(files, arguments)), logs, more)
    write_bundle(archive, parts)
    text = [f"{archive}: {size(archive.stat().st_size)}", *(f"  {name}" for name in parts)]
    return Answer({"path": archive, "files": sorted(parts)}, text)


def _configurations(
    files: Sequence[Path], arguments: dict[str, Any]
) -> Iterator[tuple[Path, MirrorConfig | TwinlogError]]:
    """Yield the configuration of each file, or the error with which it was loaded. Files are loaded
    separately, because a file with errors may be the reason for the bundle.
    """
    readers: list[tuple[Path, Callable[[], MirrorConfig]]]
    check_pair(files, arguments)
    if files:
        readers = [(file, partial(load_file, file)) for file in files]
    else:
        readers = [configuration_of_pair(arguments)]
    for file, read in readers:
        try:
            yield file, read()
        except TwinlogError as error:
            yield file, error
