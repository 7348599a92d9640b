"""`twinlog mirror-maker`: MirrorMaker 1's command line for `twinlog mirror`."""

from __future__ import annotations

from typing import Any

import click

from twinlog.cli.commands.mirror import RunOptions, run_configuration, run_options
from twinlog.cli.options.command import Command
from twinlog.cli.options.mirror_maker_1_options import configuration_of_pair, pair_options
from twinlog.cli.options.run_options import override_options, take_spark_options


@click.command("mirror-maker", cls=Command)
@pair_options
@override_options
@run_options
def mirror_maker(**given: Any) -> int:
    """Run with the arguments of `kafka-mirror-maker.sh`, copying topics under the same names.

    A partition that was never copied starts at the offset of the group in --consumer.config, else
    according to its auto.offset.reset (`latest` by default). Afterwards the group's offset on the
    source is that of the next record that is not on the target yet.

    \b
    twinlog mirror-maker --consumer.config c.properties --producer.config p.properties \\
        --whitelist 'orders|pay.*'
    """
    consumer, read = configuration_of_pair(given)
    return run_configuration(read, consumer, RunOptions(spark=take_spark_options(given), **given))
