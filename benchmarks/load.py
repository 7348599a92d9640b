"""Fills a topic with a backlog of lz4 batches, evenly over its partitions."""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Producer

from benchmarks.payload import make_key, make_values

__all__ = ["BATCH_BYTES", "DIFFERENT_VALUES", "Backlog", "fill"]

BATCH_BYTES = 65536
"""Maximum size of a batch. librdkafka compares the size before compression with it."""

DIFFERENT_VALUES = 20_000
"""Number of different values. More than lz4's window, so that repeated values do not make a batch
smaller.
"""

_FLUSH_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The topic and the records to write."""

    topic: str
    partitions: int
    records: int
    age_s: float
    """Age of the first record's timestamp, in seconds."""
    seed: int
    batch_records: int = 10_000
    """Maximum number of records of a batch."""


def fill(bootstrap: str, backlog: Backlog) -> None:
    """Write the backlog, and wait until the brokers have acknowledged all records."""
    lost: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "compression.type": "lz4",
            "batch.size": BATCH_BYTES,
            "batch.num.messages": backlog.batch_records,
            "linger.ms": 200,
            "queue.buffering.max.messages": 400_000,
            "queue.buffering.max.kbytes": 512 * 1024,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _message: lost.append(str(error)),
        }
    )
    values = make_values(DIFFERENT_VALUES, backlog.seed)
    first_ms = int((time.time() - backlog.age_s) * 1000)
    for number in range(backlog.records):
        while True:
            try:
                producer.produce(
                    backlog.topic,
                    value=values[number % DIFFERENT_VALUES],
                    key=make_key(number),
                    partition=number % backlog.partitions,
                    timestamp=first_ms + number // 1000,
                )
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(_FLUSH_S) or lost:
        raise RuntimeError(f"the backlog could not be written: {lost[:1] or 'time is up'}")
