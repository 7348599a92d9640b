"""Connects a running mirror with its monitoring: HTTP (metrics, REST), systemd, recent events."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from twinlog import __version__
from twinlog.addresses import Address
from twinlog.cli.terminal.output import write_line
from twinlog.config.series import ALL_SERIES
from twinlog.control.support_bundle import CurrentSecrets
from twinlog.control.watch.events import EventLog
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.service import ServiceNotifier
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.web.address import CannotListen
from twinlog.control.web.current_config import CurrentConfig
from twinlog.control.web.front import App
from twinlog.control.web.server import WebServer
from twinlog.flow_log import FlowLog
from twinlog.mirror.state.published import PublishedEvents
from twinlog.shown import redacting
from twinlog.spark.jvm_use import JvmUse
from twinlog.threads import ThreadWatch

log = logging.getLogger(__name__)

BINDS_AGAIN_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
"""Maximum wait before HTTP is restarted. The wait doubles with each failure, and is reset after
HTTP has run for this time.
"""
COUNTS_ON_S: Final = 60.0
"""Minimum time until a flow's state is logged again if only numbers in its text have changed."""
_NUMBER: Final = re.compile(r"(?<![\w.:-])\d[\d.,]*")
"""Matches numbers that are not part of a name, an address or a code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Functions by which the supervisor reports to the monitoring, about once a second."""

    update: Callable[[list[FlowSnapshot]], None]
    """Called with the current snapshots of all flows."""
    turned: Callable[[], None]
    """Called instead of `update` after a round of the supervisor without new snapshots."""
    jvm: Callable[[JvmUse | None], None] | None
    """Called with the resource use of Spark's JVM. None if no metrics are served."""
    events: Callable[[str], PublishedEvents]
    """Returns the events of the flow with this name, to be published for other hosts."""


@contextmanager
def watched(
    config: Path,
    listen: Address | None,
    stop: threading.Event,
    served: Callable[[WebServer], None],
    thread_watch: ThreadWatch | None = None,
    current: CurrentConfig | None = None,
) -> Iterator[Watch]:
    """Start monitoring, and yield the functions that the supervisor calls. `stop` is set when the
    mirror ends. `served` is called with the web server after its start. `current` is the
    configuration, for REST and for removing secrets from log lines. If it is None, only metrics and
    probes are served.
    """
    series = ALL_SERIES
    if current is not None:
        names = {str(flow.flow): flow.metric_names for flow in current.config.every_flow}
        series = replace(current.config.series, names=names)
    monitor = Monitor(thread_watch=thread_watch, series=series)
    events = EventLog(config)
    notifier = ServiceNotifier(os.environ, os.getpid(), stop)
    logged: dict[str, tuple[str, float]] = {}
    """By flow: the text with which its state was logged last, and when."""

    def update(flows: list[FlowSnapshot]) -> None:
        monitor.update(flows)
        for flow in flows:
            text = ": ".join(filter(None, (flow.state, flow.reason)))
            before, at = logged.get(flow.flow, ("", 0.0))
            is_due = text != before and time.monotonic() >= at + COUNTS_ON_S
            if is_due or _NUMBER.sub("", text) != _NUMBER.sub("", before):
                logged[flow.flow] = text, time.monotonic()
                FlowLog(log, flow.flow).info("%s", text, code=flow.code)
        notifier.update(flows)
        events.save()

    def turned() -> None:
        monitor.on_turn()
        notifier.on_turn()
        events.save()

    with ExitStack() as closing:
        if current is not None:
            secrets = CurrentSecrets(lambda: current.config)
            closing.enter_context(redacting(secrets.clean))
        events.start()
        closing.callback(events.stop)
        log.info("Twinlog %s starts with %s", __version__, config.resolve())
        closing.callback(log.info, "Twinlog ends with %s", config.resolve())
        if listen is not None:
            listener = _Listener(
                lambda address: web_server(monitor, address, current, events, config),
                listen,
                served,
            )
            closing.callback(listener.close)
            listener.start()
        closing.callback(notifier.stopping)
        try:
            jvm = None if listen is None else monitor.note_jvm
            yield Watch(update=update, turned=turned, jvm=jvm, events=events.of_flow)
        except Exception:
            # the command line prints the error only to stderr, so log it for file and events, too
            log.info("mirror_fails", exc_info=True)
            raise


def web_server(
    monitor: Monitor, listen: Address, current: CurrentConfig | None, events: EventLog, file: Path
) -> WebServer:
    """Return a web server that is bound to `listen`, but not started. REST is served only if
    `current` is given; it also serves `events`. `file`: path of the configuration. Raises
    CannotListen if the address is in use, and ConfigError for wrong files of `twinlog.rest.*`.
    """
    if current is None:
        return WebServer(monitor, listen)

    def load() -> App:
        # REST is imported by its first request, because most mirrors only serve metrics
        from twinlog.control.web.api.app import app
        from twinlog.control.web.api.site import Site

        return app(
            Site(
                monitor=monitor,
                events=events,
                current=current,
                file=file,
                is_stopping=lambda: server.front.is_stopping,
            )
        )

    server = WebServer(monitor, listen, current.config.rest, load)
    return server


class _Listener:
    """Starts the HTTP server as soon as its address is free, and restarts the server if it dies.
    The copy does not depend on the server.

    If two processes on one host share the address, the standby gets it when the leader ends. At
    that moment the standby also starts to lead.
    """

    def __init__(
        self,
        make: Callable[[Address], WebServer],
        address: Address,
        served: Callable[[WebServer], None],
    ) -> None:
        self._make = make
        self._address = address
        self._served = served
        self._server: WebServer | None = None
        self._began = 0.0
        self._pause_s = BINDS_AGAIN_S
        """Seconds to wait before a restart, if the server dies again."""
        self._lock = threading.Lock()
        self._is_closed = threading.Event()

    def start(self) -> None:
        """Start the server. If the address is in use, this is reported once, and retried. Raises
        ConfigError for wrong files of `twinlog.rest.*`.
        """
        try:
            self._serve(self._make(self._address))
        except CannotListen as error:
            write_line(f"warning: {error}", sys.stderr)
            self._serve_later(BINDS_AGAIN_S, str(error))

    def close(self) -> None:
        with self._lock:
            self._is_closed.set()
            server = self._server
        if server is not None:
            server.close()

    def _died(self, error: Exception) -> None:
        if self._is_closed.is_set():
            return  # no restart, because the mirror is stopping
        if time.monotonic() - self._began >= LONGEST_PAUSE_S:
            self._pause_s = BINDS_AGAIN_S
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
        log.error(
            "HTTP is not served for %g s, because its thread died of %s: %s. The copy continues. "
            "Report this error with the traceback [HTTP_DIED]",
            pause_s,
            type(error).__name__,
            error,
            exc_info=error,
        )
        self._serve_later(pause_s)

    def _serve_later(self, pause_s: float, reason: str = "") -> None:
        # in a thread, because resolving a host name may take seconds
        threading.Thread(
            target=self._retry, args=(pause_s, reason), name="twinlog-listen", daemon=True
        ).start()

    def _retry(self, pause_s: float, reason: str) -> None:
        while not self._is_closed.wait(pause_s):
            pause_s = BINDS_AGAIN_S
            try:
                self._serve(self._make(self._address))
            except Exception as error:  # noqa: BLE001 (logged and retried)
                # the address is still in use, a file of `twinlog.rest.*` is being replaced, or no
                # thread can be started. Retry, because the copy does not need HTTP
                if str(error) != reason:
                    reason = str(error)
                    log.warning("HTTP is not served yet: %s", error)
                continue
            return

    def _serve(self, server: WebServer) -> None:
        with self._lock:
            if self._is_closed.is_set():
                server.close()
                return
            # after a restart use the same port, even if port 0 was configured. Keep the host name
            # instead of its address, because requests contain the name
            self._address = self._address._replace(port=server.address.port)
            self._began = time.monotonic()
            try:
                server.start(self._died)
            except BaseException:
                server.close()
                raise
            self._server = server
        self._served(server)
