"""Caches the target offsets of groups' commits on the source, and decides which offsets must still
be set on the target. An offset is translated again only if the commit or the copy changed.

The way back means topics of the source that were copied from the target. There, a group's offset is
set once per commit, and never if that commit was itself set by the opposite flow's sync. Otherwise
two opposite flows would undo the reset of a stopped group to earlier offsets, if an operator resets
it only on its own cluster. The group's offset on the other cluster is not reset, and would count as
progress. The checkpoints of both flows (`checkpoint_rows`) show which offsets earlier processes
have set. If these checkpoints are unknown, the first round sets nothing on the way back.
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
from twinlog.control.groups.counterparts import Counterpart, CounterpartFinder
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
    is_reverse: bool = False
    is_progress: bool = True
    """False if the group may not have read all earlier records (`Counterpart.is_progress`)."""
    target_topic_id: TopicId = NO_TOPIC_ID
    """ID of the topic in which the checkpoint's target offset is valid."""

    def of(self, group: str) -> TranslatedCommit:
        """Return this translation with `group` as the group of its checkpoint."""
        if self.checkpoint is None:
            return self
        return TranslatedCommit(self.committed, replace(self.checkpoint, group=group), *self[2:])


class _AppliedOffset(NamedTuple):
    """A commit for which the group's offset on the target needs no change."""

    offset: int
    downstream: int | None
    """The group's offset on the target, or None if any offset is accepted. If the translation now
    yields another offset, the translation has become exact, and the offset must be set.
    """
    ids: CopyIds | None
    """IDs of the two topics for which the offset was set, or None if the checkpoint has no IDs.
    They are compared because a re-created topic has the same offsets again.
    """

    def is_of(self, commit: TranslatedCommit) -> bool:
        if commit.checkpoint is None or self.offset != commit.committed.offset:
            return False
        downstream = commit.checkpoint.downstream_offset
        return self.downstream in (None, downstream) and self.ids in (None, commit.ids)


WasSetBySync: TypeAlias = Callable[[str, TopicPartition, int, TopicId | None], bool | None]
"""Returns True if a sync has set this offset for a group of the source, in the topic with this ID.
Returns False if the sync has set another offset, and None if no sync of the group is known.
"""


def was_set_on_source(flow: LedFlow) -> WasSetBySync:
    return partial(flow.synced.has_offset, flow.config.flow.source)


@dataclass(slots=True)
class _Group:
    read: GroupOffsets
    translated: dict[TopicPartition, TranslatedCommit]
    is_settled: bool = False
    """Whether all translations are exact, so that none is repeated until the group commits."""

    @property
    def unknown(self) -> list[TopicPartition]:
        return [tp for tp in self.read if tp not in self.translated]


class TranslationCache:
    """Translated offsets of one flow's groups. Not thread-safe."""

    def __init__(
        self, offsets: CounterpartFinder, was_set: WasSetBySync, *, has_sync: bool = True
    ) -> None:
        self._offsets = offsets
        self._has_sync = has_sync
        self._given = was_set
        self._groups: dict[str, _Group] = {}
        self._applied_offset: dict[tuple[str, TopicPartition], _AppliedOffset] = {}
        """Commits whose offset the group on the target already has, by group and source partition.
        Only commits in topics that were copied from the target are in it.
        """
        self._copies: dict[TopicPartition, PartitionKey] = {}
        """Map keys of the partitions whose target offsets were valid in the last round."""
        self._has_begun = False

    def __iter__(self) -> Iterator[TranslatedCommit]:
        for group in self._groups.values():
            yield from group.translated.values()

    def unwritten_rows(self, written: Newest) -> Iterator[CheckpointRow]:
        """Yield the rows that the checkpoints topic lacks. `written`: its newest rows."""
        for name, tp, commit in self._all():
            if commit.checkpoint is None:
                continue
            last = written.get((name, commit.checkpoint.topic_partition))
            if last is not None and last.checkpoint is commit.checkpoint and not commit.is_reverse:
                continue  # quick exit, as there may be very many commits
            mark_applied = self._applied_offset.get((name, tp)) if commit.is_reverse else None
            is_applied = mark_applied is not None and mark_applied.is_of(commit)
            ids = commit.ids if self._has_sync or commit.is_reverse else None
            row = CheckpointRow(commit.checkpoint, ids, is_applied)
            if row.is_due(last, is_exact=commit.is_exact):
                yield row

    def copy_ids(self) -> dict[tuple[str, TopicPartition], CopyIds | None]:
        """Return the topic IDs of each checkpoint, by group and target partition."""
        return {
            (name, commit.checkpoint.topic_partition): commit.ids
            for name, _, commit in self._all()
            if commit.checkpoint is not None
        }

    @property
    def has_reverse(self) -> bool:
        return any(commit.is_reverse for commit in self)

    def without_counterpart(self) -> dict[str, tuple[TopicPartition, ...]]:
        """Return the groups without any counterpart on the target, with their partitions."""
        return {
            name: tuple(group.read)
            for name, group in self._groups.items()
            if all(commit.checkpoint is None for commit in group.translated.values())
        }

    def forget(self) -> None:
        """Drop all translations, because a target topic may have been deleted and copied again."""
        self._groups.clear()
        self._offsets.forget()

    def forget_topics(self, topics: Collection[str]) -> None:
        """Drop the translations to these target topics, which were deleted or re-created."""
        for group in self._groups.values() if topics else ():
            for tp, commit in list(group.translated.items()):
                if (
                    commit.checkpoint is not None
                    and commit.checkpoint.topic_partition.topic in topics
                ):
                    del group.translated[tp]
                    group.is_settled = False

    def target_ids(self) -> dict[str, TopicId]:
        """Return the IDs of the target topics in which the translations are valid, by name."""
        return {
            commit.checkpoint.topic_partition.topic: commit.target_topic_id
            for commit in self
            if commit.checkpoint is not None
        }

    def update(self, now: Mapping[str, GroupOffsets]) -> None:
        """Set the current commits, and translate those that changed. A translation is kept only if
        its partition is still copied between the same two topics. So no translation is kept for a
        released topic, which belongs to its applications.
        """
        views = self._offsets.views()
        self._set_copies({tp: view.map_key for tp, view in views.items() if not view.is_broken})
        before, self._groups = self._groups, {}
        moved: dict[str, _Group] = {}
        for name, offsets in now.items():
            group = before.get(name)
            if group is None or group.read is not offsets or not group.is_settled:
                group = moved[name] = _Group(offsets, _valid_translations(group, offsets))
            self._groups[name] = group
        wanted = {tp for group in moved.values() for tp in group.unknown}
        counterparts = self._offsets.find(wanted, views) if wanted else {}
        # cached, because very many groups may be at the same offset
        translate = cache(lambda tp, committed: _translation(committed, counterparts.get(tp)))
        for name, group in moved.items():
            for tp in group.unknown:
                group.translated[tp] = translate(tp, group.read[tp]).of(name)
            group.is_settled = all(commit.is_exact for commit in group.translated.values())

    def _set_copies(self, copies: dict[TopicPartition, PartitionKey]) -> None:
        changed = {tp for tp, copy in self._copies.items() if copies.get(tp) != copy}
        self._copies = copies
        for group in self._groups.values() if changed else ():
            for tp in changed & group.translated.keys():
                del group.translated[tp]
                group.is_settled = False

    def to_set(self, before: Newest | None) -> dict[str, list[Checkpoint]]:
        """Return the offsets that groups of the target should have. `before`: the checkpoints at
        the start of this process, or None if unknown. If None, the first round sets nothing on the
        way back.
        """
        if before is None and not self._has_begun:
            for name, tp, commit in self._all():
                if self._was_given(name, tp, commit) is None:
                    self._applied_offset[name, tp] = _AppliedOffset(
                        commit.committed.offset, None, commit.ids
                    )
        self._has_begun = True
        wanted: dict[str, list[Checkpoint]] = {}
        for name, tp, commit in self._all():
            if commit.checkpoint is not None and not self._is_done(name, tp, commit, before):
                asked = commit.checkpoint
                if not commit.is_progress:
                    # 0 becomes the log start for a group without an offset, and is ignored for
                    # other groups
                    asked = replace(asked, downstream_offset=0)
                wanted.setdefault(name, []).append(asked)
        return wanted

    def mark_applied(self, skipped: Mapping[str, str]) -> None:
        """Note that the offsets returned by `to_set` are set, except those of groups that were
        skipped. Groups that were skipped because their offset on the target is already higher count
        as set.
        """
        for name, tp, commit in self._all():
            if commit.checkpoint is None or not commit.is_reverse:
                continue
            if skipped.get(name) in (None, Skipped.AHEAD.value):
                downstream = commit.checkpoint.downstream_offset
                self._applied_offset[name, tp] = _AppliedOffset(
                    commit.committed.offset, downstream, commit.ids
                )

    def _all(self) -> Iterator[tuple[str, TopicPartition, TranslatedCommit]]:
        for name, group in self._groups.items():
            for tp, commit in group.translated.items():
                yield name, tp, commit

    def _is_done(
        self, group: str, tp: TopicPartition, commit: TranslatedCommit, before: Newest | None
    ) -> bool:
        if not commit.is_reverse or commit.checkpoint is None:
            return False
        if self._was_given(group, tp, commit):
            return True
        mark_applied = self._applied_offset.get((group, tp))
        if mark_applied is None and before is not None:
            mark_applied = _applied_offset(before.get((group, commit.checkpoint.topic_partition)))
        return mark_applied is not None and mark_applied.is_of(commit)

    def _was_given(self, group: str, tp: TopicPartition, commit: TranslatedCommit) -> bool | None:
        copy = None if commit.ids is None else commit.ids.copy
        return self._given(group, tp, commit.committed.offset, copy)


def _applied_offset(row: CheckpointRow | None) -> _AppliedOffset | None:
    """Return the applied offset of a row, or None if the row does not show that its offset was set.
    Earlier releases wrote rows only for commits that needed no further change.
    """
    if row is None or not (row.is_applied or row.ids is None):
        return None
    checkpoint = row.checkpoint
    downstream = None if row.ids is None else checkpoint.downstream_offset
    return _AppliedOffset(checkpoint.upstream_offset, downstream, row.ids)


def _valid_translations(
    group: _Group | None, now: GroupOffsets
) -> dict[TopicPartition, TranslatedCommit]:
    if group is None:
        return {}
    return {
        tp: commit
        for tp, commit in group.translated.items()
        if commit.is_exact and now.get(tp) == commit.committed
    }


def _translation(committed: Committed, counterpart: Counterpart | None) -> TranslatedCommit:
    """Return a commit's translation without a group name; groups at the same offset share it."""
    if counterpart is None:
        return TranslatedCommit(committed=committed, checkpoint=None, is_exact=False)
    translation = counterpart.translate(committed.offset)
    if not translation.is_exact and not counterpart.runs:  # nothing was copied yet
        return TranslatedCommit(committed=committed, checkpoint=None, is_exact=False)
    checkpoint = Checkpoint(
        group="",
        topic_partition=counterpart.target,
        upstream_offset=committed.offset,
        downstream_offset=translation.offset,
        metadata=committed.metadata,
    )
    return TranslatedCommit(
        committed=committed,
        checkpoint=checkpoint,
        is_exact=translation.is_exact,
        ids=counterpart.ids,
        is_reverse=counterpart.is_reverse,
        is_progress=counterpart.is_progress(committed.offset),
        target_topic_id=counterpart.target_topic_id,
    )
