"""A cluster's logs as cold starts read them: implements `mirror.ports.LogView` with the blocking
client.

A view is for one search. A partition whose leader did not respond once is not queried again in that
search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, LATEST, list_offsets, log_ends
from twinlog.cluster.logs.per_leader import has_no_leader
from twinlog.cluster.logs.producers import describe_producers
from twinlog.cluster.logs.raw_log import FetchedRecords, FetchFrom, fetch_records
from twinlog.cluster.logs.start_offsets import begin_offsets
from twinlog.errors import Fate, PartitionError, TwinlogError, Unauthorized, Unsupported
from twinlog.mirror.ports import READ_BYTES, LogEnds, ProducerTail, RawRecords
from twinlog.model import Isolation, StartAt, TopicId, TopicPartition

T = TypeVar("T")


class ClusterLogView:
    """Reads the logs of one cluster for one search. `problems`: the errors of partitions without a
    result.
    """

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self.problems: dict[TopicPartition, TwinlogError] = {}
        self._silent: set[TopicPartition] = set()

    def _asked(self, tps: Iterable[TopicPartition]) -> set[TopicPartition]:
        return set(tps) - self._silent

    def _note_problem(self, tp: TopicPartition, error: TwinlogError) -> None:
        """Store the reason why a partition has no result."""
        if has_no_leader(error):
            self._silent.add(tp)
            error = PartitionError(
                f"{tp}: its leader does not respond: {error.message}; checking again",
                code="NO_LEADER",
                fate=Fate.RETRIABLE,
            )
        self.problems[tp] = error

    def _without_errors(
        self, answers: Mapping[TopicPartition, T | TwinlogError]
    ) -> dict[TopicPartition, T]:
        out: dict[TopicPartition, T] = {}
        for tp, answer in answers.items():
            if isinstance(answer, TwinlogError):
                self._note_problem(tp, answer)
            else:
                out[tp] = answer
        return out

    def topic_ids(self, topics: set[str]) -> Mapping[str, TopicId]:
        metadata = self._client.metadata(sorted(topics)).topics
        return {name: topic.topic_id for name, topic in metadata.items() if not topic.error}

    def ends(self, tps: set[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        starts = self._without_errors(list_offsets(self._client, self._asked(tps), EARLIEST))
        latest = self._without_errors(list_offsets(self._client, starts, LATEST))
        out: dict[TopicPartition, LogEnds] = {}
        for tp, end in self._without_errors(log_ends(self._client, latest)).items():
            start, high = starts[tp], latest[tp]
            out[tp] = LogEnds(
                log_start=start.offset,
                high_watermark=high.offset,
                # a leader returns -1 as the end if its log was empty in every leader epoch
                log_end=max(end.end_offset, high.offset),
                leader_epoch=end.leader_epoch,
            )
        return out

    def begins(
        self, starts: Mapping[TopicPartition, StartAt], *, isolation: Isolation
    ) -> Mapping[TopicPartition, int]:
        asked = {tp: start for tp, start in starts.items() if tp not in self._silent}
        return self._without_errors(begin_offsets(self._client, asked, isolation=isolation))

    def read(
        self, offsets: Mapping[TopicPartition, int], *, size: int = READ_BYTES
    ) -> Mapping[TopicPartition, RawRecords]:
        wanted = {tp: (offsets[tp], size) for tp in self._asked(offsets)}
        records = self._without_errors(self._fetch(wanted))
        return {
            tp: RawRecords(records=answer.records, high_watermark=answer.high_watermark)
            for tp, answer in records.items()
        }

    def _fetch(
        self, positions: Mapping[TopicPartition, FetchFrom]
    ) -> Mapping[TopicPartition, FetchedRecords | TwinlogError]:
        return fetch_records(self._client, positions)

    def producers(
        self, tps: set[TopicPartition], producer_id: int
    ) -> Mapping[TopicPartition, ProducerTail] | None:
        try:
            answers = describe_producers(self._client, self._asked(tps))
        except (Unsupported, Unauthorized):
            return None
        out: dict[TopicPartition, ProducerTail] = {}
        for tp, answer in answers.items():
            if isinstance(answer, Unauthorized):
                return None
            if isinstance(answer, TwinlogError):
                self._note_problem(tp, answer)
                continue
            state = answer.get(producer_id)
            if state is not None:
                out[tp] = ProducerTail(
                    last_sequence=state.last_sequence, last_timestamp=state.last_timestamp
                )
        return out
