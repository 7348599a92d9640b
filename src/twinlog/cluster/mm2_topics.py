"""Creates MirrorMaker 2's internal topics as MirrorMaker 2 does: one partition, compacted."""

from __future__ import annotations

from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.errors_table import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from twinlog.cluster.topics import create_topic, wait_for_topic
from twinlog.errors import ClusterError

DEFAULT_REPLICAS: Final = 3
BROKERS_DEFAULT: Final = -1


def ensure_mm2_topic(client: ClusterClient, name: str, replicas: int | None) -> None:
    """Create the topic where it is missing; one that is there stays as it is.

    `replicas` None is MirrorMaker 2's default, or that of a cluster with fewer brokers. Raises
    ClusterError: Unauthorized where our user may neither see nor create it.
    """
    error = client.metadata([name]).topics[name].error
    if error not in (UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED):
        return
    try:
        _create(client, name, DEFAULT_REPLICAS if replicas is None else replicas)
    except ClusterError as refused:
        if replicas is not None or refused.code != "REPLICATION_FACTOR":
            raise
        _create(client, name, BROKERS_DEFAULT)
    wait_for_topic(client, name)


def _create(client: ClusterClient, name: str, replicas: int) -> None:
    configs = {"cleanup.policy": "compact"}
    create_topic(client, name, partitions=1, replication_factor=replicas, configs=configs)
