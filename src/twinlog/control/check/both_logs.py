"""What both clusters have of one partition: where its logs begin and end, and who leads them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, LATEST, list_offsets
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.check.asked_clusters import AskedClusters
from twinlog.control.flow.wiring import flow_setup
from twinlog.errors import TwinlogError
from twinlog.model import Isolation, TopicPartition

GIVES_UP_S: Final = 30.0

_ASKED: Final = {
    "start": (EARLIEST, Isolation.READ_UNCOMMITTED),
    "last_stable": (LATEST, Isolation.READ_COMMITTED),
    "end": (LATEST, Isolation.READ_UNCOMMITTED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """One log, in offsets; -1 is what is not known."""

    topic: str
    start: int = -1
    last_stable: int = -1
    """A reader of committed records comes so far."""
    end: int = -1
    leader: int = -1
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    problem: str = ""
    """Why not all is known."""


def both_logs(
    flow: FlowConfig, source: TopicPartition, target: TopicPartition
) -> tuple[LogFacts, LogFacts]:
    """The source's and the target's, each as far as its cluster answers."""
    setup = flow_setup(flow)
    with ExitStack() as closing:
        clusters = AskedClusters(closing, GIVES_UP_S)
        clusters.ask((setup.source, setup.target))
        return _facts(clusters, setup.source, source), _facts(clusters, setup.target, target)


def _facts(clusters: AskedClusters, cluster: ClusterSettings, tp: TopicPartition) -> LogFacts:
    nothing = LogFacts(topic=tp.topic)
    problem = clusters.problem(cluster)
    if problem is None:
        try:
            return _asked(clusters.client(cluster), tp)
        except TwinlogError as error:
            problem = error
    return replace(nothing, problem=str(problem.without_flow()))


def _asked(client: ClusterClient, tp: TopicPartition) -> LogFacts:
    topic = client.metadata([tp.topic]).topics.get(tp.topic)
    led = None if topic is None else topic.partition(tp.partition)
    if led is None:
        return LogFacts(topic=tp.topic, problem=f"{tp} is not there, or may not be described")
    offsets, problem = {}, ""
    for name, (at, isolation) in _ASKED.items():
        found = list_offsets(client, [tp], at, isolation=isolation)[tp]
        if isinstance(found, TwinlogError):
            problem = problem or str(found.without_flow())
        else:
            offsets[name] = found.offset
    return LogFacts(
        topic=tp.topic,
        leader=led.leader,
        leader_epoch=led.leader_epoch,
        replicas=led.replicas,
        in_sync=led.isr,
        problem=problem,
        **offsets,
    )
