"""`twinlog demo`: run two clusters, a stream and the mirror, and compare both clusters."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from twinlog.cli.options.command import Command
from twinlog.cli.options.option import option
from twinlog.cli.terminal.output import is_quiet, nowhere, write_line
from twinlog.cli.terminal.signals import on_signals
from twinlog.quantities import count, duration

if TYPE_CHECKING:
    from twinlog.config.flow.schema import MirrorConfig
    from twinlog.control.watch.snapshot import FlowSnapshot


@contextmanager
def _served(
    file: Path, config: MirrorConfig, served: Callable[[str], None]
) -> Iterator[Callable[[list[FlowSnapshot]], None]]:
    """Start monitoring with HTTP on a free port, and yield the function that takes snapshots.
    `served` gets the page's address. The events file is removed at the end.
    """
    from twinlog.addresses import Address
    from twinlog.cli.terminal.monitoring import watched
    from twinlog.control.watch.events import remove_events
    from twinlog.control.web.current_config import CurrentConfig

    try:
        with watched(
            file,
            Address("127.0.0.1", 0),
            threading.Event(),
            lambda server: served(f"{server.origin}/page/"),
            current=CurrentConfig(config),
        ) as watch:
            yield watch.update
    finally:
        remove_events(file)


@click.command("demo", cls=Command)
@option(
    "--seconds",
    type=click.FloatRange(min=1),
    help="Stop after this many seconds of mirroring.",
)
@option(
    "--rate",
    type=click.FloatRange(min=1, max=20_000),
    default=500.0,
    show_default=True,
    metavar="RECORDS",
    help="Records per second that the shop produces.",
)
@option(
    "--no-mirror",
    is_flag=True,
    help="Do not mirror: run the printed command yourself, twice for a standby.",
)
def demo(seconds: float | None, rate: float, *, no_mirror: bool) -> int:
    """Start two local Kafka clusters, mirror a live stream between them, and compare both sides.

    The command prints the address of a page that shows the mirror's state and can pause the flow.

    Ctrl-C ends the demo and removes its processes, ports and folders. The exit code is 1 if source
    and target are not identical at the end.

    \b
    twinlog demo
    twinlog demo --seconds 30 --rate 2000
    twinlog demo --no-mirror
    """
    from twinlog.cli.terminal.progress import log_lines_above
    from twinlog.demo.run import DemoOptions, run_demo
    from twinlog.demo.view import view_on

    stop = threading.Event()
    with (
        on_signals(lambda _: stop.set()),
        view_on(nowhere() if is_quiet() else sys.stdout) as view,
        log_lines_above(),
    ):
        options = DemoOptions(seconds=seconds, records_per_s=rate, mirrors=not no_mirror)
        result = run_demo(options, stop, view, _served)
    if result.was_stopped_early:
        write_line("stopped before any record was produced; all files are removed")
        return 0
    check = result.check
    write_line(
        f"{count(result.produced)} records produced in {duration(result.seconds)}, "
        f"{count(check.compared)} compared "
        "in key, value, headers, timestamp and order"
    )
    # problems are written even with -q, because a stream is given
    for difference in check.differences:
        write_line(difference, sys.stdout)
    if result.is_identical:
        write_line("source and target are identical")
        return 0
    if check.on_the_way or check.surplus:
        write_line(
            f"{count(check.on_the_way)} records are missing on the target, and it has "
            f"{count(check.surplus)} extra records",
            sys.stdout,
        )
    write_line("source and target are NOT identical", sys.stdout)
    return 1
