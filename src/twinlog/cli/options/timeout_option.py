"""`--timeout`: how long a question waits for a cluster."""

from __future__ import annotations

from typing import Final

import click

from twinlog.cli.options.option import option

GIVES_UP_S: Final = 60.0

timeout_option = option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=GIVES_UP_S,
    metavar="SECONDS",
    help="How long a cluster that does not answer is waited for (60); one that refuses "
    "connections, or whose name is unknown, is known in a second.",
)
