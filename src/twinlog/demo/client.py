"""The demo's own Kafka client (librdkafka), which shares no code with the mirror that it checks.

`DemoWorker` is the thread in which a part of the demo uses it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, Final

from twinlog.extras import require_extra

QUIET: Final = {"log_level": 0}
"""Errors are raised; librdkafka would also write its own lines to the terminal."""

Message = Any
"""confluent-kafka has no types."""


def confluent() -> ModuleType:
    """Return the client library, which only the demo needs."""
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
    """Return the partition counts of those topics that exist."""
    confluent()
    from confluent_kafka.admin import AdminClient

    known = AdminClient({"bootstrap.servers": bootstrap, **QUIET}).list_topics(timeout=30).topics
    counts = {name: known[name] for name in topics if name in known}
    return {name: len(topic.partitions) for name, topic in counts.items() if topic.error is None}


def log_reader(bootstrap: str, partitions: Mapping[str, int]) -> Any:
    """Return a consumer without a group, at the start of every partition."""
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
    """Runs `_work` until it is stopped, and passes its error to `on_error`, in the same thread."""

    def __init__(self, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for its end."""
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
