"""Says what `mirror --adopt-mm2` would take over, and from where; it only reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.config.flow.offset_storage import OffsetStorage
from twinlog.control.adopt.adoption import Adopted, adopter_of
from twinlog.control.check.report import FlowReport, Problem
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.mirror.plan import PartitionPlan
from twinlog.model import TopicPartition
from twinlog.survey.map_reader import read_maps


def check_adoption(
    setup: FlowSetup,
    storage: OffsetStorage,
    clients: tuple[ClusterClient, ClusterClient],
    report: FlowReport,
) -> None:
    """Add to the report; `clients` are those of source and target. Raises AdoptionRefused."""
    source, target = clients
    remote = {topic.topic: topic.remote_topic for topic in report.topics}
    here = source.metadata(sorted(remote)).topics if remote else {}
    there = target.metadata(sorted({*remote.values()})).topics if remote else {}
    plans = [
        plan
        for name, remote_name in remote.items()
        for plan in _plans(here[name], there[remote_name], by_key=setup.config.keyed_partitions)
    ]
    maps = read_maps(target, setup.config.flow.source)
    adoption = adopter_of(setup.config, storage, source, target).survey(plans, maps)
    taken = {str(one.plan.target) for one in adoption.partitions}
    report.problems = [
        problem
        for problem in report.problems
        if problem.code != "FOREIGN_DATA" or problem.partition not in taken
    ]
    report.problems += [Problem.of(problem) for problem in adoption.refused.values()]
    report.changes += _changes(adoption.partitions)
    report.notes += [line for one in adoption.partitions for line in one.lines()]


def _plans(here: TopicMetadata, there: TopicMetadata, *, by_key: bool) -> Iterator[PartitionPlan]:
    """Of the partitions that both topics have."""
    if here.error or there.error:
        return
    count = len(there.partitions)
    targets = count if by_key and count != len(here.partitions) else 0
    for partition in range(min(len(here.partitions), len(there.partitions))):
        yield PartitionPlan(
            source=TopicPartition(here.name, partition),
            target=TopicPartition(there.name, partition),
            source_topic_id=here.topic_id,
            target_topic_id=there.topic_id,
            limit_bytes=0,
            targets=targets,
        )


def _changes(adopted: Iterable[Adopted]) -> Iterator[str]:
    by_topic: dict[str, list[str]] = {}
    for one in adopted:
        source = one.plan.source
        by_topic.setdefault(source.topic, []).append(f"{source.partition} at {one.upstream}")
    for topic, places in by_topic.items():
        yield f"{topic} is taken over from MirrorMaker 2, by partition: {', '.join(places)}"
