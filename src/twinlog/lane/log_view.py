"""A cluster's logs as cold starts look at them: the port of `mirror.ports` over the blocking
client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twinlog.cluster import admin
from twinlog.cluster.begins import begin_offsets
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.internal_log import fetch_records
from twinlog.errors import TwinlogError, Unauthorized, Unsupported
from twinlog.mirror.ports import LogEnds, ProducerTail, RawRecords
from twinlog.model import StartAt, TopicId, TopicPartition

READ_BYTES: Final = 1 << 20


class ClusterLogView:
    """Looks at one cluster; an answer per partition, the reasons for missing ones in `problems`."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self.problems: dict[TopicPartition, TwinlogError] = {}

    def topic_ids(self, topics: set[str]) -> Mapping[str, TopicId]:
        found = self._client.metadata(sorted(topics)).topics
        return {name: topic.topic_id for name, topic in found.items() if not topic.error}

    def ends(self, tps: set[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        starts = admin.list_offsets(self._client, tps, admin.EARLIEST)
        latest = admin.list_offsets(self._client, tps, admin.LATEST)
        ends = admin.log_ends(self._client, tps)
        out: dict[TopicPartition, LogEnds] = {}
        for tp in tps:
            start, high, end = starts[tp], latest[tp], ends[tp]
            for answer in (start, high, end):
                if isinstance(answer, TwinlogError):
                    self.problems[tp] = answer
                    break
            else:
                assert not isinstance(start, TwinlogError)  # noqa: S101 (for the type checker)
                assert not isinstance(high, TwinlogError)  # noqa: S101
                assert not isinstance(end, TwinlogError)  # noqa: S101
                out[tp] = LogEnds(
                    log_start=start.offset,
                    high_watermark=high.offset,
                    # an empty log of a fresh epoch answers -1: nothing was written in any epoch
                    log_end=max(end.end_offset, high.offset),
                    leader_epoch=end.leader_epoch,
                )
        return out

    def begins(
        self, starts: Mapping[TopicPartition, StartAt], *, read_committed: bool
    ) -> Mapping[TopicPartition, int]:
        out: dict[TopicPartition, int] = {}
        isolation = admin.Isolation(read_committed)
        for tp, answer in begin_offsets(self._client, starts, isolation=isolation).items():
            if isinstance(answer, TwinlogError):
                self.problems[tp] = answer
            else:
                out[tp] = answer
        return out

    def read(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, RawRecords]:
        wanted = {tp: (offset, READ_BYTES) for tp, offset in offsets.items()}
        out: dict[TopicPartition, RawRecords] = {}
        for tp, answer in fetch_records(self._client, wanted).items():
            if isinstance(answer, TwinlogError):
                self.problems[tp] = answer
            else:
                out[tp] = RawRecords(records=answer.records)
        return out

    def producers(
        self, tps: set[TopicPartition], producer_id: int
    ) -> Mapping[TopicPartition, ProducerTail] | None:
        try:
            answers = admin.describe_producers(self._client, tps)
        except (Unsupported, Unauthorized):
            return None
        out: dict[TopicPartition, ProducerTail] = {}
        for tp, answer in answers.items():
            if isinstance(answer, Unauthorized):
                return None
            if isinstance(answer, TwinlogError):
                self.problems[tp] = answer
                continue
            state = answer.get(producer_id)
            if state is not None:
                out[tp] = ProducerTail(
                    last_sequence=state.last_sequence, last_timestamp=state.last_timestamp
                )
        return out
