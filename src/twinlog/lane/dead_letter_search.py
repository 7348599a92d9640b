"""Which records of a partition are in the dead-letter topic already (`mirror.copy.dead_letters`).

A start reads the whole log: no index says where the dead letters of a partition are, and their
timestamps are those of the records. All partitions that start together share one reading.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import LATEST, log_ends, offset_at
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.errors import Fate, PartitionError, TwinlogError, or_raise
from twinlog.lane.events import Found
from twinlog.lane.messages import TakePartition, Work
from twinlog.mirror.copy.dead_letters import LetterOrigin, origin_of_copy, origin_of_letter
from twinlog.mirror.start_point import DeadLettersThere, StartPoint
from twinlog.model import TopicPartition

VISIBLE_WITHIN_S: Final = 5.0
PAUSE_S: Final = 0.1


def with_dead_letters(
    found: Mapping[TopicPartition, Found],
    takes: Iterable[TakePartition],
    target: ClusterClient,
    work: Work,
) -> Mapping[TopicPartition, Found]:
    """Add to each transformed partition's start the dead letters that the target already
    has of it.
    """
    starts: dict[TopicPartition, tuple[StartPoint, LetterOrigin]] = {}
    for take in takes if work.dead_letters else ():
        start = found.get(take.source)
        if take.transform and isinstance(start, StartPoint):
            ids = take.source_topic_id, take.target_topic_id
            starts[take.source] = start, origin_of_copy(work.flow, take.source, *ids)
    if not starts:
        return found
    home = TopicPartition(work.dead_letters, 0)
    positions = {origin: start.upstream for start, origin in starts.values()}
    try:
        there = find_dead_letters(target, home, positions)
    except TwinlogError as error:
        return {**found, **dict.fromkeys(starts, error)}
    known = {
        tp: replace(start, dead_letters=there[origin]) for tp, (start, origin) in starts.items()
    }
    return {**found, **known}


def find_dead_letters(
    client: ClusterClient, home: TopicPartition, positions: Mapping[LetterOrigin, int]
) -> dict[LetterOrigin, DeadLettersThere]:
    """Return the dead letters of each copy that are at or after its position. Raises TwinlogError.

    Records above the high watermark count as well: a response may have been lost because replicas
    were behind. They cannot be read, so this waits until there are none.
    """
    end = or_raise(log_ends(client, [home])[home])
    deadline = client.deadline(VISIBLE_WITHIN_S)
    while offset_at(client, home, LATEST) < end.end_offset:
        if deadline.has_passed:
            raise PartitionError(
                f"{home}: its newest records are not on all in-sync replicas, and may be dead "
                "letters that must not be written twice; checking again",
                code="HELD_BACK",
                fate=Fate.RETRIABLE,
            )
        client.patience.sleep(PAUSE_S)
    found: dict[LetterOrigin, set[int]] = defaultdict(set)
    if end.end_offset > 0:
        for record in read_to_end(client, home.topic, home.partition, end=end.end_offset):
            known = origin_of_letter(record)
            if known is not None and known[1] >= positions.get(known[0], known[1] + 1):
                found[known[0]].add(known[1])
    return {
        origin: DeadLettersThere(end.leader_epoch, tuple(sorted(found[origin])))
        for origin in positions
    }
