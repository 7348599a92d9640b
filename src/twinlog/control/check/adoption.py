"""Reports what `mirror --adopt-mm2` would take over, and from which offsets. Suggests the option if
a MirrorMaker 2 copied before. Only reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.config.flow.offset_storage import OffsetStorage
from twinlog.control.adopt.adoption import Adopted, Adopter, Adoption, adopter_of
from twinlog.control.adopt.mm2_positions import SyncsTopic
from twinlog.control.check.report import FlowReport, Plan, Problem
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.errors import AdoptionRefused
from twinlog.mirror.plan import PartitionPlan
from twinlog.model import TopicPartition
from twinlog.quantities import first_few
from twinlog.survey.ends import NO_ENDS
from twinlog.survey.picture import read_maps
from twinlog.survey.replica import Maps


def check_adoption(
    setup: FlowSetup,
    storage: OffsetStorage,
    clients: tuple[ClusterClient, ClusterClient],
    report: FlowReport,
) -> None:
    """Add to the report; `clients` are those of source and target. Raises AdoptionRefused if there
    is no such MirrorMaker 2.
    """
    source, target = clients
    remote = {topic.topic: topic.remote_topic for topic in report.topics}
    here = source.metadata(sorted(remote)).topics if remote else {}
    there = target.metadata(sorted({*remote.values()})).topics if remote else {}
    plans = [
        plan
        for name, remote_name in remote.items()
        for plan in _plans(here[name], there[remote_name], by_key=setup.config.keyed_partitions)
    ]
    maps = read_maps(target, setup.config.flow, after=NO_ENDS)
    adoption = _survey(adopter_of(setup.config, storage, source, target), plans, maps, report)
    taken = {str(one.plan.target) for one in adoption.partitions}
    report.problems = [
        problem
        for problem in report.problems
        if problem.code != "FOREIGN_DATA" or problem.partition not in taken
    ]
    report.problems += [Problem.of(problem) for problem in adoption.refused.values()]
    report.changes += _changes(adoption.partitions)
    report.notes += [line for one in adoption.partitions for line in one.lines()]


def _survey(
    adopter: Adopter, plans: list[PartitionPlan], maps: Maps, report: FlowReport
) -> Adoption:
    """Survey what would be taken over. A MirrorMaker 2 that still runs is reported as a problem."""
    try:
        return adopter.survey(plans, maps)
    except AdoptionRefused as error:
        if error.code != "MM2_RUNNING":
            raise
        report.problems.append(Problem.of(error))
    return replace(adopter, may_run=True).survey(plans, maps)


def suggest_adoption(
    setup: FlowSetup,
    storage: OffsetStorage,
    clients: tuple[ClusterClient, ClusterClient],
    report: FlowReport,
) -> None:
    """Add a note if the target has records that a MirrorMaker 2 may have copied. Without it they
    would look like foreign records, or be copied again. `clients` are those of source and target.
    """
    source, target = clients
    names = not_ours(report, is_identity=setup.is_identity)
    if not names:
        return
    left = [(target, storage.topic)]
    syncs = SyncsTopic.of(setup.config)
    if (
        syncs is not None and not setup.is_identity
    ):  # this flow's own syncs topic has no foreign records
        left.append((target if syncs.on_target else source, syncs.name))
    found = [
        f"{name} on {client.alias}"
        for client, name in left
        if not client.metadata([name]).topics[name].error
    ]
    if found:
        report.notes.append(suggestion(found, names))


def not_ours(report: FlowReport, *, is_identity: bool) -> list[str]:
    """Return the source topics whose remote topics have, or may have, records that Twinlog did not
    copy."""
    if is_identity:
        known = (Plan.EXISTS, Plan.GROW)
        return [one.topic for one in report.topics if one.plan in known and one.begins]
    return sorted(
        {one.topic for one in report.problems if one.code == "FOREIGN_DATA" and one.topic}
    )


def suggestion(found: Sequence[str], names: Sequence[str]) -> str:
    """Return the note. `found`: topics that a MirrorMaker 2 uses. `names`: those that it may have
    copied.
    """
    return (
        f"{' and '.join(found)} may belong to a MirrorMaker 2. If it copied {first_few(names)}, "
        "take over its work: `twinlog check FILE --adopt-mm2` shows from which offsets; then stop "
        "MirrorMaker 2, and start `twinlog mirror FILE --adopt-mm2`"
    )


def _plans(here: TopicMetadata, there: TopicMetadata, *, by_key: bool) -> Iterator[PartitionPlan]:
    """Yield the plans of the partitions that both topics have."""
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
    for topic, offsets in by_topic.items():
        yield f"{topic} is taken over from MirrorMaker 2, by partition: {', '.join(offsets)}"
