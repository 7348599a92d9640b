"""Accepts records that other clients wrote to remote topics, so that copying resumes after them.

The records are read first, then shown, and only the shown records are accepted. If the log changes
after the records were shown, the command is refused. One row of the state topic is written for each
partition (`mirror.state.intents`); the log of the remote topic is not changed. If this process dies
before writing a row, that partition is still stopped. If the process dies after writing the row,
the leader resumes the partition, and the next run finds nothing to repair.

Records that a failback has replayed are copies, too, but under the producer ID of the replay. If
they were accepted, the copy would resume after them with the first record of the tail, and append
the whole tail again. So nothing is accepted in topics with the intent `replay` (REPLAYED). A replay
may begin after the last check. It appends after the range of records that was shown, and only that
range is accepted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from twinlog.client.steering import StoppedPartitions
from twinlog.cluster.logs.raw_log import fetch_partition
from twinlog.codes import Trait, has
from twinlog.config.flow.schema import PolicyKind
from twinlog.config.regex.patterns import NamePattern
from twinlog.config.values.times import in_iso
from twinlog.errors import FlowError, TwinlogError
from twinlog.mirror.map.foreign_records import MAX_READS, ForeignWalk, last_stretch, walk
from twinlog.mirror.map.offset_map import PartitionKey, PartitionMap
from twinlog.mirror.names.filters import policy_of
from twinlog.mirror.names.naming import map_topic_of
from twinlog.mirror.start.corrections import next_upstream
from twinlog.mirror.start.divergence import find_break
from twinlog.mirror.state.generations import producers_of
from twinlog.mirror.state.intents import IntentKind, WantedAcceptance
from twinlog.mirror.state.published import Unusual
from twinlog.model import NO_TOPIC_ID, TopicPartition
from twinlog.survey.ends import append_ends, log_bounds
from twinlog.survey.map_reader import map_reader
from twinlog.survey.replica import Maps
from twinlog.survey.state_reader import leader_status, state_rows

READ_BYTES: Final = 1 << 20
NOT_ACCEPTABLE: Final = {
    "TAKEN_OVER": (
        "other clients write to this topic on purpose. If the topic has moved to the target, stop "
        "its producers on the source. Otherwise stop these clients, save their records (twinlog "
        "export), and copy the topic again"
    ),
    "GAP_WRITTEN": (
        "acknowledged records are missing, and cannot be inserted; save the remote topic "
        "(twinlog export), then copy it again"
    ),
    "DIVERGED": (
        "the logs do not show which side is right: save both (twinlog export) and compare"
    ),
}
"""By code, the reason why records cannot be accepted, and what to do instead."""
REPLAYED: Final = (
    "a failback has begun to append the source's tail to the remote topic. If the copy resumed, it "
    "would append these records again. Promote the topic (twinlog topic promote). If the failback "
    "was interrupted, finish it with twinlog failback run --tail replay. To mirror the topic "
    "again, give the source another alias, so that it gets a new remote topic [REPLAYED]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairLine:
    """The planned repair of one partition that has stopped."""

    reported_problem: Unusual
    source: TopicPartition
    target: TopicPartition
    wanted: WantedAcceptance | None = None
    """The acceptance to write, or None if nothing can be accepted."""
    found: ForeignWalk | None = None
    resumes_at: int | None = None
    """The upstream offset at which the copy would resume after the acceptance, or None if nothing
    can be accepted.
    """
    problem: str = ""

    def printed(self) -> dict[str, Any]:
        """Return the plan as an object for JSON output."""
        walk = self.found
        body: dict[str, Any] = {
            "topic": self.source.topic,
            "partition": self.source.partition,
            "target_topic": self.target.topic,
            "code": self.reported_problem.code,
            "problem": self.problem or None,
        }
        if walk is None:
            return body
        foreign = [header for header in walk.foreign if header.max_timestamp >= 0]
        return body | {
            "ranges": walk.ranges,
            "producer_ids": sorted({header.producer_id for header in walk.foreign}),
            "records": sum(
                max(0, header.count) for header in walk.foreign if not header.is_control
            ),
            "first_timestamp": min((header.base_timestamp for header in foreign), default=None),
            "last_timestamp": max((header.max_timestamp for header in foreign), default=None),
            "resumes_upstream": self.resumes_at,
            "resumes_downstream": walk.end,
        }

    def lines(self) -> Iterator[str]:
        """Yield the plan as lines of text."""
        yield f"{self.source} -> {self.target} [{self.reported_problem.code}]"
        if self.found is None:
            yield f"  cannot be accepted: {self.problem}"
            return
        fields = self.printed()
        spans = ", ".join(f"[{first}, {next_offset})" for first, next_offset in self.found.ranges)
        ids = ", ".join(map(str, fields["producer_ids"]))
        yield (
            f"  of other clients: target offsets {spans}: {fields['records']} records, "
            f"producer ids {ids}"
        )
        first, last = fields["first_timestamp"], fields["last_timestamp"]
        yield f"  their timestamps: {in_iso(max(0, first or 0))} to {in_iso(last or 0)}"
        yield (
            f"  if accepted, they stay; the copy resumes with upstream offset {self.resumes_at} at "
            f"target offset {self.found.end}"
        )


class TopicRepair(StoppedPartitions):
    """Plans and writes acceptances for the stopped partitions of one flow."""

    def plan(self, topics: NamePattern | None) -> list[RepairLine]:
        """Return the plan: a line for each partition that, according to the flow's leader, has
        stopped with a code that a repair can resolve.
        """
        target = self._steering.target
        status = leader_status(target, self._steering.flow)
        if status is None or not status.is_current(int(time.time() * 1000)):
            raise FlowError(
                "no running mirror reports which partitions have stopped: start one, with "
                "twinlog.status.interval.seconds above 0; nothing was changed",
                flow=self._steering.flow,
                code="REPAIR_REFUSED",
            )
        standing = [
            partition
            for partition in status.unusual
            if has(partition.code, Trait.REPAIRABLE)
            and (topics is None or topics.matches(partition.topic))
        ]
        return self._lines(standing) if standing else []

    def accept(self, lines: list[RepairLine]) -> None:
        """Write the planned acceptances. If the log of a remote topic has changed after the plan,
        write none and raise FlowError (REPAIR_REFUSED).
        """
        shown = [line for line in lines if line.found is not None]
        for line, again in zip(
            shown, self._lines([line.reported_problem for line in shown]), strict=True
        ):
            if again.found is None or again.found != line.found:
                raise FlowError(
                    f"{line.target}: its records have changed since they were shown, so nothing "
                    "was accepted. Find the client that writes to the topic, and run this command "
                    "again",
                    code="REPAIR_REFUSED",
                )
        rows = [line.wanted.encode() for line in shown if line.wanted is not None]
        if rows:
            self._steering.append(rows)

    def _lines(self, standing: list[Unusual]) -> list[RepairLine]:
        target = self._steering.target
        topic = map_topic_of(self._config.flow)
        maps = map_reader(target, target.metadata([topic]).topics[topic]).read(target)
        maps.require_all()
        rows = state_rows(target)
        producers = producers_of(self._steering.flow, rows)
        replayed = rows.intents(self._steering.flow).topics(IntentKind.REPLAY)
        return [
            self._line(unusual, maps, producers, self._why_not_acceptable(unusual, replayed))
            for unusual in standing
        ]

    def _why_not_acceptable(self, unusual: Unusual, replayed: list[str]) -> str:
        """Return the reason why no record of the partition can be accepted, or "" if there is no
        such reason. `replayed`: topics with the intent `replay`.
        """
        if unusual.topic in replayed:
            return REPLAYED
        if unusual.code not in NOT_ACCEPTABLE and self._config.policy.kind is PolicyKind.IDENTITY:
            return NOT_ACCEPTABLE["TAKEN_OVER"]
        return NOT_ACCEPTABLE.get(unusual.code, "")

    def _line(
        self, unusual: Unusual, maps: Maps, producers: frozenset[int], problem: str
    ) -> RepairLine:
        source = TopicPartition(unusual.topic, unusual.partition)
        policy = policy_of(self._config)
        remote = policy.format_remote_topic(self._config.source_alias, unusual.topic)
        target = TopicPartition(remote, unusual.partition)
        blank = RepairLine(reported_problem=unusual, source=source, target=target)
        if problem:
            return replace(blank, problem=problem)
        source_id = self._source.metadata([source.topic]).topics[source.topic].topic_id
        target_id = self._steering.target.metadata([remote]).topics[remote].topic_id
        partition_map = maps.get(PartitionKey(source_id, target_id, unusual.partition))
        if partition_map is None or not partition_map.runs or NO_TOPIC_ID in (source_id, target_id):
            return replace(
                blank,
                problem="the offset map has no row of this partition, or the brokers have no topic "
                "IDs, so the positions of this flow's records are unknown",
            )
        try:
            foreign = self._walk_log(target, partition_map, producers | partition_map.producers)
        except TwinlogError as error:
            return replace(blank, problem=str(error))
        if foreign is None:
            return replace(
                blank,
                problem="records of this flow are missing or duplicated in the remote topic, or "
                f"more than about {MAX_READS} MB follow the first record of another client. Save "
                "the remote topic (twinlog export), then copy it again",
            )
        acceptance = WantedAcceptance(
            flow=self._steering.flow,
            topic=remote,
            topic_id=target_id,
            partition=unusual.partition,
            first=foreign.accepted.first,
            ranges=(*chain(*foreign.accepted.ranges),),
            k=foreign.accepted.k,
            digest=foreign.accepted.digest,
            who=self._steering.who,
            at_ms=int(time.time() * 1000),
            reason=self._reason,
        )
        return replace(
            blank,
            wanted=acceptance,
            found=foreign,
            resumes_at=next_upstream(partition_map.runs, foreign.next_ordinal, 0),
        )

    def _walk_log(
        self, tp: TopicPartition, partition_map: PartitionMap, producers: frozenset[int]
    ) -> ForeignWalk | None:
        client = self._steering.target
        end = append_ends(client, [tp])[tp]
        start, replicated = log_bounds(client, tp)
        if replicated < end:
            raise FlowError(
                f"{tp}: its last records are not on enough replicas and may be lost: retry after "
                "they are replicated",
                code="REPAIR_REFUSED",
            )

        def read(offset: int) -> memoryview:
            return fetch_partition(client, tp, offset, READ_BYTES).records

        stretch = last_stretch(partition_map.runs, end)
        low = max(start, stretch.low, partition_map.runs[0].downstream)
        at = find_break(read, low=low, high=end, k=stretch.k, producers=producers)
        if at is None:
            raise FlowError(
                f"{tp} has no records of other clients, so there is nothing to accept; the mirror "
                "retries automatically",
                code="REPAIR_REFUSED",
            )
        return walk(read, at.offset, end, k=stretch.k, producers=producers)
