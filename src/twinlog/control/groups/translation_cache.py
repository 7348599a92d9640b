"""Caches the target offsets of groups' commits on the source, and decides which are still to be
set. An offset is translated again only if the commit or the copy changed.

On the way back (topics of the source that were copied from the target), a group's offset is set
once per commit, and never if the other flow's sync had set that commit. Otherwise two opposite
flows would undo it when an operator moves a stopped group back on its own cluster: the group's copy
on the other cluster is not moved back, and would count as progress. The checkpoints of either flow
(`checkpoint_rows`) show what earlier processes have set. Without them the first round sets nothing
on the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from twinlog.cluster.groups.group_offsets import Committed, GroupOffsets
from twinlog.control.duties.rounds import LedFlow
from twinlog.control.groups.checkpoint_rows import CheckpointRow, CopyIds, Newest
from twinlog.control.groups.counterparts import Counterpart, TargetOffsets
from twinlog.control.groups.group_sync import Skipped
from twinlog.mirror.map.offset_map import PartitionKey
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.wire.mm2_records import Checkpoint


class TranslatedCommit(NamedTuple):
    committed: Committed
    checkpoint: Checkpoint | None
    """None if the commit has no counterpart on the target."""
    is_exact: bool
    ids: CopyIds | None = None
    is_way_back: bool = False
    is_progress: bool = True
    """False if the group may never have been at the checkpoint (`Counterpart.is_progress`)."""
    target_topic_id: TopicId = NO_TOPIC_ID
    """ID of the checkpoint's topic; a re-created topic has other offsets."""

    def of(self, group: str) -> TranslatedCommit:
        """Return the translation of the same commit by this group."""
        if self.checkpoint is None:
            return self
        return TranslatedCommit(self.committed, replace(self.checkpoint, group=group), *self[2:])


class _SeenTo(NamedTuple):
    """A commit for which the group's offset on the target needs no change."""

    offset: int
    downstream: int | None
    """The target offset, or None for any. Another offset is new information, because it is now
    exact."""
    ids: CopyIds | None
    """The topics of the offset, or None for the topics at that time. A re-created topic has the
    same offsets again."""

    def is_of(self, one: TranslatedCommit) -> bool:
        if one.checkpoint is None or self.offset != one.committed.offset:
            return False
        downstream = one.checkpoint.downstream_offset
        return self.downstream in (None, downstream) and self.ids in (None, one.ids)


Given: TypeAlias = Callable[[str, TopicPartition, int, TopicId | None], bool | None]
"""Returns True if a sync has set this offset for a group of the source, in the topic with this ID,
or None if no sync is known.
"""


def given_on_source(flow: LedFlow) -> Given:
    return partial(flow.synced.gave, flow.config.flow.source)


@dataclass(slots=True)
class _Group:
    read: GroupOffsets
    translated: dict[TopicPartition, TranslatedCommit]
    is_settled: bool = False
    """Whether nothing is to be translated again until the group commits."""

    @property
    def unknown(self) -> list[TopicPartition]:
        return [tp for tp in self.read if tp not in self.translated]


class TranslationCache:
    """The translations for the groups of one flow; not thread-safe."""

    def __init__(self, offsets: TargetOffsets, given: Given, *, has_sync: bool = True) -> None:
        self._offsets = offsets
        self._has_sync = has_sync
        self._given = given
        self._groups: dict[str, _Group] = {}
        self._seen_to: dict[tuple[str, TopicPartition], _SeenTo] = {}
        """Commits in topics that were copied from the target, by group and source partition."""
        self._copies: dict[TopicPartition, PartitionKey] = {}
        """The copies of the last round whose offsets are valid."""
        self._has_begun = False

    def __iter__(self) -> Iterator[TranslatedCommit]:
        for group in self._groups.values():
            yield from group.translated.values()

    def due(self, written: Newest) -> Iterator[CheckpointRow]:
        """Yield the rows that the checkpoints topic does not have yet."""
        for name, tp, one in self._all():
            if one.checkpoint is None:
                continue
            last = written.get((name, one.checkpoint.topic_partition))
            if last is not None and last.checkpoint is one.checkpoint and not one.is_way_back:
                continue  # the usual case, and there may be very many
            seen_to = self._seen_to.get((name, tp)) if one.is_way_back else None
            is_seen_to = seen_to is not None and seen_to.is_of(one)
            ids = one.ids if self._has_sync or one.is_way_back else None
            row = CheckpointRow(one.checkpoint, ids, is_seen_to)
            if row.is_due(last, is_exact=one.is_exact):
                yield row

    def copy_ids(self) -> dict[tuple[str, TopicPartition], CopyIds | None]:
        """Return the two topics of each checkpoint, by group and partition of the target."""
        return {
            (name, one.checkpoint.topic_partition): one.ids
            for name, _, one in self._all()
            if one.checkpoint is not None
        }

    @property
    def has_way_back(self) -> bool:
        return any(one.is_way_back for one in self)

    def without_counterpart(self) -> dict[str, tuple[TopicPartition, ...]]:
        """Return the groups without any counterpart on the target, and their partitions."""
        return {
            name: tuple(group.read)
            for name, group in self._groups.items()
            if all(one.checkpoint is None for one in group.translated.values())
        }

    def forget(self) -> None:
        """Translate every offset again: the target topic may have been deleted and copied again."""
        self._groups.clear()
        self._offsets.forget()

    def forget_topics(self, topics: Collection[str]) -> None:
        """Drop the translations in these topics of the target, which were replaced."""
        for group in self._groups.values() if topics else ():
            for tp, one in list(group.translated.items()):
                if one.checkpoint is not None and one.checkpoint.topic_partition.topic in topics:
                    del group.translated[tp]
                    group.is_settled = False

    def target_ids(self) -> dict[str, TopicId]:
        """Return the IDs of the target topics in which offsets were translated."""
        return {
            one.checkpoint.topic_partition.topic: one.target_topic_id
            for one in self
            if one.checkpoint is not None
        }

    def update(self, now: Mapping[str, GroupOffsets]) -> None:
        """Set the current commits. Only translations of partitions that are still copied between
        the same two topics are kept. A released topic belongs to its application, and its groups
        are left alone.
        """
        views = self._offsets.views()
        self._keep({tp: view.map_key for tp, view in views.items() if not view.is_broken})
        before, self._groups = self._groups, {}
        moved: dict[str, _Group] = {}
        for name, offsets in now.items():
            group = before.get(name)
            if group is None or group.read is not offsets or not group.is_settled:
                group = moved[name] = _Group(offsets, _still_right(group, offsets))
            self._groups[name] = group
        wanted = {tp for group in moved.values() for tp in group.unknown}
        found = self._offsets.find(wanted, views) if wanted else {}
        # very many groups may be at the same offset
        translate = cache(lambda tp, committed: _translation(committed, found.get(tp)))
        for name, group in moved.items():
            for tp in group.unknown:
                group.translated[tp] = translate(tp, group.read[tp]).of(name)
            group.is_settled = all(one.is_exact for one in group.translated.values())

    def _keep(self, copies: dict[TopicPartition, PartitionKey]) -> None:
        gone = {tp for tp, copy in self._copies.items() if copies.get(tp) != copy}
        self._copies = copies
        for group in self._groups.values() if gone else ():
            for tp in gone & group.translated.keys():
                del group.translated[tp]
                group.is_settled = False

    def to_set(self, before: Newest | None) -> dict[str, list[Checkpoint]]:
        """Return the offsets that groups of the target should have. `before`: the checkpoints at
        the start, or None if unknown. In that case the first round changes nothing on the way back.
        """
        if before is None and not self._has_begun:
            for name, tp, one in self._all():
                if self._was_given(name, tp, one) is None:
                    self._seen_to[name, tp] = _SeenTo(one.committed.offset, None, one.ids)
        self._has_begun = True
        wanted: dict[str, list[Checkpoint]] = {}
        for name, tp, one in self._all():
            if one.checkpoint is not None and not self._is_done(name, tp, one, before):
                asked = one.checkpoint
                if not one.is_progress:
                    # becomes the log start if the group has no offset, and else changes nothing
                    asked = replace(asked, downstream_offset=0)
                wanted.setdefault(name, []).append(asked)
        return wanted

    def seen_to(self, skipped: Mapping[str, str]) -> None:
        """Note that the offsets of `to_set` are set, except those of skipped groups."""
        for name, tp, one in self._all():
            if one.checkpoint is None or not one.is_way_back:
                continue
            if skipped.get(name) in (None, Skipped.AHEAD.value):
                downstream = one.checkpoint.downstream_offset
                self._seen_to[name, tp] = _SeenTo(one.committed.offset, downstream, one.ids)

    def _all(self) -> Iterator[tuple[str, TopicPartition, TranslatedCommit]]:
        for name, group in self._groups.items():
            for tp, one in group.translated.items():
                yield name, tp, one

    def _is_done(
        self, group: str, tp: TopicPartition, one: TranslatedCommit, before: Newest | None
    ) -> bool:
        if not one.is_way_back or one.checkpoint is None:
            return False
        if self._was_given(group, tp, one):
            return True
        seen_to = self._seen_to.get((group, tp))
        if seen_to is None and before is not None:
            seen_to = _seen_to(before.get((group, one.checkpoint.topic_partition)))
        return seen_to is not None and seen_to.is_of(one)

    def _was_given(self, group: str, tp: TopicPartition, one: TranslatedCommit) -> bool | None:
        copy = None if one.ids is None else one.ids.copy
        return self._given(group, tp, one.committed.offset, copy)


def _seen_to(row: CheckpointRow | None) -> _SeenTo | None:
    """Read a row. Earlier releases wrote rows only for commits that needed no further change."""
    if row is None or not (row.is_seen_to or row.ids is None):
        return None
    one = row.checkpoint
    downstream = None if row.ids is None else one.downstream_offset
    return _SeenTo(one.upstream_offset, downstream, row.ids)


def _still_right(group: _Group | None, now: GroupOffsets) -> dict[TopicPartition, TranslatedCommit]:
    if group is None:
        return {}
    return {
        tp: one
        for tp, one in group.translated.items()
        if one.is_exact and now.get(tp) == one.committed
    }


def _translation(committed: Committed, there: Counterpart | None) -> TranslatedCommit:
    """Return the translation of a commit whose group is still to be named."""
    if there is None:
        return TranslatedCommit(committed=committed, checkpoint=None, is_exact=False)
    found = there.translate(committed.offset)
    if not found.is_exact and not there.runs:  # nothing was copied yet
        return TranslatedCommit(committed=committed, checkpoint=None, is_exact=False)
    checkpoint = Checkpoint(
        group="",
        topic_partition=there.target,
        upstream_offset=committed.offset,
        downstream_offset=found.offset,
        metadata=committed.metadata,
    )
    return TranslatedCommit(
        committed=committed,
        checkpoint=checkpoint,
        is_exact=found.is_exact,
        ids=there.ids,
        is_way_back=there.is_way_back,
        is_progress=there.is_progress(committed.offset),
        target_topic_id=there.target_topic_id,
    )
