"""Reads and sets the committed offsets of consumer groups, with few requests for many groups.

Groups of both consumer protocols have committed offsets. Share groups have start offsets instead
(`share_groups`).

*Reading.* One request reads the offsets of many groups. A flow reads the offsets of its groups
periodically, and nearly all responses are the same as before. So `OffsetReader` decodes a response
only if its bytes differ from the last response to the same request.

*Setting.* The coordinator rejects a commit by a non-member if the group has members. So the offsets
of a group that becomes active after Twinlog has checked it are not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple, TypeAlias

from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest

from twinlog.cluster.groups.coordinators import Coordinators, is_moved
from twinlog.cluster.net.connection import Connection
from twinlog.cluster.net.protocol import Message
from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition, batched
from twinlog.wire.error_codes import (
    GROUP_ID_NOT_FOUND,
    UNKNOWN_MEMBER_ID,
    UNSTABLE_OFFSET_COMMIT,
)

NON_EMPTY_GROUP: Final = 68
STALE_MEMBER_EPOCH: Final = 113
REFUSED_AS_ACTIVE: Final = frozenset({UNKNOWN_MEMBER_ID, NON_EMPTY_GROUP, STALE_MEMBER_EPOCH})

SETTLED: Final = 7
"""The first version of OffsetFetch that considers open transactions (Kafka 2.5, KIP-447)."""

MANY_GROUPS: Final = 8
"""The first version of OffsetFetch for many groups (Kafka 3.0, KIP-709)."""

BY_NAME: Final = 9
"""The last version of OffsetFetch and OffsetCommit that identifies topics by name."""

GROUPS_AT_ONCE: Final = 50
"""Number of groups per request. Small, because a commit of one group changes the response, so that
it is decoded again for all groups in it.
"""

READING: Final = "reading offsets of"

COMMIT_BYTES: Final = 500_000
"""Approximate maximum size of the records that one commit appends to the offsets topic. Brokers
append them as one batch, which must not be larger than message.max.bytes (by default 1 MB).
"""
RECORD_BYTES: Final = 64
"""Approximate size of such a record without its names and its metadata."""

COMMITS_AT_ONCE: Final = 8
"""Maximum number of parallel connections for commits. Each group needs one commit request, and a
broker responds to it only after replication. Brokers process the requests of one connection one
after another.
"""


class Committed(NamedTuple):
    """The committed offset of a group in one partition."""

    offset: int
    metadata: str = ""


GroupOffsets: TypeAlias = Mapping[TopicPartition, Committed]


def fetch_offsets(
    coordinators: Coordinators, groups: Iterable[str], *, settled: bool = False
) -> dict[str, GroupOffsets | TwinlogError]:
    """Return the committed offsets of each group in any state, or an error. A missing group has no
    offsets.

    Brokers silently omit offsets of topics that Twinlog's user is not permitted to describe. With
    `settled`, a group is queried again while its offsets are in a transaction that is open, or
    whose marker the coordinator has not read yet (KIP-447). If this lasts until the deadline, the
    group's result is the error UNSTABLE_OFFSET_COMMIT. Without `settled`, the offsets from before
    the transaction are returned.
    """
    return OffsetReader(coordinators, settled=settled).read(groups)


class OffsetReader:
    """Reads the offsets of groups periodically, in one thread.

    A response with the same bytes as the last response to the same request is not decoded again. In
    this case, a group's offsets are the same object as after the last `read`.
    """

    def __init__(self, coordinators: Coordinators, *, settled: bool = False) -> None:
        self._coordinators = coordinators
        self._settled = settled
        self._last: dict[_OffsetQuery, _Answer] = {}

    def read(self, groups: Iterable[str]) -> dict[str, GroupOffsets | TwinlogError]:
        """Return the committed offsets of these groups like `fetch_offsets`."""
        last, self._last = self._last, {}

        def ask(node: int, group_ids: Sequence[str]) -> dict[str, GroupOffsets | TwinlogError]:
            out: dict[str, GroupOffsets | TwinlogError] = {}
            for portion in batched(group_ids, GROUPS_AT_ONCE):
                question = _OffsetQuery(node, tuple(portion))
                out |= self._ask(question, last.get(question))
            return out

        return self._coordinators.ask(sorted(groups), ask, doing=READING)

    def _ask(
        self, question: _OffsetQuery, last: _Answer | None
    ) -> Mapping[str, GroupOffsets | TwinlogError]:
        client = self._coordinators.client
        connection = client.connection_to(question.node)
        if connection.api_versions.get(OffsetFetchRequest.API_KEY, (0, 0))[1] < MANY_GROUPS:
            return self._one_by_one(question)
        group_of = OffsetFetchRequest.OffsetFetchRequestGroup
        wanted = [
            group_of(group_id=group, member_id=None, member_epoch=-1, topics=None)
            for group in question.groups
        ]
        digest, message = client.attempt_unless(
            question.node,
            OffsetFetchRequest(groups=wanted, require_stable=self._settled),
            b"" if last is None else last.digest,
            minimum=MANY_GROUPS,
            maximum=BY_NAME,
        )
        if message is None and last is not None:
            self._last[question] = last
            return last.offsets
        by_group = {str(each.group_id): each for each in message.groups}
        out = {
            group: _offsets_of_group(self._coordinators, group, answer)
            for group, answer in by_group.items()
        }
        offsets = {
            group: offsets
            for group, offsets in out.items()
            if not isinstance(offsets, TwinlogError)
        }
        if len(offsets) == len(out):
            self._last[question] = _Answer(digest, offsets)
        return out

    def _one_by_one(self, question: _OffsetQuery) -> dict[str, GroupOffsets | TwinlogError]:
        out: dict[str, GroupOffsets | TwinlogError] = {}
        for group in question.groups:
            request = OffsetFetchRequest(group_id=group, topics=None, require_stable=self._settled)
            answer = self._coordinators.client.attempt(
                question.node,
                request,
                minimum=SETTLED if self._settled else 2,
                maximum=MANY_GROUPS - 1,
            )
            out[group] = _offsets_of_group(self._coordinators, group, answer)
        return out


class _OffsetQuery(NamedTuple):
    node: int
    groups: tuple[str, ...]


class _Answer(NamedTuple):
    digest: bytes
    offsets: Mapping[str, GroupOffsets]


CommitResult: TypeAlias = Mapping[TopicPartition, TwinlogError | None]


def commit_offsets(
    coordinators: Coordinators, offsets: Mapping[str, GroupOffsets]
) -> dict[str, CommitResult | TwinlogError]:
    """Set offsets of groups without members. For each group, returns None or an error for each
    partition, or one error for the whole group. Offsets that are too large for one request are set
    by several requests, of which some may fail.

    The coordinator rejects the offsets if the group has members (`is_refused_as_active`).
    """

    def ask(node: int, group_ids: Sequence[str]) -> dict[str, CommitResult | TwinlogError]:
        client = coordinators.client
        out: dict[str, dict[TopicPartition, TwinlogError | None]] = {g: {} for g in group_ids}
        requests = [
            (group, part) for group in group_ids for part in _portions(group, offsets[group])
        ]
        with ExitStack() as stack:
            lanes = [client.connection_to(node)]
            lanes += [
                stack.enter_context(client.open_connection(node))
                for _ in range(min(COMMITS_AT_ONCE, len(requests)) - 1)
            ]
            for portion in batched(requests, len(lanes)):
                now = list(zip(lanes, portion, strict=False))
                for lane, (group, part) in now:
                    lane.begin(_commit(group, part), maximum=BY_NAME)
                for lane, (group, _) in now:
                    out[group] |= _committed(coordinators, group, lane)
        return {group: _result_of_group(result) for group, result in out.items()}

    return coordinators.ask(offsets, ask, doing="committing offsets of")


def is_refused_as_active(error: TwinlogError) -> bool:
    """Return True if the coordinator has rejected a commit because the group has members."""
    return getattr(error, "kafka_error", 0) in REFUSED_AS_ACTIVE


def _offsets_of_group(
    coordinators: Coordinators, group: str, answer: Message
) -> GroupOffsets | TwinlogError:
    code = int(answer.error_code)
    if code == GROUP_ID_NOT_FOUND:
        return {}
    parts = [partition for topic in answer.topics for partition in topic.partitions]
    if not code and any(part.error_code == UNSTABLE_OFFSET_COMMIT for part in parts):
        code = UNSTABLE_OFFSET_COMMIT
    if code:
        return coordinators.error(code, READING, group)
    return {
        TopicPartition(topic.name, partition.partition_index): Committed(
            offset=partition.committed_offset, metadata=partition.metadata or ""
        )
        for topic in answer.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0 and not partition.error_code
    }


def _portions(group: str, offsets: GroupOffsets) -> Iterator[GroupOffsets]:
    """Yield the offsets in portions of about COMMIT_BYTES."""
    portion: dict[TopicPartition, Committed] = {}
    size = 0
    for tp, committed in offsets.items():
        portion[tp] = committed
        names = (group, tp.topic, committed.metadata)
        size += RECORD_BYTES + sum(len(name.encode()) for name in names)
        if size >= COMMIT_BYTES:
            yield portion
            portion, size = {}, 0
    if portion:
        yield portion


def _commit(group: str, offsets: GroupOffsets) -> Message:
    topic_of = OffsetCommitRequest.OffsetCommitRequestTopic
    partition_of = topic_of.OffsetCommitRequestPartition
    topics: dict[str, list[Message]] = {}
    for tp, committed in offsets.items():
        topics.setdefault(tp.topic, []).append(
            partition_of(
                partition_index=tp.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=-1,
                committed_metadata=committed.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,  # this client is not a member
        member_id="",
        group_instance_id=None,
        topics=[topic_of(name=name, partitions=parts) for name, parts in topics.items()],
    )


def _committed(
    coordinators: Coordinators, group: str, lane: Connection
) -> dict[TopicPartition, TwinlogError | None]:
    out: dict[TopicPartition, TwinlogError | None] = {}
    for topic in lane.finish().topics:
        for partition in topic.partitions:
            code = int(partition.error_code)
            tp = TopicPartition(str(topic.name), partition.partition_index)
            doing = f"committing offsets of {tp} for"
            out[tp] = coordinators.error(code, doing, group, "READ", tp) if code else None
    return out


def _result_of_group(result: CommitResult) -> CommitResult | TwinlogError:
    """Return the error if all partitions have the same one, else the result of each partition. If
    the coordinator moved between two requests, return the error that reports this, so that all
    requests are repeated.
    """
    refused = {error.code: error for error in result.values() if error is not None}
    moved = next(filter(is_moved, refused.values()), None)
    if moved is not None:
        return moved
    if len(refused) == 1 and None not in result.values():
        return next(iter(refused.values()))
    return result
