"""The logs of partitions on both clusters: their start, end and leader."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.check.offline_status import AskedClusters
from twinlog.control.flow.wiring import flow_setup
from twinlog.errors import TwinlogError
from twinlog.model import Isolation, TopicPartition
from twinlog.survey.ends import Want, read_ends

GIVES_UP_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """One log, in offsets; -1 means unknown."""

    topic: str
    start: int = -1
    last_stable: int = -1
    """Consumers with read_committed read up to this offset."""
    end: int = -1
    leader: int = -1
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    problem: str = ""
    """Why a value is unknown."""


def both_logs(
    flow: FlowConfig, source: Collection[TopicPartition], target: Collection[TopicPartition]
) -> tuple[dict[TopicPartition, LogFacts], dict[TopicPartition, LogFacts]]:
    """Return the source's and the target's logs, as far as each cluster responds. All partitions of
    a cluster are queried together.
    """
    setup = flow_setup(flow)
    with ExitStack() as closing:
        clusters = AskedClusters(closing, GIVES_UP_S)
        clusters.ask((setup.source, setup.target))
        return _facts(clusters, setup.source, source), _facts(clusters, setup.target, target)


def _facts(
    clusters: AskedClusters, cluster: ClusterSettings, parts: Collection[TopicPartition]
) -> dict[TopicPartition, LogFacts]:
    problem = clusters.problem(cluster)
    if problem is None:
        try:
            return _asked(clusters.client(cluster), parts)
        except TwinlogError as error:
            problem = error
    text = str(problem.without_flow())
    return {tp: LogFacts(topic=tp.topic, problem=text) for tp in parts}


def _asked(
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
                leader=led.leader,
                leader_epoch=led.leader_epoch,
                replicas=led.replicas,
                in_sync=led.isr,
            )
        )
    there = [tp for tp, one in facts.items() if not one.problem]
    stable = read_ends(client, there, isolation=Isolation.READ_COMMITTED)
    for tp, log in read_ends(client, there, Want.STARTS).items():
        problem = log.problem or stable[tp].problem
        found = log.start, stable[tp].end, log.end
        start, last_stable, end = (-1 if one is None else one for one in found)
        facts[tp] = replace(
            facts[tp],
            start=start,
            last_stable=last_stable,
            end=end,
            problem="" if problem is None else str(problem.without_flow()),
        )
    return facts
