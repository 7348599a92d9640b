"""Produces the events of a small shop: a stream at a constant rate in its own thread, or a fixed
number as fast as possible. The events are records for three topics:

    orders      key: order id   compacted; a withdrawn order ends with a tombstone
    payments    key: order id   one for most orders, some refused and retried
    shipments   key: none       as a carrier sends them, with two headers of the same name

Values are JSON. Headers have a trace ID, and sometimes a null value. The stream depends only on its
seed, not on a clock or the network.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from twinlog.demo.client import QUIET, DemoWorker, confluent, create_topics, partition_counts
from twinlog.errors import ClusterError

PARTITIONS: Final = {"orders": 4, "payments": 4, "shipments": 2}
TOPIC_CONFIGS: Final = {
    "orders": {"cleanup.policy": "compact", "compression.type": "producer"},
    "payments": {"retention.ms": "604800000"},
    "shipments": {"retention.ms": "604800000", "max.message.bytes": "2097152"},
}

_ITEMS: Final = (
    ("espresso-cups", 1290),
    ("desk-lamp", 4900),
    ("notebook-a5", 650),
    ("linen-shirt", 5900),
    ("headphones", 12900),
    ("bicycle-bell", 1150),
    ("tea-black-250g", 780),
    ("garden-shears", 3400),
)
_CITIES: Final = ("Lisbon", "Oslo", "Graz", "Gdańsk", "Porto", "Malmö", "Leeds", "Turin")
_CARRIERS: Final = ("hermod", "postline", "sameday")
OPEN_ORDERS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRecord:
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def order_events(seed: int = 1) -> Iterator[DemoRecord]:
    """Yield events forever. Two streams with the same seed are equal."""
    return _Shop(random.Random(seed)).events()


class _Shop:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._open: deque[tuple[str, int]] = deque()
        self._number = 100_000

    def events(self) -> Iterator[DemoRecord]:
        while True:
            roll = self._chance.random()
            if roll < 0.4 or not self._open:
                yield self._new_order()
            elif roll < 0.75:
                yield self._paid()
            elif roll < 0.96:
                yield self._shipped()
            else:
                yield self._withdrawn()
            if len(self._open) > OPEN_ORDERS:
                self._open.popleft()

    def _headers(self, *more: tuple[str, bytes | None]) -> tuple[tuple[str, bytes | None], ...]:
        trace = f"{self._chance.getrandbits(64):016x}".encode()
        return (("trace-id", trace), *more)

    def _pick(self) -> tuple[str, int]:
        return self._open[self._chance.randrange(len(self._open))]

    def _new_order(self) -> DemoRecord:
        self._number += 1
        order = f"order-{self._number}"
        picked = self._chance.sample(_ITEMS, self._chance.randint(1, 4))
        lines = [
            {"item": name, "quantity": self._chance.randint(1, 3), "cents": cents}
            for name, cents in picked
        ]
        total = sum(line["quantity"] * line["cents"] for line in lines)  # type: ignore[operator]
        self._open.append((order, total))
        value: dict[str, object] = {
            "order": order,
            "customer": f"customer-{self._chance.randint(1, 9_999)}",
            "city": self._chance.choice(_CITIES),
            "lines": lines,
            "total_cents": total,
            "note": "x" * self._chance.randint(0, 400),
        }
        coupon = b"SPRING" if self._chance.random() < 0.2 else None
        return _event("orders", order, value, self._headers(("coupon", coupon)))

    def _paid(self) -> DemoRecord:
        order, total = self._pick()
        state = "captured" if self._chance.random() < 0.9 else "refused"
        value = {"order": order, "cents": total, "method": "card", "state": state}
        return _event("payments", order, value, self._headers())

    def _shipped(self) -> DemoRecord:
        order, _ = self._pick()
        carrier = self._chance.choice(_CARRIERS)
        value = {"order": order, "carrier": carrier, "parcel": self._chance.getrandbits(40)}
        more = (("hop", b"warehouse"), ("hop", carrier.encode()))
        return _event("shipments", None, value, self._headers(*more))

    def _withdrawn(self) -> DemoRecord:
        order, _ = self._pick()
        self._open = deque(open_order for open_order in self._open if open_order[0] != order)
        return DemoRecord(topic="orders", key=order.encode(), value=None, headers=self._headers())


def _event(
    topic: str,
    key: str | None,
    value: dict[str, object],
    headers: tuple[tuple[str, bytes | None], ...],
) -> DemoRecord:
    return DemoRecord(
        topic=topic,
        key=None if key is None else key.encode(),
        value=json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(),
        headers=headers,
    )


TICK_S: Final = 0.02
FLUSH_S: Final = 10.0
FILL_FLUSH_S: Final = 60.0


class Shop(DemoWorker):
    """A producer that counts acknowledged records. `stop` waits until all are acknowledged."""

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
    """Produce `records` events, and return their number by topic. Creates missing topics."""
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

    for event in itertools.islice(order_events(), records):
        while True:
            try:
                _produce(producer, event, on_delivery)
                break
            except BufferError:  # the producer's queue is full
                producer.poll(0.1)
        done[event.topic] += 1
    left = producer.flush(FILL_FLUSH_S)
    if refused or left:
        unacked = f"{left} records were not acknowledged in {FILL_FLUSH_S:.0f} s"
        why = refused[0] if refused else unacked
        raise ClusterError(f"{bootstrap}: not all records were accepted: {why}")
    return done
