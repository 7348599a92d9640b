"""Reads the bounds of logs, for all partitions of a cluster at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from enum import Flag, auto
from typing import Final

from msgspec import Struct

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    list_offsets,
    log_ends,
)
from twinlog.cluster.logs.producers import known_producers
from twinlog.cluster.topics.internal_log import readable_ends
from twinlog.config.flow.schema import FlowConfig
from twinlog.errors import TwinlogError, or_raise
from twinlog.mirror.plan import PartitionPlan
from twinlog.model import Isolation, TopicPartition


class LogState(Struct, frozen=True):
    """One partition's log as its leader reported it. A value is None if it was not requested, or if
    the leader did not return it.
    """

    start: int | None = None
    end: int | None = None
    """The high watermark, or the last stable offset if only committed records are read."""
    newest_ms: int | None = None
    """The largest timestamp of a record; -1 if there is no record."""
    problem: TwinlogError | None = None
    """The error because of which the start or end is unknown, or None."""


class Want(Flag):
    """What to read in addition to the ends. Each flag costs one request per leader."""

    ENDS = 0
    STARTS = auto()
    TIMES = auto()
    PRODUCERS = auto()


class Ends(dict[TopicPartition, LogState]):
    """The logs of one cluster at one moment. Only `read_ends` creates this type, so a function with
    a parameter of this type runs after the ends were read.
    """


NO_ENDS: Final = Ends()
"""Empty ends, for callers that do not compare a map with a log."""


def read_ends(
    client: ClusterClient,
    tps: Iterable[TopicPartition],
    want: Want = Want.ENDS,
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Ends:
    """Return the logs of these partitions. Starts are read first, so no start is after its end.

    Raises TwinlogError if the cluster cannot be queried.
    """
    tps, ends_read = list(dict.fromkeys(tps)), Ends()
    if not tps:
        return ends_read
    starts = list_offsets(client, tps, EARLIEST) if Want.STARTS in want else {}
    ends = list_offsets(client, tps, LATEST, isolation=isolation)
    times = list_offsets(client, tps, MAX_TIMESTAMP) if Want.TIMES in want else {}
    for tp in tps:
        start, end, newest = starts.get(tp), ends[tp], times.get(tp)
        newest_ms = None if newest is None or isinstance(newest, TwinlogError) else newest.timestamp
        if isinstance(start, TwinlogError):
            ends_read[tp] = LogState(newest_ms=newest_ms, problem=start)
        elif isinstance(end, TwinlogError):
            ends_read[tp] = LogState(newest_ms=newest_ms, problem=end)
        else:
            ends_read[tp] = LogState(None if start is None else start.offset, end.offset, newest_ms)
    return ends_read


def log_starts(client: ClusterClient, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the start of each log. Raises the error of the first log that cannot be queried."""
    return {
        tp: or_raise(result).offset for tp, result in list_offsets(client, tps, EARLIEST).items()
    }


def log_bounds(
    client: ClusterClient, tp: TopicPartition, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> tuple[int, int]:
    """Return start and end of one log. Raises the error that its leader returned."""
    return log_starts(client, [tp])[tp], readable_ends(client, [tp], isolation)[tp]


def append_ends(client: ClusterClient, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the offset of the next append to each log, which may be above the high watermark.
    Raises the error of the first log that cannot be queried.
    """
    return {tp: or_raise(end).end_offset for tp, end in log_ends(client, tps).items()}


def last_appends(
    client: ClusterClient, tps: Collection[TopicPartition], producers: Collection[int]
) -> dict[TopicPartition, object]:
    """Return, for each partition, a value that changes if one of these producers appends a record:
    the last sequences of those producers that the partition's leader remembers, or the log end if
    it remembers none of them. Raises the error of the first log that cannot be queried.
    """
    ends, states = append_ends(client, tps), known_producers(client, tps)
    ours = {
        tp: {id_: state.last_sequence for id_, state in known.items() if id_ in producers}
        for tp, known in states.items()
    }
    return {tp: ours.get(tp) or end for tp, end in ends.items()}


def empty_logs(client: ClusterClient, tps: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Return partitions that certainly have no record. Partitions whose leader does not respond are
    left out, because they may have records.
    """
    logs = read_ends(client, tps, Want.STARTS)
    return {tp for tp, log in logs.items() if log.end is not None and log.start == log.end}


def with_ends(
    source: ClusterClient, flow: FlowConfig, plans: Iterable[PartitionPlan]
) -> list[PartitionPlan]:
    known = list(plans)
    ends = known_ends(source, flow, [plan.source for plan in known])
    # a partition that cannot be queried still goes to its lane, which reports why
    return [replace(plan, end=ends[plan.source]) if plan.source in ends else plan for plan in known]


def known_ends(
    source: ClusterClient, flow: FlowConfig, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the end of each partition that could be queried, as the flow reads it (the last stable
    offset under read_committed).

    Raises TwinlogError if the cluster cannot be queried.
    """
    return known_offsets(source, partitions, LATEST, isolation=flow.isolation_level)


def known_starts(
    client: ClusterClient,
    partitions: Iterable[TopicPartition],
    timeout_s: float | None = None,
) -> dict[TopicPartition, int]:
    """Return the log start of each partition that could be queried, like `known_offsets`."""
    return known_offsets(client, partitions, EARLIEST, timeout_s=timeout_s)


def known_offsets(
    client: ClusterClient,
    partitions: Iterable[TopicPartition],
    timestamp: int = LATEST,
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    timeout_s: float | None = None,
) -> dict[TopicPartition, int]:
    """Return the offset at `timestamp` (as in ListOffsets) of each partition that could be queried.

    Raises TwinlogError if the cluster cannot be queried.
    """
    offsets = list_offsets(client, partitions, timestamp, isolation=isolation, timeout_s=timeout_s)
    return {
        tp: offset.offset for tp, offset in offsets.items() if not isinstance(offset, TwinlogError)
    }
