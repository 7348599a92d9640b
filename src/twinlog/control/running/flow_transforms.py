"""The application of a flow's transforms, as its driver sees it (ADR 40).

The application starts and ends with the generation. Partitions with transforms start only while the
application runs; other partitions of the flow do not wait for it. If the application ends by
itself, it is started again, after a pause that grows until an application answers a range of
records. A lane stores the ranges without an answer, and offers them to the next application. If a
range gets no answer, the application is ended as well (`on_unanswered`).

The driver does not wait for the application to start, because the application's Spark needs about
ten seconds. Also, the user's modules can run any code when they are imported.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from twinlog.channel.frames import ChannelAddress
from twinlog.clock import CLOCK, Attempts, Clock
from twinlog.config.flow.schema import FlowConfig
from twinlog.errors import CorruptData, Fate, TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.spark.application import (
    ApplicationFailed,
    ApplicationReady,
    FirstRangeAnswered,
    RangePorts,
    RecordSkipped,
    TransformsApplication,
    TransformStep,
    TransformsWork,
)

UNAVAILABLE: Final = "TRANSFORM_UNAVAILABLE"
FIRST_PAUSE_S: Final = 2.0
MOST_PAUSE_S: Final = 60.0
READY_WITHIN_S: Final = 300.0
"""Seconds in which the application must be ready. A start takes 10 s, on a busy machine 60 s."""
RESTARTED_AFTER_S: Final = 120.0
"""For this many seconds after its start, an application is not ended if a range has no answer,
because lanes may have waited for the previous application.
"""
ENDED: Final = "its process has ended (see its last lines in the log)"


class FlowTransforms:
    """The transforms' application in one generation. `stop` is the only thread-safe method."""

    def __init__(
        self,
        work: TransformsWork,
        *,
        call: Callable[[Callable[[], object]], object],
        on_skipped: Callable[[RecordSkipped], object],
        log: FlowLog,
        start: Callable[[TransformsWork], TransformsApplication] = TransformsApplication,
        clock: Clock = CLOCK,
    ) -> None:
        """`call` runs a function in the supervisor's thread."""
        self.is_ready = False
        """Whether the application answers ranges: its functions are imported and checked."""
        self.problem: TwinlogError | None = None
        """Why the application does not run, or None if it runs or starts for the first time."""
        self._work, self._start_application = work, start
        self._call, self._on_skipped, self._log, self._clock = call, on_skipped, log, clock
        self._application: TransformsApplication | None = None
        self._ports: frozenset[ChannelAddress] = frozenset()
        self._attempts = Attempts(clock=clock, first_s=FIRST_PAUSE_S, most_s=MOST_PAUSE_S)
        self._began = 0.0
        self._unanswered = ""
        """Why `on_unanswered` has ended the application, or an empty text."""
        self._lock = threading.Lock()
        """Lock for starting and stopping an application."""
        self._is_stopped = False

    def tick(self, ports: Iterable[ChannelAddress]) -> None:
        """Start the application if it does not run, and connect it to exactly these lanes."""
        if self._application is None and self._attempts.is_due:
            self._start()
        elif self._application is not None and self._is_late:
            self._application.kill()  # the thread of the application reports its end
        wanted = frozenset(ports)
        if self.is_ready and self._application is not None and wanted != self._ports:
            self._ports = wanted
            # ignore that the application has ended, because its own thread (`_listen`) reports the
            # end
            with suppress(OSError, ValueError):
                self._application.connect(RangePorts(ports=tuple(wanted)))

    @property
    def _is_late(self) -> bool:
        return not self.is_ready and self._clock.monotonic() - self._began > READY_WITHIN_S

    def on_unanswered(self, why: str) -> None:
        """End the application because a range has no answer, unless the application is new. It is
        started again later.
        """
        is_new = self._clock.monotonic() - self._began < RESTARTED_AFTER_S
        if self._application is not None and self.is_ready and not is_new:
            self.is_ready, self._unanswered = False, why
            self._application.kill()  # the thread of the application reports its end

    def stop(self) -> None:
        """End the application permanently. This may take seconds."""
        with self._lock:
            self._is_stopped = True
            if self._application is not None:
                self._application.stop()

    def _start(self) -> None:
        with self._lock:
            if self._is_stopped:
                return
            self._ports, self._began = frozenset(), self._clock.monotonic()
            self._unanswered = ""
            try:
                self._application = application = self._start_application(self._work)
            except OSError as error:
                return self._start_later(f"it cannot be started: {error}")
        thread = threading.Thread(
            target=self._listen, args=[application], name="twinlog-transforms", daemon=True
        )
        thread.start()

    def _listen(self, application: TransformsApplication) -> None:
        """Pass an application's messages to the supervisor's thread until the application ends."""
        problem, fate = "", Fate.RETRIABLE
        try:
            for message in application.messages():
                if isinstance(message, ApplicationFailed):
                    problem, fate = _failure(message)
                else:
                    self._call(partial(self._on_message, application, message))
        except (CorruptData, ValueError) as error:  # ValueError: `stop` has closed the pipe
            problem = str(error)
        application.stop()  # the application may still run although its output has ended
        self._call(partial(self._on_end, application, problem or ENDED, fate))

    def _on_message(self, application: TransformsApplication, message: object) -> None:
        if application is not self._application:
            return
        if isinstance(message, ApplicationReady):
            self.is_ready, self.problem = True, None
            self._log.news("the application of the transforms is ready")
        elif isinstance(message, FirstRangeAnswered):
            self._attempts.reset()
        elif isinstance(message, RecordSkipped):
            self._on_skipped(message)

    def _on_end(self, application: TransformsApplication, why: str, fate: Fate) -> None:
        if application is not self._application or self._is_stopped:
            return
        if self._is_late:
            why = f"it was not ready within {READY_WITHIN_S:.0f} s: does an import hang?"
        self._start_later(self._unanswered or why, fate)

    def _start_later(self, why: str, fate: Fate = Fate.RETRIABLE) -> None:
        """Start the application again later. If `fate` is FATAL, partitions do not wait for it with
        `--once`.
        """
        self._application, self.is_ready = None, False
        pause_s = self._attempts.on_failure()
        text = f"the application of the transforms does not run: {why}"
        self.problem = TwinlogError(text, code=UNAVAILABLE, fate=fate)
        self._log.warning("%s; starting it again in %.0f s", self.problem, pause_s)


def _failure(message: ApplicationFailed) -> tuple[str, Fate]:
    if message.code == UNAVAILABLE:
        return message.message, Fate.RETRIABLE
    return f"{message.message} [{message.code}]", Fate.FATAL


def transforms_work(config: FlowConfig) -> TransformsWork:
    """Return the transforms of a flow for its application."""
    return TransformsWork(
        flow=str(config.flow),
        steps=tuple(
            TransformStep(
                name=transform.name,
                topics=transform.topics.entries,
                compares=transform.compares,
                is_negated=transform.topics.is_negated,
                function=transform.function,
                sql=transform.sql,
            )
            for transform in config.transforms.entries
        ),
        on_error=config.transforms.on_error,
        memory_bytes=config.transforms.memory_bytes,
    )
