"""A partition that has no row in the offset map: is it new, did it lose its row, and does its
target hold the copy of an earlier topic?

A source topic that was deleted and created again is another topic, and its remote topic holds the
former one: nothing of the new life is appended to the old. All partitions wait, for one remote
topic must not hold two lives: also those that the former topic did not have, and those whose own
target partition is empty. They begin when the remote topic is another one, or holds nothing of the
old any more. Each start looks at all logs that were copied to before, so it does not matter when
the topic was created again, nor what died in between; and until the first row of the new life is
there, each partition is judged by the logs alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twinlog.errors import PartitionError
from twinlog.mirror import findings
from twinlog.mirror.ports import LogEnds, LogView, answer_of
from twinlog.mirror.start.both_logs import BothLogs
from twinlog.mirror.start.request import StartRequest
from twinlog.mirror.start.tail_check import same_record
from twinlog.model import StartKind, TopicPartition, sequence_of, sequences_ahead
from twinlog.wire.record_batch import read_headers


def check_is_new(logs: BothLogs, *, is_alone: bool, is_listed: bool) -> None:
    """Raises where the copy had begun, or where its target is somebody else's.

    The first row is written at once, and before any record. So it was lost where the state topic
    knows of it (`StartRequest.had_row`), or where the broker knows that our id wrote here
    (`is_listed`). That holds in every kind of topic. An earlier life of one of the two topics may
    be why our id is listed; it is no reason why a row of this very pair of topics is gone.
    """
    request, there = logs.request, logs.there
    had_other_life = request.began_at >= 0 or request.is_another
    wrote = is_listed and not had_other_life
    if request.had_row and (is_listed or there.log_end > 0):
        raise _map_missing(logs, is_alone=is_alone)
    if is_alone and there.log_end > there.log_start:
        if _lacks_its_beginning(logs):
            raise _written_by_name(logs)
        holds = findings.Span(there.log_start, there.log_end)
        raise findings.foreign_data(request.target, holds).error()
    if wrote and there.log_end > 0:
        raise _map_missing(logs, is_alone=is_alone)


def begin_of(request: StartRequest, log_end: int) -> int:
    """The upstream offset at which the copy begins. Raises START_BEYOND_END."""
    if request.siblings_at >= 0:
        return request.siblings_at
    if request.began_at > log_end:
        raise PartitionError(
            f"{request.source}: a former copy of this topic began at offset {request.began_at}, "
            f"but the log ends at {log_end}: the source has lost records; see what it has before "
            "anything is copied",
            code="START_BEYOND_END",
        )
    if request.began_at >= 0:
        return request.began_at
    if request.group_at > log_end:
        raise PartitionError(
            f"{request.source}: the source's consumer group stands at offset {request.group_at}, "
            f"but the log ends at {log_end}: the source lost its end, or the topic is another one "
            "than the group read; correct the group's offset with kafka-consumer-groups.sh",
            code="START_BEYOND_END",
        )
    if request.group_at >= 0:
        return request.group_at
    if request.start.kind is StartKind.OFFSET and request.begin > log_end:
        raise PartitionError(
            f"{request.source}: twinlog.start begins at offset {request.begin}, but the log ends "
            f"at {log_end}: correct the offset, or write latest",
            code="START_BEYOND_END",
        )
    return request.begin


def _map_missing(logs: BothLogs, *, is_alone: bool) -> PartitionError:
    source, target = logs.request.source, logs.request.target
    holds = findings.Span(logs.there.log_start, logs.there.log_end)
    what = (
        f"{target}: the offset map has no row of this partition any more: its topic was deleted, "
        "lost its end, or was not compacted for a while"
    )
    if is_alone and holds.is_empty:
        what = (
            f"{what}. This flow wrote records up to offset {holds.next}, which the target has "
            f"deleted since, so where to resume in {source} is not known. Other partitions of its "
            "topic may hold what is nowhere else. Say where to begin with twinlog.start"
        )
        return findings.LogFinding(code="MAP_MISSING", what=what, target=target).error()
    if is_alone:
        text = (
            f"{what}. The target holds {holds}, and where to resume in {source} is not known. Run "
            "twinlog offsets rebuild: it rebuilds the rows, or says why it cannot"
        )
    else:
        text = (
            f"{what}. The target holds {holds}, and where to resume in {source} is not known; "
            "nothing is copied a second time. Run twinlog offsets rebuild: it rebuilds the rows "
            "unless others wrote behind our records, or says why it cannot. Where it cannot, "
            "restore the rows of the map's topic, or leave the topic out of the flow with "
            "topics.exclude and let its clients change over"
        )
    return PartitionError(text, code="MAP_MISSING")


def _lacks_its_beginning(logs: BothLogs) -> bool:
    """The oldest batch is ours, but not all records before it can ever have been here."""
    raw = logs.read_target(logs.there.log_start)
    first = next((header for header, _ in read_headers(raw)), None)
    if first is None or first.producer_id not in logs.request.our_producers:
        return False
    return sequences_ahead(first.base_sequence, sequence_of(first.base_offset)) > 0


def _written_by_name(logs: BothLogs) -> PartitionError:
    """A lane had a batch on its way when the topic was deleted and created again, and its broker
    takes names only (Produce below version 13): it stands at the beginning of the new topic, where
    the records before it belong.

    They cannot be put before it, and it must not come twice. So nothing is written until these
    records are gone; what follows them then begins with the first record. We do not take them away
    ourselves: whether the source has them still is for people to see.
    """
    target = logs.request.target
    holds = findings.Span(logs.there.log_start, logs.there.log_end)
    said = "whether the source still has them is not known"
    records = logs.target_tail().records
    for at, (record, _) in logs.around(logs.here.high_watermark).records.items():
        if records and same_record(record, records[-1], compare_timestamp=False):
            said = f"the last of them is upstream record {at}, which the source still has"
    what = (
        f"{target}: the target topic was deleted and created again while a batch for it was on its "
        f"way, and this broker knows topics by name only: records {holds} of the new topic are "
        f"ours, and those before them are missing; {said}"
    )
    finding = findings.LogFinding(code="TARGET_RECREATED", what=what, target=target, span=holds)
    return finding.error()


def former_targets(requests: Iterable[StartRequest]) -> set[TopicPartition]:
    """Whose ends must be known beside those of the targets themselves."""
    return {tp for one in requests for tp in _former(one)}


def check_former(one: StartRequest, ends: Mapping[TopicPartition, LogEnds], view: LogView) -> None:
    """Raises SOURCE_RECREATED where the remote topic holds the former life still."""
    for tp in _former(one):
        missing = (
            "its leader does not say whether it holds records of the topic that was "
            f"{one.source.topic} before"
        )
        found = answer_of(ends, tp, view, missing)
        if found.log_end > found.log_start:
            holds = findings.Span(found.log_start, found.log_end)
            raise findings.source_recreated(one.source, tp, holds).error()


def _former(one: StartRequest) -> list[TopicPartition]:
    return [] if one.runs else [TopicPartition(one.target.topic, n) for n in one.former]
