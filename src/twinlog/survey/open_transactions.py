"""Finds transactions that are open on the source, with their producers and start times, and the
partitions whose copy they hold back.

Records above the last stable offset belong to an open transaction, or follow its first record. They
are not lost, but cannot be copied yet. To find out why they are missing, a user needs to know which
producer opened the transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.producers import transaction_starts
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_records
from twinlog.config.flow.schema import FlowConfig
from twinlog.errors import TwinlogError
from twinlog.model import Isolation, TopicPartition
from twinlog.quantities import duration
from twinlog.survey.discovery import mirrored_topics
from twinlog.survey.ends import known_ends, known_offsets
from twinlog.wire.record_batch import read_headers

FIRST_BYTES: Final = 16_384
"""Maximum bytes to fetch. A broker always returns the whole first batch, whatever its size."""
AT_ONCE: Final = 500
"""Maximum number of partitions to read at once, because the responses are in memory together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    tp: TopicPartition
    producer_id: int
    start_offset: int
    since_ms: int
    """Timestamp of the transaction's first record in the partition; -1 if it cannot be read."""

    @property
    def lasts_s(self) -> float:
        return 0.0 if self.since_ms < 0 else max(0.0, time.time() - self.since_ms / 1000)

    def __str__(self) -> str:
        since = "" if self.since_ms < 0 else f", open for {duration(self.lasts_s)}"
        return (
            f"{self.tp}: a transaction of producer id {self.producer_id} from offset "
            f"{self.start_offset}{since}"
        )


def open_transactions(
    source: ClusterClient, tps: Sequence[TopicPartition]
) -> list[OpenTransaction]:
    """Return the open transactions that the partitions' leaders report, if they report any.

    The first record of each transaction is read for its timestamp. One request reads the records of
    many partitions.
    """
    out: list[OpenTransaction] = []
    waiting = {tp: [*starts.items()] for tp, starts in transaction_starts(source, tps).items()}
    while waiting := {tp: starts for tp, starts in waiting.items() if starts}:
        now = {tp: starts.pop() for tp, starts in islice(waiting.items(), AT_ONCE)}
        answers = fetch_records(source, {tp: (at, FIRST_BYTES) for tp, (_, at) in now.items()})
        for tp, (id_, start) in now.items():
            since_ms = _first_ms(answers[tp])
            one = OpenTransaction(tp=tp, producer_id=id_, start_offset=start, since_ms=since_ms)
            out.append(one)
    return sorted(out, key=lambda transaction: (transaction.tp, transaction.start_offset))


def _first_ms(answer: FetchedRecords | TwinlogError) -> int:
    if isinstance(answer, TwinlogError):
        return -1
    header = next((header for header, _ in read_headers(answer.records)), None)
    return -1 if header is None else header.base_timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBackPartition:
    """A partition with an open transaction. `producer_id` is -1 if unknown."""

    tp: TopicPartition
    last_stable_offset: int
    records: int
    """Number of offsets from the last stable offset to the high watermark."""
    producer_id: int
    start_offset: int

    def __str__(self) -> str:
        who = "an open transaction"
        if self.producer_id >= 0:
            who += f" of producer id {self.producer_id} that began at offset {self.start_offset}"
        return (
            f"{self.tp}: copied up to the last stable offset {self.last_stable_offset}; {who} "
            f"holds back the next {self.records} offsets, which are copied after the transaction "
            "ends (see kafka-transactions.sh describe-producers) [OPEN_TRANSACTION]"
        )


def held_back(flow: FlowConfig, source: ClusterClient) -> Iterator[HeldBackPartition]:
    """Yield the partitions of the flow's topics that an open transaction holds back now."""
    if flow.isolation_level is not Isolation.READ_COMMITTED:
        return
    topics = mirrored_topics(flow, source.metadata(None))
    tps = [tp for topic in topics.values() for tp in topic.tps]
    # partitions that cannot be queried are left out, because the lane has already reported them
    stable, high = known_ends(source, flow, tps), known_offsets(source, tps)
    known = stable.keys() & high.keys()
    held = [tp for tp in tps if tp in known and stable[tp] < high[tp]]
    open_ = transaction_starts(source, held)
    for tp in held:
        starts = open_.get(tp, {})
        # the oldest transaction determines the last stable offset
        producer_id = min(starts, key=starts.__getitem__, default=-1)
        yield HeldBackPartition(
            tp=tp,
            last_stable_offset=stable[tp],
            records=high[tp] - stable[tp],
            producer_id=producer_id,
            start_offset=starts.get(producer_id, -1),
        )
