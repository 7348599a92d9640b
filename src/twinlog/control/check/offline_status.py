"""Reads the state of a flow from its two clusters only, without a mirror on this host.

`survey.replica` finds how far each partition is copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from dataclasses import replace as configured
from functools import partial
from typing import Final, TypeAlias

from msgspec import structs
from msgspec.structs import replace

from twinlog.cluster.client import REFUSED_FOR_S, ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import fetch_offsets
from twinlog.cluster.logs.raw_log import fetch_records
from twinlog.cluster.logs.start_offsets import Begin, begin_offsets
from twinlog.cluster.net.metadata import ClusterMetadata, TopicMetadata
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.codes import FlowState, PartitionState, Trait, has
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.control.check.reported_status import (
    LastRun,
    current_set_up,
    current_status,
    last_run,
    status_rows,
)
from twinlog.control.duties.rounds import LedFlow, PartitionView
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.snapshots import promoted_snapshots
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.lanes.wanted import kept_text
from twinlog.control.risk.loss import loss_of
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.control.watch.verified import Verified
from twinlog.errors import CorruptData, PartitionError, TwinlogError
from twinlog.mirror.map.translation import Reach
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.generations import FlowHistory
from twinlog.mirror.state.intents import FlowIntents, Intent, IntentKind, promoted
from twinlog.mirror.state.published import (
    PublishedStatus,
    Unusual,
    failed_set_up,
    published_status,
)
from twinlog.model import StartAt, StartKind, TopicPartition
from twinlog.quantities import plural
from twinlog.survey.cluster_state import changed_error
from twinlog.survey.discovery import discover, mirrored_topics
from twinlog.survey.ends import Ends, LogState, Want, read_ends
from twinlog.survey.picture import Picture, read_flow, read_maps
from twinlog.survey.replica import Certainty, Replica, pair_of_target
from twinlog.survey.state_reader import state_rows_if_any
from twinlog.threads import THREADS
from twinlog.wire.record_batch import read_headers

# Where each topic's copy would begin, for `check`, from the source's current log.

PARTITIONS_SHOWN: Final = 3

Starts: TypeAlias = dict[TopicPartition, StartAt]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBegin:
    """Where a topic's copy begins, as text, and as offsets of partitions that were never copied."""

    text: str
    offsets: Mapping[int, int]


def topic_begins(
    flow: FlowConfig,
    source: ClusterClient,
    topics: Iterable[TopicMetadata],
    has_position: Callable[[TopicPartition], bool],
    on_problem: Callable[[TwinlogError, str], None],
) -> dict[str, TopicBegin]:
    """Return where the copy of each topic would begin. Partitions with `has_position` resume."""
    partitions = {topic.name: topic.tps for topic in topics}
    new = {tp for tps in partitions.values() for tp in tps if not has_position(tp)}
    of_group, starts = _starts_of(flow, source, new)
    begins = begin_offsets(source, starts, isolation=flow.isolation_level)
    ends = read_ends(source, [tp for tp in new if flow.start.at(tp).kind is StartKind.OFFSET])
    out = {}
    for name, tps in partitions.items():
        offsets: dict[int, int] = {}
        for tp in tps:
            begin, end = begins.get(tp), ends[tp].end if tp in ends else None
            if isinstance(begin, TwinlogError):
                on_problem(begin, name)
            elif begin is not None:
                offsets[tp.partition] = begin
                if end is not None and tp not in of_group and begin > end:
                    text = (
                        f"{tp}: twinlog.start begins at offset {begin}, but the log ends at {end}: "
                        "correct the offset, or use latest"
                    )
                    on_problem(PartitionError(text, code="START_BEYOND_END"), name)
        grouped = any(tp in of_group for tp in tps)
        configured = (
            f"group {flow.source_group.group_id}" if grouped else flow.start.topic(name).text
        )
        kinds = {starts[tp].kind for tp in tps if tp in new}
        out[name] = TopicBegin(
            text=_begin_text(configured, kinds, offsets, len(tps)), offsets=offsets
        )
    return out


def _starts_of(
    flow: FlowConfig, source: ClusterClient, tps: Collection[TopicPartition]
) -> tuple[Starts, Starts]:
    """Return two mappings by partition. The first has the start offsets that the flow's group has
    committed, for any partition. The second has the starts of `tps`, by the group or the
    configuration.
    """
    of_group: Starts = {}
    group = flow.source_group.group_id
    if group and tps:
        committed = fetch_offsets(Coordinators(source), [group])[group]
        # ignore an error: `mirror` will refuse to start, and `check` reports the missing permission
        if not isinstance(committed, TwinlogError):
            of_group = {
                tp: StartAt(StartKind.OFFSET, position.offset) for tp, position in committed.items()
            }
    return of_group, {tp: of_group.get(tp, flow.start.at(tp)) for tp in tps}


def _begin_text(
    configured: str, kinds: set[StartKind], offsets: Mapping[int, int], partitions: int
) -> str:
    if not offsets:
        return "at the copied position" if partitions else configured
    if kinds - {StartKind.EARLIEST, StartKind.LATEST}:
        pairs = [f"{partition}={offset}" for partition, offset in sorted(offsets.items())]
        more = ["..."] if len(pairs) > PARTITIONS_SHOWN else []
        shown = ";".join(pairs[:PARTITIONS_SHOWN] + more)
        configured = configured if configured == shown else f"{configured} ({shown})"
    stand = partitions - len(offsets)
    return (
        f"{configured}, {plural(stand, 'partition')} at the copied position"
        if stand
        else configured
    )


# The clusters of several flows. Each is queried once to check whether it responds.

REPORTED_AFTER_S: Final = 3.0
"""Seconds after which a cluster that has not responded is reported."""


class QueriedClusters:
    """Clients and problems by cluster. An unreachable cluster is waited for only once."""

    def __init__(self, closing: ExitStack, gives_up_s: float) -> None:
        self._closing, self._gives_up_s = closing, gives_up_s
        self._answers: dict[ClusterSettings, ClusterMetadata | TwinlogError] = {}
        self.clients: dict[ClusterSettings, ClusterClient] = {}

    def client(self, settings: ClusterSettings) -> ClusterClient:
        if settings not in self.clients:
            self.clients[settings] = self._closing.enter_context(
                ClusterClient(settings, api_timeout_s=self._gives_up_s, refused_s=REFUSED_FOR_S)
            )
        return self.clients[settings]

    def answer(self, settings: ClusterSettings) -> ClusterMetadata | TwinlogError:
        """Return the cluster's metadata without topics, or why it does not respond."""
        return self._answers[settings]

    def problem(self, settings: ClusterSettings) -> TwinlogError | None:
        answer = self._answers[settings]
        return answer if isinstance(answer, TwinlogError) else None

    def query(
        self, clusters: Iterable[ClusterSettings], say: Callable[[str], None] = lambda _: None
    ) -> None:
        """Check in parallel which clusters respond, so that unreachable clusters time out together.
        `say` is called with a line on each cluster that has not responded yet.
        """
        new = [
            self.client(settings)
            for settings in dict.fromkeys(clusters)
            if settings not in self._answers
        ]
        asked = {
            THREADS.submit("twinlog-ask", partial(_answer, client)): client.settings
            for client in new
        }
        late = [asked[question] for question in wait(asked, REPORTED_AFTER_S).not_done]
        for where in sorted({f"{settings.alias} at {settings.addresses}" for settings in late}):
            say(f"no response yet from cluster {where}; giving up after {self._gives_up_s:.0f} s")
        self._answers |= {settings: question.result() for question, settings in asked.items()}


def _answer(client: ClusterClient) -> ClusterMetadata | TwinlogError:
    try:
        return client.metadata([])
    except TwinlogError as error:
        return error


GIVES_UP_S = 60.0
MOST_MARKERS = 20
MARKER_BYTES = 16_384


def offline_status(
    config: MirrorConfig, gives_up_s: float | None = None, *, without_source: bool = False
) -> list[FlowSnapshot]:
    """Return the state of every flow. A flow whose clusters cannot be queried is UNKNOWN, with the
    reason.

    With `without_source`, if only the source cannot be queried, the state of the run is read from
    the target. Then `source_problem` is set, and only promoted topics have partitions.
    """
    setups = [flow_setup(flow) for flow in config.flows]
    with ExitStack() as closing:
        clusters = QueriedClusters(closing, GIVES_UP_S if gives_up_s is None else gives_up_s)
        clusters.query(setup.target for setup in setups)
        opened = [_open(setup, clusters) for setup in setups]
        clusters.query(flow.setup.source for flow in opened if isinstance(flow, _OfflineFlow))
        return [
            flow.flow(clusters.problem(flow.setup.source), without_source=without_source)
            if isinstance(flow, _OfflineFlow)
            else flow
            for flow in opened
        ]


def idle_flow_interface(
    setup: FlowSetup,
    source: ClusterClient,
    target: ClusterClient,
    log_once: Callable[[str], None],
) -> LedFlow:
    """Return the interface of a flow for duties, read from the two clusters only. It is for
    commands that report what duties would do: it does not lead, so nothing is written through it. A
    mirror may run at the same time.

    Raises TwinlogError if a cluster cannot be queried.
    """
    return _OfflineFlow(setup, source, target).led_interface(log_once)


def _open(setup: FlowSetup, clusters: QueriedClusters) -> _OfflineFlow | FlowSnapshot:
    problem = clusters.problem(setup.target)
    if problem is not None:
        return _unknown_snapshot(setup, problem)
    try:
        return _OfflineFlow(setup, clusters.client(setup.source), clusters.client(setup.target))
    except TwinlogError as error:
        return _unknown_snapshot(setup, error)


def _unknown_snapshot(setup: FlowSetup, error: TwinlogError) -> FlowSnapshot:
    reason = str(error.without_flow())
    unknown = _snapshot(setup.name, FlowState.UNKNOWN, reason, None, ())
    return replace(unknown, code=error.code, error=error.without_flow())


def _snapshot(
    name: str,
    state: FlowState,
    reason: str,
    history: FlowHistory | None,
    partitions: tuple[PartitionSnapshot, ...],
) -> FlowSnapshot:
    latest = None if history is None else history.latest
    loss = loss_of(partitions)
    return FlowSnapshot(
        flow=name,
        state=state,
        reason=reason,
        generation=None if latest is None else latest.generation,
        since_ms=0 if latest is None else latest.started_ms,
        partitions=partitions,
        loss_records=loss.records,
        loss_ms=loss.ms,
        loss_unknown=loss.unknown,
    )


class _OfflineFlow:
    """One flow and its two clusters. The source is not queried before `flow` is called."""

    def __init__(self, setup: FlowSetup, source: ClusterClient, target: ClusterClient) -> None:
        self.setup = setup
        self._source = source
        self._target = target
        self._target_metadata = target.metadata(None)
        self._history, self._intents = self._state()
        self._flow = configured(setup.config, released=self._intents.unmirrored_topics)

    def flow(self, problem: TwinlogError | None, *, without_source: bool) -> FlowSnapshot:
        """Return the flow's state. `problem` is why the source cannot be queried."""
        if self._intents.promotion is not None:
            return self._fenced(self._intents.promotion)
        try:
            if problem is None:
                return self._snapshot()
            if without_source:
                snapshot = self._run(self._promoted())
                return replace(snapshot, code=problem.code, source_problem=str(problem))
        except TwinlogError as error:
            problem = error
        snapshot = _unknown_snapshot(self.setup, problem)
        with suppress(TwinlogError):
            _, status, _ = self._last_run()
            # why the flow cannot be set up is more useful than why it cannot be checked
            if status is not None and not status.is_of_leader:
                return _with_setup_problem(snapshot, status)
        return snapshot

    def _fenced(self, promotion: Intent) -> FlowSnapshot:
        """Return the state of a promoted flow. Its source may be gone, so it is not queried."""
        reason = promoted(self.setup.name, promotion)
        history = self._history
        if history is not None and history.latest is not None and not history.is_closed:
            reason = f"{reason}; generation {history.latest.generation} was not closed"
        return _snapshot(self.setup.name, FlowState.FENCED, reason, self._history, ())

    def _snapshot(self) -> FlowSnapshot:
        last = None if self._history is None else self._history.latest
        source_id = self._source.metadata([]).cluster_id or ""
        if changed := changed_error(self._flow, last, source_id=source_id):
            return replace(_unknown_snapshot(self.setup, changed), state=FlowState.FAILED)
        return self._run(self._read()[0])

    def led_interface(self, log_once: Callable[[str], None]) -> LedFlow:
        """Return the interface of the flow for duties (`idle_flow_interface`)."""
        parts, replicas, ends = self._read()
        snapshot = self._run(parts)
        by_source = {
            TopicPartition(part.topic, part.partition): part for part in snapshot.partitions
        }
        views = tuple(_view(replica, by_source.get(replica.pair.source)) for replica in replicas)
        return LedFlow(
            config=self._flow,
            policy=self.setup.policy,
            generation=-1 if snapshot.generation is None else snapshot.generation,
            source=self.setup.source,
            target=self.setup.target,
            partitions=lambda: views,
            read_map=lambda: read_maps(self._target, self._flow.flow, after=ends),
            snapshot=lambda: snapshot,
            intents=lambda: self._intents,
            log_once=log_once,
        )

    def _read(self) -> tuple[list[PartitionSnapshot], list[Replica], Ends]:
        """Return (partitions, replicas, ends). `replicas` has the positions of the partitions whose
        remote topic exists. `ends` has the log ends of the target.
        """
        discovery = discover(
            self._flow, self.setup.policy, self._source, self._target, create=False
        )
        new = self._new_partitions(set(discovery.missing))
        sources = [*(plan.source for plan in discovery.plans), *new]
        picture = read_flow(
            self._target,
            [plan.target for plan in discovery.plans],
            Want.TIMES,
            after=read_ends(self._source, sources, isolation=self._flow.isolation_level),
            is_shared=self.setup.is_identity,
            new_owners=lambda: self._state()[1].new_owners,
            maps=self._flow.flow,
            metadata=self._target_metadata,
        )
        now_ms = int(time.time() * 1000)
        replicas = [picture.replica(plan, plan.targets) for plan in discovery.plans]
        never_copied = [
            replica.pair.source for replica in replicas if replica.copied.ordinal is None
        ]
        _, starts = _starts_of(self._flow, self._source, [*never_copied, *new])
        begins = begin_offsets(self._source, starts, isolation=self._flow.isolation_level)
        parts = [
            self._partition(replica, begins.get(replica.pair.source), now_ms)
            for replica in replicas
        ]
        parts += [
            _never_copied(tp, name, begins[tp], picture.source[tp]) for tp, name in new.items()
        ]
        parts += self._kept(picture)
        parts += self._promoted()
        parts.sort(key=lambda part: (part.topic, part.partition))
        return parts, replicas, picture.target

    def _run(self, partitions: Iterable[PartitionSnapshot]) -> FlowSnapshot:
        """Return a snapshot of these partitions and the process that runs or last ran the flow."""
        run, status, problem = self._last_run()
        reason = "; ".join(filter(None, (self._intents.paused(), run.text, problem)))
        snapshot = _snapshot(self.setup.name, run.state, reason, self._history, tuple(partitions))
        snapshot = replace(snapshot, code=run.code)
        if status is None:
            return snapshot
        add = _with_status if status.is_of_leader else _with_setup_problem
        return add(snapshot, status)

    def _last_run(self) -> tuple[LastRun, PublishedStatus | None, str]:
        """Return (run, status, problem). `run`: how the flow last ran. `status`: the current row of
        its leader, or of a process that fails to set up the flow, or None. `problem`: the error if
        status rows are malformed, else empty.
        """
        now_ms, status, failed, problem = int(time.time() * 1000), None, None, ""
        rows = status_rows(self._target, self._target_metadata, now_ms)
        try:
            status = published_status(self.setup.name, rows or [])
            failed = failed_set_up(self.setup.name, rows or [])
        except CorruptData as error:
            problem = str(error)
        reports = bool(self._flow.status_interval_seconds) and rows is not None
        run = last_run(self._history, status, now_ms, reports=reports)
        now = current_status(status, self._history, now_ms)
        # without the state topic the leader is unknown, so a failed set-up is not shown
        if now is None and STATE_TOPIC in self._target_metadata.topics:
            now = current_set_up(failed, self._history, run, now_ms)
        return run, now, problem

    def _state(self) -> tuple[FlowHistory | None, FlowIntents]:
        rows = state_rows_if_any(self._target)
        return rows.history(self.setup.name), rows.intents(self.setup.name)

    def _new_partitions(self, missing: set[str]) -> dict[TopicPartition, str]:
        """Return the partitions of topics without a remote topic, with that topic's future name."""
        if not missing:
            return {}
        policy, alias = self.setup.policy, self._flow.source_alias
        topics = mirrored_topics(self._flow, self._source.metadata(None))
        remote = {name: policy.format_remote_topic(alias, name) for name in topics}
        new = [topic for name, topic in topics.items() if remote[name] in missing]
        return {tp: remote[topic.name] for topic in new for tp in topic.tps}

    def _kept(self, picture: Picture) -> Iterator[PartitionSnapshot]:
        """Yield the partitions of copies whose topics the source no longer lists."""
        source_topics = self._source.metadata(None).topics
        names = {topic.topic_id: name for name, topic in self._target_metadata.topics.items()}
        lost = {
            TopicPartition(names[key.target_topic_id], key.partition): key.target_topic_id
            for key, known in picture.maps.items()
            if not (
                known.topic in source_topics or known.topic in self._flow.released or key.branches
            )
            if key.target_topic_id in names
        }
        # nothing is copied to these topics any more, so the map cannot be older than these ends
        picture = picture._replace(target=read_ends(self._target, lost))
        for target, topic_id in lost.items():
            pair = pair_of_target(picture.maps, target, topic_id, {})
            if pair is None or pair.source.topic in source_topics:
                continue
            yield PartitionSnapshot(
                topic=pair.source.topic,
                partition=pair.source.partition,
                target_topic=target.topic,
                state=PartitionState.SOURCE_DELETED,
                copied=(records := picture.replica(pair, 0).copied.ordinal),
                records=records or 0,
                is_left_known=False,
                message=kept_text(target.topic),
            )

    def _promoted(self) -> Iterator[PartitionSnapshot]:
        """Yield the partitions of topics that were promoted by name."""
        remote = partial(self.setup.policy.format_remote_topic, self._flow.source_alias)
        topics = self._intents.topics(IntentKind.PROMOTE)
        target_topics = {name: self._target_metadata.topics.get(remote(name)) for name in topics}
        counts = {
            name: len(topic.partitions)
            for name, topic in target_topics.items()
            if topic is not None
        }
        return promoted_snapshots(self._intents, (), counts, remote)

    def _partition(self, replica: Replica, begin: Begin | None, now_ms: int) -> PartitionSnapshot:
        source, remote, end = replica.pair.source, replica.pair.target.topic, replica.source.end
        problem = replica.source.problem or (replica.problem if replica.key is None else None)
        if problem is not None:
            return _snapshot_of(source, remote, PartitionState.FAILED, error=problem)
        copied, upstream = replica.copied.ordinal, replica.copied.resumes_at
        if copied is None or upstream is None or end is None:
            return _never_copied(source, remote, begin, replica.source)
        lag = max(0, end - upstream)
        if 0 < lag <= MOST_MARKERS and self._are_markers(source, upstream, end):
            lag = 0
        newest_ms, lag_ms = replica.target.newest_ms or 0, None if lag else 0
        if lag and newest_ms > 0:
            lag_ms = max(0, now_ms - newest_ms)
        return _snapshot_of(
            source,
            remote,
            PartitionState.BEHIND if lag else PartitionState.AT_END,
            lag=lag,
            lag_ms=lag_ms,
            records=copied,
            upstream=upstream,
        )

    def _are_markers(self, tp: TopicPartition, upstream: int, end: int) -> bool:
        """Return True if only transaction markers are left, so that no record is left to copy."""
        answer = fetch_records(self._source, {tp: (upstream, MARKER_BYTES)})[tp]
        if isinstance(answer, TwinlogError):
            return False
        batches = [header for header, _ in read_headers(answer.records)]
        left = [header for header in batches if header.last_offset >= upstream]
        return bool(left) and all(b.is_control for b in left) and left[-1].last_offset >= end - 1


def _view(replica: Replica, partition: PartitionSnapshot | None) -> PartitionView:
    """Return the view of a partition for duties.

    If the partition has no lag, it is copied up to the source's end. Transaction markers after its
    last record need no copy, and are not in the map.
    """
    pair, end, copied = replica.pair, replica.source.end, replica.copied
    reach = None
    is_whole = partition is not None and partition.lag == 0 < partition.records
    is_exact = copied.certainty is Certainty.EXACT
    if is_whole and is_exact and end is not None and copied.downstream is not None:
        reach = Reach(end, copied.downstream)
    return PartitionView(
        source=pair.source,
        target=pair.target,
        source_topic_id=pair.source_topic_id,
        target_topic_id=pair.target_topic_id,
        reach=reach,
        is_broken=partition is not None and has(partition.code, Trait.NO_OFFSETS),
        is_keyed=isinstance(pair, PartitionPlan) and bool(pair.targets),
    )


def _with_status(snapshot: FlowSnapshot, status: PublishedStatus) -> FlowSnapshot:
    """Add to a snapshot what only the leader knows: states, problems, and the possible loss."""
    unusual = {TopicPartition(part.topic, part.partition): part for part in status.unusual}
    parts = []
    for part in snapshot.partitions:
        # a partition's loss in time is known only to the leader, whose status row does not have it
        is_unknown = bool(part.lag or status.unusual_partitions)
        problem = unusual.pop(TopicPartition(part.topic, part.partition), None)
        known = replace(part, loss_ms=None) if is_unknown else part
        parts.append(_as_reported(known, problem) if problem is not None else known)
    parts += [
        _as_reported(_snapshot_of(tp, "", PartitionState.NEW), problem)
        for tp, problem in unusual.items()
    ]
    rest = status.unusual_partitions - len(status.unusual)
    more = f"{plural(rest, 'more partition')} failed or paused: check on {status.host}"
    more = more if rest > 0 else ""
    return replace(
        _with_setup_problem(snapshot, status),
        reason="; ".join(filter(None, (status.reason, more))),
        guarantee=status.guarantee,
        generation=status.generation,
        lanes=status.lanes,
        loss_records=status.loss_records,
        loss_ms=status.loss_ms,
        loss_unknown=status.loss_unknown,
        rpo_ms=status.rpo_ms,
        rpo_excess=status.rpo_excess,
        verified=None if status.proof is None else Verified(**structs.asdict(status.proof)),
        partitions=tuple(parts),
    )


def _as_reported(partition: PartitionSnapshot, unusual: Unusual) -> PartitionSnapshot:
    return replace(
        partition, state=PartitionState(unusual.state), code=unusual.code, message=unusual.message
    )


def _with_setup_problem(snapshot: FlowSnapshot, status: PublishedStatus) -> FlowSnapshot:
    """Add to a snapshot why a process cannot set up the flow."""
    return replace(
        snapshot,
        state=FlowState(status.state),
        code=status.code,
        error=None,
        reason=status.reason,
        since_ms=status.since_ms,
        where=status.where,
        as_of_ms=status.at_ms,
    )


def _never_copied(
    tp: TopicPartition, remote: str, begin: Begin | None, log: LogState
) -> PartitionSnapshot:
    """Return a partition that was never copied. Its lag is the log from the start offset on."""
    if not isinstance(begin, int) or log.end is None:
        return _snapshot_of(tp, remote, PartitionState.NEW)
    return _snapshot_of(tp, remote, PartitionState.NEW, lag=max(0, log.end - begin))


def _snapshot_of(  # noqa: PLR0913 (fields of a partition)
    tp: TopicPartition,
    remote: str,
    state: PartitionState,
    *,
    lag: int | None = None,
    lag_ms: int | None = None,
    records: int = 0,
    upstream: int | None = None,
    error: TwinlogError | None = None,
) -> PartitionSnapshot:
    return PartitionSnapshot(
        topic=tp.topic,
        partition=tp.partition,
        target_topic=remote,
        state=state,
        lag=lag,
        lag_ms=lag_ms,
        loss_records=lag,
        loss_ms=lag_ms,
        records=records,
        copied=records,
        upstream=upstream,
        # without lag nothing can be lost; otherwise only the leader estimates when the source
        # deletes records
        is_left_known=lag == 0,
        code="" if error is None else error.code,
        message="" if error is None else error.message,
    )
