"""Planning of reads: the partitions, and the current offsets of bounds in them.

Offsets are queried once per read, by the process that plans the read. Ends are queried before times
are looked up. So a record that is appended between the two queries is after the end, and is not
skipped.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from pyspark.sql.types import StructType

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import fetch_offsets
from twinlog.cluster.logs.offsets import EARLIEST, list_offsets
from twinlog.cluster.logs.start_offsets import begin_offsets
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.errors import ClusterError, or_raise
from twinlog.model import Isolation, StartAt, StartKind, TopicId, TopicPartition
from twinlog.records.bounds import JSON_EARLIEST, JSON_LATEST, Bound, BoundKind, option_error
from twinlog.records.columns import UPSTREAM, check_columns
from twinlog.records.gaps import (
    LogBounds,
    OffsetRange,
    all_answers,
    existing_part,
    find_losses,
    report,
    warn_of_gone,
)
from twinlog.records.given import TOPIC_MISSING, missing_topic_error
from twinlog.records.options import ReadOptions
from twinlog.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION

log = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]


def columns_of(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """Return the columns to read. Raises ConfigError for unknown columns."""
    names = check_columns([(field.name, field.dataType.simpleString()) for field in schema])
    if UPSTREAM in names and not options.upstreams:
        raise option_error(
            "upstream",
            f"missing, but the schema has the column {UPSTREAM}",
            "write the alias of the source cluster, for example upstream=A",
        )
    return names


def find_partitions(
    client: ClusterClient, options: ReadOptions, *, may_miss: bool = False
) -> dict[TopicPartition, TopicId]:
    """Return all partitions to read, sorted, with the IDs of their topics.

    Raises TwinlogError if a named topic or an assigned partition is missing. `may_miss`: True to
    leave out what is missing instead.
    """
    if options.pattern:
        topics = _matching(client, options, may_miss=may_miss)
    else:
        named = options.topics or sorted({tp.topic for tp in options.assigned})
        topics = _named(client, named, may_miss=may_miss)
    topic_ids = {tp: topic.topic_id for topic in topics for tp in topic.tps}
    if not options.assigned:
        return {tp: topic_ids[tp] for tp in sorted(topic_ids)}
    missing = sorted(set(options.assigned) - topic_ids.keys())
    if missing and not may_miss:
        todo = "check the topic with kafka-topics.sh --describe"
        raise option_error("assign", f"there is no partition {missing[0]}", todo)
    return {tp: topic_ids[tp] for tp in options.assigned if tp in topic_ids}


def _named(
    client: ClusterClient, names: Sequence[str], *, may_miss: bool
) -> Iterable[TopicMetadata]:
    if may_miss:
        return _with_retried_errors(client, client.metadata(names).topics, may_miss=True)
    try:
        return client.metadata(names, allow_missing=False).topics.values()
    except ClusterError as error:
        if error.code != TOPIC_MISSING:
            raise
        raise missing_topic_error(
            client, names, error, "A read does not create topics, so create a new topic first"
        ) from None


def _matching(
    client: ClusterClient, options: ReadOptions, *, may_miss: bool
) -> Iterable[TopicMetadata]:
    """Return the matching topics, without internal topics, as Java's consumers do."""
    names = options.names()
    topics = {
        name: topic
        for name, topic in client.metadata().topics.items()
        if not topic.is_internal and names.matches(name)
    }
    return _with_retried_errors(client, topics, may_miss=may_miss)


def _with_retried_errors(
    client: ClusterClient, metadata: Mapping[str, TopicMetadata], *, may_miss: bool
) -> Iterable[TopicMetadata]:
    """Return the topics. Topics with an error (such as an election of leaders) are queried again,
    because a read without them would look complete. `may_miss`: True to leave out missing topics.
    """
    topics = dict(metadata)
    while True:
        if may_miss:
            gone = UNKNOWN_TOPIC_OR_PARTITION
            topics = {name: topic for name, topic in topics.items() if topic.error != gone}
        unsure = [name for name, topic in topics.items() if topic.error]
        if not unsure:
            return topics.values()
        try:
            topics |= client.metadata(unsure, allow_missing=False).topics
        except ClusterError as error:
            if error.code != TOPIC_MISSING or not may_miss:
                raise
            topics |= client.metadata(unsure).topics  # a listed topic has been deleted


def resolve(
    client: ClusterClient,
    bound: Bound,
    tps: Iterable[TopicPartition],
    isolation: Isolation,
) -> Offsets:
    """Return the offset of a bound in each partition.

    At a time, this is the offset of the first record at or after it, or the end if there is none.
    All records before this offset are older. Open transactions after the end may have newer
    records.
    """
    wanted = list(tps)
    if bound.kind is BoundKind.GROUP:
        return _group_offsets(client, bound, wanted, isolation)
    if bound.kind in (BoundKind.OFFSETS, BoundKind.TIMES) and bound.time_ms is None:
        _check_complete(bound, wanted)
    starts = {tp: _start_at(bound, tp) for tp in wanted}
    offsets = all_answers(
        begin_offsets(client, starts, isolation=isolation, needs_match=bound.needs_match)
    )
    for tp, offset in offsets.items():
        if offset < 0:
            raise option_error(
                bound.option,
                f"{tp} has no record at or after {starts[tp].value}",
                "write startingOffsetsByTimestampStrategy=latest to begin at its end",
            )
    return offsets


def _start_at(bound: Bound, tp: TopicPartition) -> StartAt:
    match bound.kind:
        case BoundKind.EARLIEST:
            return StartAt(StartKind.EARLIEST)
        case BoundKind.LATEST:
            return StartAt(StartKind.LATEST)
        case BoundKind.TIMES:
            at = bound.values[tp] if bound.time_ms is None else bound.time_ms
            return StartAt(StartKind.TIMESTAMP, at)
    offset = bound.values[tp]
    words = {JSON_EARLIEST: StartKind.EARLIEST, JSON_LATEST: StartKind.LATEST}
    return StartAt(words.get(offset, StartKind.OFFSET), offset)


def listed_offsets(
    client: ClusterClient,
    tps: Iterable[TopicPartition],
    timestamp: int,
    isolation: Isolation,
    *,
    may_miss: bool = False,
) -> Offsets:
    """Return the offset of each partition like `list_offsets`. LATEST is the end for readers with
    this isolation: the last stable offset or the high watermark.

    `may_miss`: True to leave out missing partitions.
    """
    answers = list_offsets(client, list(tps), timestamp, isolation=isolation)
    return {tp: result.offset for tp, result in all_answers(answers, may_miss=may_miss).items()}


def existing_parts(
    ranges: Sequence[OffsetRange], bounds: dict[TopicPartition, LogBounds], *, fails: bool
) -> list[OffsetRange]:
    """Return the parts of these ranges that the logs still have.

    Deleted offsets are an error if `fails` is True (`failOnDataLoss`), else a warning. A partition
    without bounds was deleted.
    """
    for span in ranges:
        if span.tp in bounds:
            report(find_losses(span, bounds[span.tp]), fails=fails)
        else:
            warn_of_gone(span)
    return [existing_part(span, bounds[span.tp]) for span in ranges if span.tp in bounds]


def _check_complete(bound: Bound, tps: Iterable[TopicPartition]) -> None:
    """Require values for all of `tps`, and for no other partitions, as Spark does."""
    wanted, with_bounds = set(tps), set(bound.values)
    if wanted - with_bounds:
        raise option_error(
            bound.option, f"{min(wanted - with_bounds)} is missing", "name all partitions"
        )
    if with_bounds - wanted:
        extra = min(with_bounds - wanted)
        raise option_error(bound.option, f"{extra} is no partition of this query", "remove it")


def _group_offsets(
    client: ClusterClient, bound: Bound, tps: list[TopicPartition], isolation: Isolation
) -> Offsets:
    """Return a group's offsets. Partitions without an offset begin at the log start, so that no
    records are skipped.
    """
    answer = or_raise(fetch_offsets(Coordinators(client), [bound.group])[bound.group])
    out = {tp: answer[tp].offset for tp in tps if tp in answer}
    if not out:
        topics = ", ".join(sorted({tp.topic for tp in tps}))
        raise ClusterError(
            f"group {bound.group} has no committed offsets in {topics}: check the group's name, or "
            f"write {bound.option}=earliest",
            code="NO_OFFSETS",
        )
    rest = [tp for tp in tps if tp not in out]
    if rest:
        what = "group %s has no offset of %s, so this partition is read from its log start"
        log.warning(what, bound.group, rest[0])
    return out | listed_offsets(client, rest, EARLIEST, isolation)


def split(ranges: Sequence[OffsetRange], least: int | None) -> list[OffsetRange]:
    """Return the non-empty ranges, split into at least `least` parts if there are enough offsets.

    As with Spark's `minPartitions`, larger ranges get more parts.
    """
    filled = [span for span in ranges if span.size]
    if least is None or len(filled) >= least:
        return filled
    total = sum(span.size for span in filled)
    out: list[OffsetRange] = []
    for filled_span in filled:
        parts = min(filled_span.size, max(1, math.ceil(filled_span.size / total * least)))
        bounds = [filled_span.first + filled_span.size * part // parts for part in range(parts + 1)]
        out += (
            OffsetRange(tp=filled_span.tp, first=first, end=end) for first, end in pairwise(bounds)
        )
    return out


MOST_TOGETHER: Final = 16
"""Maximum number of ranges per task. A task reads them one after another, and each needs at least
one round trip.
"""


def grouped_ranges(ranges: Iterable[OffsetRange], limit: int) -> list[list[OffsetRange]]:
    """Group neighbouring ranges, in order, into groups of up to `limit` offsets."""
    groups: list[list[OffsetRange]] = []
    size = 0
    for span in ranges:
        if groups and size + span.size <= limit and len(groups[-1]) < MOST_TOGETHER:
            groups[-1].append(span)
            size += span.size
        else:
            groups.append([span])
            size = span.size
    return groups


def limited_ends(
    ranges: Iterable[OffsetRange], limit: int, weights: Mapping[TopicPartition, float] | None = None
) -> dict[TopicPartition, int]:
    """Return end offsets such that all ranges together have about `limit` offsets (or bytes, by
    `weights`).

    Each range gets a share by its size, and at least one offset, so that small ranges beside large
    ones are not starved.
    """
    known = list(ranges)
    weight = {span.tp: 1.0 if weights is None else weights.get(span.tp, 1.0) for span in known}
    total = sum(span.size * weight[span.tp] for span in known)
    if total <= limit:
        return {span.tp: max(span.first, span.end) for span in known}
    out: dict[TopicPartition, int] = {}
    for span in known:
        share = int(limit * span.size / total)
        out[span.tp] = span.first + min(span.size, max(1, share)) if span.size else span.first
    return out
