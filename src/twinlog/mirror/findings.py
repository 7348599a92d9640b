"""What is told where the logs of the two sides do not fit: one text for each code.

Each says, in this order: what was found and where; what each side has that the other lacks, as
ranges; the command that saves what may be the only copy; and only then, if at all, what makes the
copy anew. Deleting a remote topic deletes all of its partitions, and whatever the source has lost
since by retention: so it is never the first thing that is named.

`FLOW` stands for the flow's name until the driver puts it in (`with_flow`): lanes and looks at
logs know partitions only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from twinlog.mirror.map.offset_map import Run, run_at_upstream
from twinlog.mirror.ports import LogEnds
from twinlog.model import TopicPartition

_FLOW: Final = "--flow FLOW "
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

    source: TopicPartition
    target: TopicPartition
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


def sides(
    source: TopicPartition,
    target: TopicPartition,
    here: LogEnds,
    there: LogEnds,
    runs: Sequence[Run] = (),
) -> Sides:
    """What a look at both logs says; `runs` tell which of the target's records the source lacks."""
    kept = lost_at(runs, here.log_start, there)
    only_there = None if kept is None else Span(there.log_start, min(kept))
    return Sides(
        source=source,
        target=target,
        here=Span(here.log_start, here.log_end),
        there=Span(there.log_start, there.log_end),
        only_there=only_there,
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


def export(side: str, tp: TopicPartition, span: Span | None = None) -> str:
    """The command that saves these records; without a span all that the log holds."""
    bounds = "" if span is None else f"--from {span.first} --to {span.next} "
    return (
        f"twinlog export FILE {_FLOW}--side {side} --topic {tp.topic} --partition {tp.partition} "
        f"{bounds}--output {side}-{tp}.jsonl"
    )


def with_flow(message: str, flow: str, *, is_shared: bool = False) -> str:
    """The message, with the flow in its commands. `is_shared`: its topics keep their names, so that
    the target topic is an application's as well, and nobody is told to delete it.
    """
    text = message.replace(_FLOW, f"--flow '{flow}' ")
    return _DELETION.sub(_NO_DELETION, text) if is_shared else text


def copy_anew(target: TopicPartition, span: Span | None = None) -> str:
    """How the copy is made anew: save, then delete."""
    return (
        f"save what only the target may hold: {export(TARGET, target, span)}; only then, and after "
        f"the same for its other partitions, delete the target topic {target.topic} to copy it anew"
    )


_DELETION: Final = re.compile(
    r"only then, and after the same for its other partitions, \w+ the target topic (\S+) to copy "
    "it anew"
)
_NO_DELETION: Final = (
    r"\1 is the application's topic as well, so do not delete it for this: leave it out of the "
    "flow with topics.exclude, or decide with its owners which side is right"
)


def _known(held: Sides | None) -> str:
    return "" if held is None else f"; {held}"


# -- records are missing on the target ---------------------------------------------------------


def gap_written(
    what: str, source: TopicPartition, target: TopicPartition, held: Sides | None = None
) -> str:
    """`what` names the records that the target lacks."""
    return (
        f"{what}{_known(held)}; look at the target's brokers. What is missing may be restored by "
        f"hand from the source: {export(SOURCE, source)}. To copy all of it instead, "
        f"{copy_anew(target)}"
    )


def target_truncated(what: str, target: TopicPartition, held: Sides | None = None) -> str:
    return (
        f"{what}{_known(held)}; look at the target's brokers: a replica that is down may have the "
        f"records. If they are lost, {copy_anew(target)}"
    )


def position_regressed(what: str, target: TopicPartition, held: Sides | None = None) -> str:
    return (
        f"{what}{_known(held)}; look at the target's brokers: another replica may have them, and "
        f"once it leads the copy resumes by itself. If they are lost, {copy_anew(target)}"
    )


# -- the target holds what is not ours ---------------------------------------------------------


def extra_records(
    what: str, target: TopicPartition, span: Span | None = None, held: Sides | None = None
) -> str:
    """`span`: the foreign records, where that is known."""
    return (
        f"{what}{_known(held)}; find the other producer and stop it. What it wrote is on the "
        f"target only: {copy_anew(target, span)}"
    )


def foreign_data(target: TopicPartition, holds: Span) -> str:
    return (
        f"{target}: the topic already holds records {holds} that this flow did not write, and that "
        "may be nowhere else; mirror under another name (replication.policy.separator), or "
        f"{copy_anew(target, holds)}"
    )


def mm2_place_unknown(what: str, target: TopicPartition) -> str:
    return (
        f"{what}; find out who wrote to it. To copy it without what MirrorMaker 2 has copied, "
        f"{copy_anew(target)}"
    )


# -- the source is another one -----------------------------------------------------------------


def source_recreated(source: TopicPartition, target: TopicPartition, holds: Span) -> str:
    return (
        f"{source}: the source topic was deleted and created again; {target} still holds records "
        f"{holds} of the old one, and is the only copy of them; no partition of the new one is "
        "copied until then. To mirror it, "
        f"{copy_anew(target, holds)}"
    )


def source_diverged(what: str, target: TopicPartition, span: Span | None = None) -> str:
    """`span`: target offsets of what the source has lost, where they are known."""
    return (
        f"{what}. Decide which side is right. The target has the only copy of what the source "
        f"lost: {copy_anew(target, span)}"
    )


def source_truncated(source: TopicPartition, lost: Span) -> str:
    return (
        f"{source}: the source deleted upstream offsets {lost} before they were copied, so neither "
        "side has them; to go on behind them set twinlog.source.loss=accept"
    )


def source_stalled(what: str, source: TopicPartition, leader: str, *, is_tiered: bool) -> str:
    """`is_tiered`: remote storage may have the records, so they are not lost."""
    if is_tiered:
        return (
            f"{what}. If the topic has remote storage (remote.storage.enable), raise "
            "remote.fetch.max.wait.ms of the source's brokers: a tier that is slower is answered "
            "like this, and the copy resumes by itself. Else a segment is damaged: look at it with "
            f"kafka-dump-log.sh on {leader}; then mend it or let another replica lead"
        )
    return (
        f"{what}: look at that segment with kafka-dump-log.sh on {leader}; then mend it or let "
        "another replica lead. If neither can be, save what is readable behind it "
        f"({export(SOURCE, source)} --from OFFSET), and only then delete the records up to there, "
        "with twinlog.source.loss=accept"
    )


def diverged(
    what: str, target: TopicPartition, span: Span | None = None, held: Sides | None = None
) -> str:
    return f"{what}{_known(held)}; {copy_anew(target, span)}"


# -- the flow as a whole -----------------------------------------------------------------------


def cluster_changed(flow: str, alias: str, before: str, now: str) -> str:
    """The state speaks of another source cluster."""
    return (
        f"{flow}: the state on the target was written for source cluster {before}, but {alias} is "
        f"now {now}. Where the address is wrong, correct it. Where {alias} was rebuilt, the remote "
        "topics are the only copy of what it held: keep them, and mirror under another alias; or "
        f"save each of their partitions (twinlog export FILE --flow '{flow}' --side target --topic "
        "TOPIC --partition PARTITION --output TOPIC.jsonl), and only then delete the remote topics "
        "and the offset map topic"
    )


def partitions_differ(source: TopicPartition, target: TopicPartition, before: str) -> str:
    return (
        f"{source}: its copy began when the topic {before}; the number of partitions of "
        f"{target.topic} or of its source has changed since, and a copy that has begun cannot be "
        f"placed anew; give back the old number; or {copy_anew(target)}"
    )
