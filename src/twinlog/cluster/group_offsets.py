"""Consumer groups of a cluster and their committed offsets: all of them in a request per broker.

Groups of both consumer protocols have offsets of this kind. Share groups have none: what they have
read lies in share-partition states (see `share_groups`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, TypeAlias

from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest

from twinlog.cluster.connection import Connection
from twinlog.cluster.coordinators import Coordinators
from twinlog.cluster.errors_table import TOPIC_AUTHORIZATION_FAILED, error_for
from twinlog.cluster.protocol import Message
from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition

GROUP_ID_NOT_FOUND: Final = 69
UNKNOWN_MEMBER_ID: Final = 25
NON_EMPTY_GROUP: Final = 68
STALE_MEMBER_EPOCH: Final = 113
REFUSED_AS_ACTIVE: Final = frozenset({UNKNOWN_MEMBER_ID, NON_EMPTY_GROUP, STALE_MEMBER_EPOCH})

WITH_STATES: Final = 4
"""ListGroups since Kafka 2.6 says the states of groups (KIP-518)."""

MANY_GROUPS: Final = 8
"""OffsetFetch since Kafka 3.0 takes many groups (KIP-709)."""

BY_NAME: Final = 9
"""OffsetFetch and OffsetCommit name topics by id from version 10 on."""

MISSING_IS_DEAD: Final = 5
GROUPS_AT_ONCE: Final = 1_000
"""Of 100 partitions each these are 2 MB."""

COMMITS_AT_ONCE: Final = 8
"""There is one commit a group. A broker answers it when the replicas have it, and takes the
requests of one connection one after the other: so several connections are used.
"""

EMPTY: Final = "Empty"
DEAD: Final = "Dead"
CONSUMERS: Final = frozenset({"", "consumer"})
"""Protocol types with offsets of consumers; the empty one has only simple commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group as its coordinator lists it."""

    name: str
    protocol_type: str
    state: str
    """Kafka's word: `Stable`, `Empty`, ..; empty where the broker is too old to say."""
    kind: str
    """`classic`, `consumer`, `share`, ..; empty before Kafka 4."""

    @property
    def has_offsets(self) -> bool:
        """Whether it commits as consumers do."""
        return self.protocol_type in CONSUMERS and not self.is_share

    @property
    def is_share(self) -> bool:
        """Whether its members share partitions record by record (KIP-932)."""
        return self.kind.lower() == "share"

    @property
    def is_active(self) -> bool:
        """Whether somebody is, or may be, in it."""
        return self.state not in (EMPTY, DEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Where a group goes on in one partition."""

    offset: int
    metadata: str = ""


GroupOffsets: TypeAlias = Mapping[TopicPartition, Committed]


def list_groups(coordinators: Coordinators) -> dict[str, Group]:
    """Every group that our user may see, asked of every broker; raises when one does not answer.

    Without DESCRIBE on the cluster those are the groups that we may describe, without an error.
    """
    client = coordinators.client

    def ask() -> dict[str, Group]:
        out: dict[str, Group] = {}
        for node in client.metadata([]).brokers:
            answer = client.attempt(node, ListGroupsRequest(states_filter=[], types_filter=[]))
            if answer.error_code:
                raise error_for(
                    answer.error_code,
                    cluster=client.alias,
                    doing="listing groups",
                    acl="DESCRIBE on the cluster, or on the groups",
                )
            for one in answer.groups:
                group = _group(one)
                out[group.name] = group
                coordinators.learn(group.name, node)
        return out

    groups = client.retrying(ask)
    unknown = [group.name for group in groups.values() if not group.state]
    return groups | _described(coordinators, unknown)


def fetch_offsets(
    coordinators: Coordinators, groups: Iterable[str]
) -> dict[str, GroupOffsets | TwinlogError]:
    """The committed offsets of each group, in whatever state it is; none for one that is missing.

    Offsets of topics that our user may not describe are left out by the broker, without an error.
    """

    def ask(node: int, some: Sequence[str]) -> dict[str, GroupOffsets | TwinlogError]:
        out: dict[str, GroupOffsets | TwinlogError] = {}
        for start in range(0, len(some), GROUPS_AT_ONCE):
            out |= _fetch(coordinators, node, some[start : start + GROUPS_AT_ONCE])
        return out

    return coordinators.ask(groups, ask, doing="reading offsets of")


CommitResult: TypeAlias = Mapping[TopicPartition, TwinlogError | None]


def commit_offsets(
    coordinators: Coordinators, wanted: Mapping[str, GroupOffsets]
) -> dict[str, CommitResult | TwinlogError]:
    """Set offsets of groups without members, a partition each: None, or why it was refused.

    The coordinator itself refuses a group that has members (`is_refused_as_active`), so one that
    becomes active after it was looked at is not rewound.
    """

    def ask(node: int, some: Sequence[str]) -> dict[str, CommitResult | TwinlogError]:
        client, out = coordinators.client, {}
        with ExitStack() as stack:
            lanes = [client.connection_to(node)]
            lanes += [
                stack.enter_context(client.open_connection(node))
                for _ in range(min(COMMITS_AT_ONCE, len(some)) - 1)
            ]
            for start in range(0, len(some), len(lanes)):
                now = list(zip(lanes, some[start : start + len(lanes)], strict=False))
                for lane, group in now:
                    lane.begin(_commit(group, wanted[group]), maximum=BY_NAME)
                for lane, group in now:
                    out[group] = _committed(coordinators, group, lane)
        return out

    return coordinators.ask(wanted, ask, doing="committing offsets of")


def is_refused_as_active(error: TwinlogError) -> bool:
    """Whether the coordinator refused a commit because the group has members."""
    return getattr(error, "kafka_error", 0) in REFUSED_AS_ACTIVE


def _group(one: Message) -> Group:
    return Group(
        name=str(one.group_id),
        protocol_type=str(one.protocol_type or ""),
        state=str(one.group_state or ""),
        kind=str(one.group_type or ""),
    )


def _described(coordinators: Coordinators, names: Sequence[str]) -> dict[str, Group]:
    """States of groups, asked for where ListGroups does not say them."""

    def ask(node: int, some: Sequence[str]) -> dict[str, Group | TwinlogError]:
        out: dict[str, Group | TwinlogError] = {}
        request = DescribeGroupsRequest(groups=list(some), include_authorized_operations=False)
        for one in coordinators.client.attempt(node, request, maximum=MISSING_IS_DEAD).groups:
            name, code = str(one.group_id), int(one.error_code)
            out[name] = Group(
                name=name,
                protocol_type=str(one.protocol_type or ""),
                state=str(one.group_state or ""),
                kind="",
            )
            if code:
                out[name] = coordinators.error(code, "describing", name)
        return out

    found = coordinators.ask(names, ask, doing="describing") if names else {}
    return {name: group for name, group in found.items() if isinstance(group, Group)}


def _fetch(
    coordinators: Coordinators, node: int, groups: Sequence[str]
) -> dict[str, GroupOffsets | TwinlogError]:
    client, doing = coordinators.client, "reading offsets of"
    offered = client.connection_to(node).api_versions.get(OffsetFetchRequest.API_KEY, (0, 0))[1]
    if offered >= MANY_GROUPS:
        one = OffsetFetchRequest.OffsetFetchRequestGroup
        wanted = [one(group_id=g, member_id=None, member_epoch=-1, topics=None) for g in groups]
        request = OffsetFetchRequest(groups=wanted, require_stable=False)
        answers = client.attempt(node, request, minimum=MANY_GROUPS, maximum=BY_NAME).groups
        found = {str(answer.group_id): answer for answer in answers}
    else:
        found = {}
        for group in groups:
            request = OffsetFetchRequest(group_id=group, topics=None, require_stable=False)
            found[group] = client.attempt(node, request, minimum=2, maximum=MANY_GROUPS - 1)
    out: dict[str, GroupOffsets | TwinlogError] = {}
    for group, answer in found.items():
        code = int(answer.error_code)
        if code == GROUP_ID_NOT_FOUND:
            out[group] = {}
        elif code:
            out[group] = coordinators.error(code, doing, group)
        else:
            out[group] = _offsets(answer)
    return out


def _offsets(answer: Message) -> dict[TopicPartition, Committed]:
    return {
        TopicPartition(topic.name, one.partition_index): Committed(
            offset=one.committed_offset, metadata=one.metadata or ""
        )
        for topic in answer.topics
        for one in topic.partitions
        if one.committed_offset >= 0 and not one.error_code
    }


def _commit(group: str, offsets: GroupOffsets) -> Message:
    topic_of = OffsetCommitRequest.OffsetCommitRequestTopic
    partition_of = topic_of.OffsetCommitRequestPartition
    topics: dict[str, list[Message]] = {}
    for tp, one in offsets.items():
        topics.setdefault(tp.topic, []).append(
            partition_of(
                partition_index=tp.partition,
                committed_offset=one.offset,
                committed_leader_epoch=-1,
                committed_metadata=one.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,  # as somebody who is in no group
        member_id="",
        group_instance_id=None,
        topics=[topic_of(name=name, partitions=parts) for name, parts in topics.items()],
    )


def _committed(
    coordinators: Coordinators, group: str, lane: Connection
) -> CommitResult | TwinlogError:
    out: dict[TopicPartition, TwinlogError | None] = {}
    for topic in lane.finish().topics:
        for one in topic.partitions:
            code, tp = int(one.error_code), TopicPartition(str(topic.name), one.partition_index)
            out[tp] = None
            if code:
                of_topic = code == TOPIC_AUTHORIZATION_FAILED
                out[tp] = error_for(
                    code,
                    cluster=coordinators.client.alias,
                    doing=f"committing offsets of {tp} for group {group}",
                    acl=f"READ on {f'topic {tp.topic}' if of_topic else f'group {group}'}",
                )
    refused = {error.code: error for error in out.values() if error is not None}
    if len(refused) == 1 and None not in out.values():
        return next(iter(refused.values()))  # of the whole group
    return out
