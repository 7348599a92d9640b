"""A steady stream of numbered records to a source topic, which continues during faults."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final, Self

from confluent_kafka import KafkaError, Message

from tests.support.client import producer
from tests.support.eventually import PATIENCE_S
from twinlog.sandbox import LocalCluster

BURST_S: Final = 0.02


class Load:
    """Produces records in its own thread until the block ends. At the end, every record is
    acknowledged.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        topic: str,
        *,
        partitions: int = 1,
        per_second: int = 1_000,
        more: Sequence[str] = (),
    ) -> None:
        """`more`: further topics that get the same records."""
        self._topics = (topic, *more)
        self._partitions = partitions
        self._burst = max(1, int(per_second * BURST_S))
        # long enough for a broker to restart
        self._client = producer(
            cluster, codec="lz4", config={"message.timeout.ms": int(PATIENCE_S * 1000)}
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failed: list[KafkaError] = []
        self.sent = 0

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            for _ in range(self._burst):
                self._one()
            self._client.poll(0)
            time.sleep(max(0.0, BURST_S - (time.monotonic() - began)))

    def _one(self) -> None:
        number = self.sent
        for topic in self._topics:
            self._produce(topic, number)
        self.sent += 1

    def _produce(self, topic: str, number: int) -> None:
        self._client.produce(
            topic,
            b"u%d" % number,
            b"k%d" % (number % 97),
            partition=number % self._partitions,
            timestamp=int(time.time() * 1000),
            headers=[("n", b"%d" % number), ("n", None)],
            on_delivery=self._delivered,
        )

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def stop(self) -> int:
        """Stop producing, wait for all acknowledgements, and return the number of records in the
        topic.
        """
        self._stop.set()
        self._thread.join(PATIENCE_S)
        left = self._client.flush(PATIENCE_S)
        assert not left, f"{left} records were not acknowledged"
        assert not self._failed, self._failed[0]
        return self.sent

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
