"""Share groups of a flow: their start offsets on the target, under the rules of `group_sync`.

They get no checkpoints. Those name a group and an offset, not the group's kind, and Java's
RemoteClusterUtils would hand them to somebody who commits them, for a consumer group of that name.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import Group
from twinlog.cluster.groups.share_groups import (
    alter_start_offsets,
    fetch_furthest_offsets,
    fetch_start_offsets,
)
from twinlog.control.duties.rounds import LedFlow
from twinlog.control.groups.counterparts import TargetOffsets
from twinlog.control.groups.group_rights import readable
from twinlog.control.groups.group_sync import GroupKind, GroupSyncer
from twinlog.control.groups.translation_cache import TranslationCache, given_on_source
from twinlog.errors import Unsupported
from twinlog.quantities import first_few, plural

SHARE_GROUPS: Final = GroupKind(
    is_of=lambda group: group.is_share,
    reader=lambda there: partial(fetch_furthest_offsets, there),
    commit=alter_start_offsets,
)

WITHOUT_SYNC: Final = (
    "share groups have no checkpoints: sync.group.offsets.enabled=true sets their start offsets"
)


class ShareGroups:
    """The share groups of one flow; for one thread."""

    def __init__(
        self, flow: LedFlow, here: Coordinators, there: Coordinators, offsets: TargetOffsets
    ) -> None:
        self._flow = flow
        self._here = here
        self._there = there
        self._translations = TranslationCache(offsets, given_on_source(flow))
        self._syncer = GroupSyncer(flow, there, SHARE_GROUPS)
        self._names: tuple[str, ...] = ()
        self.skipped: dict[str, str] = {}
        """Groups left as they are, with the reason, after the last round."""

    def choose(self, selected: Iterable[Group]) -> None:
        """Those of the source's groups that are share groups are ours."""
        self._names = tuple(sorted(group.name for group in selected if group.is_share))
        if self._flow.config.groups.sync_s is None:
            self.skipped = dict.fromkeys(self._names, WITHOUT_SYNC)

    def forget(self) -> None:
        """Find every offset on the target again."""
        self._translations.forget()

    def sync(self) -> None:
        """One round: read, translate, set what is behind. Nothing is asked where there is none."""
        self.skipped = {}
        if not self._names:
            self._translations.to_set(None)  # whatever comes from now on is news
            return
        try:
            found = fetch_start_offsets(self._here, self._names)
        except Unsupported:
            self._leave_out(self._here)
            return
        self._translations.update(readable(self._flow, found))
        try:
            self._syncer.sync(self._translations.to_set(None), self._translations.target_ids())
        except Unsupported:
            self._leave_out(self._there)
            return
        self._translations.forget_topics(self._syncer.recreated)
        self.skipped = self._syncer.skipped
        self._translations.seen_to(self.skipped)

    def _leave_out(self, cluster: Coordinators) -> None:
        reason = (
            f"brokers of {cluster.client.alias} do not offer start offsets of share groups: "
            "those of Kafka 4.2 and later do"
        )
        self.skipped = dict.fromkeys(self._names, reason)
        self._flow.log_once(
            f"{self._flow.name}: {plural(len(self._names), 'share group')} of "
            f"{self._here.client.alias} left out ({first_few(self._names)}): {reason}"
        )
