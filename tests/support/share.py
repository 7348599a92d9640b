"""Share groups with an independent client (librdkafka), and their start offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import AcknowledgeType, ShareConsumer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.support.client import connection_of
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.settings import settings_of
from tests.support.topics import admin
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import Committed
from twinlog.cluster.groups.share_groups import alter_start_offsets, fetch_share_offsets
from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster

__all__ = ["begin_at", "from_the_start", "in_group", "stands_at", "take", "take_to"]


FROM_THE_START = {
    "share.auto.offset.reset": "earliest",
    "share.isolation.level": "read_committed",
}


def from_the_start(cluster: LocalCluster, *groups: str) -> None:
    """Set configs of the groups, so that they begin at the first record and read only committed
    records.
    """
    resources = [
        ConfigResource(
            ResourceType.GROUP,
            group,
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in FROM_THE_START.items()
            ],
        )
        for group in groups
    ]
    # kept in a variable, because responses are lost if the client is garbage-collected
    client = admin(cluster)
    for done in client.incremental_alter_configs(resources).values():
        done.result(PATIENCE_S)


@contextmanager
def in_group(cluster: LocalCluster, group: str, topic: str) -> Iterator[ShareConsumer]:
    """Join the group as a member within the block."""
    client = ShareConsumer(
        {
            **connection_of(cluster),
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "log_level": 2,
        }
    )
    try:
        client.subscribe([topic])
        yield client
    finally:
        client.close()


def take(cluster: LocalCluster, group: str, topic: str, *counts: int) -> list[bytes]:
    """Return the values of the next records, and acknowledge them. `counts`: the numbers of records
    that are acknowledged together. Other delivered records are released.
    """
    values: list[bytes] = []
    with in_group(cluster, group, topic) as client:
        for count in counts:
            wanted = len(values) + count
            _take(client, values, lambda wanted=wanted: len(values) == wanted)  # type: ignore[misc]
    return values


def take_to(cluster: LocalCluster, group: str, topic: str, last: bytes) -> list[bytes]:
    """Return the values of all records up to the one with the value `last`, and acknowledge
    them.
    """
    values: list[bytes] = []
    with in_group(cluster, group, topic) as client:
        _take(client, values, lambda: values[-1:] == [last])
    return values


def _take(client: ShareConsumer, values: list[bytes], is_enough: Callable[[], bool]) -> None:
    def is_done() -> bool:
        for message in client.poll(0.5):
            assert message.error() is None, message.error()
            if is_enough():
                client.acknowledge(message, AcknowledgeType.RELEASE)
            else:
                values.append(message.value() or b"")
                client.acknowledge(message)
        failed = [error for error in client.commit_sync(PATIENCE_S).values() if error]
        assert not failed, failed
        return is_enough()

    eventually(is_done, what="the next records of a share group")


def begin_at(cluster: LocalCluster, topic: str, groups: Mapping[str, int]) -> None:
    """Set the groups' start offsets in partition 0, as an operator does."""
    tp = TopicPartition(topic, 0)
    with ClusterClient(settings_of(cluster)) as client:
        wanted = {group: {tp: Committed(offset=offset)} for group, offset in groups.items()}
        for answer in alter_start_offsets(Coordinators(client), wanted).values():
            assert answer == {tp: None}


def stands_at(cluster: LocalCluster, group: str, topic: str, *, furthest: bool = False) -> int:
    """Return the group's start offset in partition 0, or -1 if it has none."""
    with ClusterClient(settings_of(cluster)) as client:
        coordinators = Coordinators(client)
        found = fetch_share_offsets(coordinators, [group], furthest=furthest)[group]
    assert not isinstance(found, TwinlogError), found
    tp = TopicPartition(topic, 0)
    return found[tp].offset if tp in found else -1
