"""`twinlog pack`: create the archive that executors of a Spark cluster need."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from twinlog.cli.options.command import Command
from twinlog.cli.options.format_option import format_option
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import Answer
from twinlog.quantities import plural, size


@click.command("pack", cls=Command)
@option(
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("twinlog-executors.zip"),
    show_default=True,
    help="Path of the archive.",
)
@format_option
def pack(path: Path) -> Answer:
    """Create the archive for executors of a Spark cluster on which Twinlog is not installed.

    \b
    twinlog pack
    twinlog mirror mm2.properties --master spark://host:7077 --archive twinlog-executors.zip
    """
    from twinlog.spark.pack import pack as make

    package = make(path)
    line = (
        f"{package.path}: {size(package.size)}, "
        f"{plural(len(package.distributions), 'distribution')}; "
        f"for Python {package.python} on {package.platform}"
    )
    return Answer(asdict(package), [line])
