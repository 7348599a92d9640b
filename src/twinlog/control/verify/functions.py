"""Runs the functions of a flow's transforms for a verification, in a separate process as a mirror
does (`spark.application`). That process never gets the credentials of this one.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Final

from twinlog.clock import CLOCK
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.running.flow_transforms import (
    ENDED,
    READY_WITHIN_S,
    UNAVAILABLE,
    transforms_work,
)
from twinlog.errors import TwinlogError
from twinlog.lane.sides.range_port import RangePort
from twinlog.lane.transforming import UNANSWERED_AFTER_S
from twinlog.mirror.copy.range_intake import Stretch
from twinlog.mirror.copy.ranges import RangeAnswer, SourceRange
from twinlog.model import TopicPartition
from twinlog.spark.application import (
    ApplicationFailed,
    ApplicationReady,
    RangePorts,
    TransformsApplication,
)

CHECKED_EVERY_S: Final = 1.0


class FlowFunctions:
    """Transforms ranges of source records by the functions of one flow. Thread-safe."""

    def __init__(
        self,
        config: FlowConfig,
        start: Callable[..., TransformsApplication] = TransformsApplication,
    ) -> None:
        self._transforms = config.transforms
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._answers: dict[int, RangeAnswer] = {}
        self._varying: frozenset[str] = frozenset()
        """Names of transforms whose result differs from call to call, so it cannot be compared."""
        self._problem: TwinlogError | None = None
        self._began, self._is_ready = CLOCK.monotonic(), False
        self._port = RangePort(CLOCK, self._collect)
        work = transforms_work(config)
        try:
            self._application = start(work, environment=config.transforms.environment)
        except OSError as error:
            self._port.close()
            raise _unavailable(f"it cannot be started: {error}") from None
        threading.Thread(target=self._listen, name="twinlog-functions", daemon=True).start()

    def offer(self, tp: TopicPartition, stretch: Stretch) -> None:
        """Submit a part of the partition's source records (`Stretch`) to the transforms, and set
        the number by which `answer` finds the result.
        """
        stretch.number = next(self._numbers)
        lent = SourceRange(
            number=stretch.number,
            topic=tp.topic,
            partition=tp.partition,
            transform=self._transforms.digest_of(tp.topic),
            first=stretch.first,
            end=stretch.end,
            batches=b"".join(stretch.batches),
        )
        stretch.batches = [memoryview(lent.batches)]
        self._port.offer(lent)

    def answer(self, tp: TopicPartition, stretch: Stretch) -> RangeAnswer:
        """Wait for the transformed records of a part that was submitted by `offer`. Raises
        TwinlogError if the functions fail or cannot be compared.
        """
        names = {one.name for one in self._transforms.of_topic(tp.topic)}
        with self._changed:
            while stretch.number not in self._answers:
                if self._problem is not None:
                    raise self._problem
                self._changed.wait(CHECKED_EVERY_S)
                self._check()
            if varying := sorted(names & self._varying):
                raise TwinlogError(
                    f"{tp}: the records cannot be compared, because these transforms return "
                    f"different records each time: {', '.join(varying)}",
                    code="RECORD_NOT_TRANSFORMED",
                )
            return self._answers.pop(stretch.number)

    def close(self) -> None:
        """Stop the functions' process. Threads that wait in `answer` get an error."""
        self._fail("the verification ends")
        self._application.stop()
        self._port.close()

    def _collect(self) -> None:
        """Store the answers that have arrived, and notify the waiting threads."""
        with self._changed:
            self._answers.update((answer.number, answer) for answer in self._port.answers())
            self._changed.notify_all()

    def _check(self) -> None:
        self._collect()  # also offers ranges again that have waited too long for an answer
        if self._is_ready and self._port.unanswered(UNANSWERED_AFTER_S):
            self._fail(f"no result within {UNANSWERED_AFTER_S:.0f} s")
        elif not self._is_ready and CLOCK.monotonic() - self._began > READY_WITHIN_S:
            self._fail(f"it was not ready within {READY_WITHIN_S:.0f} s: does an import hang?")

    def _fail(self, why: str) -> None:
        with self._changed:
            if self._problem is None:
                self._problem = _unavailable(why)
            self._changed.notify_all()

    def _listen(self) -> None:
        """Read the messages of the application until it ends."""
        try:
            for message in self._application.messages():
                if isinstance(message, ApplicationReady):
                    with self._changed:
                        self._varying, self._is_ready = frozenset(message.varying), True
                    self._application.connect(RangePorts(ports=(self._port.address,)))
                elif isinstance(message, ApplicationFailed):
                    self._fail(f"{message.message} [{message.code}]")
        except (TwinlogError, ValueError, OSError) as error:  # ValueError: `close` closed the pipe
            self._fail(str(error))
        self._fail(ENDED)


def _unavailable(why: str) -> TwinlogError:
    return TwinlogError(f"the application of the transforms does not run: {why}", code=UNAVAILABLE)
