"""Shows what `twinlog mirror` would do with a configuration, and what would prevent it. Only reads.

Permissions are read from metadata (authorized operations, KIP-430). Only the brokers can decide
whether a topic can be created (permissions, policies, replication factor), so the creation is sent
with `validate_only`. The admin client and the lanes may have different credentials. So every
cluster is queried with the credentials of each client that will use it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from twinlog.cluster.certificates import ExpiryUrgency, certificate_ends, urgent
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import ClusterMetadata, TopicMetadata
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.offset_storage import OffsetStorage, offset_storage
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.control.adopt.adoption import AdoptedPartition, Adopter, Adoption
from twinlog.control.check.flows import Clients, check_flow
from twinlog.control.check.offline_status import QueriedClusters
from twinlog.control.check.report import (
    CheckReport,
    ClusterReport,
    FlowReport,
    LaneMemory,
    Plan,
    Problem,
)
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.wiring import (
    PROCESS_BYTES,
    flow_setup,
    lane_bytes,
    lanes_in_memory,
    lanes_of,
    neighbours_of,
    transforms_bytes,
)
from twinlog.control.groups.left_out import other_flows, selected_offsets, skipping_groups
from twinlog.errors import AdoptionRefused, TwinlogError
from twinlog.machine import memory_limit, usable_cores
from twinlog.mirror.names.filters import offset_syncs_topic
from twinlog.mirror.plan import PartitionPlan
from twinlog.model import TopicPartition
from twinlog.quantities import first_few
from twinlog.survey.capabilities import ensure_probe_topic, probe
from twinlog.survey.ends import NO_ENDS
from twinlog.survey.picture import read_maps
from twinlog.survey.replica import Maps

GIVES_UP_S: Final = 60.0


def check(
    config: MirrorConfig,
    *,
    with_probe: bool = False,
    gives_up_s: float = GIVES_UP_S,
    adopts: Callable[[FlowConfig], OffsetStorage | None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> CheckReport:
    """Check all flows of a configuration. Raises ConfigError for wrong security settings.

    `adopts` returns the offset storage of the MirrorMaker 2 whose work a flow would adopt, or None.
    `say` is called with a line on each cluster that has not responded yet.
    """
    neighbours = neighbours_of(config.flows)
    setups = [flow_setup(flow, adopts(flow), neighbours) for flow in config.flows]
    with ExitStack() as closing:
        asked = QueriedClusters(closing, gives_up_s)
        asked.query((cluster for setup in setups for cluster in setup.clusters()), say)
        clients = asked.clients
        cluster_reports = {client: _reported(client, asked.answer(client)) for client in clients}
        neighbours.learn({report.alias: report.cluster_id for report in cluster_reports.values()})
        flows = [
            _flow(setup, offset_storage(config, setup.config), clients, cluster_reports, with_probe)
            for setup in setups
        ]
        _shared_topics(
            {s: f for s, f in zip(setups, flows, strict=True) if f.topics}, clients, cluster_reports
        )
    _memory(zip(setups, flows, strict=True))
    ending, over = _certificates(clients)
    # one report for each cluster, or several if its clients have different problems
    reports = dict.fromkeys(cluster_reports.values())
    failed = {report.alias for report in reports if report.problem is not None}
    return CheckReport(
        file=config.file,
        warnings=(*(str(warning) for warning in config.warnings), *ending),
        clusters=tuple(
            report for report in reports if report.problem or report.alias not in failed
        ),
        flows=tuple(flows),
        certificates=tuple(over),
    )


def _certificates(
    clusters: Iterable[ClusterSettings],
) -> tuple[list[str], list[Problem]]:
    """Return (warnings, problems). `warnings`: a line for each certificate that expires soon.
    `problems`: the certificates that have expired.
    """
    now, ending, over = time.time(), [], []
    for urgency, end in urgent(certificate_ends(clusters), now):
        if urgency is ExpiryUrgency.OVER:
            over.append(Problem(code="CERTIFICATE_EXPIRED", message=end.line(now)))
        else:
            ending.append(f"{end.line(now)} [CERTIFICATE_ENDS_SOON]")
    return ending, over


def _reported(settings: ClusterSettings, answer: ClusterMetadata | TwinlogError) -> ClusterReport:
    alias, addresses = settings.alias, settings.addresses
    if isinstance(answer, TwinlogError):
        return ClusterReport(alias=alias, addresses=addresses, problem=Problem.of(answer))
    return ClusterReport(
        alias=alias,
        addresses=addresses,
        cluster_id=answer.cluster_id or "",
        brokers=len(answer.brokers),
    )


def _flow(
    setup: FlowSetup,
    storage: OffsetStorage,
    clients: Mapping[ClusterSettings, ClusterClient],
    cluster_reports: Mapping[ClusterSettings, ClusterReport],
    with_probe: bool,
) -> FlowReport:
    report = FlowReport(flow=setup.name)
    silent = sorted(
        {
            cluster_reports[cluster].alias
            for cluster in setup.clusters()
            if cluster_reports[cluster].problem is not None
        }
    )
    if silent:
        report.notes.append(f"not checked: {', '.join(silent)} cannot be reached")
        return report
    asked = Clients(*(clients[cluster] for cluster in setup.clusters()))
    try:
        check_flow(setup, asked, report)
        if setup.adopts is not None:
            check_adoption(setup, setup.adopts, asked[:2], report)
        else:
            suggest_adoption(setup, storage, asked[:2], report)
        if with_probe:
            ensure_probe_topic(asked.target, setup.config.state_topic_replication_factor)
            capabilities = probe(asked.target)
            report.guarantee, report.missing_capabilities = (
                capabilities.guarantee,
                capabilities.missing,
            )
    except TwinlogError as error:
        report.problems.append(Problem.of(error))
    return report


def _shared_topics(
    reports: Mapping[FlowSetup, FlowReport],
    clients: Mapping[ClusterSettings, ClusterClient],
    cluster_reports: Mapping[ClusterSettings, ClusterReport],
) -> None:
    """Add notes on groups that would skip records which other flows write to the same remote
    topics. Other flows are those of this file, and all that have begun to copy to these topics.
    """
    writers: dict[tuple[str, str], set[str]] = {}
    for setup, report in reports.items():
        for remote_topic in report.topics:
            key = cluster_reports[setup.target].cluster_id, remote_topic.remote_topic
            writers.setdefault(key, set()).add(report.flow)
    for setup, report in reports.items():
        source, target = clients[setup.source], clients[setup.target]
        remotes = {topic.topic: topic.remote_topic for topic in report.topics}
        cluster_id = cluster_reports[setup.target].cluster_id
        try:
            begun = other_flows(setup.config, target, remotes.values())
            others = {
                name: begun.get(name, frozenset()) | (writers[cluster_id, name] - {report.flow})
                for name in remotes.values()
            }
            selected = selected_offsets(setup.config, source) if any(others.values()) else None
        except TwinlogError as error:
            report.problems.append(Problem.of(error))
            continue
        offsets = {
            g: answer
            for g, answer in (selected or {}).items()
            if not isinstance(answer, TwinlogError)
        }
        report.notes += skipping_groups(setup.config, remotes, others, offsets)


def _memory(flows: Iterable[tuple[FlowSetup, FlowReport]]) -> None:
    """Report the memory that the lanes of each flow would need if a mirror ran on this machine."""
    known = [(setup.config, report) for setup, report in flows if report.topics]
    limit = memory_limit()
    cores = min(usable_cores(), lanes_in_memory([config for config, _ in known], limit))
    for config, report in known:
        report.memory = LaneMemory(
            lanes=lanes_of(config, cores, None, report.partitions),
            lane_bytes=lane_bytes(config),
            process_bytes=PROCESS_BYTES,
            transforms_bytes=transforms_bytes(config),
            limit_bytes=limit,
        )


# Reports what `mirror --adopt-mm2` would take over, and from which offsets. Suggests the option if
# a MirrorMaker 2 copied before. Only reads.


def check_adoption(
    setup: FlowSetup,
    storage: OffsetStorage,
    clients: tuple[ClusterClient, ClusterClient],
    report: FlowReport,
) -> None:
    """Add to the report what an adoption would take over, and its problems. `clients`: of source
    and target. Raises AdoptionRefused if there is no MirrorMaker 2 with this storage.
    """
    source, target = clients
    remote = {topic.topic: topic.remote_topic for topic in report.topics}
    at_source = source.metadata(sorted(remote)).topics if remote else {}
    at_target = target.metadata(sorted({*remote.values()})).topics if remote else {}
    plans = [
        plan
        for name, remote_name in remote.items()
        for plan in _plans(setup.config, at_source[name], at_target[remote_name])
    ]
    maps = read_maps(target, setup.config.flow, after=NO_ENDS)
    adopter = Adopter(config=setup.config, storage=storage, source=source, target=target)
    adoption = _survey(adopter, plans, maps, report)
    taken = {str(partition.plan.target) for partition in adoption.partitions}
    report.problems = [
        problem
        for problem in report.problems
        if problem.code != "FOREIGN_DATA" or problem.partition not in taken
    ]
    report.problems += [Problem.of(problem) for problem in adoption.refused.values()]
    report.changes += _changes(adoption.partitions)
    report.notes += [line for partition in adoption.partitions for line in partition.lines()]


def _survey(
    adopter: Adopter, plans: list[PartitionPlan], maps: Maps, report: FlowReport
) -> Adoption:
    """Return what would be adopted. If MirrorMaker 2 still runs, this is reported as a problem."""
    try:
        return adopter.survey(plans, maps)
    except AdoptionRefused as error:
        if error.code != "MM2_RUNNING":
            raise
        report.problems.append(Problem.of(error))
    return replace(adopter, permits_running=True).survey(plans, maps)


def suggest_adoption(
    setup: FlowSetup,
    storage: OffsetStorage,
    clients: tuple[ClusterClient, ClusterClient],
    report: FlowReport,
) -> None:
    """Add a note if the target has records that a MirrorMaker 2 may have copied. Without an
    adoption, these records would look like foreign records, or be copied again. `clients`: of
    source and target.
    """
    source, target = clients
    names = foreign_topics_of(report, is_identity=setup.is_identity)
    if not names:
        return
    left = [(target, storage.topic)]
    syncs = setup.config.offset_syncs
    # under the identity policy this may be the flow's own syncs topic, not MirrorMaker 2's
    if syncs is not None and not setup.is_identity:
        name = offset_syncs_topic(setup.config, syncs)
        left.append((target if syncs.on_target else source, name))
    used = [
        f"{name} on {client.alias}"
        for client, name in left
        if not client.metadata([name]).topics[name].error
    ]
    if used:
        report.notes.append(suggestion(used, names))


def foreign_topics_of(report: FlowReport, *, is_identity: bool) -> list[str]:
    """Return the source topics whose remote topics have, or might have, records of other
    writers.
    """
    if is_identity:
        known = (Plan.EXISTS, Plan.GROW)
        return [topic.topic for topic in report.topics if topic.plan in known and topic.begins]
    return sorted(
        {
            problem.topic
            for problem in report.problems
            if problem.code == "FOREIGN_DATA" and problem.topic
        }
    )


def suggestion(used: Sequence[str], names: Sequence[str]) -> str:
    """Return the note that suggests --adopt-mm2. `used`: internal topics that a MirrorMaker 2 may
    have created. `names`: source topics that it may have copied.
    """
    return (
        f"{' and '.join(used)} may belong to a MirrorMaker 2. If it copied {first_few(names)}, "
        "take over its work: `twinlog check FILE --adopt-mm2` shows from which offsets; then stop "
        "MirrorMaker 2, and start `twinlog mirror FILE --adopt-mm2`"
    )


def _plans(
    flow: FlowConfig, at_source: TopicMetadata, at_target: TopicMetadata
) -> Iterator[PartitionPlan]:
    """Yield the plans of the partitions that both topics have."""
    if at_source.error or at_target.error:
        return
    count = len(at_target.partitions)
    targets = count if flow.places_by_key(len(at_source.partitions), count) else 0
    for partition in range(min(len(at_source.partitions), len(at_target.partitions))):
        yield PartitionPlan(
            source=TopicPartition(at_source.name, partition),
            target=TopicPartition(at_target.name, partition),
            source_topic_id=at_source.topic_id,
            target_topic_id=at_target.topic_id,
            limit_bytes=0,
            targets=targets,
        )


def _changes(adopted: Iterable[AdoptedPartition]) -> Iterator[str]:
    by_topic: dict[str, list[str]] = {}
    for partition in adopted:
        source = partition.plan.source
        by_topic.setdefault(source.topic, []).append(f"{source.partition} at {partition.upstream}")
    for topic, offsets in by_topic.items():
        yield f"{topic} is taken over from MirrorMaker 2, by partition: {', '.join(offsets)}"
