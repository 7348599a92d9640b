"""Finds the first offset of a new reader by ListOffsets.

If the start is a time, the reader begins at the first record with this timestamp or a later one. If
timestamps are out of order, some records before this offset may be newer, and some records after it
may be older. Records that compaction has removed do not count. If no record is new enough, the
reader begins at the end.
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
    client: ClusterClient,
    starts: Mapping[TopicPartition, StartAt],
    *,
    isolation: Isolation,
    needs_match: bool = False,
) -> dict[TopicPartition, Begin]:
    """Return the first offset to read in each partition, or the error. With `needs_match`, the
    offset is -1 if no record is new enough.

    A start that is an offset is returned unchanged. With READ_COMMITTED, the end is the last stable
    offset, so that the reader later also reads the records of transactions that are open now.
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
    # the ends are read before the times are looked up, so that records that arrive between these
    # two requests are not skipped
    timed = [tp for at, tps in by_time.items() if at >= 0 and not needs_match for tp in tps]
    ends = list_offsets(client, timed, LATEST, isolation=isolation) if timed else {}
    for at, tps in by_time.items():
        for tp, result in list_offsets(client, tps, at, isolation=isolation).items():
            out[tp] = _offset(result, ends.get(tp))
    return out


def _offset(result: OffsetResult | TwinlogError, end: OffsetResult | TwinlogError | None) -> Begin:
    if isinstance(result, TwinlogError):
        return result
    if result.offset >= 0 or end is None:
        return result.offset
    return end if isinstance(end, TwinlogError) else end.offset
