"""Remote topics of somebody else, found before anything of them is grown, configured or begun.

A lane judges one partition at its start. But a topic is somebody's as a whole: where a partition
holds records that no flow of ours wrote, and no row of ours speaks of the topic, the empty ones
beside it are not ours to fill either.
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
from twinlog.mirror.map.offset_map import PartitionMap
from twinlog.mirror.state.copies import CopyRow
from twinlog.mirror.state.generations import OF_PRODUCERS, producers_of
from twinlog.model import TopicId, TopicPartition
from twinlog.survey.copied_topics import CopiedTopic
from twinlog.survey.map_reader import read_maps
from twinlog.survey.state_reader import state_rows
from twinlog.wire.record_batch import read_headers

ONE_BATCH: Final = 1
"""Bytes to ask for: a broker answers with a whole batch."""

UNREADABLE: Final = "some of it cannot be read"


def foreign_topics(
    flow: FlowConfig,
    rows: Iterable[CopyRow],
    there: ClusterMetadata,
    target: ClusterClient,
) -> dict[str, TwinlogError]:
    """FOREIGN_DATA by source topic. `rows` are those of copies that may begin.

    A topic of which a partition cannot be read now (it has no leader) waits for the next survey,
    with that error: what it holds is not known. Without the right to read it is left to the lanes.

    Under the identity policy, and where records are placed by key, others may write to a topic, and
    what was there is left as it is.
    """
    if flow.policy.kind is PolicyKind.IDENTITY or flow.keyed_partitions:
        return {}
    unknown = {
        row.topic: row.source_topic
        for row in rows
        if not row.begun and (found := there.topics.get(row.topic)) and not found.error
    }
    unread: dict[TopicPartition, TwinlogError] = {}
    spans = _spans(target, _partitions(there, unknown), unread)
    if not spans and not unread:
        return {}
    ours = producers_of(str(flow.flow), state_rows(target).of(str(flow.flow), *OF_PRODUCERS))
    others = _written_by_others(target, spans, ours, unread)
    try:
        mapped = _mapped(flow, there, target) if others or unread else ()
    except TwinlogError as unsaid:
        return dict.fromkeys((unknown[tp.topic] for tp in (*others, *unread)), unsaid)
    out: dict[str, TwinlogError] = {}
    for tp in others:
        if there.topics[tp.topic].topic_id not in mapped:
            finding = foreign_data(tp, spans[tp])
            out.setdefault(unknown[tp.topic], finding.in_flow(str(flow.flow)))
    for tp, error in unread.items():
        if there.topics[tp.topic].topic_id not in mapped:
            out.setdefault(unknown[tp.topic], error)
    return out


def empty_topics(target: ClusterClient, names: Collection[str]) -> set[str]:
    """Those that surely hold nothing."""
    there = target.metadata(sorted(names))
    unread: dict[TopicPartition, TwinlogError] = {}
    spans = _spans(target, _partitions(there, names), unread)
    return {*names} - {tp.topic for tp in (*spans, *unread)}


def why_not_ours(
    flow: FlowConfig, one: CopiedTopic, remote: TopicMetadata, target: ClusterClient
) -> tuple[str, str]:
    """Why a topic may not be changed as this copy, where no lane has checked yet, and the code of
    it: by the offset map and the log's last batches. Empty where it may, or holds nothing.
    """
    unread: dict[TopicPartition, TwinlogError] = {}
    spans = _spans(target, remote.tps, unread)
    if unread or not spans:
        return (UNREADABLE if unread else ""), ""
    maps = read_maps(target, flow.flow)
    maps.require_all()
    ids = one.source_id, one.target_id
    known = [found for key, found in maps.items() if key[:2] == ids and found.runs]
    why, code = "", ""
    if not known and any(key.target_topic_id == one.target_id for key in maps):
        why, code = "it holds the copy of an earlier source topic of that name", "SOURCE_RECREATED"
    elif not known:
        why = "the offset map has no row of it"
    elif flow.policy.kind is PolicyKind.IDENTITY and any(map(_has_others, known)):
        why = "others write to it, too"
    if why:
        return why, code
    ours = frozenset(id_ for found in known for id_ in found.producers)
    ends = {tp: Span(span.next - 1, span.next) for tp, span in spans.items()}
    if _written_by_others(target, ends, ours, unread):
        return "others wrote to it last", ""
    return (UNREADABLE if unread else ""), ""


def _has_others(known: PartitionMap) -> bool:
    return known.runs[-1].downstream != known.runs[-1].ordinal


def _mapped(flow: FlowConfig, there: ClusterMetadata, target: ClusterClient) -> Collection[TopicId]:
    """Topics of which the offset map has a row: copies, whatever the state topic has lost. Raises
    TwinlogError where some of it cannot be read, so that nobody can say.
    """
    maps = read_maps(target, flow.flow, there)
    maps.require_all()
    return {key.target_topic_id for key in maps}


def _partitions(there: ClusterMetadata, topics: Iterable[str]) -> list[TopicPartition]:
    return [tp for name in sorted(topics) for tp in there.topics[name].tps]


def _spans(
    target: ClusterClient,
    tps: Collection[TopicPartition],
    unread: dict[TopicPartition, TwinlogError],
) -> dict[TopicPartition, Span]:
    """The offsets of those that hold something; errors of the others go to `unread`."""
    if not tps:
        return {}
    starts, ends = list_offsets(target, tps, EARLIEST), log_ends(target, tps)
    spans: dict[TopicPartition, Span] = {}
    for tp in tps:
        start, end = starts[tp], ends[tp]
        if isinstance(start, TwinlogError):
            _note(unread, tp, start)
        elif isinstance(end, TwinlogError):
            _note(unread, tp, end)
        elif end.end_offset > start.offset:
            spans[tp] = Span(start.offset, end.end_offset)
    return spans


def _written_by_others(
    target: ClusterClient,
    spans: dict[TopicPartition, Span],
    ours: Collection[int],
    unread: dict[TopicPartition, TwinlogError],
) -> list[TopicPartition]:
    """By the first batch: behind one of ours a lane finds what is wrong."""
    out: list[TopicPartition] = []
    answers = fetch_records(target, {tp: (span.first, ONE_BATCH) for tp, span in spans.items()})
    for tp, answer in answers.items():
        if isinstance(answer, TwinlogError):
            _note(unread, tp, answer)
            continue
        first = next((header for header, _ in read_headers(answer.records)), None)
        if first is not None and (first.magic < 2 or first.producer_id not in ours):
            out.append(tp)
    return out


def _note(
    unread: dict[TopicPartition, TwinlogError], tp: TopicPartition, error: TwinlogError
) -> None:
    if not isinstance(error, Unauthorized):
        unread[tp] = error
