"""The flow back, B->A: what it copies, what it cannot copy, and where it begins.

Under the default policy it creates `B.orders` on A, and is independent of this failback, because
names show where records came from. So records that new owners wrote to `A.orders` on B stay there.

Under the identity policy it writes to the same topics that A had. It must begin at B's record after
the last common one, and never copy that one again. This is set by rows of its own offset map, which
are written before the flow is first started:

    A->B    (ordinal, offset on A, offset on B)   of every record that both have
    B->A    (ordinal, offset on B, offset on A)   the same, reversed
            (n, first on B that A lacks, end of A's log)   the next record, after the tail

The mark is the end of A's log. So the start finds its position as after any restart, and a record
that another client writes to A after the mark is foreign (TAKEN_OVER). Every offset of the common
records is translated exactly by everything that reads maps: the flow's own group sync, and
`switchover`.

The rows have the term (-1, 0), before all generations; a later leader of the flow cuts after them.

- A run dies before or while it writes the rows: the guard still refuses the flow (COPIED_BACK),
  since by rows of B's state topic the topics are copies of A's. The next run writes the same rows.
- It dies after them, before those rows of copies have ended (`mirror.state.copies`): the same.
- A grew in the meantime: the next run writes the mark and the last run of offsets again.
- A frozen run continues while the flow runs: its rows are below the first cut, and void after it.
- The flow was already started: its own rows are newer. So nothing is written, and the records that
  it copied to A are no part of the tail (`Reverse.settled`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from twinlog.cluster.topics.internal_log import append_rows, ensure_compacted_topic
from twinlog.control.cutover.scope import CutoverScope, Say
from twinlog.control.failback.parting import Parting
from twinlog.errors import FlowError
from twinlog.mirror.map.offset_map import (
    MAP_PARTITIONS,
    ChunkRow,
    Mark,
    PartitionKey,
    Term,
    map_home,
)
from twinlog.mirror.map.runs import Run, run_at
from twinlog.mirror.names.naming import map_topic_of
from twinlog.model import TopicPartition
from twinlog.quantities import count, first_few, plural
from twinlog.survey.cluster_state import cluster_state, write_copies
from twinlog.survey.ends import NO_ENDS
from twinlog.survey.picture import read_maps
from twinlog.survey.replica import Maps

BEFORE_ALL: Final = Term(-1, 0)
"""The term of rows that were written before any process led the flow."""
RUNS_PER_ROW: Final = 400
"""Runs per row: as many as a lane writes to one (`mirror.map.map_tail`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverseStart:
    """Where the flow back begins in one partition, under the identity policy."""

    tp: TopicPartition
    key: PartitionKey
    runs: tuple[Run, ...]
    mark: Mark

    @property
    def begin(self) -> int:
        """Return the first offset of B that the flow copies."""
        return self.runs[-1].upstream

    def rows(self) -> Iterator[ChunkRow]:
        for chunk, at in enumerate(range(0, len(self.runs), RUNS_PER_ROW)):
            some = self.runs[at : at + RUNS_PER_ROW]
            is_last = at + RUNS_PER_ROW >= len(self.runs)
            yield ChunkRow(
                key=self.key,
                term=BEFORE_ALL,
                chunk=chunk,
                topic=self.tp.topic,
                runs=some,
                mark=self.mark if is_last else None,
            )


def reverse_start(flow: str, one: Parting) -> ReverseStart | None:
    """Return where the flow back begins in a partition, or None if B does not have it.

    Raises FlowError (REVERSE_UNKNOWN) if B has records between the copied ones, or before them,
    that never were on A. Then no single offset separates copied from new records.
    """
    copy = one.copy
    if copy is None:
        if one.target_log is None:
            return None
        key = PartitionKey(one.target_id, one.topic_id, one.source.partition)
        run = Run(0, one.target_log[0], one.log[1])
        return ReverseStart(tp=one.source, key=key, runs=(run,), mark=Mark(0, one.log[1]))
    known, common = copy.known, copy.ordinal - one.lost_records
    first = known.runs[0]
    k = first.downstream - first.ordinal
    apart = [
        run for run in known.runs if run.ordinal < common and run.downstream - run.ordinal != k
    ]
    start = 0 if one.target_log is None else one.target_log[0]
    if apart or copy.reach.downstream != k + copy.ordinal:
        raise _unknown(flow, one, "between the copied records")
    if known.before is None and start < first.downstream:
        raise _unknown(flow, one, f"before offset {first.downstream}, where the copy began")
    runs = [
        Run(run.ordinal, run.downstream, run.upstream) for run in known.runs if run.ordinal < common
    ]
    following = Run(common, k + common, one.log[1])
    if not runs or not following.continues(runs[-1]):
        runs.append(following)
    return ReverseStart(
        tp=one.source,
        key=PartitionKey(copy.key.target_topic_id, copy.key.source_topic_id, one.source.partition),
        runs=tuple(runs),
        mark=Mark(common, one.log[1]),
    )


def _unknown(flow: str, one: Parting, where: str) -> FlowError:
    return FlowError(
        f"{one.target} of the target holds records {where} that never were on the source, so "
        "the flow back has no single start offset; leave its topic out with --topics, and give it "
        "another name on the way back",
        flow=flow,
        code="REVERSE_UNKNOWN",
    )


class Reverse:
    """Prepares the flow back of one flow. Not thread-safe."""

    def __init__(self, scope: CutoverScope, say: Say) -> None:
        self._scope, self._say = scope, say
        flow = scope.config.flow
        self.name = f"{flow.target}->{flow.source}"
        self._map_topic = map_topic_of(flow.reverse)

    def prepare(self, found: Sequence[Parting]) -> int:
        """Report where the flow back begins, and permit it. Return how many partitions were set.

        Does nothing under the default policy. Raises FlowError if there is no single start offset.
        """
        if not self._scope.setup.is_identity:
            return 0
        starts = [start for one in found if (start := reverse_start(self._scope.name, one))]
        maps = self._maps()
        begun = [one for one in starts if self._has_begun(maps, one)]
        fresh = [one for one in starts if one not in begun]
        if begun:
            names = first_few(str(one.tp) for one in begun)
            self._say(f"flow back: {self.name} was started before, and resumes at: {names}")
        self._write(fresh)
        for one in fresh:
            self._say(f"flow back: {one.tp}: begins at offset {one.begin} of the target")
        self._let_in({one.tp.topic for one in starts})
        return len(fresh)

    def settled(self, found: Sequence[Parting]) -> list[Parting]:
        """Return the partitions without the records that the flow back wrote to A, which are not
        part of the tail."""
        if not self._scope.setup.is_identity:
            return [*found]
        maps = self._maps()
        return [self._settled(maps, one) for one in found]

    def _settled(self, maps: Maps, one: Parting) -> Parting:
        key = PartitionKey(one.target_id, one.topic_id, one.source.partition)
        known = maps.get(key)
        if known is None or known.term <= BEFORE_ALL or not known.runs or one.problem is not None:
            return one
        common = 0 if one.copy is None else one.copy.ordinal - one.lost_records
        run = run_at(known.runs, common)
        end = one.log[1] if run is None else min(one.log[1], run.downstream_of(common))
        return replace(one, log=(one.log[0], end), stable=min(one.stable, end), is_home=True)

    def lines(self, found: Sequence[Parting]) -> Iterator[str]:
        """Yield the operator's next steps after the run."""
        scope = self._scope
        yield f"the flow back: in the file, {scope.name}.enabled = false and"
        yield f"  {self.name}.enabled = true; then start the mirror with it"
        if scope.setup.is_identity:
            yield "  failback run lets it begin after the last record that both sides have"
            yield "  its group sync translates groups exactly; they resume after the source's tail"
        else:
            yield (
                f"  topics of {scope.config.flow.target} come as "
                f"{scope.config.flow.target}{scope.config.policy.separator}TOPIC"
            )
            behind = sum(one.copy.behind for one in found if one.copy is not None)
            names = sorted({one.target.topic for one in found if one.copy is not None})
            if names:
                yield (
                    f"  {first_few(names)}: copies from {scope.config.flow.source} by their names, "
                    f"so not copied back: {count(behind)} offsets of new owners stay there"
                )
            yield "  groups fail back by its group sync (docs/groups.md)"
        yield f"  when it has caught up: twinlog switchover run FILE --flow '{self.name}'"
        if scope.setup.is_identity:
            yield "  for a day its gate `foreign` names earlier producers there: --accept foreign"

    def _maps(self) -> Maps:
        maps = read_maps(self._scope.source, self._scope.config.flow.reverse, after=NO_ENDS)
        maps.require_all()
        return maps

    def _has_begun(self, maps: Maps, one: ReverseStart) -> bool:
        known = maps.get(one.key)
        if known is None or known.term < BEFORE_ALL or not known.runs:
            return False
        if known.term > BEFORE_ALL:
            return True
        if known.runs[-1].ordinal > one.runs[-1].ordinal:
            raise FlowError(
                f"{one.tp}: an earlier run found {known.runs[-1].ordinal} records on "
                f"both sides, now they are {one.runs[-1].ordinal}: the source has lost records "
                "since; leave its topic out with --topics",
                flow=self.name,
                code="REVERSE_UNKNOWN",
            )
        return False

    def _write(self, starts: Sequence[ReverseStart]) -> None:
        rows = [row for one in starts for row in one.rows()]
        if not rows:
            return
        partitions = ensure_compacted_topic(
            self._scope.source,
            self._map_topic,
            partitions=MAP_PARTITIONS,
            replication_factor=self._scope.config.state_topic_replication_factor,
            on_unseen=lambda _: None,
        )
        by_home: dict[int, list[tuple[bytes, bytes]]] = {}
        for row in rows:
            home = map_home(TopicPartition(row.topic, row.key.partition), partitions)
            by_home.setdefault(home, []).append(row.encode())
        now_ms = int(time.time() * 1000)
        for home, some in by_home.items():
            append_rows(self._scope.source, TopicPartition(self._map_topic, home), some, now_ms)

    def _let_in(self, topics: set[str]) -> None:
        """End the rows that state that B's topics are copies of A's, so that these may be copied to
        A."""
        target = self._scope.target
        state = cluster_state(target)
        ended = [
            structs.replace(row, ended=True)
            for (flow, _), row in state.rows.items()
            if flow == self._scope.name and row.source_topic in topics and not row.ended
        ]
        if ended:
            write_copies(target, ended, int(time.time() * 1000))
            self._say(f"flow back: {self.name} may copy {plural(len(ended), 'topic')}")
