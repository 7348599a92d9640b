"""`twinlog demo`: two clusters, a stream, the mirror, and a check of both sides."""

from __future__ import annotations

import sys

import click

from twinlog.cli.options.command import Command
from twinlog.cli.options.option import option
from twinlog.cli.terminal.loudness import is_quiet
from twinlog.cli.terminal.output import nowhere, write_line, write_warning
from twinlog.cli.terminal.signals import stop_on_signals
from twinlog.quantities import count, duration


@click.command("demo", cls=Command)
@option(
    "--seconds",
    type=click.FloatRange(min=1),
    help="End by itself after so many seconds of mirroring.",
)
@option(
    "--rate",
    type=click.FloatRange(min=1, max=20_000),
    default=500.0,
    show_default=True,
    metavar="RECORDS",
    help="Records per second that the shop produces.",
)
def demo(seconds: float | None, rate: float) -> int:
    """Start two local Kafka clusters, mirror a live stream between them, and compare both sides.

    Ctrl-C ends it and leaves nothing behind: no process, no port, no folder. The exit code is 1
    when source and target are not identical at the end.

    \b
    twinlog demo
    twinlog demo --seconds 30 --rate 2000
    """
    from twinlog.cli.terminal.progress import log_lines_above
    from twinlog.demo.run import DemoOptions, run_demo
    from twinlog.demo.view import view_on

    with (
        stop_on_signals() as stop,
        view_on(nowhere() if is_quiet() else sys.stdout) as view,
        log_lines_above(),
    ):
        result = run_demo(DemoOptions(seconds=seconds, records_per_s=rate), stop, view)
    if result.was_stopped_early:
        write_line("stopped before anything was produced; nothing is left behind")
        return 0
    check = result.check
    write_line(
        f"{count(result.produced)} records produced in {duration(result.seconds)}, "
        f"{count(check.compared)} compared "
        "in key, value, headers, timestamp and order"
    )
    for difference in check.differences:
        write_warning(difference)
    if result.is_identical:
        write_line("source and target are identical")
        return 0
    if check.on_the_way or check.surplus:
        write_warning(
            f"{count(check.on_the_way)} records are missing on the target, {count(check.surplus)} "
            "are there too many"
        )
    write_warning("source and target are NOT identical")
    return 1
