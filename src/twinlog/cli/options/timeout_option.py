"""`--timeout`: how long to wait for a cluster's response."""

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
    help="How long to wait for a cluster that does not respond (60). Refused connections and "
    "unknown host names fail within a second.",
)
