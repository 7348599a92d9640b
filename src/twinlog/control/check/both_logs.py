"""Reads the logs of partitions on both clusters: their start, end and leader."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import NO_EPOCH, NO_NODE
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.check.offline_status import QueriedClusters
from twinlog.control.flow.wiring import flow_setup
from twinlog.errors import TwinlogError
from twinlog.model import Isolation, TopicPartition
from twinlog.survey.ends import Want, read_ends

GIVES_UP_S: Final = 30.0


class LogFacts(Struct, frozen=True, kw_only=True):
    """Offsets, leader and replicas of one log. Unknown values are None."""

    topic: str
    start: int | None = None
    last_stable: int | None = None
    """Consumers with read_committed read up to this offset."""
    end: int | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    problem: str = ""
    """Why a value is unknown; empty if all values are known."""


def both_logs(
    flow: FlowConfig, source: Collection[TopicPartition], target: Collection[TopicPartition]
) -> tuple[dict[TopicPartition, LogFacts], dict[TopicPartition, LogFacts]]:
    """Return two mappings by partition: the logs of the source's partitions, and those of the
    target's. If a cluster does not respond, its logs contain the problem. All partitions of a
    cluster are queried together.
    """
    setup = flow_setup(flow)
    with ExitStack() as closing:
        clusters = QueriedClusters(closing, GIVES_UP_S)
        clusters.query((setup.source, setup.target))
        return _facts(clusters, setup.source, source), _facts(clusters, setup.target, target)


def _facts(
    clusters: QueriedClusters, cluster: ClusterSettings, parts: Collection[TopicPartition]
) -> dict[TopicPartition, LogFacts]:
    problem = clusters.problem(cluster)
    if problem is None:
        try:
            return _log_facts(clusters.client(cluster), parts)
        except TwinlogError as error:
            problem = error
    text = str(problem.without_flow())
    return {tp: LogFacts(topic=tp.topic, problem=text) for tp in parts}


def _log_facts(
    client: ClusterClient, parts: Collection[TopicPartition]
) -> dict[TopicPartition, LogFacts]:
    topics = client.metadata(sorted({tp.topic for tp in parts})).topics if parts else {}
    facts: dict[TopicPartition, LogFacts] = {}
    for tp in parts:
        topic = topics.get(tp.topic)
        led = None if topic is None else topic.partition(tp.partition)
        facts[tp] = (
            LogFacts(topic=tp.topic, problem=f"{tp} does not exist, or DESCRIBE is denied")
            if led is None
            else LogFacts(
                topic=tp.topic,
                leader=None if led.leader == NO_NODE else led.leader,
                leader_epoch=None if led.leader_epoch == NO_EPOCH else led.leader_epoch,
                replicas=led.replicas,
                in_sync=led.isr,
            )
        )
    existing = [tp for tp, log_facts in facts.items() if not log_facts.problem]
    stable = read_ends(client, existing, isolation=Isolation.READ_COMMITTED)
    for tp, log in read_ends(client, existing, Want.STARTS).items():
        problem = log.problem or stable[tp].problem
        facts[tp] = replace(
            facts[tp],
            start=log.start,
            last_stable=stable[tp].end,
            end=log.end,
            problem="" if problem is None else str(problem.without_flow()),
        )
    return facts
