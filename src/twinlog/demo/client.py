"""The demo's own Kafka client (librdkafka). It shares no code with the mirror that the demo checks.

`DemoWorker` is a thread in which a part of the demo uses the client.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, Final

from twinlog.extras import require_extra

QUIET: Final = {"log_level": 0}
"""Disables librdkafka's own log lines on the terminal. Errors are raised nevertheless."""

Message = Any
"""A message of confluent-kafka, which has no type information."""


def confluent() -> ModuleType:
    """Import and return the client library, which only the demo needs."""
    require_extra("confluent_kafka", "demo", "twinlog demo or sandbox fill")
    import confluent_kafka

    return confluent_kafka


def create_topics(
    bootstrap: str, partitions: Mapping[str, int], configs: Mapping[str, Mapping[str, str]]
) -> None:
    """Create topics with one replica each, and wait until they exist."""
    confluent()
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    topics = [
        NewTopic(name, count, 1, config=dict(configs.get(name, {})))
        for name, count in partitions.items()
    ]
    for future in admin.create_topics(topics, operation_timeout=30).values():
        future.result()


def partition_counts(bootstrap: str, topics: Iterable[str]) -> dict[str, int]:
    """Return the partition count of each topic that exists."""
    confluent()
    from confluent_kafka.admin import AdminClient

    known = AdminClient({"bootstrap.servers": bootstrap, **QUIET}).list_topics(timeout=30).topics
    counts = {name: known[name] for name in topics if name in known}
    return {name: len(topic.partitions) for name, topic in counts.items() if topic.error is None}


def log_reader(bootstrap: str, partitions: Mapping[str, int]) -> Any:
    """Return a consumer that reads every partition from its start, and uses no group."""
    library = confluent()
    consumer = library.Consumer(
        {
            **QUIET,
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "queued.max.messages.kbytes": 16_384,
        }
    )
    consumer.assign(
        [
            library.TopicPartition(topic, partition, library.OFFSET_BEGINNING)
            for topic, count in partitions.items()
            for partition in range(count)
        ]
    )
    return consumer


class DemoWorker:
    """A thread that runs `_work` until `stop`. An error of `_work` is passed to `on_error`, in the
    same thread.
    """

    def __init__(self, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait until it has ended."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 (the demo's main thread raises it)
            self._on_error(error)

    def _work(self) -> None:
        """Work until `_stop` is set."""
        raise NotImplementedError
