"""Exact translation of an offset from one side of a flow to the other, by the offset map.

A committed offset is a resume point: reading resumes at the first record at or after it. So its
translation is the offset of that record on the other side:

    upstream   100 101 102  .  104 105  .   .  108        dots: markers, compacted, aborted
    downstream  70  71  72      73  74          75        the copy is at (109, 76)

    101 -> 71    103 -> 73 (in a gap: the record after it)    106 -> 75    109 -> 76 (the next one)
    110 -> 76, not exact: 109 was not copied yet, and must not be skipped
     50 -> 70: records that the flow did not copy are not on the other side; if MirrorMaker 2
               copied them before, its offset syncs yield an inexact offset (`mm2_offsets`)

**Problem.** If a group's offset on the target is too high, the group skips records, silently. If it
is too low, the group reads some records twice. So a translation must never be higher than the true
offset, although map, log ends and copy change while they are read, and rows of the map may be lost.

**Rules**

A. Rows of the map are written ahead of their data, so the map alone does not show how far the copy
   is. The copy's `Reach` shows how far it is, and must be known *before* the map is read. Otherwise
   the map may be older than the reach and lack a gap below the reach, so that a translation skips
   records.
B. No translation is after the reach. An offset above the reach is translated to the reach itself,
   so nothing is skipped, and some records are read again.
C. In a shared topic, foreign records are between this flow's records. The translation is still the
   offset of this flow's record. If another client has just written between them, the map is
   corrected a moment later. Until then the translation is too low, never too high.

**Why a group is never set ahead of the truth**

- *The map announces records that are not on the target yet*: rule B limits the translation.
- *The map is older than the end of the copy*: rule A prevents this by the order of reading
  (`survey.replica`).
- *The map lost its newest rows* (unclean election): while a lane copies, no offset is translated
  with rows of a newer leader epoch than the lane has confirmed (`lane.map_writer`). Before a lane
  has compared the last records of both logs, the partition is not translated at all
  (`control.groups.counterparts`).
- *The map was rebuilt, or corrected by a start*: target records whose source records were not found
  get the highest possible upstream offsets. So an offset is translated to an earlier record than
  the true one (`rebuilt_map`, rule E).
- *Records were copied by MirrorMaker 2 before the map begins*: MirrorMaker 2's last offset sync at
  or before the offset is used.
- *A topic was re-created*: the new topic has another ID, so the map does not apply to it, and no
  offset is set.
- *The group has members on the target, or a higher offset there*: its offset is not set
  (`checkpoints`). The coordinator rejects the commit if a member joins in the meantime.

**Rejected:** MirrorMaker 2's offset syncs as the source of truth. A reader of these syncs keeps 64
pairs, so an offset far before the log's end is translated to an offset well below the true one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from twinlog.mirror.map.mm2_offsets import downstream_before, upstream_before
from twinlog.mirror.map.offset_map import PartitionMap
from twinlog.mirror.map.runs import (
    DOWNSTREAM,
    UPSTREAM,
    Run,
    following,
    is_transformed,
    run_at,
)


class Reach(NamedTuple):
    """How far a copy is: all records below upstream offset `upstream` are on the target, below
    target offset `downstream`.
    """

    upstream: int
    downstream: int
    """Target offset that the next record will get."""


class Translation(NamedTuple):
    """The translation of an offset to the other side."""

    offset: int
    is_exact: bool
    """False in two cases: the offset to translate is after the copied records, or before the
    records in the map. Then `offset` may be lower than the true offset.
    """

    def within(self, log_start: int, log_end: int) -> int:
        """Return `offset`, moved into the log [log_start, log_end] of the side to which it was
        translated.
        """
        return min(max(self.offset, log_start), log_end)


def downstream_of(runs: Sequence[Run], reach: Reach, upstream: int) -> Translation:
    """Return the target offset that corresponds to `upstream`, a source offset at which a reader
    resumes.
    """
    if upstream > reach.upstream:
        return Translation(offset=reach.downstream, is_exact=False)
    mapped = _counterpart_of(runs, upstream, UPSTREAM, DOWNSTREAM)
    offset = reach.downstream if mapped is None else min(mapped, reach.downstream)
    return Translation(offset=offset, is_exact=True)


def downstream_within(
    partition_map: PartitionMap | None, reach: Reach, log: tuple[int, int], upstream: int
) -> Translation:
    """Return the same as `downstream_of`, moved into the target's log. `log`: its start and end
    offset. `partition_map`: None if the partition has no map.

    The result never skips a record that MirrorMaker 2 may have copied before the map begins.
    """
    runs = () if partition_map is None else partition_map.runs
    if partition_map is not None and _is_before_map(runs, log[0], upstream):
        earlier = downstream_before(partition_map.before or (), upstream)
        return Translation(offset=max(log[0], 0 if earlier is None else earlier), is_exact=False)
    translation = downstream_of(runs, reach, upstream)
    return Translation(offset=translation.within(*log), is_exact=translation.is_exact)


def _is_before_map(runs: Sequence[Run], log_start: int, upstream: int) -> bool:
    """Return True if the copy of the record at `upstream` may be in the target log before the first
    record of the map.

    MirrorMaker 2 may have copied such a record to an unknown offset, so no translation may skip it.
    In a topic to which other clients write, a group may therefore read foreign records again.
    """
    return bool(runs) and upstream < runs[0].upstream and log_start < runs[0].downstream


def upstream_within(
    partition_map: PartitionMap | None, reach: Reach, downstream: int
) -> Translation:
    """Return the same as `upstream_of`, but never an offset after a record that MirrorMaker 2
    copied before the map begins.
    """
    if partition_map is None:
        return upstream_of((), reach, downstream)
    if (
        partition_map.before is not None
        and partition_map.runs
        and downstream < partition_map.runs[0].downstream
    ):
        earlier = upstream_before(partition_map.before, downstream)
        return Translation(offset=0 if earlier is None else earlier, is_exact=False)
    return upstream_of(partition_map.runs, reach, downstream)


def upstream_of(runs: Sequence[Run], reach: Reach, downstream: int) -> Translation:
    """Return the source offset that corresponds to `downstream`, a target offset at which a reader
    resumes.
    """
    if downstream >= reach.downstream:
        return Translation(offset=reach.upstream, is_exact=downstream == reach.downstream)
    mapped = _counterpart_of(runs, downstream, DOWNSTREAM, UPSTREAM)
    offset = reach.upstream if mapped is None else min(mapped, reach.upstream)
    return Translation(offset=offset, is_exact=True)


def reach_at(runs: Sequence[Run], ordinal: int, downstream: int) -> Reach:
    """Return the reach of a copy: the flow has written `ordinal` records to the partition, all
    below target offset `downstream`.
    """
    first = runs[0]
    if ordinal <= first.ordinal:
        return Reach(first.upstream, max(downstream, first.downstream))
    # resume right after the last record, because the record of the next run may not be written yet
    last = run_at(runs, ordinal - 1) or first
    return Reach(last.upstream_of(ordinal - 1) + 1, downstream)


def reach_of(partition_map: PartitionMap, ordinal: int, downstream: int) -> Reach:
    """Return the same as `reach_at`. For transformed records, the reach extends to the announced
    source offset of the next record, because the records before that offset were filtered.
    """
    reach, run = (
        reach_at(partition_map.runs, ordinal, downstream),
        run_at(partition_map.runs, ordinal),
    )
    decided = (is_transformed(partition_map.transformed, at) for at in (ordinal - 1, ordinal))
    if run is None or not any(decided):
        return reach
    return reach._replace(upstream=max(reach.upstream, run.upstream_of(ordinal)))


def _counterpart_of(runs: Sequence[Run], offset: int, from_field: int, to_field: int) -> int | None:
    """Return the offset that the first record at or after `offset` has on the other side, or None
    if there is no run. The side is a field of `Run`: `offset` is of the side `from_field`, the
    result of the side `to_field`.

    A run has as many offsets as there are ordinals up to the next run. The offsets after these are
    a gap. They map to the begin of the next run.
    """
    if not runs:
        return None
    next_index = following(runs, offset, from_field)
    if next_index == 0:
        return runs[0][to_field]
    run = runs[next_index - 1]
    distance = offset - run[from_field]
    if next_index < len(runs) and distance >= runs[next_index].ordinal - run.ordinal:
        return runs[next_index][to_field]
    return run[to_field] + distance
