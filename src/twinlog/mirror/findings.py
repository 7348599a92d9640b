"""Findings about logs that do not match, and the messages made of them when the flow is known.

A lane, or a comparison of two logs, knows only partitions and offsets. The driver also knows the
flow, which the commands in the message name, and whether an application uses the same topic. So a
`LogFinding` states the problem and its position, and `worded` turns it into a message, by code. A
message consists of: the finding; the ranges that only one side has; the command that saves what may
be the only copy; and only then, if at all, how to copy again. Deleting a remote topic deletes all
of its partitions, including records that the source has since lost to retention, so it is never
suggested first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from twinlog.errors import Fate, PartitionError
from twinlog.mirror.map.offset_map import Run, run_at_upstream
from twinlog.mirror.ports import LogEnds
from twinlog.model import TopicPartition

SOURCE, TARGET = "source", "target"


class Span(NamedTuple):
    """Offsets from `first` up to, but not including, `next`."""

    first: int
    next: int

    def __str__(self) -> str:
        return f"[{self.first}, {self.next})"

    @property
    def is_empty(self) -> bool:
        return self.next <= self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRanges:
    """Offset ranges of both logs of a partition: `here` of the source, `there` of the target."""

    here: Span
    there: Span
    target_only: Span | None = None
    """Target offsets of records that the source has deleted, or None if there are none or it is
    unknown.
    """

    def __str__(self) -> str:
        text = f"the source holds upstream offsets {self.here}, the target holds {self.there}"
        if self.target_only is not None and not self.target_only.is_empty:
            text += (
                f", of which {self.target_only} are on the target only, because the source has "
                f"deleted all records below upstream offset {self.here.first}"
            )
        return text


def sides(source: LogEnds, target: LogEnds, runs: Sequence[Run] = ()) -> LogRanges:
    """Return the ranges of both logs. `runs`: those of the offset map, which show which target
    records the source has deleted.
    """
    kept = lost_at(runs, source.log_start, target)
    return LogRanges(
        here=Span(source.log_start, source.log_end),
        there=Span(target.log_start, target.log_end),
        target_only=None if kept is None else Span(target.log_start, min(kept)),
    )


def lost_at(runs: Sequence[Run], upstream: int, target: LogEnds) -> Span | None:
    """Return the target offsets of all records that were copied from source offset `upstream` on,
    or None if that offset is before the first run.

    If the upstream offset is in a gap of the source, the range begins with the next copied record.
    """
    run = run_at_upstream(runs, upstream)
    if run is None:
        return None
    reached = run.downstream + upstream - run.upstream
    next_offset = next(
        (known_run.downstream for known_run in runs if known_run.upstream > run.upstream), reached
    )
    return Span(max(target.log_start, min(reached, next_offset)), target.log_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFinding:
    """The reason why a partition stops, if an operator must decide what happens to its records."""

    code: str
    what: str
    """The problem and its position, in one clause."""
    source: TopicPartition | None = None
    target: TopicPartition | None = None
    span: Span | None = None
    """Offsets of the records in question, if known: target offsets, except for SOURCE_TRUNCATED and
    SOURCE_STALLED.
    """
    held: LogRanges | None = None
    """The ranges of both logs, if the message should contain them."""

    def worded(self, flow: str = "", *, is_shared: bool = False) -> str:
        """Return the message. Without `flow`, its commands have no --flow, which suits a
        configuration file with only one flow.

        `is_shared`: topics keep their names, so applications also use the target topic, and the
        message does not suggest deleting it.
        """
        held = "" if self.held is None else f"; {self.held}"
        return _WORDS[self.code].format(
            what=f"{self.what}{held}",
            export={SOURCE: self._export(SOURCE, flow), TARGET: self._export(TARGET, flow)},
            copy_again=self._copy_again(flow, is_shared=is_shared),
        )

    def error(self, fate: Fate = Fate.FATAL) -> PartitionError:
        """Return the error to raise, whose message does not name the flow (see `in_flow`)."""
        at = self.target or self.source
        error = PartitionError(self.worded(), code=self.code, fate=fate, partition=at)
        error.finding = self
        return error

    def in_flow(self, flow: str, *, is_shared: bool = False) -> PartitionError:
        """Return an error for this finding, whose message names the flow. `is_shared`: see
        `worded`.
        """
        text, at = self.worded(flow, is_shared=is_shared), self.target or self.source
        return PartitionError(text, code=self.code, partition=at)

    def _export(self, side: str, flow: str) -> str:
        """Return the command that exports the log of `side`. For the target, it exports only `span`
        if that is known.
        """
        tp = self.source if side == SOURCE else self.target
        if tp is None:
            return ""
        bounds = ""
        if self.span is not None and side == TARGET:
            bounds = f"--from {self.span.first} --to {self.span.next} "
        of_flow = f"--flow '{flow}' " if flow else ""
        return (
            f"twinlog export FILE {of_flow}--side {side} --topic {tp.topic} "
            f"--partition {tp.partition} {bounds}--output {side}-{tp}.jsonl"
        )

    def _copy_again(self, flow: str, *, is_shared: bool) -> str:
        """Return advice for copying again: export records, then delete the topic unless shared."""
        if self.target is None:
            return ""
        topic, export = self.target.topic, self._export(TARGET, flow)
        if is_shared:
            return (
                f"save the records that may exist only on the target: {export}. {topic} is also "
                "the application's topic, so do not delete it. Exclude the topic with "
                "topics.exclude, or decide with the topic's owners which side is right"
            )
        return (
            f"save the records that may exist only on the target: {export}. Save the topic's other "
            f"partitions in the same way. Only then delete the target topic {topic}, so that it is "
            "copied again"
        )


_WORDS: Final = {
    # records are missing on the target
    "GAP_WRITTEN": (
        "{what}. Check the target's brokers. Missing records can be restored by hand from the "
        "source: {export[source]}. To copy the whole topic again instead, {copy_again}"
    ),
    "TARGET_TRUNCATED": (
        "{what}. Check the target's brokers: a replica that is down may have the records. If "
        "the records are lost, {copy_again}"
    ),
    "POSITION_REGRESSED": (
        "{what}. Check the target's brokers: another replica may have the records. If it becomes "
        "the leader, the copy resumes by itself. If the records are lost, {copy_again}"
    ),
    # foreign records on the target
    "EXTRA_RECORDS": (
        "{what}. Find the other producer and stop it. Its records are on the target only. To copy "
        "the topic again, {copy_again}"
    ),
    "FOREIGN_DATA": (
        "{what}. If MirrorMaker 2 copied the records, take over from it with --adopt-mm2. "
        "Otherwise mirror under another name (replication.policy.separator). If the name must "
        "stay, {copy_again}"
    ),
    "MM2_PLACE_UNKNOWN": (
        "{what}. Find out which client wrote to the topic. To copy the topic without "
        "MirrorMaker 2's records, {copy_again}"
    ),
    "DIVERGED": "{what}. To copy the topic again, {copy_again}",
    # the source is a different topic, or has lost records
    "SOURCE_RECREATED": "{what}. To mirror the new topic, {copy_again}",
    "SOURCE_DIVERGED": (
        "{what}. Decide which side is right. The target has the only copy of the records that the "
        "source lost. To copy the topic again, {copy_again}"
    ),
    "SOURCE_TRUNCATED": (
        "{what}, so neither side has them. To resume after these offsets, set "
        "twinlog.source.loss=accept"
    ),
    "SOURCE_STALLED": (
        "{what}. If neither is possible, save the readable records after the damage "
        "({export[source]} --from OFFSET). Only then delete the records below OFFSET, and set "
        "twinlog.source.loss=accept"
    ),
    # the topics or the map are not those with which the copy began
    "PARTITIONS_DIFFER": (
        "{what}. Restore the old partition counts and the old value of the key. If that is not "
        "possible, {copy_again}"
    ),
    "MAP_MISSING": "{what}, and {copy_again}",
    "TARGET_RECREATED": (
        "{what}. Save these records ({export[target]}), and compare them with the source. Then "
        "delete them with kafka-delete-records.sh. The copy then starts after them"
    ),
}


def target_error(target: TopicPartition, what: str, *, code: str, **more: Any) -> PartitionError:
    """Return an error about the target's log. `what`: the problem. `more`: other fields of
    `LogFinding`.
    """
    return LogFinding(code=code, what=f"{target}: {what}", target=target, **more).error()


def foreign_data(target: TopicPartition, holds: Span) -> LogFinding:
    what = (
        f"{target}: the topic already holds records {holds} that this flow did not write, which "
        "may exist nowhere else"
    )
    return LogFinding(code="FOREIGN_DATA", what=what, target=target, span=holds)


def source_recreated(source: TopicPartition, target: TopicPartition, holds: Span) -> LogFinding:
    what = (
        f"{source}: the source topic was deleted and created again. {target} still holds records "
        f"{holds} of the old topic, and is the only copy of these records. No partition of the new "
        "topic is copied as long as the target holds records of the old topic"
    )
    return LogFinding(code="SOURCE_RECREATED", what=what, source=source, target=target, span=holds)


def source_truncated(source: TopicPartition, lost: Span) -> LogFinding:
    what = f"{source}: the source deleted upstream offsets {lost} before they were copied"
    return LogFinding(code="SOURCE_TRUNCATED", what=what, source=source, span=lost)


def source_stalled(what: str, source: TopicPartition, leader: str) -> LogFinding:
    """Return the finding for a segment that is damaged on the leader's disk."""
    what = (
        f"{what}. Use kafka-dump-log.sh on {leader} to check the segment in which reading stops. "
        "Then repair the segment, or make another replica the leader"
    )
    return LogFinding(code="SOURCE_STALLED", what=what, source=source)


def tier_stalled_error(what: str, leader: str) -> PartitionError:
    """Return the error for records that are damaged, or only slow to arrive from remote storage."""
    return PartitionError(
        f"{what}. If the topic has remote storage (remote.storage.enable), the storage may be "
        "slower than remote.fetch.max.wait.ms of the source's brokers. Raise this setting; the "
        "copy then resumes by itself. Otherwise a segment is damaged. Check it with "
        f"kafka-dump-log.sh on {leader}, and repair it or make another replica the leader",
        code="SOURCE_STALLED",
    )


def partitions_differ(source: TopicPartition, target: TopicPartition, before: str) -> LogFinding:
    what = (
        f"{source}: when the copy began, the topic {before}. The partition count of {target.topic} "
        "or of its source, or the key twinlog.target.partitions, has changed since. The records "
        "of a copy cannot be redistributed after it has begun"
    )
    return LogFinding(code="PARTITIONS_DIFFER", what=what, source=source, target=target)
