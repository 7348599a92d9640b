"""Finds where a new reader would begin, by ListOffsets.

The first record of a time is the first one, by offset, whose timestamp is at or after it. If
timestamps are out of order, records before that offset may be newer, and later ones older. A
compacted log returns what is left of it. If no record is as new, a reader begins at the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, LATEST, OffsetResult, list_offsets
from twinlog.errors import TwinlogError
from twinlog.model import Isolation, StartAt, StartKind, TopicPartition

Begin = int | TwinlogError


def begin_offsets(
    client: ClusterClient, starts: Mapping[TopicPartition, StartAt], *, isolation: Isolation
) -> dict[TopicPartition, Begin]:
    """Return the first offset to read for each partition, or why it is unknown.

    A given offset is returned unchanged. For readers of committed records, the end is the last
    stable offset, because records of an open transaction are still to be read.
    """
    out: dict[TopicPartition, Begin] = {}
    by_time: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for tp, start in starts.items():
        match start.kind:
            case StartKind.OFFSET:
                out[tp] = start.value
            case StartKind.EARLIEST:
                by_time[EARLIEST].append(tp)
            case StartKind.LATEST:
                by_time[LATEST].append(tp)
            case StartKind.TIMESTAMP:
                by_time[start.value].append(tp)
    # the end first: a record that arrives during the lookup of the time must not be skipped
    timed = [tp for at, tps in by_time.items() if at >= 0 for tp in tps]
    ends = list_offsets(client, timed, LATEST, isolation=isolation) if timed else {}
    for at, tps in by_time.items():
        for tp, found in list_offsets(client, tps, at, isolation=isolation).items():
            out[tp] = _offset(found, ends.get(tp))
    return out


def _offset(found: OffsetResult | TwinlogError, end: OffsetResult | TwinlogError | None) -> Begin:
    if isinstance(found, TwinlogError):
        return found
    if found.offset >= 0 or end is None:
        return found.offset
    return end if isinstance(end, TwinlogError) else end.offset
