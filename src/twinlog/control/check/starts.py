"""Where each topic's copy would begin, for `check`, from the source's current log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import fetch_offsets
from twinlog.cluster.logs.start_offsets import Begin, begin_offsets
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.config.flow.schema import FlowConfig
from twinlog.errors import PartitionError, TwinlogError
from twinlog.model import StartAt, StartKind, TopicPartition
from twinlog.quantities import plural
from twinlog.survey.ends import read_ends

PARTITIONS_SHOWN: Final = 3

Starts: TypeAlias = dict[TopicPartition, StartAt]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBegin:
    """Where a topic's copy begins, as text, and as offsets of partitions that were never copied."""

    text: str
    offsets: Mapping[int, int]


def begins_now(
    flow: FlowConfig, source: ClusterClient, tps: Iterable[TopicPartition]
) -> dict[TopicPartition, Begin]:
    """Return the offsets at which the flow's start, or its group, begins these partitions now."""
    _, starts = _starts(flow, source, list(tps))
    return begin_offsets(source, starts, isolation=flow.isolation_level)


def topic_begins(
    flow: FlowConfig,
    source: ClusterClient,
    topics: Iterable[TopicMetadata],
    has_position: Callable[[TopicPartition], bool],
    on_problem: Callable[[TwinlogError, str], None],
) -> dict[str, TopicBegin]:
    """Return the start by topic. Partitions for which `has_position` is true resume there."""
    partitions = {topic.name: topic.tps for topic in topics}
    new = {tp for tps in partitions.values() for tp in tps if not has_position(tp)}
    of_group, starts = _starts(flow, source, new)
    found = begin_offsets(source, starts, isolation=flow.isolation_level)
    ends = read_ends(source, [tp for tp in new if flow.start.at(tp).kind is StartKind.OFFSET])
    out = {}
    for name, tps in partitions.items():
        offsets: dict[int, int] = {}
        for tp in tps:
            begin, end = found.get(tp), ends[tp].end if tp in ends else None
            if isinstance(begin, TwinlogError):
                on_problem(begin, name)
            elif begin is not None:
                offsets[tp.partition] = begin
                if end is not None and tp not in of_group:
                    for error in beyond(tp, begin, end):
                        on_problem(error, name)
        grouped = any(tp in of_group for tp in tps)
        said = f"group {flow.source_group.group_id}" if grouped else flow.start.topic(name).text
        kinds = {starts[tp].kind for tp in tps if tp in new}
        out[name] = TopicBegin(text=_text(said, kinds, offsets, len(tps)), offsets=offsets)
    return out


def beyond(tp: TopicPartition, begin: int, end: int) -> Iterator[PartitionError]:
    """Yield an error if the offset is after the log end."""
    if begin > end:
        yield PartitionError(
            f"{tp}: twinlog.start begins at offset {begin}, but the log ends at {end}: correct "
            "the offset, or use latest",
            code="START_BEYOND_END",
        )


def _starts(
    flow: FlowConfig, source: ClusterClient, tps: Collection[TopicPartition]
) -> tuple[Starts, Starts]:
    """Return the starts that the flow's group has, and the starts of these partitions."""
    of_group: Starts = {}
    group = flow.source_group.group_id
    if group and tps:
        found = fetch_offsets(Coordinators(source), [group])[group]
        # after an error `mirror` refuses to start, and check reports the missing right
        if not isinstance(found, TwinlogError):
            of_group = {tp: StartAt(StartKind.OFFSET, one.offset) for tp, one in found.items()}
    return of_group, {tp: of_group.get(tp, flow.start.at(tp)) for tp in tps}


def _text(said: str, kinds: set[StartKind], offsets: Mapping[int, int], partitions: int) -> str:
    if not offsets:
        return "at the copied position" if partitions else said
    if kinds - {StartKind.EARLIEST, StartKind.LATEST}:
        pairs = [f"{partition}={offset}" for partition, offset in sorted(offsets.items())]
        more = ["..."] if len(pairs) > PARTITIONS_SHOWN else []
        shown = ";".join(pairs[:PARTITIONS_SHOWN] + more)
        said = said if said == shown else f"{said} ({shown})"
    stand = partitions - len(offsets)
    return f"{said}, {plural(stand, 'partition')} at the copied position" if stand else said
