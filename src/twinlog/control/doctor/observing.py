"""Observes a flow for a few seconds, without writing anything. It reads the reports of the flow's
process, from this host or from the process's row on the target, and queries both clusters.

The report of a process of this host is read twice in order to compute rates. The clusters are
queried in between.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from twinlog.cluster.client import REFUSED_FOR_S, ClusterClient
from twinlog.cluster.net.metadata import ClusterMetadata
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.cluster_info import round_trips_ms
from twinlog.cluster.topics.configs import describe_topic_configs
from twinlog.cluster.topics.quotas import CONSUMER, PRODUCER, REQUESTS, Quota, client_quotas
from twinlog.codes import FlowState
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.control.check.offline_status import offline_status
from twinlog.control.doctor.findings import ClusterView, Limit, Observation
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.watch.snapshot import FlowStatus, PartitionStatus
from twinlog.control.watch.status_file import RunningMirror, running_mirrors
from twinlog.errors import TwinlogError, Unauthorized, Unsupported
from twinlog.mirror.state.intents import FlowIntents, Intent, IntentKind
from twinlog.mirror.state.published import published_status
from twinlog.model import TopicPartition
from twinlog.survey.state_reader import rows_since, state_rows_if_any

GIVES_UP_S: Final = 20.0
NEXT_REPORT_WITHIN_S: Final = 3.0
"""Seconds to wait for the next report. A process writes one every second."""

REPORTED_FOR_MS: Final = 60_000
MIN_ISR: Final = "min.insync.replicas"
LIMIT_KEY: Final = "twinlog.max.bytes.per.second"
MOST_TOPICS: Final = 200
"""Maximum number of topics with a lag whose configs are checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReport:
    """The last report on a flow by a process of this host."""

    snapshot: FlowStatus
    written_ms: int
    late_ms: int
    """Milliseconds by which the process's next report is overdue."""


def observe(config: MirrorConfig, file: Path) -> Iterator[Observation]:
    """Yield an observation of each flow. If a cluster is unreachable, the observation says so."""
    for flow in config.flows:
        yield _Observer(config, flow, file).observation()


class _Observer:
    """Collects the data of one flow."""

    def __init__(self, config: MirrorConfig, flow: FlowConfig, file: Path) -> None:
        self._config = config
        self._flow = flow
        self._file = file
        self._setup: FlowSetup = flow_setup(flow)
        self._notes: list[str] = []

    def observation(self) -> Observation:
        first = process_report(running_mirrors(self._file), self._setup.name)
        if first is not None:
            snapshot = first.snapshot
        else:  # use the report in the process's row on the target, or only the clusters' state
            alone = replace(self._config, flows=(self._flow,))
            snapshot = offline_status(alone, GIVES_UP_S)[0].status
        parts = snapshot.partitions
        own = [TopicPartition(part.topic, part.partition) for part in parts]
        target_partitions = [
            TopicPartition(p.target_topic, p.partition) for p in parts if p.target_topic
        ]
        source = self._side(self._setup.source, own, (CONSUMER, REQUESTS))
        target = self._side(self._setup.target, target_partitions, (PRODUCER, REQUESTS))
        intents = FlowIntents() if target.problem else self._intents()
        seen = Observation(
            snapshot=snapshot,
            file=str(self._file),
            source=source,
            target=target,
            pause=intents.paused(),
            limit=self._limit(intents.get(IntentKind.LIMIT)),
            tuning=self._flow.tuning,
            tasks_max=self._flow.lanes.tasks_max,
            why_decoded={} if source.problem else self._decoding_reasons(parts),
            notes=tuple(self._notes),
        )
        if first is not None:
            return self._with_rates(seen, first)
        rate = self._reported_rate() if snapshot.where else None
        return replace(seen, reported_rate=rate, notes=tuple(self._notes))

    def _reported_rate(self) -> float | None:
        """Return the flow's bytes per second by its leader's latest rows, or None if unknown."""
        try:
            with _prompt_client(self._setup.target) as client:
                rows = rows_since(client, int(time.time() * 1000) - REPORTED_FOR_MS)
            return reported_rate(self._setup.name, rows or [])
        except TwinlogError as error:
            self._notes.append(f"the copy rate is unknown: {error}")
            return None

    def _with_rates(self, observation: Observation, first: ProcessReport) -> Observation:
        """Add the rates since the report `first`. If no newer report arrives, add how long it is
        overdue.
        """
        deadline = time.monotonic() + NEXT_REPORT_WITHIN_S
        last = first
        while time.monotonic() < deadline:
            time.sleep(0.2)
            last = process_report(running_mirrors(self._file), self._setup.name) or last
        cores = os.cpu_count()
        seconds = (last.written_ms - first.written_ms) / 1000
        if seconds <= 0:
            return replace(observation, cores=cores, silent_ms=last.late_ms)
        before, now = (
            {TopicPartition(p.topic, p.partition): p.bytes for p in report.snapshot.partitions}
            for report in (first, last)
        )
        rates = {tp: max(0, count - before.get(tp, count)) / seconds for tp, count in now.items()}
        return replace(observation, snapshot=last.snapshot, cores=cores, rates=rates)

    # -- the clusters

    def _side(
        self, settings: ClusterSettings, tps: Iterable[TopicPartition], keys: tuple[str, ...]
    ) -> ClusterView:
        try:
            with _prompt_client(settings) as client:
                wanted = sorted(set(tps))
                topics = sorted({tp.topic for tp in wanted})
                seen = client.metadata(topics)
                return ClusterView(
                    alias=settings.alias,
                    round_trips_ms=round_trips_ms(client),
                    leaderless=tuple(leaderless(seen, wanted)),
                    under_min_isr=tuple(under_min_isr(client, seen, wanted)),
                    quotas=self._quotas(client, settings.client_id, keys),
                )
        except TwinlogError as error:
            return ClusterView(alias=settings.alias, problem=str(error))

    def _quotas(
        self, client: ClusterClient, client_id: str, keys: tuple[str, ...]
    ) -> tuple[Quota, ...] | None:
        try:
            quotas = client_quotas(client)
        except (Unauthorized, Unsupported) as error:
            self._notes.append(f"quotas are unknown: {error}")
            return None
        return tuple(
            quota for quota in quotas if quota.key in keys and quota.may_apply_to(client_id)
        )

    def _limit(self, intent: Intent | None) -> Limit | None:
        """Return the limit set by a user, or else the configured limit, or None without a limit."""
        if intent is not None and intent.bytes_per_second is not None:
            return Limit(bytes_per_second=intent.bytes_per_second, who=intent.whose, is_key=False)
        limit = self._flow.lanes.max_bytes_per_second
        return None if limit is None else Limit(bytes_per_second=limit, who=LIMIT_KEY, is_key=True)

    def _intents(self) -> FlowIntents:
        try:
            with _prompt_client(self._setup.target) as client:
                return state_rows_if_any(client).intents(self._setup.name)
        except TwinlogError as error:
            self._notes.append(f"unknown whether the flow is paused or limited: {error}")
            return FlowIntents()

    def _decoding_reasons(self, partitions: Iterable[PartitionStatus]) -> dict[str, str]:
        topics = list(dict.fromkeys(part.topic for part in partitions if part.lag))[:MOST_TOPICS]
        if not topics:
            return {}
        try:
            with _prompt_client(self._setup.source) as client:
                answers = describe_topic_configs(client, topics)
        except TwinlogError as error:
            self._notes.append(f"configs of the source's topics are unknown: {error}")
            return {}
        out = {}
        for topic, configs in answers.items():
            if isinstance(configs, TwinlogError):
                continue
            values = {entry.name: entry.value or "" for entry in configs}
            if values.get("message.timestamp.type") == "LogAppendTime":
                out[topic] = "message.timestamp.type = LogAppendTime"
            elif "compact" in values.get("cleanup.policy", ""):
                out[topic] = "cleanup.policy = compact leaves gaps"
        return out


def _prompt_client(settings: ClusterSettings) -> ClusterClient:
    return ClusterClient(settings, api_timeout_s=GIVES_UP_S, refused_s=REFUSED_FOR_S)


def reported_rate(flow: str, rows: Sequence[tuple[bytes | None, bytes | None]]) -> float | None:
    """Return the newest leader's bytes per second between its first and last status row, or None if
    it has fewer than two. `rows`: the status topic's rows in log order.
    """
    statuses = [
        published for row in rows if (published := published_status(flow, [row])) is not None
    ]
    last = max(statuses, key=lambda status: (status.rank, status.at_ms), default=None)
    if last is None:
        return None
    first = next(status for status in statuses if status.generation == last.generation)
    seconds = (last.at_ms - first.at_ms) / 1000
    return max(0, last.bytes - first.bytes) / seconds if seconds > 0 else None


def process_report(mirrors: Iterable[RunningMirror], flow: str) -> ProcessReport | None:
    """Return the report on a flow by the process of this host that leads the flow. If no process
    leads it, return the report of a process that is not a standby, or None if there is none.
    """
    reports = [
        ProcessReport(snapshot=value, written_ms=mirror.written_ms, late_ms=mirror.late_ms)
        for mirror in mirrors
        for value in mirror.flows
        if value.flow == flow and value.state is not FlowState.STANDBY
    ]
    return max(reports, key=lambda report: report.snapshot.generation is not None, default=None)


def leaderless(
    metadata: ClusterMetadata, tps: Iterable[TopicPartition]
) -> Iterator[TopicPartition]:
    """Yield the partitions without a leader."""
    for tp in tps:
        partition = metadata.partition(tp)
        if partition is not None and partition.leader < 0:
            yield tp


def under_min_isr(
    client: ClusterClient, metadata: ClusterMetadata, tps: Iterable[TopicPartition]
) -> Iterator[TopicPartition]:
    """Yield partitions whose leader rejects acks=all, because too few replicas are in sync.
    min.insync.replicas is queried only for topics with a replica that is out of sync.
    """
    short: dict[str, list[tuple[TopicPartition, int]]] = {}
    for tp in tps:
        partition = metadata.partition(tp)
        if (
            partition is not None
            and partition.leader >= 0
            and len(partition.isr) < len(partition.replicas)
        ):
            short.setdefault(tp.topic, []).append((tp, len(partition.isr)))
    configs = describe_topic_configs(client, short)
    for topic, replicas in short.items():
        answer = configs[topic]
        if isinstance(answer, TwinlogError):
            continue
        least = next((int(entry.value or 1) for entry in answer if entry.name == MIN_ISR), 1)
        yield from (tp for tp, in_sync in replicas if in_sync < least)
