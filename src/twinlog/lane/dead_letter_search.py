"""Which records of a partition are in the dead-letter topic already (`mirror.copy.dead_letters`).

A start reads the whole log: no index says where the dead letters of a partition are, and their
timestamps are those of the records. All quarantining partitions of a search share one reading, so
they start after the other partitions of the search.
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


def quarantining(
    found: Mapping[TopicPartition, Found], takes: Iterable[TakePartition], work: Work
) -> dict[TopicPartition, StartPoint]:
    """Return the starts of partitions whose failed records go to the dead-letter topic."""
    asked = (take.source for take in takes if take.transform and work.dead_letters)
    return {tp: one for tp in asked if isinstance(one := found.get(tp), StartPoint)}


def with_dead_letters(
    starts: Mapping[TopicPartition, StartPoint],
    takes: Iterable[TakePartition],
    target: ClusterClient,
    work: Work,
) -> Mapping[TopicPartition, Found]:
    """Add to these starts the dead letters of their partitions that are on the target."""
    origins = {
        take.source: origin_of_copy(
            work.flow, take.source, take.source_topic_id, take.target_topic_id
        )
        for take in takes
        if take.source in starts
    }
    positions = {origin: starts[tp].upstream for tp, origin in origins.items()}
    try:
        there = find_dead_letters(target, TopicPartition(work.dead_letters, 0), positions)
    except TwinlogError as error:
        return dict.fromkeys(starts, error)
    return {tp: replace(starts[tp], dead_letters=there[one]) for tp, one in origins.items()}


def find_dead_letters(
    client: ClusterClient, home: TopicPartition, positions: Mapping[LetterOrigin, int]
) -> dict[LetterOrigin, DeadLettersThere]:
    """Return the dead letters of each copy that are at or after its position. Raises TwinlogError.

    Records above the high watermark count as well: a response may have been lost because replicas
    were behind. They cannot be read, so this waits until there are none.
    """
    topic_id = client.metadata([home.topic]).topics[home.topic].topic_id
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
        origin: DeadLettersThere(topic_id, end.leader_epoch, tuple(sorted(found[origin])))
        for origin in positions
    }
