"""Rows of a map that is rebuilt: each leaves a map by which a mirror can start, if it is the last.

The fold knows no "all or nothing": a process that dies between two rows leaves the first ones. So
every row but the last ends with the newest runs of the log, and before them with a bridge over what
no row has said yet:

    row 0    runs 0..299                  bridge              the last 99 runs     "open": 1
    row 1         runs 300..599              bridge           the last 99 runs     "open": 1
    row n                                           all that is left

- The position behind the last record, and the last 99 records or more, which the tail check
  compares, are right after each row; so is K. What the bridge covers gets the highest offsets that
  it can have (`rebuilt_runs`, rule E), so a translation into it skips nothing.
- `"open": 1` says that runs are still missing: the command begins such a partition again, in a
  newer term, whose first row voids what this one said. The last row has `"open": 0`. No reader of
  the map looks at it.
- A repeat of a row (its answer was lost) says the same again; one that arrives behind a later chunk
  is void, and one that arrives in a later generation as well (`offset_map`, rules B and C).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from twinlog.mirror.map.map_tail import RUNS_PER_CHUNK
from twinlog.mirror.map.offset_map import ChunkRow, PartitionKey, Run, Term
from twinlog.mirror.map.rebuilt_runs import RunList

NEWEST_RUNS: Final = 99
"""In every row; each is one record at least, and the newest is of any length."""
RUNS_PER_ROW: Final = RUNS_PER_CHUNK - NEWEST_RUNS - 1
OPEN: Final = "open"


def rows(
    runs: RunList, *, key: PartitionKey, topic: str, term: Term, producers: Iterable[int]
) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of each row, in the order in which they must be written."""
    ours = sorted(producers)
    begin = chunk = 0
    while begin < len(runs) or chunk < len(ours):
        is_last_part = len(runs) - begin <= RUNS_PER_CHUNK
        some = list(_part(runs, begin))
        row = ChunkRow(
            key=key,
            term=term,
            chunk=chunk,
            topic=topic,
            runs=tuple(some),
            # a row names one: where several wrote, there is a row for each
            producer_id=ours[min(chunk, len(ours) - 1)] if ours else -1,
        )
        chunk += 1
        is_last = is_last_part and chunk >= len(ours)
        yield _marked(*row.encode(), is_open=not is_last)
        if is_last:
            return
        begin += 0 if is_last_part else RUNS_PER_ROW


def _part(runs: RunList, begin: int) -> Iterator[Run]:
    if len(runs) - begin <= RUNS_PER_CHUNK:
        yield from (runs[at] for at in range(begin, len(runs)))
        return
    yield from (runs[at] for at in range(begin, begin + RUNS_PER_ROW))
    bridged, newest = runs[begin + RUNS_PER_ROW], runs[len(runs) - NEWEST_RUNS]
    upstream = newest.upstream - (newest.ordinal - bridged.ordinal)
    yield bridged._replace(upstream=upstream)  # it continues into the newest ones
    yield from (runs[at] for at in range(len(runs) - NEWEST_RUNS + 1, len(runs)))


def _marked(key: bytes, value: bytes, *, is_open: bool) -> tuple[bytes, bytes]:
    fields = {**json.loads(value), OPEN: int(is_open)}
    return key, json.dumps(fields, separators=(",", ":")).encode()


class DescribedMaps:
    """Which partitions a map describes, without holding it; rows are given in log order."""

    def __init__(self) -> None:
        self._begins: dict[PartitionKey, int] = {}
        self._adopted: set[PartitionKey] = set()
        self._rebuilt: dict[PartitionKey, tuple[Term, bool]] = {}

    def add(self, key: bytes, value: bytes) -> None:
        """One row."""
        row = ChunkRow.decode(key, value)
        if not row.runs:
            return
        begin = row.runs[0].downstream
        self._begins[row.key] = min(begin, self._begins.get(row.key, begin))
        if row.before is not None:
            self._adopted.add(row.key)
        is_open = json.loads(value).get(OPEN)
        term, _ = self._rebuilt.get(row.key, (row.term, False))
        if is_open is not None and row.term >= term:
            self._rebuilt[row.key] = row.term, bool(is_open)

    def whole(self, key: PartitionKey, log_start: int) -> bool:
        """Whether it is described, by a rebuild that ended or from the target's log start on.

        A copy begins in an empty log. Where records lie before the first run, and no MirrorMaker 2
        wrote them, rows were lost: a lane that outlived them wrote its newest chunk again.
        """
        if key in self._rebuilt:
            return not self._rebuilt[key][1]
        return key in self._begins and (key in self._adopted or self._begins[key] <= log_start)
