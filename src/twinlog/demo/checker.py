"""Reads source and target with an independent client, in a thread, and passes records to the
comparer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from twinlog.demo.client import Message, confluent, log_reader, partition_counts
from twinlog.demo.comparer import Comparer, LogSide, SeenRecord
from twinlog.demo.worker import DemoWorker
from twinlog.errors import ClusterError

BATCH: Final = 500
POLL_S: Final = 0.05
TOPICS_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckState:
    """Progress and result of the comparison."""

    compared: int = 0
    on_the_way: int = 0
    """Read from the source, not yet seen on the target."""
    surplus: int = 0
    """Read from the target, not yet seen on the source; none of these may remain."""
    differences: tuple[str, ...] = ()

    @property
    def is_identical(self) -> bool:
        return not self.differences


class Checker(DemoWorker):
    """Compares topics of one cluster with their copies in another."""

    def __init__(
        self,
        source: str,
        target: str,
        remote: Mapping[str, str],
        on_error: Callable[[BaseException], None],
    ) -> None:
        super().__init__("demo-checker", on_error)
        self.comparer = Comparer()
        self._addresses = {LogSide.SOURCE: source, LogSide.TARGET: target}
        self._upstream = {name: topic for topic, name in remote.items()}
        self._topics = {LogSide.SOURCE: tuple(remote), LogSide.TARGET: tuple(remote.values())}
        self.state = CheckState()

    def _work(self) -> None:
        readers: dict[LogSide, _Reader] = {}
        try:
            while not self._stop.is_set():
                self._open_missing(readers)
                moved = [reader.read() for reader in readers.values()]
                self._note()
                if not any(moved):
                    self._stop.wait(POLL_S)
        finally:
            for reader in readers.values():
                reader.close()

    def _open_missing(self, readers: dict[LogSide, _Reader]) -> None:
        """Open readers for sides whose topics exist. The mirror creates the remote topics later."""
        for side in LogSide:
            if side in readers:
                continue
            counts = partition_counts(self._addresses[side], self._topics[side])
            if len(counts) == len(self._topics[side]):
                readers[side] = _Reader(
                    side, self._addresses[side], counts, self._name_for(side), self.comparer
                )
            else:
                self._stop.wait(TOPICS_POLL_S)

    def _name_for(self, side: LogSide) -> Callable[[str], str]:
        return self._upstream.__getitem__ if side is LogSide.TARGET else str

    def _note(self) -> None:
        comparer = self.comparer
        self.state = CheckState(
            compared=comparer.compared,
            on_the_way=comparer.waiting(LogSide.SOURCE),
            surplus=comparer.waiting(LogSide.TARGET),
            differences=tuple(str(one) for one in comparer.differences),
        )


class _Reader:
    """Reads one side from the start of its topics, as far as the comparer has room."""

    def __init__(
        self,
        side: LogSide,
        bootstrap: str,
        partitions: Mapping[str, int],
        upstream: Callable[[str], str],
        comparer: Comparer,
    ) -> None:
        self._side = side
        self._upstream = upstream
        self._comparer = comparer
        self._paused: set[tuple[str, int]] = set()
        self._consumer: Any = log_reader(bootstrap, partitions)

    def read(self) -> bool:
        """Process received records, and return whether there were any."""
        self._resume()
        messages = self._consumer.consume(BATCH, timeout=POLL_S)
        for message in messages:
            self._see(message)
        return bool(messages)

    def _see(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.retriable() or error.code() == confluent().KafkaError._TRANSPORT:
                return  # the client reconnects automatically
            raise ClusterError(
                f"the demo's check cannot read {message.topic()} from the {self._side}: {error}"
            )
        topic, partition = self._upstream(message.topic()), message.partition()
        timestamp_type, timestamp = message.timestamp()
        self._comparer.see(
            self._side,
            topic,
            partition,
            SeenRecord(
                offset=message.offset(),
                timestamp=timestamp,
                timestamp_type=timestamp_type,
                key=message.key(),
                value=message.value(),
                headers=tuple(message.headers() or ()),
            ),
        )
        here = (message.topic(), partition)
        if here not in self._paused and not self._comparer.has_room(self._side, topic, partition):
            self._paused.add(here)
            self._consumer.pause([confluent().TopicPartition(*here)])

    def _resume(self) -> None:
        for topic, partition in list(self._paused):
            if self._comparer.has_room(self._side, self._upstream(topic), partition):
                self._paused.discard((topic, partition))
                self._consumer.resume([confluent().TopicPartition(topic, partition)])

    def close(self) -> None:
        self._consumer.close()
