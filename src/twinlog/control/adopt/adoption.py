"""Adopts the copies of a MirrorMaker 2: finds where each partition that it copied resumes.

**Problem.** A MirrorMaker 2 commits its positions from time to time. So after a crash the target
has records after the committed position, perhaps some of them twice. A copy that resumed at the
committed position would copy these records again. A copy that resumed at the target's end would
have to know which source record is the last one there. Also, MirrorMaker 2 may still be running and
writing.

**Steps**, in order, and only while this process leads the flow:

1. Check that no worker of MirrorMaker 2's Connect group runs the connector, and that no transaction
   is open in a target topic. For some seconds, neither the committed positions nor the target
   topics may advance. Otherwise the adoption fails with `MM2_RUNNING`.
2. Select the partitions for which Twinlog has no position, and those to which MirrorMaker 2 has
   written after Twinlog.
3. For each of them, find the source record that equals the target's last record
   (`mirror.start.alignment`), at or after the position that MirrorMaker 2 committed.
4. Write a row of the offset map: ordinal 0 is the next source record, at the target's end. The row
   includes what MirrorMaker 2's offset syncs show of earlier records (`mirror.map.mm2_offsets`).

Once this row exists, the partition is like any other: earlier records of the target are not
Twinlog's, and later records of another producer are detected. A partition whose position is not
found does not start, and reports the reason.

**Rejected:** resuming at the committed position, because it repeats records. Also rejected:
deriving the position from offset syncs. They are sparse, and the newest one may be far before the
end.

**Verdicts.** `TakeOver` decides on each partition of the flow, and adds its verdict to the
partition's plan. A partition that MirrorMaker 2 copied must not start as a new one, because all of
its records would be copied again. A partition without a row in the offset map starts

- at the position of its adoption, once its row exists;
- as a new partition, if MirrorMaker 2 committed no position and nothing was ever written to it;
- not at all otherwise. It then fails with the code of the error that prevented its adoption.

Each discovery checks new partitions, and repeats the check of failed ones. After a retriable error,
the next discovery runs immediately.

- If the process dies before it writes the row of an adoption, nothing has begun, and the next check
  finds the same position.
- If the response to the row's write is lost, the next check finds the row or the same position.
- If the map was read before the row was written, the partition waits until the map is read again.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_members import connect_group
from twinlog.cluster.topics.configs import may_lack_offsets
from twinlog.cluster.topics.internal_log import append_rows, readable_ends
from twinlog.config.flow.connect import ConnectStep
from twinlog.config.flow.offset_storage import OffsetStorage
from twinlog.config.flow.schema import FlowConfig, PolicyKind
from twinlog.control.adopt.mm2_positions import (
    NO_PAIRS,
    Pairs,
    Positions,
    read_pairs,
    read_positions,
)
from twinlog.errors import AdoptionRefused, Fate, PartitionError, TwinlogError
from twinlog.mirror.findings import LogFinding
from twinlog.mirror.map.mm2_offsets import Pair, kept
from twinlog.mirror.map.offset_map import (
    ChunkRow,
    Mark,
    PartitionKey,
    PartitionMap,
    Run,
    Term,
    map_home,
)
from twinlog.mirror.names.filters import offset_syncs_topic
from twinlog.mirror.plan import PartitionPlan, Refusal
from twinlog.mirror.start.alignment import AlignedPosition, Alignment, identity
from twinlog.mirror.start.tail_check import TAIL_RECORDS
from twinlog.mirror.state.generations import Claim, producers_of_others
from twinlog.model import Isolation, TopicId, TopicPartition
from twinlog.survey.committed_log import read_committed
from twinlog.survey.ends import log_bounds, log_starts, read_ends
from twinlog.survey.map_reader import MapReader
from twinlog.survey.state_reader import has_state, state_rows
from twinlog.wire.record_batch import BatchHeader
from twinlog.wire.records import Headers, Record

STATE_WITHIN_S: Final = 10.0
QUIET_S: Final = 4.0
"""Seconds for which committed positions and target topics must not advance. A running MirrorMaker 2
with records polls more often.
"""

LOOKBACK: Final = 2 * TAIL_RECORDS
FURTHER_BACK: Final = (TAIL_RECORDS, 10_000, 1_000_000)
BEFORE_STARTS: Final = -1
"""The `start` of the `Term` in an adoption's map row. It is lower than that of any lane, so in the
same generation the rows of lanes come after the adoption's row.
"""

Maps = Mapping[PartitionKey, PartitionMap]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedPartition:
    """A partition that MirrorMaker 2 copied, and the position at which Twinlog resumes."""

    plan: PartitionPlan
    upstream: int
    downstream: int
    noted: int
    """The last source offset that MirrorMaker 2 committed as copied, or -1 if there is none."""
    jumped_back: bool
    """True if MirrorMaker 2 wrote some of its last records twice."""
    is_again: bool
    """True if Twinlog had copied the partition before MirrorMaker 2 copied more records of it."""
    before: tuple[Pair, ...]
    """Offset pairs of records before the resume position, from MirrorMaker 2's offset syncs."""

    def lines(self) -> Iterator[str]:
        """Yield a line for the operator about each unusual fact of this partition."""
        if self.noted >= 0 and self.upstream > self.noted + 1:
            yield (
                f"{self.plan.target} already holds [{self.noted + 1}, {self.upstream}) of "
                f"{self.plan.source}, but MirrorMaker 2 had not committed them as copied, so it "
                f"would have copied these {self.upstream - self.noted - 1} offsets again. Twinlog "
                "does not"
            )
        if self.jumped_back:
            yield (
                f"{self.plan.target}: MirrorMaker 2 wrote some of its last records twice; they "
                "stay as they are"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """The partitions to adopt from a MirrorMaker 2, and those that cannot be adopted."""

    partitions: tuple[AdoptedPartition, ...] = ()
    refused: Mapping[TopicPartition, TwinlogError] = field(default_factory=dict)
    """Why partitions that MirrorMaker 2 copied cannot be adopted, by source partition."""
    notes: tuple[str, ...] = ()

    @property
    def begins_again(self) -> bool:
        """True if a partition is adopted again. Then its ordinals (numbers of copied records)
        restart at 0. The flow needs a new producer ID, because sequences are ordinals.
        """
        return any(partition.is_again for partition in self.partitions)

    def facts(self) -> Iterator[str]:
        """Yield the lines of all partitions, then the notes and refusals, for the operator."""
        for partition in self.partitions:
            yield from partition.lines()
        yield from self.notes
        for problem in self.refused.values():
            yield f"not taken over from MirrorMaker 2: {problem}"

    def rows(self, generation: int, producer_id: int) -> Iterator[ChunkRow]:
        """Yield the row of the offset map for each adopted partition."""
        for partition in self.partitions:
            yield ChunkRow(
                key=partition.plan.map_key,
                term=Term(generation, BEFORE_STARTS),
                chunk=0,
                topic=partition.plan.source.topic,
                runs=(Run(0, partition.upstream, partition.downstream),),
                mark=Mark(0, partition.downstream),
                producer_id=producer_id,
                before=partition.before,
            )


NO_ADOPTION: Final = Adoption()


def write_rows(
    target: ClusterClient, topic: str, partitions: int, rows: Iterable[ChunkRow]
) -> None:
    """Append rows to the map topic `topic`, which has `partitions` partitions. From then on,
    Twinlog owns the source partitions to which the rows belong. Each row is a batch of its own,
    because several large rows may exceed the maximum size of a batch.
    """
    for row in rows:
        home = map_home(TopicPartition(row.topic, row.key.partition), partitions)
        append_rows(target, TopicPartition(topic, home), [row.encode()])


def refuse_running(target: ClusterClient, storage: OffsetStorage, flow: str) -> None:
    """Raise AdoptionRefused if a worker of MirrorMaker 2's Connect group runs the connector."""
    if connect_group(Coordinators(target), storage.group).may_run(storage.connector):
        raise AdoptionRefused(
            f"MirrorMaker 2 is running: workers of group {storage.group} on "
            f"{target.alias} run {storage.connector}; stop it first, then adopt its positions",
            flow=flow,
            code="MM2_RUNNING",
        )


@dataclass(slots=True, kw_only=True)
class Adopter:
    """Finds the partitions to adopt and their positions, without writing anything."""

    config: FlowConfig
    """The flow's configuration. MirrorMaker 2 read the source with the same isolation level, and
    applied the same transforms of Kafka Connect. So source records are transformed by them before
    they are compared.
    """
    storage: OffsetStorage
    source: ClusterClient
    target: ClusterClient
    permits_running: bool = False
    """True to permit a running MirrorMaker 2, because the result is only shown."""
    _other_flow_producers: frozenset[int] = frozenset()
    """Producer IDs of Twinlog's other flows. Their records in shared topics are ignored, because
    they are from neither MirrorMaker 2 nor another client.
    """
    _source_may_lack: set[str] = field(default_factory=set)
    """Source topics that may be compacted, among those to adopt."""
    _target_may_lack: set[str] = field(default_factory=set)

    @property
    def flow(self) -> str:
        return str(self.config.flow)

    @property
    def is_shared(self) -> bool:
        """True if topics keep their names, so that applications may also write to remote topics."""
        return self.config.policy.kind is PolicyKind.IDENTITY

    def survey(self, plans: Sequence[PartitionPlan], maps: Maps) -> Adoption:
        """Return the partitions to adopt. Raises AdoptionRefused if MirrorMaker 2 is running, if
        its offset storage topic does not exist, or if only other connectors have positions in it.
        """
        if not self.permits_running:
            refuse_running(self.target, self.storage, self.flow)
        if self.is_shared and has_state(self.target, within_s=STATE_WITHIN_S):
            rows = state_rows(self.target)
            self._other_flow_producers = producers_of_others(self.flow, rows)
        positions = read_positions(self.target, self.storage)
        self._check_connector(positions)
        targets = {plan.source: plan.target for plan in plans}
        starts = log_starts(self.target, targets.values())
        ends = self._ends(targets.values())
        due = [
            plan
            for plan in plans
            if self._is_due(plan, maps, positions, starts[plan.target], ends[plan.target])
        ]
        refused: dict[TopicPartition, TwinlogError] = {}
        for plan in plans:
            if plan.targets and self._begins_again(plan, maps) and plan.source in positions.noted:
                refused[plan.source] = self._keyed_error(plan, positions.noted[plan.source])
        if due and not self.permits_running:
            refused |= self._refuse_growing(due, maps, positions, ends)
            due = [plan for plan in due if plan.source not in refused]
        if due:
            topics = ({plan.source.topic for plan in due}, {plan.target.topic for plan in due})
            self._source_may_lack = may_lack_offsets(self.source, topics[0])
            self._target_may_lack = may_lack_offsets(self.target, topics[1])
        pairs, unread = self._pairs() if due else (NO_PAIRS, "")
        adopted: list[AdoptedPartition] = []
        for plan in due:
            try:
                partition = self._adopted(
                    plan,
                    positions.noted.get(plan.source, -1),
                    (starts[plan.target], ends[plan.target]),
                    pairs.get(plan.source, ()),
                    is_again=_is_ours(maps.get(plan.map_key)),
                )
                adopted += [] if partition is None else [partition]
            except TwinlogError as error:
                refused[plan.source] = error
        notes = [
            f"{self.flow}: offset syncs of MirrorMaker 2 are unknown, so groups before the offset "
            f"of the take-over are translated to the beginning of the remote topic: {unread}"
        ]
        return Adoption(
            partitions=tuple(adopted),
            refused=refused,
            notes=tuple(notes if unread else ()),
        )

    def _pairs(self) -> tuple[Pairs, str]:
        syncs = self.config.offset_syncs
        if syncs is None:
            return NO_PAIRS, ""
        client = self.target if syncs.on_target else self.source
        return read_pairs(client, offset_syncs_topic(self.config, syncs))

    def _check_connector(self, positions: Positions) -> None:
        if not positions.noted and positions.others:
            names = ", ".join(sorted(positions.others))
            raise AdoptionRefused(
                f"{self.storage.topic} has positions of {names}, but none of "
                f"{self.storage.connector}: select a connector with --connector",
                flow=self.flow,
                code="MM2_NOT_FOUND",
            )

    def _is_due(
        self, plan: PartitionPlan, maps: Maps, positions: Positions, start: int, end: int
    ) -> bool:
        known = maps.get(plan.map_key)
        if known is None or not known.runs:
            if plan.targets:
                return False  # not adoptable, because MirrorMaker 2 never partitions by key
            if end > start or plan.source not in positions.noted:
                return end > 0  # a log that ends above 0 had records, even if it is empty now
            return self._begins_again(plan, maps)
        ours_from = max(start, known.runs[0].downstream)
        begin = max(ours_from, end - TAIL_RECORDS)
        return begin < end and self._is_of_another(plan.target, begin, end, known.producers)

    def _begins_again(self, plan: PartitionPlan, maps: Maps) -> bool:
        """Return True if no map has rows of a source partition with this name and number.

        If there are rows, Twinlog has copied the partition to an earlier target topic. MirrorMaker
        2's position belongs to that topic, so it does not apply to the re-created one.
        """
        return not any(
            known.runs and (known.topic, key.partition) == plan.source
            for key, known in maps.items()
        )

    def _keyed_error(self, plan: PartitionPlan, noted: int) -> PartitionError:
        return PartitionError(
            f"{plan.source}: MirrorMaker 2 copied this partition up to offset {noted}, to the same "
            f"partition number of {plan.target.topic}. twinlog.target.partitions places records by "
            "key, so all of these records would be copied again. Give "
            f"{plan.target.topic} as many partitions as the source topic has, or exclude the "
            "topic with topics.exclude",
            code="PARTITIONS_DIFFER",
        )

    def _is_of_another(
        self, tp: TopicPartition, begin: int, end: int, own_producers: set[int]
    ) -> bool:
        """Return True if the last batch in [begin, end) is not from `own_producers`. Batches of
        Twinlog's other flows are ignored.
        """
        last = None
        for header, _ in self._foreign_batches(tp, begin, end):
            last = header
        return last is not None and (last.magic < 2 or last.producer_id not in own_producers)

    def _has_grown(self, tp: TopicPartition, before: int, now: int) -> bool:
        """Return True if a batch in [before, now) is not from one of Twinlog's other flows."""
        return not self._other_flow_producers or any(self._foreign_batches(tp, before, now))

    def _foreign_batches(
        self, tp: TopicPartition, begin: int, end: int
    ) -> Iterator[tuple[BatchHeader, Sequence[Record]]]:
        """Yield the target's batches in [begin, end), except those of Twinlog's other flows."""
        for header, records in read_committed(self.target, tp, begin, end):
            if header.magic < 2 or header.producer_id not in self._other_flow_producers:
                yield header, records

    def _refuse_growing(
        self,
        due_plans: Sequence[PartitionPlan],
        maps: Maps,
        positions: Positions,
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, PartitionError]:
        """Wait for QUIET_S. Raise AdoptionRefused if MirrorMaker 2 has written in that time, or if
        a transaction is open in a target partition.

        Suppose that a partition that Twinlog copied before grows or has an open transaction, but
        its committed position has not moved. Then another client writes to it, so its error is
        returned instead of raised.
        """
        strange: dict[TopicPartition, PartitionError] = {}
        targets = [plan.target for plan in due_plans]
        stable = read_ends(self.target, targets, isolation=Isolation.READ_COMMITTED)
        time.sleep(QUIET_S)
        after = self._ends(targets)
        noted = read_positions(self.target, self.storage).noted
        refuse_running(self.target, self.storage, self.flow)
        for plan in due_plans:
            tp, lso = plan.target, stable[plan.target].end
            what = ""
            still_noted = noted.get(plan.source) == positions.noted.get(plan.source)
            if not still_noted:
                what = f"its position of {plan.source} still moves"
            elif after[tp] != ends[tp] and self._has_grown(tp, ends[tp], after[tp]):
                what = f"{tp} still grows"
            elif lso is not None and lso < ends[tp]:
                what = f"a transaction is open in {tp}"
            if what and still_noted and _is_ours(maps.get(plan.map_key)):
                strange[plan.source] = PartitionError(
                    f"another client has written to {tp} since Twinlog copied {plan.source}: "
                    f"{what}",
                    code="OTHER_WRITER",
                )
            elif what:
                raise AdoptionRefused(
                    f"MirrorMaker 2 is still writing: {what}; stop it first, then "
                    "adopt its positions",
                    flow=self.flow,
                    code="MM2_RUNNING",
                )
        return strange

    def _ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return readable_ends(self.target, list(tps))

    # -- the steps for one partition

    def _adopted(
        self,
        plan: PartitionPlan,
        noted: int,
        bounds: tuple[int, int],
        pairs: Iterable[Pair],
        *,
        is_again: bool,
    ) -> AdoptedPartition | None:
        """Return the partition with its position, or None if only Twinlog's other flows ever wrote
        records to it. Raises PartitionError if the position is not found.
        """
        upstream, jumped = noted + 1, False
        tail, with_timestamp = self._tail(plan.target, *bounds)
        if tail:
            aligned = self._align(
                plan, noted, tail, with_timestamp=with_timestamp, is_again=is_again
            )
            if aligned is not None:
                upstream, jumped = max(aligned.upstream, noted) + 1, aligned.jumped_back
        elif noted < 0:
            may_lack = plan.target.topic in self._target_may_lack
            if self._other_flow_producers and bounds[0] == 0 < bounds[1] and not may_lack:
                return None
            what = (
                f"{plan.target} has records, but none of them can be read, and MirrorMaker 2 "
                f"committed no position of {plan.source}"
            )
            raise self._position_error(what, plan)
        return AdoptedPartition(
            plan=plan,
            upstream=upstream,
            downstream=bounds[1],
            noted=noted,
            jumped_back=jumped,
            is_again=is_again,
            before=kept(pairs, upstream, bounds[1]),
        )

    def _tail(self, tp: TopicPartition, start: int, end: int) -> tuple[list[Record], bool]:
        """Return the target's last records, and False if the target replaced their timestamps
        (LogAppendTime), else True. Records of Twinlog's other flows are left out.

        These flows may have written any number of records after MirrorMaker 2. Without a record to
        compare, the records after MirrorMaker 2's position would be copied again. So the log is
        read back to its start if necessary.
        """
        for back in (*FURTHER_BACK, end - start):
            records: list[Record] = []
            own_time = True
            for header, batch in self._foreign_batches(tp, max(start, end - back), end):
                records += batch
                own_time = own_time and not (header.magic >= 2 and header.is_log_append_time)
                records = records[-TAIL_RECORDS:]
            if records or end - back <= start:
                return records, own_time
        return [], True

    def _align(
        self,
        plan: PartitionPlan,
        noted: int,
        tail: Sequence[Record],
        *,
        with_timestamp: bool,
        is_again: bool,
    ) -> AlignedPosition | None:
        """Return the source position of the target's last record. Return None if the source no
        longer has that record, and the copy can resume at the committed position. Otherwise raise
        PartitionError.

        If Twinlog had copied the partition before (`is_again`), the committed position alone is no
        evidence, so None is never returned.
        """
        tp, isolation = plan.source, self.config.isolation_level
        log_start, end = log_bounds(self.source, tp, isolation)
        alignment = Alignment(
            target_offsets=[record.offset for record in tail],
            target=array("q", (identity(r, with_timestamp=with_timestamp) for r in tail)),
            noted=noted,
            source_may_lack=tp.topic in self._source_may_lack,
            target_may_lack=plan.target.topic in self._target_may_lack,
        )
        steps = self.config.transforms.connect_steps(tp.topic)
        begin = max(log_start, noted + 1 - LOOKBACK)
        for _, records in read_committed(self.source, tp, begin, end, isolation=isolation):
            alignment.add(
                (record.offset, identity(record, with_timestamp=with_timestamp))
                for record in _transformed(records, steps)
            )
            if aligned := alignment.search(is_end=False, source_end=end):
                return aligned
        if aligned := alignment.search(is_end=True, source_end=end):
            return aligned
        counts = noted >= 0 and not is_again
        if counts and (
            log_start == noted + 1 or (self.config.accept_source_loss and log_start > noted)
        ):
            return None
        if counts and log_start > noted + 1:
            raise PartitionError(
                f"{tp}: the source deleted [{noted + 1}, {log_start}) before MirrorMaker 2 "
                "committed these offsets as copied; to resume after them set "
                "twinlog.source.loss=accept",
                code="SOURCE_TRUNCATED",
            )
        what = (
            f"{plan.target}: its last record, at offset {tail[-1].offset}, is not in {tp} at or "
            f"after offset {max(noted, log_start)}, so the offset at which the copy resumes is "
            f"unknown. Either another client wrote to {plan.target.topic}, or the source's log was "
            "rewritten"
        )
        raise self._position_error(what, plan)

    def _position_error(self, what: str, plan: PartitionPlan) -> PartitionError:
        finding = LogFinding(code="MM2_PLACE_UNKNOWN", what=what, target=plan.target)
        return finding.in_flow(self.flow, is_shared=self.is_shared)


def _transformed(records: Iterable[Record], steps: Sequence[ConnectStep]) -> Iterator[Record]:
    """Yield the records that no step removes, with the headers that the last step returns."""
    for record in records:
        headers: Headers | None = record.headers
        for step in steps:
            headers = None if headers is None else step.headers_of(record.value, headers)
        if headers is not None:
            yield record._replace(headers=headers)


def _is_ours(partition_map: PartitionMap | None) -> bool:
    """Return True if Twinlog copied the partition before, that is, if the offset map has rows of
    it.
    """
    return partition_map is not None and bool(partition_map.runs)


Copied = tuple[TopicPartition, TopicId, TopicId]
"""A source partition, and the topic IDs of its source topic and its remote topic."""


@dataclass(slots=True, kw_only=True)
class TakeOver:
    """Decides during one generation of a flow which partitions continue MirrorMaker 2's copy."""

    flow: FlowConfig
    storage: OffsetStorage | None
    """MirrorMaker 2's offset storage, or None if the flow adopts nothing."""
    clients: Callable[[], tuple[ClusterClient, ClusterClient]]
    """Returns the clients of source and target, in this order."""
    map_reader: MapReader
    log_once: Callable[[str], None]
    once: bool
    """True if no other check follows (`--once`), so that retriable errors are final."""
    _claim: Claim | None = None
    _verdicts: dict[Copied, Refusal | None] = field(default_factory=dict)
    """By checked partition: why it must not start as a new one, or None if it may."""
    _adopted: set[Copied] = field(default_factory=set)
    _has_judged: bool = False

    def survey(self, plans: Iterable[PartitionPlan]) -> Adoption:
        """Return the partitions to adopt, writing nothing. Raises AdoptionRefused as
        `Adopter.survey` does.
        """
        if self.storage is None:
            return NO_ADOPTION
        maps = self.map_reader.read()
        unread = {
            p.source: problem for p in plans if (problem := maps.problem(p.source)) is not None
        }
        begun = {key[:3] for key, known in maps.items() if known.runs}
        known = {plan.source for plan in plans if _ids(plan) in begun}
        # If MirrorMaker 2 continued a partition that Twinlog had copied, the partition is adopted
        # again under a new producer ID. That requires a new claim, so partitions with a map are
        # left out once this process has one.
        passed = unread.keys() | (known if self._claim is not None else set())
        source, target = self.clients()
        adopter = Adopter(config=self.flow, storage=self.storage, source=source, target=target)
        adoption = adopter.survey([plan for plan in plans if plan.source not in passed], maps)
        for line in adoption.facts():
            self.log_once(line)
        adopted = {partition.plan.source for partition in adoption.partitions}
        for plan in plans:
            error: TwinlogError | None = unread.get(plan.source)
            error = error or adoption.refused.get(plan.source)
            if error is not None:
                self._verdicts[_copied(plan)] = self._refusal(error)
            elif plan.source not in adopted:
                self._verdicts[_copied(plan)] = None
        return adoption

    def write(self, adoption: Adoption, claim: Claim) -> None:
        """Write the rows of adopted partitions. After that, Twinlog owns these partitions."""
        self._claim = claim
        rows = adoption.rows(claim.generation, claim.producer_id)
        write_rows(self.clients()[1], self.map_reader.topic, self.map_reader.partitions, rows)
        for partition in adoption.partitions:
            self._verdicts[_copied(partition.plan)] = Refusal(
                code="MAP_MISSING",
                message=f"{partition.plan.target}: the row that the take-over from MirrorMaker 2 "
                "wrote to the offset map is missing; the map is read again",
                is_retriable=True,
            )
            self._adopted.add(_copied(partition.plan))

    def judge(self, plans: Sequence[PartitionPlan]) -> list[PartitionPlan]:
        """Return the plans of a discovery, each with the verdict on its partition. Partitions that
        are new, or that could not be adopted before, are checked first.
        """
        if self.storage is None or self._claim is None:
            return list(plans)
        due = [plan for plan in plans if self._is_due(plan)]
        if due:
            try:
                self.write(self.survey(due), self._claim)
            except TwinlogError as error:
                refusal = replace(self._refusal(error), is_retriable=True)
                self._verdicts |= {_copied(plan): refusal for plan in due}
        self._has_judged = True
        return [replace(plan, refusal=self._verdict(plan)) for plan in plans]

    def _verdict(self, plan: PartitionPlan) -> Refusal | None:
        verdict = self._verdicts[_copied(plan)]
        return replace(verdict, is_retriable=False) if verdict and self.once else verdict

    def _is_due(self, plan: PartitionPlan) -> bool:
        if _copied(plan) not in self._verdicts:
            return True
        known = self._verdicts[_copied(plan)]
        if known is None or _copied(plan) in self._adopted:
            return False
        # the first call follows `survey` directly, so only later ones check final refusals again
        return known.is_retriable or self._has_judged

    def _refusal(self, error: TwinlogError) -> Refusal:
        is_retriable = error.fate is Fate.RETRIABLE
        return Refusal(code=error.code, message=error.what, is_retriable=is_retriable)


def _ids(plan: PartitionPlan) -> tuple[TopicId, TopicId, int]:
    return plan.source_topic_id, plan.target_topic_id, plan.source.partition


def _copied(plan: PartitionPlan) -> Copied:
    return plan.source, plan.source_topic_id, plan.target_topic_id
