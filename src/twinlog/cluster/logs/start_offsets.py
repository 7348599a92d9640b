"""Where a reader that begins again would begin, as ListOffsets says it.

The first record of a time is the first one, by offset, whose timestamp is not before it. Where
timestamps are out of order, records before that place may be newer, and ones behind it older. A
compacted log answers with what is left of it. Where no record is so new, a reader begins at the
end.
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
    """The first offset to read of each partition, or why it cannot be told.

    A given offset is answered as it is. For readers of committed records, the end is the last
    stable offset: what an open transaction wrote is still to be read.
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
    # the end first: a record that comes while the time is looked up must not be passed over
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
