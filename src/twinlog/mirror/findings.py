"""What is found where the logs of both sides do not fit: values, worded where the flow is known.

A lane, or whoever compares two logs, knows partitions and offsets. The driver knows the flow, which
the commands of the message name, and whether the topic is an application's as well. So a
`LogFinding` says what is wrong and where, and `worded` makes the message of it, by code, in this
order: what was found; what each side has that the other lacks, as ranges; the command that saves
what may be the only copy; and only then, if at all, what makes the copy again. Deleting a remote
topic deletes all of its partitions, and whatever the source has lost since by retention: so it is
never the first thing that is named.
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
    """Offsets from `first` to before `next`."""

    first: int
    next: int

    def __str__(self) -> str:
        return f"[{self.first}, {self.next})"

    @property
    def is_empty(self) -> bool:
        return self.next <= self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Both logs of one partition, and what of the target's the source has deleted since."""

    here: Span
    there: Span
    only_there: Span | None = None
    """Target offsets whose upstream offsets are below the source's log start."""

    def __str__(self) -> str:
        said = f"the source holds upstream offsets {self.here}, the target offsets {self.there}"
        if self.only_there is not None and not self.only_there.is_empty:
            said += (
                f", of which {self.only_there} are on the target only: the source has deleted what "
                f"is below {self.here.first}"
            )
        return said


def sides(here: LogEnds, there: LogEnds, runs: Sequence[Run] = ()) -> Sides:
    """What both logs hold; `runs` tell which of the target's records the source lacks."""
    kept = lost_at(runs, here.log_start, there)
    return Sides(
        here=Span(here.log_start, here.log_end),
        there=Span(there.log_start, there.log_end),
        only_there=None if kept is None else Span(there.log_start, min(kept)),
    )


def lost_at(runs: Sequence[Run], upstream: int, there: LogEnds) -> Span | None:
    """Target offsets of what was copied from this upstream offset on.

    Where the offset is in a gap of the source, it begins with the next record.
    """
    run = run_at_upstream(runs, upstream)
    if run is None:
        return None
    reached = run.downstream + upstream - run.upstream
    behind = next((one.downstream for one in runs if one.upstream > run.upstream), reached)
    return Span(max(there.log_start, min(reached, behind)), there.log_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFinding:
    """Why a partition stops, where people have to decide what becomes of records."""

    code: str
    what: str
    """What was found, and where; one clause."""
    source: TopicPartition | None = None
    target: TopicPartition | None = None
    span: Span | None = None
    """Offsets of the records in question, where they are known: of the target, but for
    SOURCE_TRUNCATED and SOURCE_STALLED.
    """
    held: Sides | None = None

    def worded(self, flow: str = "", *, is_shared: bool = False) -> str:
        """The message. Without a flow its commands fit a file with one. `is_shared`: the topics
        keep their names, so that the target topic is an application's as well, and nobody is told
        to delete it.
        """
        held = "" if self.held is None else f"; {self.held}"
        return _WORDS[self.code].format(
            what=f"{self.what}{held}",
            export={SOURCE: self._export(SOURCE, flow), TARGET: self._export(TARGET, flow)},
            copy_again=self._copy_again(flow, is_shared=is_shared),
        )

    def error(self, fate: Fate = Fate.FATAL) -> PartitionError:
        """For whoever raises it; the driver words it again, with the flow."""
        at = self.target or self.source
        error = PartitionError(self.worded(), code=self.code, fate=fate, partition=at)
        error.finding = self
        return error

    def in_flow(self, flow: str, *, is_shared: bool = False) -> PartitionError:
        """For whoever knows the flow."""
        text, at = self.worded(flow, is_shared=is_shared), self.target or self.source
        return PartitionError(text, code=self.code, partition=at)

    def _export(self, side: str, flow: str) -> str:
        """The command that saves these records; without a span all that the log holds."""
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
        """How the copy is made again: save, then delete."""
        if self.target is None:
            return ""
        topic, export = self.target.topic, self._export(TARGET, flow)
        if is_shared:
            return (
                f"save what only the target may hold: {export}; {topic} is the application's topic "
                "as well, so do not delete it for this: leave it out of the flow with "
                "topics.exclude, or decide with its owners which side is right"
            )
        return (
            f"save what only the target may hold: {export}; only then, and after the same for its "
            f"other partitions, delete the target topic {topic} to copy it again"
        )


_WORDS: Final = {
    # records are missing on the target
    "GAP_WRITTEN": (
        "{what}; look at the target's brokers. What is missing may be restored by hand from the "
        "source: {export[source]}. To copy all of it instead, {copy_again}"
    ),
    "TARGET_TRUNCATED": (
        "{what}; look at the target's brokers: a replica that is down may have the records. If "
        "they are lost, {copy_again}"
    ),
    "POSITION_REGRESSED": (
        "{what}; look at the target's brokers: another replica may have them, and once it leads "
        "the copy resumes by itself. If they are lost, {copy_again}"
    ),
    # the target holds what is not ours
    "EXTRA_RECORDS": (
        "{what}; find the other producer and stop it. What it wrote is on the target only: "
        "{copy_again}"
    ),
    "FOREIGN_DATA": (
        "{what}; where a MirrorMaker 2 copied them, take it over with --adopt-mm2; else mirror "
        "under another name (replication.policy.separator), or {copy_again}"
    ),
    "MM2_PLACE_UNKNOWN": (
        "{what}; find out who wrote to it. To copy it without what MirrorMaker 2 has copied, "
        "{copy_again}"
    ),
    "DIVERGED": "{what}; {copy_again}",
    # the source is another one, or lost records
    "SOURCE_RECREATED": "{what}. To mirror it, {copy_again}",
    "SOURCE_DIVERGED": (
        "{what}. Decide which side is right. The target has the only copy of what the source lost: "
        "{copy_again}"
    ),
    "SOURCE_TRUNCATED": (
        "{what}, so neither side has them; to resume behind them set twinlog.source.loss=accept"
    ),
    "SOURCE_STALLED": (
        "{what}. If neither can be, save what is readable behind it ({export[source]} --from "
        "OFFSET), and only then delete the records up to there, with twinlog.source.loss=accept"
    ),
    # the topic or the map is another one
    "PARTITIONS_DIFFER": "{what}; give back the old number; or {copy_again}",
    "MAP_MISSING": "{what}, and {copy_again}",
    "TARGET_RECREATED": (
        "{what}. Save them ({export[target]}) and compare them with the source; then take them "
        "away with kafka-delete-records.sh: the copy starts over behind them"
    ),
}


def in_target(target: TopicPartition, what: str, *, code: str, **more: Any) -> PartitionError:
    """Something about the target's log; `more`: other fields of the finding."""
    return LogFinding(code=code, what=f"{target}: {what}", target=target, **more).error()


def foreign_data(target: TopicPartition, holds: Span) -> LogFinding:
    what = (
        f"{target}: the topic already holds records {holds} that this flow did not write, and that "
        "may be nowhere else"
    )
    return LogFinding(code="FOREIGN_DATA", what=what, target=target, span=holds)


def source_recreated(source: TopicPartition, target: TopicPartition, holds: Span) -> LogFinding:
    what = (
        f"{source}: the source topic was deleted and created again; {target} still holds records "
        f"{holds} of the old one, and is the only copy of them; no partition of the new one is "
        "copied until then"
    )
    return LogFinding(code="SOURCE_RECREATED", what=what, source=source, target=target, span=holds)


def source_truncated(source: TopicPartition, lost: Span) -> LogFinding:
    what = f"{source}: the source deleted upstream offsets {lost} before they were copied"
    return LogFinding(code="SOURCE_TRUNCATED", what=what, source=source, span=lost)


def source_stalled(what: str, source: TopicPartition, leader: str) -> LogFinding:
    """A segment that is damaged on the leader's disk."""
    what = (
        f"{what}: look at that segment with kafka-dump-log.sh on {leader}; then mend it or let "
        "another replica lead"
    )
    return LogFinding(code="SOURCE_STALLED", what=what, source=source)


def tier_stalled(what: str, leader: str) -> PartitionError:
    """Remote storage may have the records, so they are not lost."""
    return PartitionError(
        f"{what}. If the topic has remote storage (remote.storage.enable), raise "
        "remote.fetch.max.wait.ms of the source's brokers: a tier that is slower is answered "
        "like this, and the copy resumes by itself. Else a segment is damaged: look at it with "
        f"kafka-dump-log.sh on {leader}; then mend it or let another replica lead",
        code="SOURCE_STALLED",
    )


def partitions_differ(source: TopicPartition, target: TopicPartition, before: str) -> LogFinding:
    what = (
        f"{source}: its copy began when the topic {before}; the number of partitions of "
        f"{target.topic} or of its source has changed since, and a copy that has begun cannot be "
        "placed otherwise"
    )
    return LogFinding(code="PARTITIONS_DIFFER", what=what, source=source, target=target)
