"""Translates offsets by the offset map on a flow's target. No mirror needs to run, and a group's
offsets can be translated even if the cluster where it commits is lost.

A group's offsets are read from the cluster where it commits them. If that cluster does not respond,
the group's newest checkpoints on the target are used instead. A share group has no checkpoints; its
start offsets are used as committed offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from twinlog.client.export import first_records
from twinlog.cluster.client import ClusterClient, prompt_client
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import fetch_offsets
from twinlog.cluster.groups.share_groups import fetch_share_offsets
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.config.flow.schema import FlowConfig
from twinlog.errors import FlowError, Unreachable, Unsupported, or_raise
from twinlog.mirror.findings import Span
from twinlog.mirror.map.translation import Translation
from twinlog.mirror.names.filters import policy_of
from twinlog.mirror.names.renaming import plain_upstream
from twinlog.model import NO_TOPIC_ID, Isolation, TopicId, TopicPartition, is_own_group
from twinlog.survey.exact_map import ExactMap
from twinlog.wire.mm2_records import Checkpoint

SOURCE_TIMEOUT_S: Final = 15.0
"""Timeout of source requests. It is short, because groups often move when the source is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedOffset:
    """A translated offset: where to resume on the other cluster."""

    topic: str
    partition: int
    offset: int
    to_topic: str
    to_offset: int | None
    """The offset on the other cluster, or None if Twinlog has copied nothing of the partition."""
    is_exact: bool
    """False in two cases: `offset` is ahead of the copy, so `to_offset` is the end of the copy; or
    MirrorMaker 2 copied the record, so `to_offset` is somewhat before the exact offset.
    """

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def to_tp(self) -> TopicPartition:
        return TopicPartition(self.to_topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedGroup:
    """The translated offsets of a group."""

    offsets: tuple[TranslatedOffset, ...]
    from_checkpoints: bool = False
    """True if offsets of the group's checkpoints were translated, because the cluster where it
    commits did not respond.
    """


class FlowTranslation:
    """Translates offsets of one flow. Not thread-safe."""

    def __init__(
        self, config: FlowConfig, source: ClusterSettings, target: ClusterSettings
    ) -> None:
        self._config = config
        self._policy = policy_of(config)
        self._source = prompt_client(source, api_timeout_s=SOURCE_TIMEOUT_S)
        self._target = prompt_client(target)
        self._map = ExactMap(self._target, self._policy, config.flow)
        self._is_lost = False
        """True if the source did not respond. Then it is not queried again."""

    def translate(self, tp: TopicPartition, offset: int, *, reverse: bool) -> TranslatedOffset:
        """Translate an offset of the source to the target or, with `reverse`, of the target to the
        source.

        Raises FlowError if nothing of the partition was copied, or if the source topic was
        re-created after it was copied.
        """
        offsets = {tp: offset}
        (translated,) = (self._to_source if reverse else self._to_target)(offsets)
        self._require_same()
        if translated.to_offset is None:
            where = self._target.alias
            raise FlowError(
                f"{where} has no offset map of {tp}, so Twinlog has copied nothing of this "
                "partition: check the topic's name (with --reverse, the name on the target)",
                flow=self._config.flow,
                code="NOT_COPIED",
            )
        return translated

    def all_of(
        self, offsets: Mapping[TopicPartition, int], *, reverse: bool
    ) -> tuple[TranslatedOffset, ...]:
        """Translate many offsets, and return the results sorted by partition. `to_offset` is None
        if nothing of a partition was copied. `reverse`: see `translate`.

        A source offset that is ahead of the copy is exact if no record of the source is between the
        end of the copy and this offset, as after a transaction marker. Raises FlowError
        (SOURCE_RECREATED) like `translate`.
        """
        translated = (self._to_source if reverse else self._to_target)(offsets)
        self._require_same()
        if reverse:
            return translated
        ends = self._ends_of_copies(translated)
        return tuple(
            replace(offset, is_exact=True) if offset in ends else offset for offset in translated
        )

    def group(self, group: str, *, reverse: bool) -> TranslatedGroup:
        """Return the translated offsets of a group that commits on the source or, with `reverse`,
        on the target. Raises FlowError (NO_OFFSETS) if the group is one of Twinlog's own.
        """
        if is_own_group(group):
            raise FlowError(
                f"group {group} is one of Twinlog's own: its offsets are not positions of a "
                "consumer, so they cannot be translated",
                flow=self._config.flow,
                code="NO_OFFSETS",
            )
        if reverse:
            committed = _committed(self._target, group)
            copies = self._source_names({tp.topic for tp in committed})
            return TranslatedGroup(
                offsets=self._to_source(
                    {tp: n for tp, n in committed.items() if tp.topic in copies}
                )
            )
        try:
            offsets = _committed(self._source, group)
        except Unreachable:
            self._is_lost = True
            offsets = self._by_checkpoints(group)
            if not offsets:
                raise
            return TranslatedGroup(offsets=self._to_target(offsets), from_checkpoints=True)
        return TranslatedGroup(offsets=self._to_target(offsets))

    def sides(self, *, reverse: bool) -> tuple[ClusterClient, ClusterClient]:
        """Return (client of the cluster from which offsets are translated, client of the other
        one): source and target or, with `reverse`, target and source.
        """
        return (self._target, self._source) if reverse else (self._source, self._target)

    def close(self) -> None:
        self._source.close()
        self._target.close()

    def _ends_of_copies(self, translated: Iterable[TranslatedOffset]) -> set[TranslatedOffset]:
        """Return those of `translated` that are ahead of the copy only by markers, or by records
        that no reader gets. Each request is for all partitions.
        """
        inexact = [offset for offset in translated if not offset.is_exact]
        ends = {
            offset.to_tp: offset.to_offset for offset in inexact if offset.to_offset is not None
        }
        if self._is_lost or not ends:
            return set()
        copied = self._map.upstream(ends)
        inexact = [
            offset for offset in inexact if offset.to_tp in copied and copied[offset.to_tp].is_exact
        ]
        spans = {offset.tp: Span(copied[offset.to_tp].offset, offset.offset) for offset in inexact}
        committed = self._config.isolation_level is Isolation.READ_COMMITTED
        try:
            records = first_records(self._source, spans, with_aborted=not committed)
        except Unreachable:
            # without the source, it is unknown which records follow the end of the copy, so no
            # offset ahead of the copy is exact
            self._is_lost = True
            return set()
        return {offset for offset in inexact if offset.tp not in records}

    def _to_target(self, offsets: Mapping[TopicPartition, int]) -> tuple[TranslatedOffset, ...]:
        alias, format_remote = self._config.source_alias, self._policy.format_remote_topic
        plain = {tp.topic: format_remote(alias, tp.topic) for tp in offsets}
        names = self._map.local_names(plain)
        remote = {
            tp: TopicPartition(names[tp.topic], tp.partition) for tp in offsets if tp.topic in names
        }
        ids = self._source_ids(names)
        translations = self._map.downstream({name: offsets[tp] for tp, name in remote.items()}, ids)
        return tuple(
            _line(tp, offset, plain[tp.topic], None)
            if tp not in remote
            else _line(tp, offset, remote[tp].topic, translations.get(remote[tp]))
            for tp, offset in sorted(offsets.items())
        )

    def _to_source(self, offsets: Mapping[TopicPartition, int]) -> tuple[TranslatedOffset, ...]:
        names = self._source_names({tp.topic for tp in offsets})
        translations = self._map.upstream(offsets, self._source_ids(names.values()))
        return tuple(
            _line(tp, offset, names.get(tp.topic, tp.topic), translations.get(tp))
            for tp, offset in sorted(offsets.items())
        )

    def _source_names(self, topics: Collection[str]) -> dict[str, str]:
        """Return the source topic of each target topic: from the offset map or, if it is not there,
        from the target topic's name. Topics without a result are left out.
        """
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
            metadata = self._source.metadata(sorted(topics)).topics
        except Unreachable:
            self._is_lost = True
            return {}
        return {
            name: topic.topic_id
            for name, topic in metadata.items()
            if not topic.error and topic.topic_id != NO_TOPIC_ID
        }

    def _by_checkpoints(self, group: str) -> dict[TopicPartition, int]:
        topic = self._policy.checkpoints_topic(self._config.source_alias)
        upstreams: dict[TopicPartition, int] = {}
        for checkpoint in Checkpoint.decode_all(read_to_end(self._target, topic, 0)):
            if checkpoint.group == group:
                upstreams[checkpoint.topic_partition] = checkpoint.upstream_offset
        names = self._source_names({tp.topic for tp in upstreams})
        return {
            TopicPartition(names[tp.topic], tp.partition): offset
            for tp, offset in upstreams.items()
            if tp.topic in names
        }


def _committed(client: ClusterClient, group: str) -> dict[TopicPartition, int]:
    coordinators = Coordinators(client)
    committed = fetch_offsets(coordinators, [group])[group]
    if not committed:  # then the group may be a share group
        with suppress(Unsupported):
            committed = fetch_share_offsets(coordinators, [group])[group]
    offsets = or_raise(committed)
    if not offsets:
        raise FlowError(
            f"cluster {client.alias}: group {group} has no committed offsets: check its name",
            code="NO_OFFSETS",
        )
    return {tp: committed.offset for tp, committed in offsets.items()}


def _line(
    tp: TopicPartition, offset: int, to_topic: str, translation: Translation | None
) -> TranslatedOffset:
    return TranslatedOffset(
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
        to_topic=to_topic,
        to_offset=None if translation is None else translation.offset,
        is_exact=translation is not None and translation.is_exact,
    )
