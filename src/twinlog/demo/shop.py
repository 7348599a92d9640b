"""Produces the stream of orders to the source at a constant rate, in its own thread."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from twinlog.demo.client import QUIET, confluent
from twinlog.demo.orders import DemoRecord
from twinlog.demo.worker import DemoWorker
from twinlog.errors import ClusterError

TICK_S: Final = 0.02
FLUSH_S: Final = 10.0


class Shop(DemoWorker):
    """A producer that counts acknowledged records. All records are acknowledged when it stops."""

    def __init__(
        self,
        bootstrap: str,
        events: Iterator[DemoRecord],
        records_per_s: float,
        on_error: Callable[[BaseException], None],
    ) -> None:
        super().__init__("demo-shop", on_error)
        self._events = events
        self._records_per_s = records_per_s
        self._refused: str | None = None
        self.delivered = 0
        self._producer: Any = confluent().Producer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 5,
            }
        )

    def _work(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._stop.wait(TICK_S):
            due = int((time.monotonic() - began) * self._records_per_s) - sent
            for event in itertools.islice(self._events, due):
                self._producer.produce(
                    event.topic,
                    key=event.key,
                    value=event.value,
                    headers=list(event.headers),
                    on_delivery=self._on_delivery,
                )
            sent += max(due, 0)
            self._producer.poll(0)
            self._raise_refused()
        self._producer.flush(FLUSH_S)
        self._raise_refused()

    def _on_delivery(self, error: object, _message: object) -> None:
        if error is None:
            self.delivered += 1
        elif self._refused is None:
            self._refused = str(error)

    def _raise_refused(self) -> None:
        if self._refused is not None:
            raise ClusterError(f"the demo's source rejected a record: {self._refused}")
