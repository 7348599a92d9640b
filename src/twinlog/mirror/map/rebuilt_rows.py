"""Writes the rows of a rebuilt map so that after each row a mirror could start from the map.

Several rows cannot be written atomically: if the process dies between two rows, the first ones
remain. So every row but the last ends with the newest runs of the log. A bridge over all runs that
no row contains yet comes before these:

    row 0    runs 0..299                  bridge              the last 99 runs     "open": 1
    row 1         runs 300..599              bridge           the last 99 runs     "open": 1
    row n                                           all remaining runs

- After each row, the position after the last record is right, and so are K and the last 99 or more
  records, which the tail check compares. Records under the bridge get the highest possible offsets
  (`rebuilt_runs`, rule E), so a translation of them skips nothing.
- `"open": 1` means that runs are still missing: the command begins such a partition again, in a
  newer term, whose first row voids this one's. The last row has `"open": 0`. Readers of the map
  ignore the field.
- A repeated row (its response was lost) has the same content. If it arrives after a later chunk, or
  in a later generation, it is void (`offset_map`, rules B and C).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from twinlog.mirror.map.map_tail import RUNS_PER_CHUNK
from twinlog.mirror.map.offset_map import ChunkRow, PartitionKey, Run, Term
from twinlog.mirror.map.rebuilt_runs import RunList

NEWEST_RUNS: Final = 99
"""Newest runs in every row. Each has at least one record, and the newest may have any length."""
RUNS_PER_ROW: Final = RUNS_PER_CHUNK - NEWEST_RUNS - 1
OPEN: Final = "open"


def rows(
    runs: RunList, *, key: PartitionKey, topic: str, term: Term, producers: Iterable[int]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) of each row, in the order in which they must be written."""
    producer_ids = sorted(producers)
    begin = chunk = 0
    while begin < len(runs) or chunk < len(producer_ids):
        is_last_part = len(runs) - begin <= RUNS_PER_CHUNK
        portion = list(_part_of_runs(runs, begin))
        row = ChunkRow(
            key=key,
            term=term,
            chunk=chunk,
            topic=topic,
            runs=tuple(portion),
            # a row names one producer ID: several IDs need several rows
            producer_id=producer_ids[min(chunk, len(producer_ids) - 1)] if producer_ids else -1,
        )
        chunk += 1
        is_last = is_last_part and chunk >= len(producer_ids)
        yield _marked(*row.encode(), is_open=not is_last)
        if is_last:
            return
        begin += 0 if is_last_part else RUNS_PER_ROW


def _part_of_runs(runs: RunList, begin: int) -> Iterator[Run]:
    if len(runs) - begin <= RUNS_PER_CHUNK:
        yield from (runs[at] for at in range(begin, len(runs)))
        return
    yield from (runs[at] for at in range(begin, begin + RUNS_PER_ROW))
    bridged, newest = runs[begin + RUNS_PER_ROW], runs[len(runs) - NEWEST_RUNS]
    upstream = newest.upstream - (newest.ordinal - bridged.ordinal)
    yield bridged._replace(upstream=upstream)  # the bridged run continues into the newest runs
    yield from (runs[at] for at in range(len(runs) - NEWEST_RUNS + 1, len(runs)))


def _marked(key: bytes, value: bytes, *, is_open: bool) -> tuple[bytes, bytes]:
    fields = {**json.loads(value), OPEN: int(is_open)}
    return key, json.dumps(fields, separators=(",", ":")).encode()


class DescribedMaps:
    """Finds out which partitions a map describes, without keeping it in memory. Rows are added in
    log order.
    """

    def __init__(self) -> None:
        self._begins: dict[PartitionKey, int] = {}
        self._adopted: set[PartitionKey] = set()
        self._rebuilt: dict[PartitionKey, tuple[Term, bool]] = {}

    def add(self, key: bytes, value: bytes) -> None:
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
        """Return whether the partition is described: by a completed rebuild, or from the target's
        log start on.

        A copy begins in an empty log. If records exist before the first run, and MirrorMaker 2 did
        not write them, rows were lost, and a lane that survived wrote its newest chunk again.
        """
        if key in self._rebuilt:
            return not self._rebuilt[key][1]
        return key in self._begins and (key in self._adopted or self._begins[key] <= log_start)
