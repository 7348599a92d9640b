"""Exact translation of an offset from one side of a flow to the other, by the offset map.

A committed offset says where to resume: at the first record at or after it. So its translation is
the place of that record on the other side:

    upstream   100 101 102  .  104 105  .   .  108        dots: markers, compacted, aborted
    downstream  70  71  72      73  74          75        the copy is at (109, 76)

    101 -> 71    103 -> 73 (in a gap: the record after it)    106 -> 75    109 -> 76 (the next one)
    110 -> 76, not exact: 109 was not copied yet, and must not be skipped
     50 -> 70: what the flow did not copy is not on the other side; but where a MirrorMaker 2 did
               before it, its offset syncs say the place, not exactly (`mirror.map.mm2_offsets`)

Rules:

A. Rows of the map are written ahead of their data, so the map alone does not say how far the copy
   is. Its `Reach` does, and must be known *before* the map is read: a map that is older than the
   reach may lack a gap below it, and a translation by it would skip records.
B. No answer lies behind the reach. An offset above it is answered with the reach itself: nothing is
   skipped, some records are read again.
C. In a topic that is not ours alone foreign records lie between ours. The answer is still the place
   of our record. That others wrote in between may be in the map only a moment later; until then the
   answer is too low, never too high.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twinlog.mirror.map.mm2_offsets import Pair, downstream_before, upstream_before
from twinlog.mirror.map.offset_map import PartitionMap
from twinlog.mirror.map.runs import DOWNSTREAM, UPSTREAM, Run, following, k_at, run_at
from twinlog.model import SEQUENCE_MODULUS, sequence_of


class Reach(NamedTuple):
    """How far a copy is: all records below `upstream` are on the target, below `downstream`."""

    upstream: int
    downstream: int
    """Where the next record will lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMap:
    """What is known of a pair of logs."""

    runs: Sequence[Run]
    before: Sequence[Pair] | None = None
    """Of what a MirrorMaker 2 copied before the first run; None: nobody did."""

    @classmethod
    def of(cls, known: PartitionMap | None) -> KnownMap:
        """As its map has it."""
        return cls(runs=()) if known is None else cls(runs=known.runs, before=known.before)


class Translation(NamedTuple):
    """An offset on the other side."""

    offset: int
    is_exact: bool
    """False: the offset asked for lies behind what was copied, or before what is known exactly; so
    this one is before it.
    """

    def within(self, log_start: int, log_end: int) -> int:
        """The offset moved to where the log of that side still has, or already has, records."""
        return min(max(self.offset, log_start), log_end)


def downstream_of(runs: Sequence[Run], reach: Reach, upstream: int) -> Translation:
    """Where on the target to resume, when on the source it is at `upstream`."""
    if upstream > reach.upstream:
        return Translation(offset=reach.downstream, is_exact=False)
    mapped = _offset_there(runs, upstream, UPSTREAM, DOWNSTREAM)
    offset = reach.downstream if mapped is None else min(mapped, reach.downstream)
    return Translation(offset=offset, is_exact=True)


def downstream_within(
    known: KnownMap, reach: Reach, log: tuple[int, int], upstream: int
) -> Translation:
    """As `downstream_of`, within the target's log (its start and its end), and never behind a
    record that may lie in it before the map begins.
    """
    runs = known.runs
    if _is_before_map(runs, log[0], upstream):
        earlier = downstream_before(known.before or (), upstream)
        return Translation(offset=max(log[0], 0 if earlier is None else earlier), is_exact=False)
    found = downstream_of(runs, reach, upstream)
    return Translation(offset=found.within(*log), is_exact=found.is_exact)


def _is_before_map(runs: Sequence[Run], log_start: int, upstream: int) -> bool:
    """Whether a record may lie, unknown where, in what the target held before our map begins: a
    MirrorMaker 2 copied it. It must not be skipped; in a topic that others write to, what is theirs
    may be read again for it.
    """
    return bool(runs) and upstream < runs[0].upstream and log_start < runs[0].downstream


def upstream_within(known: KnownMap, reach: Reach, downstream: int) -> Translation:
    """As `upstream_of`, and never behind a record that a MirrorMaker 2 copied before the map
    begins.
    """
    if known.before is not None and known.runs and downstream < known.runs[0].downstream:
        earlier = upstream_before(known.before, downstream)
        return Translation(offset=0 if earlier is None else earlier, is_exact=False)
    return upstream_of(known.runs, reach, downstream)


def upstream_of(runs: Sequence[Run], reach: Reach, downstream: int) -> Translation:
    """Where on the source to resume, when on the target it is at `downstream`."""
    if downstream >= reach.downstream:
        return Translation(offset=reach.upstream, is_exact=downstream == reach.downstream)
    mapped = _offset_there(runs, downstream, DOWNSTREAM, UPSTREAM)
    offset = reach.upstream if mapped is None else min(mapped, reach.upstream)
    return Translation(offset=offset, is_exact=True)


def reach_of(known: PartitionMap | None, target_end: int, *, is_shared: bool) -> Reach | None:
    """How far a copy surely was when the target's log ended at `target_end`, without asking its
    lane; None where nothing was ever copied.

    In a topic of ours alone the log end says it. In a shared one the last mark does, which may be
    some seconds old.
    """
    if known is None or not known.runs:
        return None
    if is_shared:
        return _reach_by_mark(known)
    return reach_at(known, target_end - k_at(known.runs, target_end), target_end)


def _reach_by_mark(known: PartitionMap) -> Reach:
    first = known.runs[0]
    if known.mark is None:
        return reach_at(known, first.ordinal, first.downstream)
    return reach_at(known, known.mark.ordinal, known.mark.downstream)


def reach_at(known: PartitionMap, ordinal: int, downstream: int) -> Reach:
    """Return how far a copy of `ordinal` records is, if its last record is below `downstream`."""
    first = known.runs[0]
    if ordinal <= first.ordinal:
        return Reach(first.upstream, max(downstream, first.downstream))
    # behind the last record, not at the next one: that one may only be announced yet
    last = run_at(known.runs, ordinal - 1) or first
    return Reach(last.upstream_of(ordinal - 1) + 1, downstream)


class Copied(NamedTuple):
    """How far a partition is copied, by its map and its target log."""

    reach: Reach
    end: int
    """End of the target's log without the records that other clients appended after the copy."""
    is_exact: bool
    """The copy ends at `reach`. If False, it ends there or later."""


def copied_to(
    known: PartitionMap | None,
    end: int,
    last_sequences: Mapping[int, int],
    *,
    is_shared: bool,
    has_new_owners: Callable[[], bool],
) -> Copied | None:
    """Return how far a copy is if the target's log ended at `end`, or None if nothing was copied.

    `last_sequences`: the last sequence of each producer that the leader remembers, read after the
    end. `has_new_owners` returns True if other clients may write to the topic after the copy (it
    was promoted or released). It is called only if the answer depends on it, because it reads the
    state topic.

    | topic | its leader | new owners | the copy ends |
    | --- | --- | --- | --- |
    | only this flow writes to it | remembers our producer ID | | at its last sequence |
    | | has forgotten it | no | at the log's end |
    | | has forgotten it | yes | at the last mark or later |
    | other clients write to it, too | | | at the last mark or later |

    A final mark is exact. A leader that remembers an earlier producer ID of the flow may have
    forgotten the last one; a mark after the remembered sequence shows that.
    """
    if known is None or not known.runs:
        return None
    mark = known.mark
    others = None if is_shared else others_behind(known, end, last_sequences)
    if others is not None and mark is not None and end - others < mark.downstream <= end:
        others = None
    if is_shared or (others is None and has_new_owners()):
        reach = _reach_by_mark(known)
        is_final = mark is not None and mark.is_final
        return Copied(reach, end if is_shared else min(reach.downstream, end), is_final)
    ours = end - (others or 0)
    return Copied(reach_at(known, ours - k_at(known.runs, ours), ours), ours, is_exact=True)


def others_behind(known: PartitionMap, end: int, last_sequences: Mapping[int, int]) -> int | None:
    """How many records of a log that ends at `end` lie behind our last one, in a topic that was
    ours alone: sequences are ordinals, and the leader remembers the last one of each producer id.
    None where it remembers none of ours.
    """
    last = end - 1 - k_at(known.runs, end)  # the ordinal, if all of it is ours
    ours = [sequence for id_, sequence in last_sequences.items() if id_ in known.producers]
    behind = [sequence_of(last - sequence) for sequence in ours]
    # what was copied since the end was asked for has a sequence ahead of it
    return min((0 if n > SEQUENCE_MODULUS // 2 else n for n in behind), default=None)


def _offset_there(runs: Sequence[Run], at: int, here: int, there: int) -> int | None:
    """The other side's offset of the first record that lies at or after `at` on this side.

    A run reaches until the next one's ordinal; what of `at` lies behind that is a gap.
    """
    if not runs:
        return None
    behind = following(runs, at, here)
    if behind == 0:
        return runs[0][there]
    run = runs[behind - 1]
    distance = at - run[here]
    if behind < len(runs) and distance >= runs[behind].ordinal - run.ordinal:
        return runs[behind][there]
    return run[there] + distance
