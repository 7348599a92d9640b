"""Names the open transactions at which a `--once` copy with read_committed ended.

Records above the last stable offset belong to undecided transactions, or follow the first record of
one. They are not lost, only not copyable yet. To find out why they are missing, a user needs to
know whose transaction it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import LATEST
from twinlog.cluster.logs.producers import transaction_starts
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.flow.wiring import flow_setup
from twinlog.model import Isolation, TopicPartition
from twinlog.survey.discovery import mirrored_topics
from twinlog.survey.ends import known_offsets

ANSWERS_WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBackPartition:
    """A partition that ends before its high watermark; -1 if the producer is unknown."""

    tp: TopicPartition
    last_stable_offset: int
    records: int
    """Number of offsets from there to the high watermark."""
    producer_id: int
    start_offset: int

    def __str__(self) -> str:
        who = "an open transaction"
        if self.producer_id >= 0:
            who += f" of producer id {self.producer_id} that began at offset {self.start_offset}"
        return (
            f"{self.tp}: copied up to the last stable offset {self.last_stable_offset}; {who} "
            f"holds back the {self.records} offsets after it; they are copied when it ends "
            "(see kafka-transactions.sh describe-producers) [OPEN_TRANSACTION]"
        )


def held_back(flow: FlowConfig) -> Iterator[HeldBackPartition]:
    """Yield the partitions of the flow's topics that an open transaction holds back now."""
    if flow.isolation_level is not Isolation.READ_COMMITTED:
        return
    with ClusterClient(flow_setup(flow).source, api_timeout_s=ANSWERS_WITHIN_S) as source:
        topics = mirrored_topics(flow, source.metadata(None))
        tps = [tp for topic in topics.values() for tp in topic.tps]
        # the lane has already reported partitions that cannot be queried
        stable = known_offsets(source, tps, LATEST, isolation=Isolation.READ_COMMITTED)
        high = known_offsets(source, tps, LATEST)
        both = ((tp, stable[tp], high[tp]) for tp in tps if tp in stable and tp in high)
        yield from _named(source, {tp: (lso, hw) for tp, lso, hw in both if lso < hw})


def _named(
    source: ClusterClient, behind: dict[TopicPartition, tuple[int, int]]
) -> Iterator[HeldBackPartition]:
    open_ = transaction_starts(source, list(behind))
    for tp, (lso, hw) in behind.items():
        starts = open_.get(tp, {})
        # the oldest transaction determines the last stable offset
        producer_id = min(starts, key=starts.__getitem__, default=-1)
        yield HeldBackPartition(
            tp=tp,
            last_stable_offset=lso,
            records=hw - lso,
            producer_id=producer_id,
            start_offset=starts.get(producer_id, -1),
        )
