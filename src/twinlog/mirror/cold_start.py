"""Cold starts of many partitions together: what they ask is asked once for all of them.

First the topics must be the ones the map speaks of (by their ids), else `TARGET_RECREATED` or
`SOURCE_RECREATED`; then all log ends and producer states are read, then tails in groups, and each
partition's `Look` judges its own.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from twinlog.errors import Fate, PartitionError, TwinlogError
from twinlog.mirror.copy import StartPoint
from twinlog.mirror.ports import LogEnds, LogView, ProducerTail, RawRecords
from twinlog.mirror.position import Look, tail_source, tail_start
from twinlog.mirror.start_request import StartRequest, StartRules
from twinlog.model import NO_TOPIC_ID, StartAt, StartKind, TopicId, TopicPartition

T = TypeVar("T")

AT_ONCE: Final = 32
"""Tails in memory at a time, of about 1 MB each at the most, and that on both sides."""


class ReadAhead:
    """A view of a cluster's logs that has read one place of each of some partitions already."""

    def __init__(self, view: LogView, offsets: Mapping[TopicPartition, int]) -> None:
        self._view = view
        self._offsets = offsets
        self._read = dict(view.read(offsets)) if offsets else {}
        self.problems = view.problems

    def topic_ids(self, topics: set[str]) -> Mapping[str, TopicId]:
        return self._view.topic_ids(topics)

    def ends(self, tps: set[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        return self._view.ends(tps)

    def begins(
        self, starts: Mapping[TopicPartition, StartAt], *, read_committed: bool
    ) -> Mapping[TopicPartition, int]:
        return self._view.begins(starts, read_committed=read_committed)

    def read(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, RawRecords]:
        out: dict[TopicPartition, RawRecords] = {}
        missing: dict[TopicPartition, int] = {}
        for tp, offset in offsets.items():
            found = self._read.get(tp) if self._offsets.get(tp) == offset else None
            if found is None:
                missing[tp] = offset
            else:
                out[tp] = found
        if missing:
            out.update(self._view.read(missing))
        return out

    def producers(
        self, tps: set[TopicPartition], producer_id: int
    ) -> Mapping[TopicPartition, ProducerTail] | None:
        return self._view.producers(tps, producer_id)


def find_starts(
    requests: Sequence[StartRequest], source: LogView, target: LogView, rules: StartRules
) -> dict[TopicPartition, StartPoint | TwinlogError]:
    """A start point or the reason against it, by *source* topic-partition."""
    out: dict[TopicPartition, StartPoint | TwinlogError] = {}
    source_ids = source.topic_ids({r.source.topic for r in requests})
    target_ids = target.topic_ids({r.target.topic for r in requests})
    there_still: list[StartRequest] = []
    for one in requests:
        try:
            check_ids(one, source_ids, target_ids)
        except TwinlogError as error:
            out[one.source] = error
        else:
            there_still.append(one)
    # only of these: a client waits seconds for a topic that it does not find
    sources, targets = {r.source for r in there_still}, {r.target for r in there_still}
    source_ends, target_ends = source.ends(sources), target.ends(targets)
    producers = target.producers(targets, rules.producer_id)
    anew = {
        one.source: one.start
        for one in there_still
        if not one.runs and one.began_at < 0 and one.start.kind is not StartKind.EARLIEST
    }
    begins = source.begins(anew, read_committed=rules.read_committed) if anew else {}
    for group in batched(there_still, AT_ONCE):
        here_view, there_view = source, target
        if rules.is_ours_alone:  # in a shared topic our end is searched, not known
            here_view, there_view = _tails(group, source, source_ends, target, target_ends)
        for one in group:
            try:
                look = Look(
                    with_begin(one, anew, begins, source),
                    ends_of(one.source, source_ends, source),
                    ends_of(one.target, target_ends, target),
                    None if producers is None else producers.get(one.target),
                    producers is not None,
                    here_view,
                    there_view,
                    rules,
                )
                out[one.source] = look.own() if rules.is_ours_alone else look.shared()
            except TwinlogError as error:
                out[one.source] = error
    return out


def _tails(
    group: Sequence[StartRequest],
    source: LogView,
    source_ends: Mapping[TopicPartition, LogEnds],
    target: LogView,
    target_ends: Mapping[TopicPartition, LogEnds],
) -> tuple[ReadAhead, ReadAhead]:
    """Both logs, with what the tail checks of these partitions will read first already read."""
    here: dict[TopicPartition, int] = {}
    there: dict[TopicPartition, int] = {}
    for one in group:
        mine, its = source_ends.get(one.source), target_ends.get(one.target)
        if mine is None or its is None:
            continue
        upstream = tail_source(one.runs, its)
        if upstream is None:
            continue
        there[one.target] = tail_start(its)
        if max(upstream, mine.log_start) < mine.high_watermark:
            here[one.source] = max(upstream, mine.log_start)
    return ReadAhead(source, here), ReadAhead(target, there)


def check_ids(
    one: StartRequest, sources: Mapping[str, TopicId], targets: Mapping[str, TopicId]
) -> None:
    for tp, expected, known, code, side in (
        (one.source, one.source_topic_id, sources, "SOURCE_RECREATED", "source"),
        (one.target, one.target_topic_id, targets, "TARGET_RECREATED", "target"),
    ):
        found = known.get(tp.topic)
        if found is None:
            raise PartitionError(
                f"{tp}: the topic does not exist on the {side} any more, or may not be described",
                code="TOPIC_MISSING",
            )
        if NO_TOPIC_ID not in (expected, found) and expected != found:
            raise PartitionError(
                f"{tp}: the {side} topic was deleted and created again since this copy began",
                code=code,
            )


def with_begin(
    one: StartRequest,
    anew: Container[TopicPartition],
    begins: Mapping[TopicPartition, int],
    view: LogView,
) -> StartRequest:
    """The request with the start that was found, where the partition has none yet."""
    if one.source not in anew:
        return one
    found = begins.get(one.source)
    if found is not None:
        return replace(one, begin=found)
    raise view.problems.get(one.source) or PartitionError(
        f"{one.source}: its leader does not say where to begin",
        code="NO_LEADER",
        fate=Fate.RETRIABLE,
    )


def ends_of(tp: TopicPartition, ends: Mapping[TopicPartition, LogEnds], view: LogView) -> LogEnds:
    found = ends.get(tp)
    if found is not None:
        return found
    raise view.problems.get(tp) or PartitionError(
        f"{tp}: its leader does not answer for it", code="NO_LEADER", fate=Fate.RETRIABLE
    )


def batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in portions (itertools has it from Python 3.12 on)."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
