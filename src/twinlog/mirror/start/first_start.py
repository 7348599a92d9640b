"""Checks a partition that has no row in the offset map: is it new, has it lost its row, or does its
target hold the copy of an earlier topic?

A source topic that was deleted and created again is a different topic, and its remote topic holds
the copy of the earlier one. Records of the new topic are not appended to that copy. All partitions
wait, because one remote topic must not hold copies of both topics. This includes partitions that
the earlier topic did not have, and those whose own target partition is empty. All partitions begin
when the remote topic is a different one, or has no records of the earlier topic any more. Each
start checks all logs to which the earlier topic was copied, so it does not matter when the topic
was created again, or which process has died since then. Until the first row of the new topic
exists, each partition is judged by the logs alone.
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
    """Raise PartitionError if the copy had already begun, so that its rows are lost, or if the
    target has records of another writer.

    The first map row is written before any record of a copy. So the row was lost if the state topic
    notes that there was one (`StartRequest.had_row`), or if the broker lists this flow's producer
    ID (`is_listed`). This applies to every kind of topic. An earlier topic of this name may explain
    why the producer ID is listed, but not why a row of this very pair of topics is missing.
    """
    request, target_ends = logs.request, logs.target_ends
    had_other_life = request.began_at >= 0 or request.had_former_copy
    wrote = is_listed and not had_other_life
    if request.had_row and (is_listed or target_ends.log_end > 0):
        raise _map_missing_error(logs, is_alone=is_alone)
    if is_alone and target_ends.log_end > target_ends.log_start:
        if _lacks_its_beginning(logs):
            raise _written_by_name_error(logs)
        holds = findings.Span(target_ends.log_start, target_ends.log_end)
        raise findings.foreign_data(request.target, holds).error()
    if wrote and target_ends.log_end > 0:
        raise _map_missing_error(logs, is_alone=is_alone)


def begin_of(request: StartRequest, log_end: int) -> int:
    """Return the upstream offset at which the copy begins. `log_end`: that of the source. Raises
    PartitionError (START_BEYOND_END) if the offset is after it.
    """
    if request.siblings_at >= 0:
        return request.siblings_at
    if request.began_at > log_end:
        raise PartitionError(
            f"{request.source}: an earlier copy of this topic began at offset {request.began_at}, "
            f"but the source's log now ends at {log_end}, so the source has lost records. Nothing "
            "is copied. Check the source's brokers",
            code="START_BEYOND_END",
        )
    if request.began_at >= 0:
        return request.began_at
    if request.group_at > log_end:
        raise PartitionError(
            f"{request.source}: the group's committed offset is {request.group_at}, but the "
            f"source's log ends at {log_end}. The source has lost records, or the topic was "
            "re-created. Correct the group's offset with kafka-consumer-groups.sh",
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


def _map_missing_error(logs: BothLogs, *, is_alone: bool) -> PartitionError:
    source, target = logs.request.source, logs.request.target
    holds = findings.Span(logs.target_ends.log_start, logs.target_ends.log_end)
    what = (
        f"{target}: the offset map no longer has a row of this partition. The map topic was "
        "deleted, lost its end, or had another cleanup.policy than compact"
    )
    if is_alone and holds.is_empty:
        what = (
            f"{what}. This flow wrote records up to offset {holds.next}, which the target has "
            f"since deleted, so where to resume in {source} is unknown. Other partitions of its "
            "topic may hold the only copy of records. Use twinlog.start to set where to begin"
        )
        return findings.LogFinding(code="MAP_MISSING", what=what, target=target).error()
    if is_alone:
        text = (
            f"{what}. The target holds {holds}, and where to resume in {source} is unknown. Run "
            "twinlog offsets rebuild, which rebuilds the rows or reports why it cannot"
        )
    else:
        text = (
            f"{what}. The target holds {holds}, and where to resume in {source} is unknown, so "
            "nothing is copied. Run twinlog offsets rebuild. It cannot rebuild the rows if other "
            "clients wrote after this flow's records; it then reports the reason. In this case "
            "restore the records of the map topic, or exclude the topic with topics.exclude and "
            "move its clients to the target"
        )
    return PartitionError(text, code="MAP_MISSING")


def _lacks_its_beginning(logs: BothLogs) -> bool:
    """Return True if the oldest batch in the target log is this flow's, but the flow's records
    before that batch were never in this log.
    """
    raw = logs.read_target(logs.target_ends.log_start)
    first = next((header for header, _ in read_headers(raw)), None)
    if first is None or first.producer_id not in logs.request.our_producers:
        return False
    return sequences_ahead(first.base_sequence, sequence_of(first.base_offset)) > 0


def _written_by_name_error(logs: BothLogs) -> PartitionError:
    """Return the error for a target topic that begins with records from the middle of the copy.

    A lane had a batch in flight when the topic was deleted and created again, and the target's
    broker identifies topics only by name (Produce below version 13). The batch is now at the
    beginning of the new topic, where the records before it belong.

    The missing records cannot be inserted before the batch, and the batch must not be appended
    twice. So nothing is written until the batch is gone from the target. The copy then begins with
    the first record. Twinlog does not delete the batch itself, because an operator must check
    whether the source still has its records.
    """
    target = logs.request.target
    holds = findings.Span(logs.target_ends.log_start, logs.target_ends.log_end)
    detail = "It is unknown whether the source still has these records"
    records = logs.target_tail().records
    for at, (record, _) in logs.around(logs.source_ends.high_watermark).records.items():
        if records and same_record(record, records[-1], compare_timestamp=False):
            detail = f"The last of them is upstream record {at}, which the source still has"
    what = (
        f"{target}: the target topic was deleted and created again while a batch was in flight. "
        "This broker identifies topics by name only, so the batch was appended to the new topic: "
        f"records {holds} of the new topic are this flow's, and all records before them are "
        f"missing. {detail}"
    )
    finding = findings.LogFinding(code="TARGET_RECREATED", what=what, target=target, span=holds)
    return finding.error()


def former_targets(requests: Iterable[StartRequest]) -> set[TopicPartition]:
    """Return the target partitions to which earlier source topics of the same names were copied,
    for `check_former`.
    """
    return {tp for request in requests for tp in _former(request)}


def check_former(
    request: StartRequest, ends: Mapping[TopicPartition, LogEnds], view: LogView
) -> None:
    """Raise PartitionError (SOURCE_RECREATED) if the remote topic still has records of an earlier
    source topic. `ends`: log ends of the target partitions to which that one was copied.
    """
    for tp in _former(request):
        missing = (
            "the leader does not report whether the partition holds records of the earlier topic "
            f"{request.source.topic}"
        )
        ends_of_copy = answer_of(ends, tp, view, missing)
        if ends_of_copy.log_end > ends_of_copy.log_start:
            holds = findings.Span(ends_of_copy.log_start, ends_of_copy.log_end)
            raise findings.source_recreated(request.source, tp, holds).error()


def _former(request: StartRequest) -> list[TopicPartition]:
    return (
        []
        if request.runs
        else [TopicPartition(request.target.topic, n) for n in request.former_partitions]
    )
