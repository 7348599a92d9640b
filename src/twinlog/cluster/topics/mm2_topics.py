"""Creates MirrorMaker 2's internal topics as MirrorMaker 2 does: one partition, compacted."""

from __future__ import annotations

from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.topic_admin import DEFAULT, create_topic, wait_for_topic
from twinlog.errors import ClusterError, Unauthorized
from twinlog.wire.error_codes import (
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_for,
)

DEFAULT_REPLICAS: Final = 3


def ensure_mm2_topic(client: ClusterClient, name: str, replicas: int | None) -> None:
    """Create the topic if it does not exist. An existing one is not changed.

    `replicas` None is MirrorMaker 2's default, or the brokers' default if there are fewer brokers.
    Raises Unauthorized if the user may neither see nor create the topic, and other ClusterErrors.
    """
    error = client.metadata([name]).topics[name].error
    if error not in (UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED):
        return
    try:
        _create(client, name, DEFAULT_REPLICAS if replicas is None else replicas)
    except Unauthorized:
        if error != TOPIC_AUTHORIZATION_FAILED:
            raise
        raise hidden_topic(client, name, may_create=False) from None
    except ClusterError as refused:
        if replicas is not None or refused.code != "REPLICATION_FACTOR":
            raise
        _create(client, name, DEFAULT)
    try:
        wait_for_topic(client, name)
    except Unauthorized:
        raise hidden_topic(client, name, may_create=True) from None


def hidden_topic(client: ClusterClient, name: str, *, may_create: bool) -> ClusterError:
    """Return the error for a topic that Twinlog's user may not see, whether it exists or not.

    It names WRITE, which is needed anyway and includes DESCRIBE.
    """
    also = "" if may_create else ", and CREATE if it does not exist"
    return error_for(
        TOPIC_AUTHORIZATION_FAILED,
        cluster=client.alias,
        doing=f"looking for topic {name}",
        acl=f"WRITE on topic {name}{also}",
    )


def _create(client: ClusterClient, name: str, replicas: int) -> None:
    configs = {"cleanup.policy": "compact"}
    create_topic(client, name, partitions=1, replication_factor=replicas, configs=configs)
