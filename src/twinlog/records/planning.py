"""What a read is: which partitions there are, and at which offsets bounds lie in them now.

Asked once per read, by the process that plans it. Ends are asked before times are looked up, so a
record that comes between is behind the end, and not passed over.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

from pyspark.sql.types import StructType

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import fetch_offsets
from twinlog.cluster.logs.offsets import EARLIEST, LATEST, OffsetResult, list_offsets
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.errors import ClusterError, or_raise
from twinlog.model import Isolation, TopicPartition
from twinlog.records.bounds import JSON_EARLIEST, JSON_LATEST, Bound, BoundKind, wrong
from twinlog.records.columns import UPSTREAM, check_columns
from twinlog.records.gaps import (
    LogBounds,
    OffsetRange,
    all_answers,
    find_losses,
    report,
    what_is_left,
)
from twinlog.records.given import TOPIC_MISSING, no_topic
from twinlog.records.options import ReadOptions

log = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]


def columns_of(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """Which columns are asked for. Raises ConfigError for others than ours."""
    found = check_columns([(field.name, field.dataType.simpleString()) for field in schema])
    if UPSTREAM in found and not options.upstreams:
        raise wrong(
            "upstream",
            f"it is missing, and the schema has {UPSTREAM}",
            "write the alias of the cluster that is copied, as upstream=A",
        )
    return found


def find_partitions(client: ClusterClient, options: ReadOptions) -> list[TopicPartition]:
    """All partitions that are read, sorted. Raises where a topic that is named is missing."""
    if options.pattern:
        topics = _matching(client, options)
    else:
        named = options.topics or sorted({tp.topic for tp in options.assigned})
        topics = _named(client, named)
    found = sorted(tp for topic in topics for tp in topic.tps)
    if not options.assigned:
        return found
    missing = sorted(set(options.assigned) - set(found))
    if missing:
        raise wrong("assign", f"there is no partition {missing[0]}", "look at the topic")
    return list(options.assigned)


def _named(client: ClusterClient, names: Sequence[str]) -> list[TopicMetadata]:
    try:
        return list(client.metadata(names, allow_missing=False).topics.values())
    except ClusterError as error:
        if error.code != TOPIC_MISSING:
            raise
        raise no_topic(client, names, error, "a read creates none: create it first") from None


def _matching(client: ClusterClient, options: ReadOptions) -> list[TopicMetadata]:
    """As Java's consumers: what brokers keep for themselves is not matched."""
    names = options.names()
    found = [
        topic
        for topic in client.metadata().topics.values()
        if not topic.is_internal and names.matches(topic.name)
    ]
    # one whose leaders are being elected is asked for again: without it a read would look whole
    unsure = [topic.name for topic in found if topic.error]
    if unsure:
        again = client.metadata(unsure, allow_missing=False).topics.values()
        found = [topic for topic in found if not topic.error] + list(again)
    return found


def resolve(
    client: ClusterClient,
    bound: Bound,
    tps: Iterable[TopicPartition],
    isolation: Isolation,
) -> Offsets:
    """The offset of a bound in each partition."""
    wanted = list(tps)
    match bound.kind:
        case BoundKind.EARLIEST:
            return _listed(client, wanted, EARLIEST, isolation)
        case BoundKind.LATEST:
            return _listed(client, wanted, LATEST, isolation)
        case BoundKind.OFFSETS:
            return _given(client, bound, wanted, isolation)
        case BoundKind.TIMES:
            return _timed(client, bound, wanted, isolation)
        case BoundKind.GROUP:
            return _of_group(client, bound, wanted, isolation)


def latest(client: ClusterClient, tps: Iterable[TopicPartition], isolation: Isolation) -> Offsets:
    """Where readers of that isolation end now: the last stable offset or the high watermark."""
    return _listed(client, list(tps), LATEST, isolation)


def present(
    wanted: Sequence[OffsetRange], bounds: dict[TopicPartition, LogBounds], *, fails: bool
) -> list[OffsetRange]:
    """What the logs have of these ranges; the rest is raised or said, by `failOnDataLoss`."""
    for one in wanted:
        report(find_losses(one, bounds[one.tp]), fails=fails)
    return [what_is_left(one, bounds[one.tp]) for one in wanted]


def first_of_time(
    client: ClusterClient, tps: Iterable[TopicPartition], at_ms: int, isolation: Isolation
) -> Offsets:
    """An offset before which all records are older than that time: that of the first one that is
    not, or the end where there is none. Behind the end an open transaction may have newer ones.
    """
    wanted = list(tps)
    ends = latest(client, wanted, isolation)
    found = _results(client, wanted, at_ms, isolation)
    return {tp: ends[tp] if one.offset < 0 else one.offset for tp, one in found.items()}


def _results(
    client: ClusterClient, tps: list[TopicPartition], at: int, isolation: Isolation
) -> dict[TopicPartition, OffsetResult]:
    return all_answers(list_offsets(client, tps, at, isolation=isolation))


def _listed(
    client: ClusterClient, tps: list[TopicPartition], at: int, isolation: Isolation
) -> Offsets:
    return {tp: one.offset for tp, one in _results(client, tps, at, isolation).items()}


def _check_complete(bound: Bound, tps: Iterable[TopicPartition]) -> None:
    """As Spark: offsets are given for all partitions, and for no others."""
    wanted, given = set(tps), set(bound.values)
    if wanted - given:
        raise wrong(bound.option, f"{min(wanted - given)} is missing", "give all partitions")
    if given - wanted:
        raise wrong(bound.option, f"{min(given - wanted)} is not read", "remove it")


def _given(
    client: ClusterClient, bound: Bound, tps: list[TopicPartition], isolation: Isolation
) -> Offsets:
    _check_complete(bound, tps)
    out = dict(bound.values)
    for number, at in ((JSON_EARLIEST, EARLIEST), (JSON_LATEST, LATEST)):
        out |= _listed(client, [tp for tp in tps if out[tp] == number], at, isolation)
    return out


def _timed(
    client: ClusterClient, bound: Bound, tps: list[TopicPartition], isolation: Isolation
) -> Offsets:
    if bound.time_ms is None:
        _check_complete(bound, tps)
    by_time: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for tp in tps:
        by_time[bound.values[tp] if bound.time_ms is None else bound.time_ms].append(tp)
    ends = latest(client, tps, isolation)
    out: Offsets = {}
    for at, some in by_time.items():
        for tp, one in _results(client, some, at, isolation).items():
            if one.offset < 0 and bound.needs_match:
                raise wrong(
                    bound.option,
                    f"{tp} has no record as new as {at}",
                    "write startingOffsetsByTimestampStrategy=latest to begin at its end",
                )
            out[tp] = ends[tp] if one.offset < 0 else one.offset
    return out


def _of_group(
    client: ClusterClient, bound: Bound, tps: list[TopicPartition], isolation: Isolation
) -> Offsets:
    """Where a group has committed nothing it begins at the log start, so nothing is passed over."""
    answer = or_raise(fetch_offsets(Coordinators(client), [bound.group])[bound.group])
    out = {tp: answer[tp].offset for tp in tps if tp in answer}
    if not out:
        raise ClusterError(
            f"group {bound.group} has committed nothing in {', '.join(_topics(tps))}: look at its "
            f"name, or write {bound.option}=earliest",
            code="NO_OFFSETS",
        )
    rest = [tp for tp in tps if tp not in out]
    if rest:
        log.warning("group %s has no offset of %s: from the log start", bound.group, rest[0])
    return out | _listed(client, rest, EARLIEST, isolation)


def _topics(tps: Iterable[TopicPartition]) -> list[str]:
    return sorted({tp.topic for tp in tps})
