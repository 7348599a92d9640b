"""What a source has, asked over connections of its own, by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, LATEST
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.producer_expiry import longest_transaction
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.risk.held_back import OpenOnes
from twinlog.errors import Disconnected, Unauthorized
from twinlog.model import Isolation, TopicId, TopicPartition
from twinlog.survey.open_transactions import open_transactions
from twinlog.survey.source_ends import known_ends, known_offsets
from twinlog.survey.source_retention import retentions

WITHIN_S: Final = 5.0


@dataclass(slots=True)
class SourceQuestions:
    """Of one run of a flow; answers hold what could be asked, and TwinlogError is raised where
    nothing could be, or nothing more is to be asked.
    """

    settings: ClusterSettings
    config: FlowConfig
    _client: ClusterClient | None = None
    _asks: threading.Lock = field(default_factory=threading.Lock)
    _left: threading.Event = field(default_factory=threading.Event)

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where their logs end now."""
        with self._asking() as client:
            return known_offsets(client, partitions, LATEST)

    def ids(self, topics: Iterable[str]) -> dict[str, TopicId]:
        """The ids of the topics now, of those that are there."""
        with self._asking() as client:
            found = client.metadata(sorted(topics), timeout_s=WITHIN_S).topics
            return {name: one.topic_id for name, one in found.items() if not one.error}

    def readable_ends(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int] | None:
        """Their last stable offsets, where those alone are copied."""
        if self.config.isolation_level is not Isolation.READ_COMMITTED:
            return None
        with self._asking() as client:
            return known_ends(client, self.config, partitions)

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where their logs begin now."""
        with self._asking() as client:
            return known_offsets(client, partitions, EARLIEST)

    def retentions(self, topics: Iterable[str]) -> dict[str, int]:
        """retention.ms of the topics that have one."""
        with self._asking() as client:
            return retentions(client, topics)

    def open_ones(self, partitions: Iterable[TopicPartition]) -> OpenOnes:
        """Their open transactions, and how long one may last."""
        with self._asking() as client:
            try:
                limit_ms = longest_transaction(client)
            except Unauthorized:
                limit_ms = None
            found = tuple(open_transactions(client, list(partitions)))
            return OpenOnes(None if limit_ms is None else limit_ms / 1000, found)

    @contextmanager
    def _asking(self) -> Iterator[ClusterClient]:
        with self._asks:
            if self._left.is_set():
                raise Disconnected(f"cluster {self.settings.alias} is not asked any more")
            if self._client is None:
                self._client = ClusterClient(self.settings, api_timeout_s=WITHIN_S)
                # a flow may have very many partitions: `ids` is the one question about their topics
                self._client.keep_leaders()
            try:
                yield self._client
            finally:
                if self._left.is_set():
                    self._close()

    def close(self) -> None:
        """Close the connections; whoever asks now does it, behind the answer. Returns at once."""
        self._left.set()
        if self._asks.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._asks.release()

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
