"""Topics, configs, ACLs and leaders through an independent admin client (librdkafka)."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from tests.support.client import connection_of
from tests.support.eventually import PATIENCE_S, eventually
from twinlog.mirror.names.naming import map_topic_of
from twinlog.model import Flow
from twinlog.sandbox import LocalCluster

__all__ = [
    "add_partitions",
    "admin",
    "allow",
    "alter_topic_configs",
    "apply_topic_configs",
    "clear_away",
    "create_topic",
    "delete_records",
    "delete_topic",
    "end_offsets",
    "forbid",
    "leader",
    "log_size",
    "offset_map_topic",
    "partition_count",
    "topic_configs",
    "topic_names",
]

_LEADER_MOVED = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        # no leader, for example because a broker that was frozen for 9 s is fenced
        KafkaError._NOENT,
    }
)
_FENCED = frozenset({KafkaError.INVALID_REPLICATION_FACTOR})
"""Errors while all brokers are fenced, because the machine stalled for longer than a session."""
_NO_ANSWER = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT})
_STALLED_S = 20.0
"""Time limit of a request in seconds. If a librdkafka client gets metadata without any broker,
because the only one was fenced for a moment, it may stall until it is replaced. The broker responds
to other clients in the meantime.
"""
_CREATED = frozenset({KafkaError.TOPIC_ALREADY_EXISTS})
_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART})
_ANSWER_S = 2 * PATIENCE_S
"""Time limit of a response in seconds. It is longer than the client's own timeout, so that the
client's error, which names what it waited for, is raised.
"""

_NO_JITTER: Final = {"segment.jitter.ms": "0"}
"""A topic config with its default value, so setting it changes nothing."""
_KEPT: Final = 8
_admins: OrderedDict[tuple[tuple[str, str], ...], AdminClient] = OrderedDict()
"""Clients of the clusters that were queried last. A new client for each query would cost the broker
15 ms of CPU instead of 1 ms, and tests send twenty queries per second.
"""
_lock = threading.Lock()


def admin(cluster: LocalCluster | str, config: Mapping[str, Any] | None = None) -> AdminClient:
    """Return an admin client. For a cluster of one broker it is shared. For several brokers it is
    new, because one of them may be frozen.
    """
    made = {
        **connection_of(cluster),
        "log_level": 2,
        "reconnect.backoff.max.ms": 500,
        **(config or {}),
    }
    if "," in made["bootstrap.servers"]:
        return AdminClient(made)
    key = tuple(sorted((name, str(value)) for name, value in made.items()))
    with _lock:
        if key not in _admins:
            _admins[key] = AdminClient(made)
        _admins.move_to_end(key)
        if len(_admins) > _KEPT:
            _admins.popitem(last=False)
        return _admins[key]


def _forget(client: AdminClient) -> None:
    """Drop the client, so that the next request to its cluster creates a new one."""
    with _lock:
        for key, kept in list(_admins.items()):
            if kept is client:
                del _admins[key]


def create_topic(
    cluster: LocalCluster | str,
    topic: str,
    partitions: int = 1,
    replication_factor: int = 1,
    configs: Mapping[str, str] | None = None,
) -> str:
    """Create a topic, wait until every partition has a leader, and return its name."""
    new = NewTopic(topic, partitions, replication_factor, config=dict(configs or {}))
    _ask(cluster, lambda client: client.create_topics([new], request_timeout=_STALLED_S), _CREATED)
    _await_leaders(cluster, topic, partitions)
    return topic


def delete_topic(cluster: LocalCluster | str, topic: str) -> None:
    _ask(cluster, lambda client: client.delete_topics([topic], request_timeout=_STALLED_S), _GONE)
    eventually(lambda: topic not in _metadata(cluster).topics)


def add_partitions(cluster: LocalCluster | str, topic: str, new_total: int) -> None:
    client = admin(cluster)
    _all(client, client.create_partitions([NewPartitions(topic, new_total)]))
    _await_leaders(cluster, topic, new_total)


def alter_topic_configs(
    cluster: LocalCluster | str, topic: str, configs: Mapping[str, str]
) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    _alter(cluster, topic, entries)


def _alter(cluster: LocalCluster | str, topic: str, entries: list[ConfigEntry]) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    # kept in a variable, because responses are lost if the client is garbage-collected
    client = admin(cluster)
    _all(client, client.incremental_alter_configs([resource]))


def apply_topic_configs(
    cluster: LocalCluster | str, topic: str, configs: Mapping[str, str]
) -> None:
    """Alter configs, and wait until the only broker applies them.

    The controller responds before the broker knows the change, and a broker shows configs before it
    applies them (BrokerMetadataPublisher). It applies changes one after the other. So a second
    change is made and undone; when the broker shows that it is undone, the first one is applied.
    """
    alter_topic_configs(cluster, topic, {**configs, **_NO_JITTER})
    eventually(lambda: _NO_JITTER.items() <= topic_configs(cluster, topic).items())
    (jitter,) = _NO_JITTER
    _alter(
        cluster, topic, [ConfigEntry(jitter, None, incremental_operation=AlterConfigOpType.DELETE)]
    )
    eventually(lambda: jitter not in topic_configs(cluster, topic))


def topic_configs(cluster: LocalCluster | str, topic: str) -> dict[str, str]:
    """Return the configs that are set on the topic itself, without defaults."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    client = admin(cluster)
    (entries,) = _all(client, client.describe_configs([resource]))
    dynamic_topic_config = 1
    return {
        name: entry.value for name, entry in entries.items() if entry.source == dynamic_topic_config
    }


def clear_away(cluster: LocalCluster | str, mark: str) -> None:
    """Delete all topics whose names contain this text, because every log costs the broker time."""
    found = [name for name in _metadata(cluster).topics if mark in name]
    if found:
        _ask(cluster, lambda client: client.delete_topics(found, request_timeout=_STALLED_S), _GONE)


def topic_names(cluster: LocalCluster | str) -> set[str]:
    return set(_metadata(cluster).topics)


def partition_count(cluster: LocalCluster | str, topic: str) -> int:
    metadata = _metadata(cluster, topic).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    return len(metadata.partitions)


def leader(cluster: LocalCluster | str, topic: str, partition: int = 0) -> int:
    """Return the node ID of the partition's leader, or -1 if there is none. One of several brokers
    may not know a new topic yet, so the query is repeated.
    """

    def found() -> list[int]:
        parts = _metadata(cluster, topic).topics[topic].partitions
        return [int(parts[partition].leader)] if partition in parts else []

    return eventually(found, what=f"{topic}-{partition} in the brokers' metadata")[0]


def end_offsets(cluster: LocalCluster | str, topic: str) -> dict[int, int]:
    """Return the high watermark of every partition."""
    asked = {
        TopicPartition(topic, each): OffsetSpec.latest()
        for each in range(partition_count(cluster, topic))
    }
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        client = admin(cluster)
        answers = client.list_offsets(asked, request_timeout=_STALLED_S)
        try:
            found = {tp.partition: one.result(_ANSWER_S) for tp, one in answers.items()}
            return {partition: one.offset for partition, one in found.items()}
        except KafkaException as error:
            # the client sends one query with the leaders that it knows, which may have just moved
            code = error.args[0].code()
            if code not in _LEADER_MOVED | _NO_ANSWER or time.monotonic() > give_up_at:
                raise
            if code in _NO_ANSWER:
                _forget(client)
            time.sleep(0.1)


def log_size(cluster: LocalCluster | str, topic: str) -> int:
    """Return the sum of the partitions' end offsets, or 0 if the topic does not exist. On a broker
    with 300 topics, a query of one topic costs a tenth of the CPU of a query of all topics.
    """
    error = _metadata(cluster, topic).topics[topic].error
    is_missing = error is not None and error.code() in _GONE
    return 0 if is_missing else sum(end_offsets(cluster, topic).values())


def delete_records(
    cluster: LocalCluster | str, topic: str, partition: int = 0, before: int = OFFSET_END
) -> None:
    """Delete the records before an offset, by default all records."""
    client = admin(cluster)
    _all(client, client.delete_records([TopicPartition(topic, partition, before)]))


def allow(
    cluster: LocalCluster | str,
    user: str,
    operations: Iterable[str],
    *,
    topic: str | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    prefixed: bool = False,
) -> None:
    """Give a user ACLs on one topic, group or transactional ID. If none is given, they are on the
    cluster.
    """
    if topic is not None:
        kind, name = ResourceType.TOPIC, topic
    elif group is not None:
        kind, name = ResourceType.GROUP, group
    elif transactional_id is not None:
        kind, name = ResourceType.TRANSACTIONAL_ID, transactional_id
    else:
        kind, name = ResourceType.BROKER, "kafka-cluster"
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    bindings = [
        AclBinding(
            kind,
            name,
            pattern,
            f"User:{user}",
            "*",
            AclOperation[operation.upper()],
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    # kept in a variable, because responses are lost if the client is garbage-collected
    client = admin(cluster)
    _all(client, client.create_acls(bindings))
    # the controller responds before the brokers have applied the ACLs
    for one in bindings:
        eventually(lambda one=one: one in _acls_like(client, one), what=f"{one}")  # type: ignore[misc]


def _acls_like(client: AdminClient, one: AclBinding) -> list[AclBinding]:
    wanted = AclBindingFilter(
        one.restype,
        one.name,
        one.resource_pattern_type,
        one.principal,
        one.host,
        one.operation,
        one.permission_type,
    )
    found: list[AclBinding] = client.describe_acls(wanted).result(PATIENCE_S)
    return found


def forbid(
    cluster: LocalCluster | str,
    user: str,
    operations: Iterable[str],
    *,
    topic: str = "",
    group: str = "",
) -> None:
    """Remove a user's ACLs on one topic or group."""
    filters = [
        AclBindingFilter(
            ResourceType.TOPIC if topic else ResourceType.GROUP,
            topic or group,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation.upper()],
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    client = admin(cluster)
    _all(client, client.delete_acls(filters))
    for one in filters:
        eventually(lambda one=one: not client.describe_acls(one).result(PATIENCE_S))  # type: ignore[misc]


def _metadata(cluster: LocalCluster | str, topic: str | None = None) -> ClusterMetadata:
    """Return the metadata. Each attempt uses a new client, because a client that got no response
    may stall.
    """
    end = time.monotonic() + PATIENCE_S
    while True:
        client = admin(cluster)
        try:
            return client.list_topics(topic, timeout=_STALLED_S)
        except KafkaException as error:
            if error.args[0].code() not in _NO_ANSWER or time.monotonic() > end:
                raise
            _forget(client)
            time.sleep(0.2)


def _ask(
    cluster: LocalCluster | str,
    ask: Callable[[AdminClient], Mapping[Any, Future[Any]]],
    done: frozenset[int],
) -> None:
    """Send a request until there is a response. `done`: errors which, after a lost response, mean
    that the request was executed.
    """
    end, accepted = time.monotonic() + PATIENCE_S, frozenset[int]()
    while True:
        client = admin(cluster)
        try:
            _all(client, ask(client))
        except KafkaException as error:
            code = error.args[0].code()
            if code in _NO_ANSWER | _FENCED and time.monotonic() < end:
                _forget(client)
                accepted = done
                time.sleep(0.2)
                continue
            if code not in accepted:
                raise
        return


def _all(client: AdminClient, answers: Mapping[Any, Future[Any]]) -> list[Any]:
    # the parameter keeps the client alive until the responses are there; without it, they would be
    # canceled
    assert client is not None
    return [answer.result(_ANSWER_S) for answer in answers.values()]


def _await_leaders(cluster: LocalCluster | str, topic: str, partitions: int) -> None:
    def have_leaders() -> bool:
        found = _metadata(cluster, topic).topics[topic].partitions
        return len(found) == partitions and all(each.leader >= 0 for each in found.values())

    eventually(have_leaders, what=f"leaders of {topic}")


def offset_map_topic(source: str) -> str:
    """Return the offset map topic of a flow from the cluster with this alias."""
    return map_topic_of(Flow(source, "B"))
