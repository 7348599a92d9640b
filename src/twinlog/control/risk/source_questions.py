"""Queries of the source over separate connections, by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Final

from twinlog.cluster.client import REFUSED_FOR_S, ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_records
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.producer_expiry import longest_transaction
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.risk.held_back import OpenOnes
from twinlog.control.risk.resting import Rest
from twinlog.errors import Disconnected, TwinlogError, Unauthorized, Unreachable
from twinlog.model import Isolation, TopicId, TopicPartition
from twinlog.survey.ends import known_ends, known_offsets, known_starts
from twinlog.survey.open_transactions import open_transactions
from twinlog.survey.topic_configs import retentions
from twinlog.wire.record_batch import read_headers

WITHIN_S: Final = 5.0
PULSE_WITHIN_S: Final = 4.0
"""Two requests of this duration without an answer, over one connection and then another, take less
than the 9 s (broker.session.timeout.ms) after which Kafka's controller moves leadership away from a
silent broker. A broker that answers later is not merely slow in Kafka's terms either.
"""


@dataclass(slots=True, kw_only=True)
class QuestionClient:
    """A client that is opened by its first query, for one thread at a time."""

    settings: ClusterSettings
    within_s: float
    refused_s: float = inf
    client: ClusterClient | None = None
    _asks: threading.Lock = field(default_factory=threading.Lock)
    _left: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def asking(self) -> Iterator[ClusterClient]:
        with self._asks:
            if self._left.is_set():
                raise Disconnected(f"the client of cluster {self.settings.alias} is closed")
            if self.client is None:
                self.client = ClusterClient(
                    self.settings, api_timeout_s=self.within_s, refused_s=self.refused_s
                )
                # a flow may have many partitions: only `ids` queries the metadata of topics
                self.client.keep_leaders()
            try:
                yield self.client
            finally:
                if self._left.is_set():
                    self._close()

    def close(self) -> None:
        """Close the connections without waiting. A query in progress closes them when it ends."""
        self._left.set()
        if self._asks.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._asks.release()

    def _close(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None


@dataclass(slots=True)
class SourceQuestions:
    """Queries for one run of a flow. Answers contain what could be read. TwinlogError is raised if
    nothing could be read, or after `close`.
    """

    settings: ClusterSettings
    config: FlowConfig
    _line: QuestionClient = field(init=False)
    _pulse: QuestionClient = field(init=False)
    """A separate client, so that a slow, large query does not make the source look silent."""

    def __post_init__(self) -> None:
        self._line = QuestionClient(settings=self.settings, within_s=WITHIN_S)
        self._pulse = QuestionClient(
            settings=self.settings, within_s=PULSE_WITHIN_S, refused_s=REFUSED_FOR_S
        )

    def pulse(self) -> None:
        """Return when any broker has answered an empty metadata request. May run at the same time
        as another query.
        """
        with self._pulse.asking() as client:
            try:
                client.metadata([])
            except (Disconnected, Unreachable):
                client.metadata([])  # over another connection, to another broker if possible

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the current log ends."""
        with self._line.asking() as client:
            return known_offsets(client, partitions)

    def ids(self, topics: Iterable[str]) -> dict[str, TopicId]:
        """Return the current IDs of the topics that exist."""
        with self._line.asking() as client:
            found = client.metadata(sorted(topics), timeout_s=WITHIN_S).topics
            return {name: one.topic_id for name, one in found.items() if not one.error}

    def readable_ends(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int] | None:
        """Return the last stable offsets, or None if uncommitted records are copied too."""
        if self.config.isolation_level is not Isolation.READ_COMMITTED:
            return None
        with self._line.asking() as client:
            return known_ends(client, self.config, partitions)

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the current log starts."""
        with self._line.asking() as client:
            return known_starts(client, partitions)

    def next_batches(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Rest]:
        with self._line.asking() as client:
            starts = known_starts(client, offsets)
            froms = {tp: max(at, starts[tp]) for tp, at in offsets.items() if tp in starts}
            wanted = {tp: (at, 1) for tp, at in froms.items()}
            answers = fetch_records(client, wanted, timeout_s=WITHIN_S)
        return {tp: Rest(at, _written_ms(answers[tp], at)) for tp, at in froms.items()}

    def retentions(self, topics: Iterable[str]) -> dict[str, int]:
        """Return retention.ms of the readable topics, or NO_LIMIT."""
        with self._line.asking() as client:
            return retentions(client, topics)

    def open_ones(self, partitions: Iterable[TopicPartition]) -> OpenOnes:
        """Return their open transactions, and the maximum duration of one."""
        with self._line.asking() as client:
            try:
                limit_ms = longest_transaction(client)
            except Unauthorized:
                limit_ms = None
            found = tuple(open_transactions(client, list(partitions)))
            return OpenOnes(None if limit_ms is None else limit_ms / 1000, found)

    def close(self) -> None:
        """Close the connections without waiting. A query in progress closes them when it ends."""
        self._line.close()
        self._pulse.close()


def _written_ms(answer: FetchedRecords | TwinlogError, offset: int) -> int:
    """Return when the newest record of the batch was written, or 0 if unknown."""
    if isinstance(answer, TwinlogError):
        return 0
    headers = (header for header, _ in read_headers(answer.records))
    there = next((one for one in headers if one.last_offset >= offset), None)
    return 0 if there is None else max(0, there.max_timestamp)
