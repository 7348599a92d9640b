"""What watches a mirror from outside, put together: HTTP, service manager, last events."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from twinlog import __version__
from twinlog.cli.terminal.output import write_line
from twinlog.control.watch.events import EventLog
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.monitor_server import Address, CannotListen, MonitorServer
from twinlog.control.watch.service import ServiceNotifier
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.watch.vital import Vital

log = logging.getLogger(__name__)

OnSnapshot = Callable[[list[FlowSnapshot]], None]


@contextmanager
def watched(
    config: Path,
    listen: Address | None,
    stop: threading.Event,
    people: TextIO,
    vital: Vital | None = None,
) -> Iterator[OnSnapshot]:
    """Watch what is put into the function that is given; `stop` is set when the mirror ends."""
    monitor = Monitor(vital=vital)
    events = EventLog(config)
    notifier = ServiceNotifier.of(os.environ, os.getpid(), stop)
    states: dict[str, tuple[str, str]] = {}

    def update(flows: list[FlowSnapshot]) -> None:
        monitor.update(flows)
        for flow in flows:
            state = (flow.state, flow.reason)
            if states.get(flow.flow) != state:
                states[flow.flow] = state
                log.info("%s: %s", flow.flow, ": ".join(filter(None, state)))
        notifier.update(flows)
        events.save()

    with ExitStack() as closing:
        events.start()
        closing.callback(events.stop)
        log.info("mirror_starts version=%s config=%s", __version__, config.resolve())
        closing.callback(log.info, "mirror_ends config=%s", config.resolve())
        if listen is not None:
            _serve(monitor, listen, closing, people)
        closing.callback(notifier.stopping)
        try:
            yield update
        except Exception:
            # stderr is told by the command line; the file and the events must know as well
            log.info("mirror_fails", exc_info=True)
            raise


def _serve(monitor: Monitor, listen: Address, closing: ExitStack, people: TextIO) -> None:
    try:
        server = MonitorServer(monitor, listen)
    except CannotListen as error:
        write_line(f"warning: {error}", sys.stderr)
        return
    server.start()
    closing.callback(server.close)
    write_line(server.line, people)
