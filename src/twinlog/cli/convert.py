"""`twinlog convert FILE`: any accepted configuration as an mm2.properties."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from twinlog.cli.given import secrets_folder, secrets_option
from twinlog.cli.output import write_line


@click.command("convert")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write there instead of to stdout; the file must not be there yet.",
)
@secrets_option
def convert(file: Path, output: Path | None) -> int:
    """Print FILE (mm2.properties, or a KafkaMirrorMaker2 resource) as a canonical mm2.properties.

    Secrets stay what they are in FILE: a variable that a config provider looks up, or text. What
    is odd in FILE is said on stderr.

    \\b
    twinlog convert mirror.yaml --secrets ./secrets > mm2.properties
    """
    from twinlog.config.canonical import canonical
    from twinlog.config.load import load_raw
    from twinlog.config.read import read_raw

    raw = read_raw(file, secrets_folder())
    config = load_raw(raw)
    for warning in config.warnings:
        write_line(f"warning: {warning}", sys.stderr)
    text = canonical(raw.settings, [cluster.alias for cluster in config.clusters])
    if output is None:
        sys.stdout.write(text)
        return 0
    try:
        with output.open("x", encoding="ascii") as out:
            out.write(text)
    except FileExistsError:
        raise click.BadParameter(f"{output} is there already", param_hint="--output") from None
    except OSError as error:
        raise click.BadParameter(f"{output}: {error.strerror}", param_hint="--output") from None
    return 0
