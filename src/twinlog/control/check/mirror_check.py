"""Shows what `twinlog mirror` would do with a configuration, and what would prevent it. Only reads.

Rights that metadata shows (authorized operations, KIP-430) are read there. What only the brokers
can decide (the creation of a topic: rights, policies, replication factor) is sent as a request with
`validate_only`. Every cluster is queried with the credentials of the client that will use it,
because those of the admin client and of the lanes may differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Final

from twinlog.cluster.certificates import Ending, certificate_ends, urgent
from twinlog.cluster.client import REFUSED_FOR_S, ClusterClient
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.offset_storage import OffsetStorage, offset_storage
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.control.check.adoption import check_adoption, suggest_adoption
from twinlog.control.check.flows import Clients, check_flow
from twinlog.control.check.report import (
    CheckReport,
    ClusterReport,
    FlowReport,
    LaneMemory,
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
)
from twinlog.control.groups.group_rights import selected_offsets
from twinlog.control.groups.shared_topics import other_flows, skipping_groups
from twinlog.errors import TwinlogError
from twinlog.machine import memory_limit, usable_cores
from twinlog.survey.capabilities import ensure_probe_topic, probe

GIVES_UP_S: Final = 60.0
SAID_AFTER_S: Final = 3.0
"""Delay after which a cluster that has not responded is reported."""


def check(
    config: MirrorConfig,
    *,
    with_probe: bool = False,
    gives_up_s: float = GIVES_UP_S,
    adopts: Callable[[FlowConfig], OffsetStorage | None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> CheckReport:
    """Check everything. Raises ConfigError for wrong security settings.

    `adopts` returns where the MirrorMaker 2 that would be taken over stores a flow's offsets. `say`
    is called with the clusters that are waited for.
    """
    neighbours = neighbours_of(config.flows)
    setups = [flow_setup(flow, adopts(flow), neighbours) for flow in config.flows]
    with ExitStack() as closing:
        clients = _clients(setups, closing, gives_up_s)
        seen = _connect(clients.values(), gives_up_s, say)
        neighbours.learn({one.alias: one.cluster_id for one in seen.values()})
        flows = [
            _flow(setup, offset_storage(config, setup.config), clients, seen, with_probe)
            for setup in setups
        ]
        _shared_topics(
            {s: f for s, f in zip(setups, flows, strict=True) if f.topics}, clients, seen
        )
    _memory(zip(setups, flows, strict=True))
    ending, over = _certificates(clients)
    return CheckReport(
        file=config.file,
        warnings=(*(str(warning) for warning in config.warnings), *ending),
        clusters=_by_alias(seen.values()),
        flows=tuple(flows),
        certificates=over,
    )


def _certificates(
    clusters: Iterable[ClusterSettings],
) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
    """Return warnings about certificates that expire soon, and problems of expired ones."""
    now = time.time()
    found = urgent(certificate_ends(clusters), now)
    return (
        tuple(
            f"{end.line(now)} [CERTIFICATE_ENDS_SOON]"
            for ending, end in found
            if ending is Ending.SOON
        ),
        tuple(
            Problem(code="CERTIFICATE_EXPIRED", message=end.line(now))
            for ending, end in found
            if ending is Ending.OVER
        ),
    )


def _clients(
    setups: Iterable[FlowSetup], closing: ExitStack, gives_up_s: float
) -> dict[ClusterSettings, ClusterClient]:
    distinct = dict.fromkeys(one for setup in setups for one in setup.clusters())
    return {
        settings: closing.enter_context(
            ClusterClient(settings, api_timeout_s=gives_up_s, refused_s=REFUSED_FOR_S)
        )
        for settings in distinct
    }


def _connect(
    clients: Iterable[ClusterClient], gives_up_s: float, say: Callable[[str], None]
) -> dict[ClusterSettings, ClusterReport]:
    """Connect to all in parallel, so that unreachable clusters time out together."""
    waiting = list(clients)
    with ThreadPoolExecutor(max(len(waiting), 1)) as pool:
        reports = {pool.submit(_connect_one, client): client.settings for client in waiting}
        late = [reports[one] for one in wait(reports, SAID_AFTER_S).not_done]
        for where in sorted({f"{one.alias} at {one.addresses}" for one in late}):
            say(f"no answer yet from cluster {where}; giving up after {gives_up_s:.0f} s")
        return {settings: report.result() for report, settings in reports.items()}


def _connect_one(client: ClusterClient) -> ClusterReport:
    alias, addresses = client.alias, client.settings.addresses
    try:
        metadata = client.metadata([])
    except TwinlogError as error:
        return ClusterReport(alias=alias, addresses=addresses, problem=Problem.of(error))
    return ClusterReport(
        alias=alias,
        addresses=addresses,
        cluster_id=metadata.cluster_id or "",
        brokers=len(metadata.brokers),
    )


def _by_alias(seen: Iterable[ClusterReport]) -> tuple[ClusterReport, ...]:
    """Return one report per cluster, or several if its clients have different problems."""
    reports = list(dict.fromkeys(seen))
    failed = {report.alias for report in reports if report.problem is not None}
    return tuple(r for r in reports if r.problem is not None or r.alias not in failed)


def _flow(
    setup: FlowSetup,
    storage: OffsetStorage,
    clients: Mapping[ClusterSettings, ClusterClient],
    seen: Mapping[ClusterSettings, ClusterReport],
    with_probe: bool,
) -> FlowReport:
    report = FlowReport(flow=setup.name)
    silent = sorted({seen[one].alias for one in setup.clusters() if seen[one].problem is not None})
    if silent:
        report.notes.append(f"not checked: {', '.join(silent)} cannot be reached")
        return report
    asked = Clients(*(clients[one] for one in setup.clusters()))
    try:
        check_flow(setup, asked, report)
        if setup.adopts is not None:
            check_adoption(setup, setup.adopts, asked[:2], report)
        else:
            suggest_adoption(setup, storage, asked[:2], report)
        if with_probe:
            ensure_probe_topic(asked.target, setup.config.state_topic_replication_factor)
            found = probe(asked.target)
            report.guarantee, report.missing_capabilities = found.guarantee, found.missing
    except TwinlogError as error:
        report.problems.append(Problem.of(error))
    return report


def _shared_topics(
    reports: Mapping[FlowSetup, FlowReport],
    clients: Mapping[ClusterSettings, ClusterClient],
    seen: Mapping[ClusterSettings, ClusterReport],
) -> None:
    """Add notes on groups that would skip records of other flows with the same remote topics. The
    other flows are those of this file, and those that have begun to copy.
    """
    writers: dict[tuple[str, str], set[str]] = {}
    for setup, report in reports.items():
        for one in report.topics:
            key = seen[setup.target].cluster_id, one.remote_topic
            writers.setdefault(key, set()).add(report.flow)
    for setup, report in reports.items():
        source, target = clients[setup.source], clients[setup.target]
        remotes = {one.topic: one.remote_topic for one in report.topics}
        cluster_id = seen[setup.target].cluster_id
        try:
            begun = other_flows(setup.config, target, remotes.values())
            others = {
                name: begun.get(name, frozenset()) | (writers[cluster_id, name] - {report.flow})
                for name in remotes.values()
            }
            found = selected_offsets(setup.config, source) if any(others.values()) else None
        except TwinlogError as error:
            report.problems.append(Problem.of(error))
            continue
        offsets = {g: one for g, one in (found or {}).items() if not isinstance(one, TwinlogError)}
        report.notes += skipping_groups(setup.config, remotes, others, offsets)


def _memory(flows: Iterable[tuple[FlowSetup, FlowReport]]) -> None:
    """Note the memory that the lanes of each flow would need if a mirror ran on this machine."""
    known = [(setup.config, report) for setup, report in flows if report.topics]
    limit = memory_limit()
    cores = min(usable_cores(), lanes_in_memory([config for config, _ in known], limit))
    for config, report in known:
        report.memory = LaneMemory(
            lanes=lanes_of(config, cores, None, report.partitions),
            lane_bytes=lane_bytes(config),
            process_bytes=PROCESS_BYTES,
            limit_bytes=limit,
        )
