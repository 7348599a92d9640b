"""Produces orders: a stream at a constant rate in its own thread, or a fixed number at once."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from twinlog.demo.client import QUIET, DemoWorker, confluent, create_topics, partition_counts
from twinlog.demo.orders import PARTITIONS, TOPIC_CONFIGS, DemoRecord, order_events
from twinlog.errors import ClusterError

TICK_S: Final = 0.02
FLUSH_S: Final = 10.0
FILL_FLUSH_S: Final = 60.0


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
                _produce(self._producer, event, self._on_delivery)
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


def _produce(
    producer: Any, event: DemoRecord, on_delivery: Callable[[object, object], None]
) -> None:
    producer.produce(
        event.topic,
        key=event.key,
        value=event.value,
        headers=list(event.headers),
        on_delivery=on_delivery,
    )


def fill(bootstrap: str, records: int) -> dict[str, int]:
    """Produce `records` events, creating missing topics, and return the record count by topic."""
    existing = partition_counts(bootstrap, PARTITIONS)
    missing = {name: count for name, count in PARTITIONS.items() if name not in existing}
    if missing:
        create_topics(bootstrap, missing, TOPIC_CONFIGS)
    producer = confluent().Producer(
        {**QUIET, "bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 20}
    )
    done = dict.fromkeys(PARTITIONS, 0)
    refused: list[str] = []

    def on_delivery(error: object, message: object) -> None:
        if error is not None:
            refused.append(str(error))

    events = order_events()
    for _ in range(records):
        event = next(events)
        while True:
            try:
                _produce(producer, event, on_delivery)
                break
            except BufferError:  # the producer's queue is full
                producer.poll(0.1)
        done[event.topic] += 1
    left = producer.flush(FILL_FLUSH_S)
    if refused or left:
        why = (
            refused[0]
            if refused
            else f"{left} records were not acknowledged in {FILL_FLUSH_S:.0f} s"
        )
        raise ClusterError(f"{bootstrap}: not all records were accepted: {why}")
    return done
