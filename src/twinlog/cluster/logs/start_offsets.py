"""Finds where a new reader begins, with ListOffsets.

A time stands for the first offset whose record has this timestamp or a later one. If timestamps are
out of order, some records before that offset may be newer, and some after it older. In a compacted
log, the first remaining record counts. If no record is as new, the reader begins at the end.
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
    """Return the first offset to read in each partition, or the error.

    A given offset is returned unchanged. With READ_COMMITTED, the end is the last stable offset:
    records after it belong to open transactions, and are to be read when these have ended.
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
    # the ends are read first, so that no record is skipped that arrives while times are looked up
    timed = [tp for at, tps in by_time.items() if at >= 0 for tp in tps]
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
