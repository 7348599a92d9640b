"""What watches a mirror from outside, put together: HTTP, service manager, last events."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from twinlog import __version__
from twinlog.cli.terminal.output import write_line
from twinlog.config.series import ALL_SERIES
from twinlog.control.watch.events import EventLog
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.service import ServiceNotifier
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.watch.vital import Vital
from twinlog.control.web.address import Address, CannotListen
from twinlog.control.web.front import App
from twinlog.control.web.holder import Holder
from twinlog.control.web.server import WebServer
from twinlog.flow_log import FlowLog

log = logging.getLogger(__name__)

OnSnapshot = Callable[[list[FlowSnapshot]], None]


@contextmanager
def watched(
    config: Path,
    listen: Address | None,
    stop: threading.Event,
    people: TextIO,
    vital: Vital | None = None,
    holder: Holder | None = None,
) -> Iterator[OnSnapshot]:
    """Watch what is put into the function that is given; `stop` is set when the mirror ends.
    `holder`: the configuration, for REST; without it there are metrics and probes alone.
    """
    series = ALL_SERIES if holder is None else holder.config.series
    monitor = Monitor(vital=vital, series=series)
    events = EventLog(config)
    notifier = ServiceNotifier.of(os.environ, os.getpid(), stop)
    states: dict[str, tuple[str, str]] = {}

    def update(flows: list[FlowSnapshot]) -> None:
        monitor.update(flows)
        for flow in flows:
            state = (flow.state, flow.reason)
            if states.get(flow.flow) != state:
                states[flow.flow] = state
                FlowLog(log, flow.flow).info("%s", ": ".join(filter(None, state)), code=flow.code)
        notifier.update(flows)
        events.save()

    with ExitStack() as closing:
        events.start()
        closing.callback(events.stop)
        log.info("mirror_starts version=%s config=%s", __version__, config.resolve())
        closing.callback(log.info, "mirror_ends config=%s", config.resolve())
        if listen is not None:
            server = web_server(monitor, listen, holder, Sources(events=events, file=config))
            _serve(server, closing, people)
        closing.callback(notifier.stopping)
        try:
            yield update
        except Exception:
            # stderr is told by the command line; the file and the events must know as well
            log.info("mirror_fails", exc_info=True)
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What REST answers from beside the numbers."""

    events: EventLog
    file: Path


def web_server(
    monitor: Monitor, listen: Address, holder: Holder | None, sources: Sources
) -> WebServer | None:
    """None where the address cannot be had; raises ConfigError for files of `twinlog.rest.*`."""
    try:
        if holder is None:
            return WebServer(monitor, listen)

        def load() -> App:
            # at the first request: most mirrors are scraped, and nothing else
            from twinlog.control.web.api.app import app
            from twinlog.control.web.api.site import Site

            return app(
                Site(
                    monitor=monitor,
                    events=sources.events,
                    holder=holder,
                    file=sources.file,
                    is_stopping=lambda: server.front.is_stopping,
                )
            )

        server = WebServer(monitor, listen, holder.config.rest, load)
    except CannotListen as error:
        write_line(f"warning: {error}", sys.stderr)
        return None
    return server


def _serve(server: WebServer | None, closing: ExitStack, people: TextIO) -> None:
    if server is None:
        return
    server.start()
    closing.callback(server.close)
    write_line(server.line, people)
