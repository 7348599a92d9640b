"""Finds transactions that are open on the source, with their producers and start times."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.producers import transaction_starts
from twinlog.cluster.logs.raw_log import fetch_records
from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition
from twinlog.quantities import duration
from twinlog.wire.record_batch import read_headers

FIRST_BYTES: Final = 16_384
"""A broker returns the whole first batch, whatever its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """One open transaction in one partition."""

    tp: TopicPartition
    producer_id: int
    start_offset: int
    since_ms: int
    """Timestamp of its first record here; -1 if it cannot be read."""

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
    """Return open transactions as known to the partitions' leaders; none if brokers do not report
    them.
    """
    return [
        OpenTransaction(
            tp=tp, producer_id=id_, start_offset=start, since_ms=_first_ms(source, tp, start)
        )
        for tp, starts in transaction_starts(source, tps).items()
        for id_, start in starts.items()
    ]


def _first_ms(source: ClusterClient, tp: TopicPartition, offset: int) -> int:
    answer = fetch_records(source, {tp: (offset, FIRST_BYTES)})[tp]
    if isinstance(answer, TwinlogError):
        return -1
    header = next((one for one, _ in read_headers(answer.records)), None)
    return -1 if header is None else header.base_timestamp
