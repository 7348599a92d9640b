"""One partition: both logs walked from where both still have records to how far the copy is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twinlog.cluster.client import ClusterClient
from twinlog.control.verify.pieces import Log
from twinlog.errors import PartitionError
from twinlog.mirror.map.offset_map import Mark, PartitionMap, run_at
from twinlog.mirror.map.runs import Run
from twinlog.mirror.map.translation import Reach, reach_of
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.verify.difference import Compared, Gap, Kind, Range
from twinlog.mirror.verify.pairs import Pairs, with_own_batches
from twinlog.mirror.verify.side import Side
from twinlog.mirror.verify.walk import Rules, Walk

NOT_COPIED = "not copied, and no mirror runs that would"
NO_TOPIC = "the target has no such topic, and no mirror runs that would make it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Of a log, asked once."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One partition, and all that was asked of it before, in this order: the source's end, the
    target's, the map. So what the map and the target's end say is copied lies below them.
    """

    plan: PartitionPlan
    here: Bounds
    there: Bounds
    there_later: int
    """The target's end once the map was read: no mark of the map lies behind it."""
    here_later: int
    """The source's end, asked last: every copy that was read is of a record below it."""
    known: PartitionMap | None
    producers: frozenset[int]
    """All of the flow."""
    rules: Rules
    committed: bool
    is_led: bool
    source_may_lack: bool
    target_may_lack: bool
    since: int = 0
    until: int | None = None
    """Offsets of the source; None: to its end."""


OnStep = Callable[[int], None]
"""Told so many more offsets of the target."""


def verify_partition(
    wanted: Wanted,
    source: ClusterClient,
    target: ClusterClient,
    on_step: OnStep,
    found: Compared,
) -> None:
    """Fills in what differs. Raises TwinlogError where that cannot be told of the rest."""
    here = Log(
        client=source,
        tp=wanted.plan.source,
        start=wanted.here.start,
        end=wanted.here.end,
        committed=wanted.committed,
    )
    there = Log(
        client=target, tp=wanted.plan.target, start=wanted.there.start, end=wanted.there.end
    )
    _Partition(wanted, here, there, on_step, found).compare()


class _Partition:
    def __init__(
        self, wanted: Wanted, here: Log, there: Log, on_step: OnStep, found: Compared
    ) -> None:
        self._wanted = wanted
        self._here, self._there = here, there
        self._on_step = on_step
        self._found = found
        self._told = 0

    def compare(self) -> None:
        known, there = self._wanted.known, self._there
        if known is None or not known.runs:
            if there.end > there.start and not self._wanted.rules.is_shared:
                raise PartitionError(
                    f"{there.tp}: holds records, but the offset map has no row that says which: "
                    "twinlog offsets rebuild makes it anew from both logs",
                    code="MAP_MISSING",
                )
            self._never_copied()
        else:
            self._copied(known)
        self._found.bytes = there.bytes

    def _never_copied(self) -> None:
        begin = max(self._here.start, self._since)
        side = self._source_side(begin, begin)
        # a walk needs a run: where everything is still to come, it is at the beginning
        walk = Walk(
            pairs=Pairs([Run(0, begin, self._there.end)]),
            source=side,
            target=self._target_side(self._there.end),
            rules=self._wanted.rules,
            compared=self._found,
        )
        self._look_for_pending(walk, side)

    def _copied(self, known: PartitionMap) -> None:
        runs, reach = self._reached(known)
        pairs, wanted = Pairs(runs), self._wanted
        begin, there = self._begin(pairs)
        limit = reach.upstream if wanted.until is None else min(reach.upstream, wanted.until)
        # what a mirror copied since the source's end was asked is read, too
        self._here.end = max(self._here.end, limit)
        # but no offset that the source has not reached: nothing was compacted away there
        here_end = max(wanted.here_later, wanted.here.end)
        side = self._source_side(begin, max(begin, min(limit, here_end)))
        target = self._target_side(there)
        if limit < reach.upstream:
            target.limit = max(there, pairs.first_place(limit))
        elif wanted.rules.is_shared:
            target.limit = min(target.limit, max(there, reach.downstream))
        walk = Walk(
            pairs=pairs,
            source=side,
            target=target,
            rules=wanted.rules,
            compared=self._found,
            on_step=self._tell,
        )
        self._told = there
        walk.walk()
        self._tell(max(self._told, self._there.end))
        if limit == reach.upstream:
            self._look_for_pending(walk, side)

    def _look_for_pending(self, walk: Walk, side: Side) -> None:
        is_led = self._wanted.is_led
        records = walk.look_for_pending(self._until, count_all=not is_led)
        pending = self._found.pending
        if pending is not None and not is_led:
            self._found.differs(Kind.MISSING, pending, None, records, NOT_COPIED)

    @property
    def _since(self) -> int:
        return min(self._wanted.since, self._here.end)

    @property
    def _until(self) -> int:
        end, until = self._wanted.here.end, self._wanted.until
        return end if until is None else min(until, end)

    def _reached(self, known: PartitionMap) -> tuple[Sequence[Run], Reach]:
        """How far the copy is: by the target's end, or further where the map says that it was."""
        wanted, there = self._wanted, self._there
        runs: Sequence[Run] = known.runs
        if wanted.rules.is_shared:
            ours = wanted.producers | known.producers
            mark = known.mark or Mark(runs[0].ordinal, runs[0].downstream)
            headers = (one.header for one in there.pieces(max(mark.downstream, there.start)))
            runs, mark = with_own_batches(runs, mark, headers, ours)
            there.bytes = 0
            return runs, _reach(runs, mark)
        reach = reach_of(known, there.end, is_shared=False)
        assert reach is not None  # noqa: S101 (there are runs)
        mark_of_map = known.mark
        if mark_of_map is not None and mark_of_map.downstream > wanted.there_later:
            reach = max(reach, _reach(runs, mark_of_map))  # the target's log lost its end
        return runs, reach

    def _begin(self, pairs: Pairs) -> tuple[int, int]:
        """(source offset, target offset) from which both may have all; counts what is before."""
        gaps, first = self._found.gaps, pairs.first
        here, there = self._here, self._there
        gaps[Gap.BEFORE_COPY] += max(0, first.upstream - here.start)
        gaps[Gap.BEFORE_MAP] += max(0, first.downstream - there.start)
        begin = max(here.start, first.upstream)
        place = pairs.first_place(begin)
        gaps[Gap.SOURCE_DELETED] += max(
            0, min(place, there.end) - max(first.downstream, there.start)
        )
        begin = max(begin, self._since)
        place = pairs.first_place(begin)
        if there.start > place:
            gaps[Gap.TARGET_DELETED] += there.start - place
            return max(begin, pairs.first_origin(there.start)), there.start
        return begin, place

    def _source_side(self, begin: int, limit: int) -> Side:
        return Side(
            self._here.pieces(max(begin, self._here.start)),
            begin,
            limit,
            start=lambda: self._here.start,
            may_lack=self._wanted.source_may_lack,
            compared=self._found,
        )

    def _target_side(self, begin: int) -> Side:
        return Side(
            self._there.pieces(max(begin, self._there.start)),
            begin,
            self._there.end,
            start=lambda: self._there.start,
            may_lack=self._wanted.target_may_lack,
            compared=self._found,
        )

    def _tell(self, offset: int) -> None:
        if offset > self._told:
            self._on_step(offset - self._told)
            self._told = offset


def _reach(runs: Sequence[Run], mark: Mark) -> Reach:
    last = run_at(runs, mark.ordinal - 1)
    if last is None:
        return Reach(runs[0].upstream, max(mark.downstream, runs[0].downstream))
    return Reach(last.upstream_of(mark.ordinal - 1) + 1, mark.downstream)


def never_made(here: Range) -> Compared:
    """Of a partition whose target topic is not there, while nobody makes it."""
    found = Compared()
    found.differs(Kind.MISSING, here, None, here.next - here.first, NO_TOPIC)
    return found
