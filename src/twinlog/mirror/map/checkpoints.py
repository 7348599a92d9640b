"""Decides which checkpoints to write, and which group offsets to set on the target.

The decisions are MirrorMaker 2's, with exact translation:

- A checkpoint is written if it is the first of its group and partition, if the group went back on
  the source, or if its target offset advanced.
- In addition, it is written if the target offset is now exact and has changed (the target topic was
  created again, or MirrorMaker 2 wrote an offset before it), or if only the upstream offset
  advanced.
- It is never written merely because the copy seems shorter than before: a limited offset does not
  go back.
- The offset of an idle group on the target is set if the group has none, or a lower one. An idle
  group is never moved back. A group that is active there is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from twinlog.model import TopicPartition
from twinlog.wire.mm2_records import Checkpoint


def is_due(last: Checkpoint | None, now: Checkpoint, *, is_exact: bool) -> bool:
    """Return whether a checkpoint must be written, compared with the last one of its group and
    partition.
    """
    if last is None:
        return True
    if now.upstream_offset < last.upstream_offset:
        return True
    if now.downstream_offset < last.downstream_offset:
        return is_exact
    return now != last


class Skipped(StrEnum):
    """Why a group, or a partition of it, is not changed on the target."""

    ACTIVE = "it is active there"
    AHEAD = "it is further there"
    NOT_A_CONSUMER = "a group of another type has that name there"
    REFUSED = "the cluster refused it"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetGroup:
    """A group's state on the target."""

    is_active: bool
    has_offsets: bool
    """Whether it is a group of the same kind, so that its offsets can be set."""
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSync:
    """The change to one group on the target."""

    to_set: tuple[Checkpoint, ...] = ()
    skipped: Skipped | None = None
    """Why nothing is set although there were offsets to set."""


def group_sync(there: TargetGroup | None, wanted: Iterable[Checkpoint]) -> GroupSync:
    """Return what to change, by the group's state on the target; `there` is None if it does not
    exist there.
    """
    checkpoints = tuple(wanted)
    if there is None:
        return GroupSync(to_set=checkpoints)
    behind = tuple(
        one
        for one in checkpoints
        if there.offsets.get(one.topic_partition, -1) < one.downstream_offset
    )
    if not there.has_offsets:
        return GroupSync(skipped=Skipped.NOT_A_CONSUMER if checkpoints else None)
    if there.is_active:
        return GroupSync(skipped=Skipped.ACTIVE if checkpoints else None)
    is_ahead = any(
        there.offsets.get(one.topic_partition, -1) > one.downstream_offset for one in checkpoints
    )
    return GroupSync(to_set=behind, skipped=Skipped.AHEAD if is_ahead and not behind else None)
