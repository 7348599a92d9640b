"""Translates offsets by the offset map on the target alone, with no mirror running; of a group also
when its own cluster is lost.

A group's offsets are read from where it commits them. Where that cluster does not answer, its
newest checkpoints on the target say what it had committed. A share group has no checkpoints; its
start offsets stand for committed ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from twinlog.client.export import first_records
from twinlog.cluster.client import ClusterClient, prompt_client
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import fetch_offsets
from twinlog.cluster.groups.share_groups import fetch_start_offsets
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.config.flow.schema import FlowConfig
from twinlog.errors import FlowError, Unreachable, Unsupported, or_raise
from twinlog.mirror.findings import Span
from twinlog.mirror.map.translation import Translation
from twinlog.mirror.names.filters import is_remote_topic_of, policy_of
from twinlog.mirror.names.renaming import plain_upstream
from twinlog.model import NO_TOPIC_ID, Isolation, TopicId, TopicPartition, is_own_group
from twinlog.survey.exact_map import ExactMap
from twinlog.wire.mm2_records import Checkpoint

SOURCE_ANSWERS_WITHIN_S: Final = 15.0
"""It may be lost: that is when groups go over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedOffset:
    """One line: where on the other cluster to continue."""

    topic: str
    partition: int
    offset: int
    to_topic: str
    to_offset: int | None
    """None where Twinlog copied nothing of the partition."""
    is_exact: bool
    """False: the offset is ahead of the copy, and `to_offset` the end of what was copied; or a
    MirrorMaker 2 copied what is there, and `to_offset` lies somewhat before it.
    """

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def to_tp(self) -> TopicPartition:
        return TopicPartition(self.to_topic, self.partition)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedGroup:
    """An answer, and where the offsets come from."""

    offsets: tuple[TranslatedOffset, ...]
    from_checkpoints: bool = False
    """The group's own cluster did not answer."""


class FlowTranslation:
    """Questions about one flow; for one thread."""

    def __init__(
        self, config: FlowConfig, source: ClusterSettings, target: ClusterSettings
    ) -> None:
        self._config = config
        self._policy = policy_of(config)
        self._source = prompt_client(source, api_timeout_s=SOURCE_ANSWERS_WITHIN_S)
        self._target = prompt_client(target)
        self._map = ExactMap(self._target, self._policy, config.flow)
        self._is_lost = False
        """The source did not answer, and is not asked again."""

    def one(self, tp: TopicPartition, offset: int, *, reverse: bool) -> TranslatedOffset:
        """An offset of the source on the target; `reverse`: one of the target on the source.

        Raises FlowError where nothing of the partition was copied, or its source topic was
        re-created since.
        """
        offsets = {tp: offset}
        (found,) = (self._back if reverse else self._forth)(offsets)
        self._require_same()
        if found.to_offset is None:
            where = self._target.alias
            raise FlowError(
                f"{where} has no offset map of {tp}, so nothing of it was "
                "copied by Twinlog: look at the name (with --reverse it is the target's)",
                flow=self._config.flow,
                code="NOT_COPIED",
            )
        return found

    def all_of(
        self, offsets: Mapping[TopicPartition, int], *, reverse: bool
    ) -> tuple[TranslatedOffset, ...]:
        """As `one`, sorted; where nothing was copied `to_offset` is None.

        An offset of the source that is ahead of the copy is exact where the source has no records
        between, as behind a transaction's marker. Raises FlowError (SOURCE_RECREATED) as `one`.
        """
        found = (self._back if reverse else self._forth)(offsets)
        self._require_same()
        if reverse:
            return found
        ends = self._ends_of_copies(found)
        return tuple(replace(one, is_exact=True) if one in ends else one for one in found)

    def group(self, group: str, *, reverse: bool) -> TranslatedGroup:
        """Return the translated offsets of a group of the source or, with `reverse`, of the target.
        Raises FlowError (NO_OFFSETS) for one of Twinlog's own groups.
        """
        if is_own_group(group):
            raise FlowError(
                f"group {group} is one of Twinlog's own: its offsets are not positions of a "
                "consumer, so they cannot be translated",
                flow=self._config.flow,
                code="NO_OFFSETS",
            )
        if reverse:
            there = _committed(self._target, group)
            alias = self._config.source_alias
            ours = {
                tp: n
                for tp, n in there.items()
                if is_remote_topic_of(self._policy, alias, tp.topic)
            }
            return TranslatedGroup(offsets=self._back(ours))
        try:
            offsets = _committed(self._source, group)
        except Unreachable:
            self._is_lost = True
            offsets = self._by_checkpoints(group)
            if not offsets:
                raise
            return TranslatedGroup(offsets=self._forth(offsets), from_checkpoints=True)
        return TranslatedGroup(offsets=self._forth(offsets))

    def sides(self, *, reverse: bool) -> tuple[ClusterClient, ClusterClient]:
        """Return the cluster that offsets are translated from, and the one they lead to."""
        return (self._target, self._source) if reverse else (self._source, self._target)

    def close(self) -> None:
        self._source.close()
        self._target.close()

    def _ends_of_copies(self, found: Iterable[TranslatedOffset]) -> set[TranslatedOffset]:
        """Return the offsets that are ahead of the copy, but only by markers, or by records that
        no reader gets. All partitions share each request.
        """
        ahead = [one for one in found if not one.is_exact]
        ends = {one.to_tp: one.to_offset for one in ahead if one.to_offset is not None}
        if self._is_lost or not ends:
            return set()
        copied = self._map.upstream(ends)
        ahead = [one for one in ahead if one.to_tp in copied and copied[one.to_tp].is_exact]
        spans = {one.tp: Span(copied[one.to_tp].offset, one.offset) for one in ahead}
        committed = self._config.isolation_level is Isolation.READ_COMMITTED
        try:
            records = first_records(self._source, spans, with_aborted=not committed)
        except Unreachable:
            self._is_lost = True  # and so is what it may have had there
            return set()
        return {one for one in ahead if one.tp not in records}

    def _forth(self, offsets: Mapping[TopicPartition, int]) -> tuple[TranslatedOffset, ...]:
        alias, format_remote = self._config.source_alias, self._policy.format_remote_topic
        plain = {tp.topic: format_remote(alias, tp.topic) for tp in offsets}
        names = self._map.names_here(plain)
        remote = {
            tp: TopicPartition(names[tp.topic], tp.partition) for tp in offsets if tp.topic in names
        }
        ids = self._source_ids(names)
        found = self._map.downstream({here: offsets[tp] for tp, here in remote.items()}, ids)
        return tuple(
            _line(tp, offset, plain[tp.topic], None)
            if tp not in remote
            else _line(tp, offset, remote[tp].topic, found.get(remote[tp]))
            for tp, offset in sorted(offsets.items())
        )

    def _back(self, offsets: Mapping[TopicPartition, int]) -> tuple[TranslatedOffset, ...]:
        names = self._at_source({tp.topic for tp in offsets})
        found = self._map.upstream(offsets, self._source_ids(names.values()))
        return tuple(
            _line(tp, offset, names.get(tp.topic, tp.topic), found.get(tp))
            for tp, offset in sorted(offsets.items())
        )

    def _at_source(self, topics: Collection[str]) -> dict[str, str]:
        """The source's names of topics of the target: by the map, else by the name alone."""
        plain = {topic: plain_upstream(self._config, topic) for topic in topics}
        known = {topic: name for topic, name in plain.items() if name is not None}
        return known | self._map.names_at_source(topics)

    def _require_same(self) -> None:
        if self._map.recreated:
            raise FlowError(
                f"the source topic of {self._map.recreated[0]} was deleted and created again after "
                "it was copied: no offset of the new topic has a counterpart in the copy",
                flow=self._config.flow,
                code="SOURCE_RECREATED",
            )

    def _source_ids(self, topics: Iterable[str]) -> dict[str, TopicId]:
        """Return the source's topic IDs by name, without topics that are missing or have no ID."""
        if self._is_lost:
            return {}
        try:
            found = self._source.metadata(sorted(topics)).topics
        except Unreachable:
            self._is_lost = True
            return {}
        return {
            name: topic.topic_id
            for name, topic in found.items()
            if not topic.error and topic.topic_id != NO_TOPIC_ID
        }

    def _by_checkpoints(self, group: str) -> dict[TopicPartition, int]:
        topic = self._policy.checkpoints_topic(self._config.source_alias)
        found: dict[TopicPartition, int] = {}
        for one in Checkpoint.all_in(read_to_end(self._target, topic, 0)):
            if one.group == group:
                found[one.topic_partition] = one.upstream_offset
        names = self._at_source({tp.topic for tp in found})
        return {
            TopicPartition(names[tp.topic], tp.partition): offset
            for tp, offset in found.items()
            if tp.topic in names
        }


def _committed(client: ClusterClient, group: str) -> dict[TopicPartition, int]:
    coordinators = Coordinators(client)
    found = fetch_offsets(coordinators, [group])[group]
    if not found:  # it may be a share group
        with suppress(Unsupported):
            found = fetch_start_offsets(coordinators, [group])[group]
    offsets = or_raise(found)
    if not offsets:
        raise FlowError(
            f"cluster {client.alias}: group {group} has no committed offsets: look at its name",
            code="NO_OFFSETS",
        )
    return {tp: one.offset for tp, one in offsets.items()}


def _line(
    tp: TopicPartition, offset: int, to_topic: str, found: Translation | None
) -> TranslatedOffset:
    return TranslatedOffset(
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
        to_topic=to_topic,
        to_offset=None if found is None else found.offset,
        is_exact=found is not None and found.is_exact,
    )
