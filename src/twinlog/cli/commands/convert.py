"""`twinlog convert FILE`: print any accepted configuration as an mm2.properties file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from twinlog.cli.options.command import Command
from twinlog.cli.options.mirror_maker_1_options import check_pair, pair, pair_options
from twinlog.cli.options.option import file_argument, option
from twinlog.cli.options.run_options import leave_secrets_unread, secrets_folder, secrets_option
from twinlog.cli.terminal.output import write_line
from twinlog.folders import private_opener


@click.command("convert", cls=Command)
@file_argument("files", metavar="FILE...", nargs=-1)
@pair_options
@option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to this file instead of stdout. The file must not exist; it is created with "
    "mode 0600.",
)
@secrets_option
def convert(files: tuple[Path, ...], output: Path | None, **arguments: Any) -> int:
    """Print a configuration as a canonical mm2.properties file.

    FILE is an mm2.properties file, a KafkaMirrorMaker2 resource, or a connector of MirrorMaker 2 on
    Kafka Connect (JSON, properties or KafkaConnector). Several files must be the connectors of one
    flow. Without FILE, the flags of MirrorMaker 1 are required.

    Secrets are printed as in FILE: as a config provider's variable, or as text. Warnings about
    FILE are printed to stderr.

    \b
    twinlog convert mirror.yaml --secrets ./secrets > mm2.properties
    twinlog convert source.json checkpoint.json heartbeat.json > mm2.properties
    twinlog convert --consumer.config c.properties --producer.config p.properties --include '.*'
    """
    from twinlog.config.config_file import canonical, read_files
    from twinlog.config.files.mirror_maker_1 import read_pair
    from twinlog.config.load import load_raw

    check_pair(files, arguments)
    if files:
        leave_secrets_unread()
        raw, *others = read_files(files, secrets_folder())
        if others:
            raise click.BadParameter(
                f"{others[0].file} is not another connector of the flow in {raw.file}; convert it "
                "alone",
                param_hint="FILE",
            )
    else:
        raw = read_pair(*pair(arguments))
    config = load_raw(raw)
    for warning in config.warnings:
        write_line(f"warning: {warning}", sys.stderr)
    text = canonical(raw.settings, [cluster.alias for cluster in config.clusters])
    if output is None:
        sys.stdout.write(text)
        return 0
    try:
        # readable by this user only, because the file contains FILE's passwords
        with open(output, "x", encoding="ascii", opener=private_opener) as out:
            out.write(text)
    except FileExistsError:
        raise click.BadParameter(f"{output} already exists", param_hint="--output") from None
    except OSError as error:
        raise click.BadParameter(f"{output}: {error.strerror}", param_hint="--output") from None
    return 0
