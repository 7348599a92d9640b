"""Reads and sets the start offsets of share groups (KIP-932).

A share group has no committed offset. In each partition it has a start offset, below which all
records are processed, and a state for each record at or after the start offset. Brokers report only
the start offset, as it was before the last recorded acknowledgement, and the lag, which is the
number of unprocessed records. An example (`.` is an unprocessed record):

    start offset 4     processed: 4 5 6 . . 9 . .      end 12     lag 4

So the position of a group is known only within two bounds:

- *Lower bound*: the start offset, or the end if the lag is 0, because all records below it are
  processed. If the group resumes at this offset on another cluster, no record is skipped, but
  records that the group has acknowledged after the start offset are delivered again.
- *Upper bound*: the end minus the lag (8 in the example). This would be the position if no
  unprocessed record were before a processed one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from twinlog.cluster.group_messages import (
    AlterShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import (
    CommitResult,
    Committed,
    GroupOffsets,
    fetch_offsets,
)
from twinlog.cluster.logs.offsets import LATEST, OffsetResult, list_offsets
from twinlog.cluster.net.protocol import Message
from twinlog.errors import TwinlogError, Unsupported
from twinlog.model import TopicPartition, batched
from twinlog.wire.error_codes import GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION

GROUPS_AT_ONCE: Final = 100
"""Number of groups per request. Small, because a coordinator has to query other brokers."""

READING: Final = "reading start offsets of share"
SETTING: Final = "setting start offsets of share"


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """The state of a group in one partition, as its coordinator reports it."""

    start: int
    lag: int
    """Number of unprocessed records, or -1 if unknown."""


_States: TypeAlias = Mapping[TopicPartition, _State]


def fetch_share_offsets(
    coordinators: Coordinators, groups: Iterable[str], *, furthest: bool = False
) -> dict[str, GroupOffsets | TwinlogError]:
    """Return the offsets at which each share group can resume without skipping a record, or an
    error.

    With `furthest`, return the offsets after all records that each group may have processed. If a
    lower offset were set, processed records could be delivered again. So if the end of a log is
    unknown, the result of the group is the error.

    The result is empty for a missing group and for a group of another kind. It lacks partitions
    without a processed record. Brokers silently omit partitions of topics that Twinlog's user is
    not permitted to describe. Raises Unsupported for brokers without this API.
    """
    described = _describe(coordinators, groups)
    counted = {
        group: states
        for group, states in described.items()
        if not isinstance(states, TwinlogError) and any(state.lag >= 0 for state in states.values())
    }
    tps = {tp for states in counted.values() for tp in states}
    # read the ends before the lags, so that the lag includes every unprocessed record below the end
    ends = list_offsets(coordinators.client, tps, LATEST)
    described |= _describe(coordinators, counted)

    return {
        group: states
        if isinstance(states, TwinlogError)
        else _positions(states, ends, furthest=furthest)
        for group, states in described.items()
    }


def offsets_of(
    coordinators: Coordinators,
    consumers: Iterable[str],
    shares: Iterable[str],
    *,
    furthest: bool = False,
) -> dict[str, GroupOffsets | TwinlogError]:
    """Return the offsets of consumer groups and share groups. If the brokers do not support share
    groups, the result of each share group is the error.
    """
    out = fetch_offsets(coordinators, consumers)
    try:
        return out | fetch_share_offsets(coordinators, shares, furthest=furthest)
    except Unsupported as error:
        return out | dict.fromkeys(shares, error)


def alter_start_offsets(
    coordinators: Coordinators, offsets: Mapping[str, GroupOffsets]
) -> dict[str, CommitResult | TwinlogError]:
    """Set start offsets of share groups without members. For each group, returns None or an error
    for each partition, or one error for the whole group.

    The coordinator rejects the offsets if the group has members (`is_refused_as_active`), and
    creates a missing group. Raises Unsupported for brokers without share groups.
    """

    def ask(node: int, group_ids: Sequence[str]) -> dict[str, CommitResult | TwinlogError]:
        out: dict[str, CommitResult | TwinlogError] = {}
        for group in group_ids:
            answer = coordinators.client.attempt(node, _alter(group, offsets[group]))
            out[group] = _altered(coordinators, group, answer)
        return out

    return coordinators.ask(offsets, ask, doing=SETTING)


def _positions(
    states: _States, ends: Mapping[TopicPartition, OffsetResult | TwinlogError], *, furthest: bool
) -> GroupOffsets | TwinlogError:
    """Return the lower or upper bounds of a group's positions, or the error of an end."""
    out: dict[TopicPartition, Committed] = {}
    for tp, state in states.items():
        end = ends.get(tp)
        offset = state.start
        if isinstance(end, OffsetResult) and (state.lag == 0 or (furthest and state.lag > 0)):
            offset = max(offset, end.offset - state.lag)
        elif isinstance(end, TwinlogError) and furthest and state.lag >= 0:
            return end
        out[tp] = Committed(offset=offset)
    return out


def _describe(
    coordinators: Coordinators, groups: Iterable[str]
) -> dict[str, _States | TwinlogError]:
    def ask(node: int, group_ids: Sequence[str]) -> dict[str, _States | TwinlogError]:
        out: dict[str, _States | TwinlogError] = {}
        of_group = DescribeShareGroupOffsetsRequest.DescribedGroup
        for wanted in batched(group_ids, GROUPS_AT_ONCE):
            request = DescribeShareGroupOffsetsRequest(
                groups=[of_group(group_id=group, topics=None) for group in wanted]
            )
            for answer in coordinators.client.attempt(node, request).groups:
                group = str(answer.group_id)
                out[group] = _states(coordinators, group, answer)
        return out

    return coordinators.ask(groups, ask, doing=READING)


def _states(coordinators: Coordinators, group: str, answer: Message) -> _States | TwinlogError:
    code = int(answer.error_code)
    if code == GROUP_ID_NOT_FOUND:
        return {}
    if code:
        return coordinators.error(code, READING, group)
    out: dict[TopicPartition, _State] = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            tp = TopicPartition(str(topic.topic_name), int(partition.partition_index))
            code = int(partition.error_code)
            if code == UNKNOWN_TOPIC_OR_PARTITION:
                continue  # the topic was deleted
            if code:
                doing = f"reading the start offset of {tp} for share"
                return coordinators.error(code, doing, group, "DESCRIBE", tp)
            if partition.start_offset >= 0:
                out[tp] = _State(start=int(partition.start_offset), lag=int(partition.lag))
    return out


def _alter(group: str, offsets: GroupOffsets) -> Message:
    topic_of = AlterShareGroupOffsetsRequest.AlteredTopic
    topics: dict[str, list[Message]] = {}
    for tp, committed in offsets.items():
        topics.setdefault(tp.topic, []).append(
            topic_of.AlteredPartition(partition_index=tp.partition, start_offset=committed.offset)
        )
    return AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            topic_of(topic_name=name, partitions=partitions) for name, partitions in topics.items()
        ],
    )


def _altered(
    coordinators: Coordinators, group: str, answer: Message
) -> CommitResult | TwinlogError:
    code = int(answer.error_code)
    if code:
        return coordinators.error(code, SETTING, group, right="READ")
    out: dict[TopicPartition, TwinlogError | None] = {}
    for topic in answer.responses:
        for partition in topic.partitions:
            tp = TopicPartition(str(topic.topic_name), int(partition.partition_index))
            code = int(partition.error_code)
            doing = f"setting the start offset of {tp} for share"
            out[tp] = coordinators.error(code, doing, group, "READ", tp) if code else None
    return out
