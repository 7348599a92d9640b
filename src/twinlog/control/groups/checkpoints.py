"""Duty: writes checkpoints, which are the offsets at which groups of the source resume on the
target, and sets the groups' own offsets if configured.

A round reads the offsets of all groups with one request per broker, translates the offsets that
changed, and writes new checkpoints. If the sync is due, the round also sets offsets of idle groups,
including share groups.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import Group, list_groups
from twinlog.cluster.groups.group_offsets import OffsetReader
from twinlog.cluster.groups.share_groups import fetch_share_offsets
from twinlog.cluster.topics.internal_log import read_to_end, readable_ends
from twinlog.cluster.topics.topic_admin import ensure_mm2_topic
from twinlog.control.duties.led_log import LedLog
from twinlog.control.duties.rounds import Duty, LedFlow
from twinlog.control.groups.checkpoint_rows import CheckpointRow
from twinlog.control.groups.counterparts import CounterpartFinder, reasons
from twinlog.control.groups.group_sync import GroupSyncer
from twinlog.control.groups.left_out import hidden_groups_line, lists_groups, readable
from twinlog.control.groups.translation_cache import TranslationCache, was_set_on_source
from twinlog.errors import TwinlogError, Unauthorized, Unsupported
from twinlog.mirror.map.synced_offsets import SyncedOffsets
from twinlog.mirror.names.filters import policy_of
from twinlog.model import TopicId, TopicPartition
from twinlog.quantities import first_few, plural
from twinlog.survey.rights import denied_error
from twinlog.wire.mm2_records import Checkpoint

log = logging.getLogger(__name__)

QUICK_S: Final = 0.25
"""Minimum seconds between two reads of group offsets if checkpoints are due at least every second.
"""
WARM_UP_S: Final = 30.0
"""Seconds after the start in which rounds run every second, as lanes only begin to report."""
REPORT_S: Final = 5.0
"""Seconds between updates of the report on groups without a checkpoint, which may be long."""
CHECK_AGAIN_S: Final = 60.0
"""Seconds after which exact offsets are translated again, because the target topic may have been
deleted and copied again.
"""
RECORDS_PER_BATCH: Final = 2_000


def checkpoints(flow: LedFlow) -> Duty | None:
    """Return the duty, or None if neither checkpoints nor group offsets are configured."""
    config = flow.config.groups
    if config.checkpoints_s is None and config.sync_s is None:
        return None
    return CheckpointDuty(flow)


class CheckpointDuty(Duty):
    """Checkpoints and offsets of all groups of one flow."""

    name = "checkpoints"

    def __init__(self, flow: LedFlow) -> None:
        self._flow = flow
        self._config = flow.config.groups
        self._topic = policy_of(flow.config).checkpoints_topic(flow.config.source_alias)
        self._source = ClusterClient(flow.source)
        self._target = ClusterClient(flow.target)
        self._clients = self._source, self._target
        self._log = LedLog(flow, self._target, self._topic)
        self._source_groups = Coordinators(self._source)
        self._offsets = OffsetReader(self._source_groups)
        coordinators = Coordinators(self._target)
        offsets = CounterpartFinder(flow, self._source, self._target)
        self._opposite = OppositeCheckpoints(flow, self._source, lambda: offsets.target_aliases)
        was_set = was_set_on_source(flow)
        self._translations = TranslationCache(
            offsets,
            lambda *at: self._opposite.has_offset(*at) or was_set(*at),
            has_sync=self._config.sync_s is not None,
        )
        self._syncer = GroupSyncer(flow, coordinators, announce=self._announce)
        self._shares = ShareGroups(flow, self._source_groups, coordinators, offsets)
        self._groups: tuple[str, ...] = ()
        self._unhandled: dict[str, str] = {}
        """Selected groups whose type has no offsets to translate, with the reason."""
        self._written: dict[tuple[str, TopicPartition], CheckpointRow] | None = None
        """The newest rows of the checkpoints topic, or None if they must be read again."""
        self._initial_rows: dict[tuple[str, TopicPartition], CheckpointRow] | None = None
        """The newest rows of the checkpoints topic when it was first read. None if it has not been
        read, because no checkpoints are configured or this user is not permitted to read it.
        """
        self._took_s = self._asked_s = 0.0
        """Duration in seconds of the last round, and of the offset requests in that round."""
        self._read_ms = 0
        self._began = time.monotonic()
        self._next_groups = self._next_write = self._next_sync = self._next_check = 0.0
        self._next_report = 0.0

    @property
    def interval_s(self) -> float:
        asked = [s for s in (self._config.checkpoints_s, self._config.sync_s) if s is not None]
        interval = float(min(asked))
        if interval > 1 and self._is_warming_up:
            interval = 1.0
        # a short interval, so that a commit right after a round still gets its checkpoint within
        # the second. But a cluster with very many groups is queried at most half of the time
        return interval if interval > 1 else max(QUICK_S, self._took_s + self._asked_s)

    @property
    def _is_warming_up(self) -> bool:
        return time.monotonic() < self._began + WARM_UP_S

    def round(self) -> None:
        began = time.monotonic()
        if began >= self._next_groups:
            self._find_groups()
            refresh_s = self._config.refresh_s
            self._next_groups = float("inf") if refresh_s is None else began + refresh_s
        if began >= self._next_check:
            self._translations.forget()
            self._shares.forget()
            self._next_check = began + CHECK_AGAIN_S
        self._translate()
        if began >= self._next_report:
            without_counterpart = self._translations.without_counterpart()
            views = self._flow.partitions() if without_counterpart else ()
            self._flow.groups.without_checkpoint = reasons(
                without_counterpart, views, self._flow.intents()
            )
            self._next_report = began + REPORT_S
        # up to half a second before the due time, because rounds do not begin exactly on time
        soon = float("inf") if self._is_warming_up else began + 0.5
        if self._config.checkpoints_s is not None and soon >= self._next_write:
            self._write()
            self._next_write = began + self._config.checkpoints_s
        if self._config.sync_s is not None and soon >= self._next_sync:
            self._sync()
            self._next_sync = began + self._config.sync_s
        self._took_s = time.monotonic() - began

    # -- groups and their offsets

    def _find_groups(self) -> None:
        listed_groups = list_groups(self._source_groups)
        selected = {
            name: group for name, group in listed_groups.items() if self._config.selects(name)
        }
        self._groups = tuple(name for name, group in selected.items() if group.has_offsets)
        self._unhandled = {
            name: why for name, group in selected.items() if (why := group.why_left_alone)
        }
        if self._unhandled:
            self._flow.log_once(
                f"{self._flow.name}: {plural(len(self._unhandled), 'group')} of "
                f"{self._source.alias} not translated ({first_few(sorted(self._unhandled))}): "
                f"{self._unhandled[min(self._unhandled)]}"
            )
        self._shares.select(selected.values())
        self._log_skipped()
        if not listed_groups and not lists_groups(self._source):
            self._flow.log_once(hidden_groups_line(self._flow.config))

    def _translate(self) -> None:
        """Read the commits of all groups, and update their translations."""
        self._read_ms = int(time.time() * 1000)
        began = time.monotonic()
        commits = self._offsets.read(self._groups)
        self._asked_s = time.monotonic() - began
        self._translations.update(readable(self._flow, commits))

    def _sync(self) -> None:
        if self._translations.has_reverse:
            self._opposite.read()
        wanted = self._translations.to_set(self._initial_rows)
        self._syncer.sync(wanted, self._translations.target_ids())
        self._translations.forget_topics(self._syncer.recreated)
        self._translations.mark_applied(self._syncer.skipped)
        self._log_skipped()
        if self._translations.has_reverse and self._config.checkpoints_s is not None:
            # record which offsets were set, so that the next process does not undo later changes
            self._write()
        self._shares.sync()
        self._log_skipped()

    def _log_skipped(self) -> None:
        skipped = self._syncer.skipped | self._shares.skipped
        self._flow.groups.skipped = {**self._unhandled, **skipped}

    # -- the topic

    def _write(self) -> None:
        try:
            if self._written is not None and self._log.has_foreign_records():
                self._written = None
            if self._written is None:
                factor = self._config.checkpoints_replication_factor
                ensure_mm2_topic(self._target, self._topic, factor)
                newest = self._read()
                if self._initial_rows is None and newest is not None:
                    self._initial_rows = dict(newest)
                self._written = newest or {}
            self._append(list(self._translations.unwritten_rows(self._written)))
        except Unauthorized as error:
            self._flow.log_once(
                f"{self._flow.name}: no checkpoints are written: {error}; or set "
                "emit.checkpoints.enabled=false"
            )
            self._written = None
        except TwinlogError:
            self._written = None  # read it again: it was deleted, or the last write was lost
            raise

    def _announce(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Write the checkpoints before their offsets are set for groups. The opposite flow needs
        them to distinguish these offsets from the groups' own commits.
        """
        if self._written is None:
            return
        ids, written = self._translations.copy_ids(), self._written
        rows = [
            CheckpointRow(checkpoint, ids[checkpoint.group, checkpoint.topic_partition])
            for checkpoint in checkpoints
        ]
        try:
            self._append([row for row in rows if not row.is_written(written.get(row.key))])
        except Unauthorized:
            self._written = None  # the next write reports the error

    def _read(self) -> dict[tuple[str, TopicPartition], CheckpointRow] | None:
        try:
            return {row.key: row for row in CheckpointRow.decode_all(self._log.read())}
        except Unauthorized as error:
            self._flow.log_once(
                f"{self._flow.name}: checkpoints of earlier runs are unknown, so all are written "
                f"again: {error}; or set emit.checkpoints.enabled=false"
            )
            return None

    def _append(self, due: Sequence[CheckpointRow]) -> None:
        assert self._written is not None  # noqa: S101 (read just before)
        for index in range(0, len(due), RECORDS_PER_BATCH):
            portion = due[index : index + RECORDS_PER_BATCH]
            now_ms = int(time.time() * 1000)
            self._log.append([row.record(now_ms) for row in portion])
            checkpoints = [row.checkpoint for row in portion]
            self._flow.groups.on_written(checkpoints, read_ms=self._read_ms)
            self._written.update((row.key, row) for row in portion)


# Checkpoints of the opposite flow, in a topic of this flow's source. They show which offsets the
# sync of the opposite flow has set for groups of the source.


class OppositeCheckpoints:
    """Reads the opposite flow's checkpoints. Not thread-safe."""

    def __init__(
        self, flow: LedFlow, source: ClusterClient, aliases: Callable[[], Iterable[str]]
    ) -> None:
        self._flow, self._source, self._aliases = flow, source, aliases
        self._next: defaultdict[str, int] = defaultdict(int)
        self._named = SyncedOffsets()

    def has_offset(
        self, group: str, tp: TopicPartition, offset: int, topic_id: TopicId | None
    ) -> bool:
        """Return True if one of the group's last checkpoints for this partition has this offset.
        Earlier checkpoints may be missing, because the topic is compacted.
        """
        return bool(self._named.has_offset(self._source.alias, group, tp, offset, topic_id))

    def read(self) -> None:
        """Read new checkpoints. If a checkpoints topic does not exist or is hidden from this user,
        nothing is read from it. Raises TwinlogError.
        """
        policy = policy_of(self._flow.config)
        for alias in sorted(self._aliases()):
            self._read(policy.checkpoints_topic(alias))

    def _read(self, topic: str) -> None:
        try:
            (end,) = readable_ends(self._source, [TopicPartition(topic, 0)]).values()
            # a lower end than before means that the topic was re-created, so all of it is read
            first = self._next[topic] if end >= self._next[topic] else 0
            log = read_to_end(self._source, topic, 0, first, end=end)
            for checkpoint, ids, _ in CheckpointRow.decode_all(log):
                tp, topic_id = checkpoint.topic_partition, None if ids is None else ids.copy
                self._named.note(
                    self._source.alias, checkpoint.group, tp, checkpoint.downstream_offset, topic_id
                )
            self._next[topic] = end
        except Unauthorized:
            error = denied_error(self._source.alias, "READ", topic)
            self._flow.log_once(
                f"{self._flow.name}: the offsets that other processes' syncs set for groups of "
                f"{self._source.alias} are unknown: {error}; or set "
                "sync.group.offsets.enabled=false"
            )
        except TwinlogError as error:
            if error.code != "TOPIC_MISSING":
                raise


# Start offsets of share groups are set on the target by the rules of `group_sync`. Share groups get
# no checkpoints, because a checkpoint does not contain the type of its group. Java's
# RemoteClusterUtils would translate it for a consumer group of that name.

WITHOUT_SYNC: Final = (
    "share groups have no checkpoints: sync.group.offsets.enabled=true sets their start offsets"
)


class ShareGroups:
    """Sets start offsets of one flow's share groups on the target. Not thread-safe."""

    def __init__(
        self,
        flow: LedFlow,
        source_coordinators: Coordinators,
        target_coordinators: Coordinators,
        offsets: CounterpartFinder,
    ) -> None:
        self._flow = flow
        self._source = source_coordinators
        self._target = target_coordinators
        self._translations = TranslationCache(offsets, was_set_on_source(flow))
        self._syncer = GroupSyncer(flow, target_coordinators, is_share=True)
        self._names: tuple[str, ...] = ()
        self.skipped: dict[str, str] = {}
        """Groups whose offsets the last round left as they are, with the reason."""

    def select(self, selected: Iterable[Group]) -> None:
        """Select the share groups among the source's selected groups."""
        self._names = tuple(sorted(group.name for group in selected if group.is_share))
        if self._flow.config.groups.sync_s is None:
            self.skipped = dict.fromkeys(self._names, WITHOUT_SYNC)

    def forget(self) -> None:
        """Drop all translations, so that every offset is looked up on the target again."""
        self._translations.forget()

    def sync(self) -> None:
        """Run one round: read, translate, set offsets. Sends no request if there are no groups."""
        self.skipped = {}
        if not self._names:
            # end the first round, in which `to_set` may leave out existing commits; later commits
            # count
            self._translations.to_set(None)
            return
        try:
            offsets = fetch_share_offsets(self._source, self._names)
        except Unsupported:
            self._leave_out(self._source)
            return
        self._translations.update(readable(self._flow, offsets))
        try:
            self._syncer.sync(self._translations.to_set(None), self._translations.target_ids())
        except Unsupported:
            self._leave_out(self._target)
            return
        self._translations.forget_topics(self._syncer.recreated)
        self.skipped = self._syncer.skipped
        self._translations.mark_applied(self.skipped)

    def _leave_out(self, cluster: Coordinators) -> None:
        reason = (
            f"brokers of {cluster.client.alias} do not support start offsets of share groups: "
            "this needs Kafka 4.2 or later"
        )
        self.skipped = dict.fromkeys(self._names, reason)
        self._flow.log_once(
            f"{self._flow.name}: {plural(len(self._names), 'share group')} of "
            f"{self._source.client.alias} left out ({first_few(self._names)}): {reason}"
        )
