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
    is_reverse: bool = False
    is_progress: bool = True
    """False if the group may never have been at the checkpoint (`Counterpart.is_progress`)."""
    target_topic_id: TopicId = NO_TOPIC_ID
    """ID of the checkpoint's topic; a re-created topic has other offsets."""

    def of(self, group: str) -> TranslatedCommit:
        """Return the translation of the same commit by this group."""
        if self.checkpoint is None:
            return self
        return TranslatedCommit(self.committed, replace(self.checkpoint, group=group), *self[2:])


class _AppliedOffset(NamedTuple):
    """A commit for which the group's offset on the target needs no change."""

    offset: int
    downstream: int | None
    """The target offset, or None for any. Another offset is new information, because it is now
    exact.
    """
    ids: CopyIds | None
    """IDs of the two topics for which the offset was set, or None if its checkpoint has none.
    A re-created topic has the same offsets again.
    """

    def is_of(self, commit: TranslatedCommit) -> bool:
        if commit.checkpoint is None or self.offset != commit.committed.offset:
            return False
        downstream = commit.checkpoint.downstream_offset
        return self.downstream in (None, downstream) and self.ids in (None, commit.ids)


Given: TypeAlias = Callable[[str, TopicPartition, int, TopicId | None], bool | None]
"""Returns True if a sync has set this offset for a group of the source, in the topic with this ID,
or None if no sync is known.
"""


def given_on_source(flow: LedFlow) -> Given:
    return partial(flow.synced.has_offset, flow.config.flow.source)


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

    def __init__(self, offsets: TargetOffsets, was_set: Given, *, has_sync: bool = True) -> None:
        self._offsets = offsets
        self._has_sync = has_sync
        self._given = was_set
        self._groups: dict[str, _Group] = {}
        self._applied_offset: dict[tuple[str, TopicPartition], _AppliedOffset] = {}
        """Commits in topics that were copied from the target, by group and source partition."""
        self._copies: dict[TopicPartition, PartitionKey] = {}
        """The copies of the last round whose offsets are valid."""
        self._has_begun = False

    def __iter__(self) -> Iterator[TranslatedCommit]:
        for group in self._groups.values():
            yield from group.translated.values()

    def unwritten_rows(self, written: Newest) -> Iterator[CheckpointRow]:
        """Yield the rows that the checkpoints topic does not have yet."""
        for name, tp, commit in self._all():
            if commit.checkpoint is None:
                continue
            last = written.get((name, commit.checkpoint.topic_partition))
            if last is not None and last.checkpoint is commit.checkpoint and not commit.is_reverse:
                continue  # the usual case, and there may be very many
            mark_applied = self._applied_offset.get((name, tp)) if commit.is_reverse else None
            is_applied = mark_applied is not None and mark_applied.is_of(commit)
            ids = commit.ids if self._has_sync or commit.is_reverse else None
            row = CheckpointRow(commit.checkpoint, ids, is_applied)
            if row.is_due(last, is_exact=commit.is_exact):
                yield row

    def copy_ids(self) -> dict[tuple[str, TopicPartition], CopyIds | None]:
        """Return the two topics of each checkpoint, by group and partition of the target."""
        return {
            (name, commit.checkpoint.topic_partition): commit.ids
            for name, _, commit in self._all()
            if commit.checkpoint is not None
        }

    @property
    def has_reverse(self) -> bool:
        return any(commit.is_reverse for commit in self)

    def without_counterpart(self) -> dict[str, tuple[TopicPartition, ...]]:
        """Return the groups without any counterpart on the target, and their partitions."""
        return {
            name: tuple(group.read)
            for name, group in self._groups.items()
            if all(commit.checkpoint is None for commit in group.translated.values())
        }

    def forget(self) -> None:
        """Translate every offset again: the target topic may have been deleted and copied again."""
        self._groups.clear()
        self._offsets.forget()

    def forget_topics(self, topics: Collection[str]) -> None:
        """Drop the translations in these topics of the target, which were replaced."""
        for group in self._groups.values() if topics else ():
            for tp, commit in list(group.translated.items()):
                if (
                    commit.checkpoint is not None
                    and commit.checkpoint.topic_partition.topic in topics
                ):
                    del group.translated[tp]
                    group.is_settled = False

    def target_ids(self) -> dict[str, TopicId]:
        """Return the IDs of the target topics in which offsets were translated."""
        return {
            commit.checkpoint.topic_partition.topic: commit.target_topic_id
            for commit in self
            if commit.checkpoint is not None
        }

    def update(self, now: Mapping[str, GroupOffsets]) -> None:
        """Set the current commits. Only translations of partitions that are still copied between
        the same two topics are kept. A released topic belongs to its application, and its groups
        are left alone.
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
        # very many groups may be at the same offset
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
        the start, or None if unknown. In that case the first round changes nothing on the way back.
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
                    # becomes the log start if the group has no offset, and else changes nothing
                    asked = replace(asked, downstream_offset=0)
                wanted.setdefault(name, []).append(asked)
        return wanted

    def mark_applied(self, skipped: Mapping[str, str]) -> None:
        """Note that the offsets of `to_set` are set, except those of skipped groups."""
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
    """Read a row. Earlier releases wrote rows only for commits that needed no further change."""
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
    """Return the translation of a commit whose group is still to be named."""
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
