"""Producer IDs for source partitions that go to several target partitions by key.

All source partitions of a topic then write to each of its target partitions, so each needs its own
producer ID. The IDs are stored permanently in the state topic: the first record in the log that
gives a number an ID wins, whoever wrote it. So a process that wrongly believes that it leads uses
the same IDs. Every attempt writes under new keys. An attempt without a response may still arrive,
and then compaction must not remove its rows because of another attempt, so that the first record
stays the first.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.producers import init_producer_id
from twinlog.cluster.topics.internal_log import produce_batch
from twinlog.errors import Fate, FlowError, TwinlogError
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.generations import OF_PRODUCERS, fan_producers, giving_producer
from twinlog.model import TopicPartition
from twinlog.survey.state_reader import state_rows
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

TRIES: Final = 5
PAUSE_S: Final = 0.5


def known_fan_producers(target: ClusterClient) -> dict[tuple[str, int], int]:
    """Return the IDs of all flows, by flow and number of the source partition."""
    return fan_producers(state_rows(target).of_kinds(*OF_PRODUCERS))


def with_fan_producers(
    target: ClusterClient, flow: str, plans: Iterable[PartitionPlan]
) -> list[PartitionPlan]:
    """Return the plans with the producer IDs of keyed partitions. New IDs are recorded before
    they are used. Raises TwinlogError.
    """
    known = list(plans)
    wanted = {plan.source.partition for plan in known if plan.targets}
    if not wanted:
        return known
    ids = _ids(target, flow, wanted)
    return [
        replace(plan, producer_id=ids[plan.source.partition]) if plan.targets else plan
        for plan in known
    ]


def _ids(target: ClusterClient, flow: str, wanted: set[int]) -> dict[int, int]:
    fresh: dict[int, int] = {}
    for attempt in range(TRIES):
        every = known_fan_producers(target)
        ids = {number: every[flow, number] for number in wanted if (flow, number) in every}
        missing = wanted - ids.keys()
        if not missing:
            return ids
        for number in missing - fresh.keys():
            fresh[number] = init_producer_id(target).producer_id
        try:
            _give(target, flow, {number: fresh[number] for number in missing})
        except TwinlogError as error:
            if error.fate is not Fate.RETRIABLE or attempt == TRIES - 1:
                raise
            time.sleep(PAUSE_S)
    raise FlowError(
        f"its producer ids were written to {STATE_TOPIC}, and are missing there",
        flow=flow,
        code="STATE_CORRUPT",
        fate=Fate.RETRIABLE,
    )


def _give(target: ClusterClient, flow: str, ids: dict[int, int]) -> None:
    now_ms, claimant = int(time.time() * 1000), uuid.uuid4().hex
    rows = [giving_producer(flow, number, claimant, ids[number]) for number in sorted(ids)]
    records = [
        Record(offset=at, timestamp=now_ms, key=key, value=value, headers=())
        for at, (key, value) in enumerate(rows)
    ]
    # not retried: a repeated key could move after another process's record
    produce_batch(target, TopicPartition(STATE_TOPIC, 0), encode_batch(records, codec=Codec.NONE))
