"""Fills a local cluster with the demo's orders, as data to mirror."""

from __future__ import annotations

from typing import Final

from twinlog.demo.client import QUIET, confluent, create_topics, partition_counts
from twinlog.demo.orders import PARTITIONS, TOPIC_CONFIGS, order_events
from twinlog.errors import ClusterError

FLUSH_S: Final = 60.0


def fill(bootstrap: str, records: int, *, seed: int = 1) -> dict[str, int]:
    """Produce `records` events, creating missing topics, and return the record count by topic."""
    there = partition_counts(bootstrap, PARTITIONS)
    missing = {name: count for name, count in PARTITIONS.items() if name not in there}
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

    events = order_events(seed)
    for _ in range(records):
        event = next(events)
        while True:
            try:
                producer.produce(
                    event.topic,
                    key=event.key,
                    value=event.value,
                    headers=list(event.headers),
                    on_delivery=on_delivery,
                )
                break
            except BufferError:  # the producer's queue is full
                producer.poll(0.1)
        done[event.topic] += 1
    left = producer.flush(FLUSH_S)
    if refused or left:
        why = refused[0] if refused else f"{left} records were not acknowledged in {FLUSH_S:.0f} s"
        raise ClusterError(f"{bootstrap}: not all records were accepted: {why}")
    return done
