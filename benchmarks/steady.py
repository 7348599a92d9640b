"""The two clients of the latency case, which run in separate processes, so that neither delays the
other.

    python -m benchmarks.steady produce '{...}'    writes at a steady rate until its time is up
    python -m benchmarks.steady measure '{...}'    reads, and prints the latencies as one JSON line

A record counts if its *timestamp* is in the window, so that records delayed by a stall also count.
Both clients use the same machine's clock.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.payload import make_key, make_values
from benchmarks.results import Latency
from benchmarks.summary import percentile

__all__ = ["GRACE_S", "MeasureTask", "ProduceTask", "summarize"]

GRACE_S = 10.0
"""Time after the window's end in which records may still arrive, in seconds."""

_POLL_S = 0.1
_PAUSE_S = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceTask:
    """The task to write `rate` records per second, at even intervals, for `seconds`."""

    bootstrap: str
    topic: str
    partitions: int
    rate: int
    seconds: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureTask:
    """The task to measure the latency of records with timestamps in [begin_ms, end_ms)."""

    bootstrap: str
    topic: str
    partitions: int
    rate: int
    begin_ms: int
    end_ms: int


def produce(task: ProduceTask) -> None:
    """Send each record when it is due, without linger and compression."""
    producer = Producer({"bootstrap.servers": task.bootstrap, "log_level": 0, "linger.ms": 0})
    values = make_values(1000, task.seed)
    gc.disable()
    began, sent = time.monotonic(), 0
    while (spent := time.monotonic() - began) < task.seconds:
        while sent < spent * task.rate:
            producer.produce(
                task.topic,
                value=values[sent % len(values)],
                key=make_key(sent),
                partition=sent % task.partitions,
                timestamp=int(time.time() * 1000),
            )
            sent += 1
        producer.poll(0)
        time.sleep(_PAUSE_S)
    producer.flush(GRACE_S)


def measure(task: MeasureTask) -> Latency:
    """Read new records, and return the latency of those in the window."""
    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "log_level": 0,
            "group.id": "bench-latency",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
    )
    partitions = [TopicPartition(task.topic, each) for each in range(task.partitions)]
    for each in partitions:
        each.offset = consumer.get_watermark_offsets(each, timeout=10)[1]
    consumer.assign(partitions)
    expected = round((task.end_ms - task.begin_ms) / 1000 * task.rate)
    taken: list[float] = []
    gc.disable()
    while len(taken) < expected and time.time() * 1000 < task.end_ms + GRACE_S * 1000:
        message = consumer.poll(_POLL_S)
        if message is None or message.error():
            continue
        arrived_ms = time.time() * 1000
        stamped_ms = message.timestamp()[1]
        if task.begin_ms <= stamped_ms < task.end_ms:
            taken.append(arrived_ms - stamped_ms)
    consumer.close()
    return summarize(taken, expected)


def summarize(taken: list[float], expected: int) -> Latency:
    """Return the percentiles of these latencies. Raises RuntimeError if there are none."""
    if not taken:
        raise RuntimeError("no record of the window arrived")
    ordered = sorted(taken)
    return Latency(
        records=len(ordered),
        expected=expected,
        p50=percentile(ordered, 50),
        p99=percentile(ordered, 99),
        p99_9=percentile(ordered, 99.9),
        largest=ordered[-1],
    )


def main(arguments: list[str]) -> None:
    """Run one of the two commands, with its task as JSON."""
    command, text = arguments
    task: dict[str, Any] = json.loads(text)
    if command == "produce":
        produce(ProduceTask(**task))
    else:
        print(json.dumps(asdict(measure(MeasureTask(**task)))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
