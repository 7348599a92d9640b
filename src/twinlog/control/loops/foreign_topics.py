"""Finds topics of other clients that have the name of a remote topic, before this flow adds
partitions, sets configs, or copies records to them.

A lane checks only one partition, when its copy starts. But a whole topic belongs to one owner.
Suppose that a partition has records of another client, and neither the state topic nor the offset
map has a row of the topic. Then no records must be copied to the topic's empty partitions either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, list_offsets, log_ends
from twinlog.cluster.logs.raw_log import fetch_records
from twinlog.cluster.net.metadata import ClusterMetadata, TopicMetadata
from twinlog.config.flow.schema import FlowConfig, PolicyKind
from twinlog.errors import TwinlogError, Unauthorized
from twinlog.mirror.findings import Span, foreign_data
from twinlog.mirror.state.copies import CopyRow
from twinlog.mirror.state.generations import OF_PRODUCERS, producers_of
from twinlog.model import TopicId, TopicPartition
from twinlog.survey.copied_topics import CopiedTopic
from twinlog.survey.ends import NO_ENDS
from twinlog.survey.picture import read_maps
from twinlog.survey.state_reader import state_rows
from twinlog.wire.record_batch import read_headers

ONE_BATCH: Final = 1
"""Maximum bytes per fetch: as few as possible, because a broker returns a whole batch anyway."""

UNREADABLE: Final = "some of it cannot be read"


def foreign_topics(
    flow: FlowConfig,
    rows: Iterable[CopyRow],
    target_metadata: ClusterMetadata,
    target: ClusterClient,
) -> dict[str, TwinlogError]:
    """Return FOREIGN_DATA errors by source topic. `rows`: rows of the topics that may be copied.

    A partition may be unreadable now, for example because it has no leader. Then its topic gets
    that error, and is checked again by the next discovery. If this user is not permitted to read a
    topic, only the lanes check it.

    Nothing is checked under the identity policy, or if topics are partitioned by key. In these
    cases other clients are permitted to write to remote topics.
    """
    if flow.policy.kind is PolicyKind.IDENTITY or flow.keyed_partitions:
        return {}
    unknown = {
        row.topic: row.source_topic
        for row in rows
        if not row.begun and (topic := target_metadata.topics.get(row.topic)) and not topic.error
    }
    unread: dict[TopicPartition, TwinlogError] = {}
    spans = _spans(target, _partitions(target_metadata, unknown), unread)
    if not spans and not unread:
        return {}
    producers = producers_of(str(flow.flow), state_rows(target).of(str(flow.flow), *OF_PRODUCERS))
    foreign = _written_by_others(target, spans, producers, unread)
    try:
        mapped = _mapped(flow, target_metadata, target) if foreign or unread else ()
    except TwinlogError as unsaid:
        return dict.fromkeys((unknown[tp.topic] for tp in (*foreign, *unread)), unsaid)
    out: dict[str, TwinlogError] = {}
    for tp in foreign:
        if target_metadata.topics[tp.topic].topic_id not in mapped:
            finding = foreign_data(tp, spans[tp])
            out.setdefault(unknown[tp.topic], finding.in_flow(str(flow.flow)))
    for tp, error in unread.items():
        if target_metadata.topics[tp.topic].topic_id not in mapped:
            out.setdefault(unknown[tp.topic], error)
    return out


def empty_topics(target: ClusterClient, names: Collection[str]) -> set[str]:
    target_metadata = target.metadata(sorted(names))
    unread: dict[TopicPartition, TwinlogError] = {}
    spans = _spans(target, _partitions(target_metadata, names), unread)
    return {*names} - {tp.topic for tp in (*spans, *unread)}


def why_foreign(
    flow: FlowConfig, topic: CopiedTopic, remote: TopicMetadata, target: ClusterClient
) -> tuple[str, str]:
    """Return why this flow must not change a remote topic that no lane has checked, and the error
    code. The offset map and the last batch of each partition decide. Both texts are empty if the
    topic is this flow's copy or has no records.
    """
    unread: dict[TopicPartition, TwinlogError] = {}
    spans = _spans(target, remote.tps, unread)
    if unread or not spans:
        return (UNREADABLE if unread else ""), ""
    maps = read_maps(target, flow.flow, after=NO_ENDS)
    maps.require_all()
    ids = topic.source_id, topic.target_id
    maps_of_topic = [
        known_map for key, known_map in maps.items() if key[:2] == ids and known_map.runs
    ]
    why, code = "", ""
    if not maps_of_topic and any(key.target_topic_id == topic.target_id for key in maps):
        why, code = "it holds the copy of an earlier source topic of that name", "SOURCE_RECREATED"
    elif not maps_of_topic:
        why = "the offset map has no row of it"
    elif flow.policy.kind is PolicyKind.IDENTITY and any(
        partition_map.runs[-1].downstream != partition_map.runs[-1].ordinal
        for partition_map in maps_of_topic
    ):
        why = "other clients write to it"
    if why:
        return why, code
    producers = frozenset(id_ for known_map in maps_of_topic for id_ in known_map.producers)
    ends = {tp: Span(span.next - 1, span.next) for tp, span in spans.items()}
    if _written_by_others(target, ends, producers, unread):
        return "another client wrote to it last", ""
    return (UNREADABLE if unread else ""), ""


def _mapped(
    flow: FlowConfig, target_metadata: ClusterMetadata, target: ClusterClient
) -> Collection[TopicId]:
    """Return the IDs of remote topics with rows in the offset map. They are copies even if the
    state topic has lost its rows. Raises TwinlogError if the map cannot be read completely.
    """
    maps = read_maps(target, flow.flow, target_metadata, after=NO_ENDS)
    maps.require_all()
    return {key.target_topic_id for key in maps}


def _partitions(target_metadata: ClusterMetadata, topics: Iterable[str]) -> list[TopicPartition]:
    return [tp for name in sorted(topics) for tp in target_metadata.topics[name].tps]


def _spans(
    target: ClusterClient,
    tps: Collection[TopicPartition],
    unread: dict[TopicPartition, TwinlogError],
) -> dict[TopicPartition, Span]:
    """Return the offset ranges of non-empty partitions. Errors of partitions whose offsets cannot
    be queried are added to `unread`.
    """
    if not tps:
        return {}
    starts, ends = list_offsets(target, tps, EARLIEST), log_ends(target, tps)
    spans: dict[TopicPartition, Span] = {}
    for tp in tps:
        start, end = starts[tp], ends[tp]
        if isinstance(start, TwinlogError):
            _note_unread(unread, tp, start)
        elif isinstance(end, TwinlogError):
            _note_unread(unread, tp, end)
        elif end.end_offset > start.offset:
            spans[tp] = Span(start.offset, end.end_offset)
    return spans


def _written_by_others(
    target: ClusterClient,
    spans: dict[TopicPartition, Span],
    producers: Collection[int],
    unread: dict[TopicPartition, TwinlogError],
) -> list[TopicPartition]:
    """Return the partitions whose first batch is not from `producers`, this flow's producer IDs.
    Foreign batches after a batch of this flow are found by the lanes.
    """
    out: list[TopicPartition] = []
    answers = fetch_records(target, {tp: (span.first, ONE_BATCH) for tp, span in spans.items()})
    for tp, answer in answers.items():
        if isinstance(answer, TwinlogError):
            _note_unread(unread, tp, answer)
            continue
        first = next((header for header, _ in read_headers(answer.records)), None)
        if first is not None and (first.magic < 2 or first.producer_id not in producers):
            out.append(tp)
    return out


def _note_unread(
    unread: dict[TopicPartition, TwinlogError], tp: TopicPartition, error: TwinlogError
) -> None:
    if not isinstance(error, Unauthorized):
        unread[tp] = error
