"""`twinlog support-bundle FILE`: one archive with what others need to understand a mirror."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click

from twinlog.cli.given import secrets_option
from twinlog.cli.output import Format, format_option, write_json, write_line
from twinlog.errors import TwinlogError
from twinlog.quantities import size

JSON_VERSION: Final = 1


@click.command("support-bundle")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--output",
    "archive",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PATH",
    help="Where to write; default: twinlog-support-DATE-TIME.tar.gz in this folder.",
)
@click.option(
    "--log-file",
    "logs",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    help="A log file of the mirror, to put its end in; may be repeated.",
)
@secrets_option
@format_option
def support_bundle(file: Path, archive: Path | None, logs: tuple[Path, ...], output: Format) -> int:
    """Write an archive about the mirror of FILE: configuration, versions, states, last events.

    Secrets are left out. It holds names of topics, clusters and hosts; look before you send it.
    """
    from twinlog.cli.configuration import load_file
    from twinlog.control.support_bundle import collect, write_bundle

    archive = archive or Path(f"twinlog-support-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    try:
        config = load_file(file)
    except TwinlogError as error:
        # a configuration that cannot be read may be just what somebody is to look at
        files = collect(file, error, logs)
    else:
        files = collect(file, config, logs)
    write_bundle(archive, files)
    if output is Format.JSON:
        write_json("support-bundle", JSON_VERSION, {"path": str(archive), "files": sorted(files)})
    else:
        write_line(f"{archive}: {size(archive.stat().st_size)}")
        for name in files:
            write_line(f"  {name}")
    return 0
