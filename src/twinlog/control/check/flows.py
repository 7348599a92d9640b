"""Checks one flow: its topics, the rights on both sides, and existing records on the target."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import (
    check_group_read,
    hidden_groups,
    list_groups,
    unreadable_groups,
)
from twinlog.cluster.net.metadata import Operation, TopicMetadata
from twinlog.cluster.topics.acls import SECURITY_DISABLED
from twinlog.cluster.topics.cluster_info import EXPIRY_CONFIG, describe_cluster
from twinlog.cluster.topics.configs import describe_broker_configs
from twinlog.cluster.topics.topic_admin import (
    DEFAULT,
    TopicCreation,
    hidden_topic_error,
    validate_topic,
)
from twinlog.codes import PartitionState, Trait, has
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.check.offline_status import TopicBegin, topic_begins
from twinlog.control.check.report import FlowReport, Plan, Problem, TopicReport
from twinlog.control.check.reported_status import is_running_here, status_rows
from twinlog.control.duties.acl_sync import OFF_KEY, find_acl_changes
from twinlog.control.duties.config_sync import closed_configs, find_drift, shortened_retention_lines
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.groups.left_out import group_notes
from twinlog.errors import BrokerRefused, TwinlogError, Unauthorized, Unsupported
from twinlog.mirror.findings import Span, foreign_data
from twinlog.mirror.map.offset_map import PartitionKey
from twinlog.mirror.names.filters import offset_syncs_topic, policy_of
from twinlog.mirror.names.naming import (
    HEARTBEATS_TOPIC,
    PROBE_TOPIC,
    STATE_TOPIC,
    STATUS_TOPIC,
    dead_letter_topic,
    map_topic_of,
)
from twinlog.mirror.names.renaming import unkept_names
from twinlog.mirror.state.generations import Claim
from twinlog.mirror.state.published import published_status
from twinlog.model import TopicPartition
from twinlog.quantities import first_few, plural
from twinlog.survey.capabilities import NO_CAPABILITIES
from twinlog.survey.copied_topics import copies_by_name
from twinlog.survey.discovery import (
    absence,
    mirrored_topics,
    missing_named_topics,
    name_too_long_error,
    new_counts_note,
    new_partitions,
    partitions_differ_error,
    replication_refused,
    topic_missing_error,
    topic_too_small_error,
)
from twinlog.survey.ends import NO_ENDS, Want, read_ends
from twinlog.survey.picture import read_maps
from twinlog.survey.rights import denied_error, hidden_configs, is_permitted, visible_topics
from twinlog.survey.state_reader import state_rows
from twinlog.survey.topic_configs import new_topic_configs
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED


class Clients(NamedTuple):
    """Clients for the four settings in `FlowSetup.clusters`. Some may be the same client."""

    source: ClusterClient
    target: ClusterClient
    lane_source: ClusterClient
    lane_target: ClusterClient


def check_flow(setup: FlowSetup, clients: Clients, report: FlowReport) -> None:
    """Check one flow, and fill its report. Raises an error if a query fails as a whole."""
    check = _FlowCheck(setup, clients, report)
    check.topics()
    check.source_rights()
    check.target_rights()
    check.internal_topics()
    check.group()
    check.state()
    check.foreign_data()
    check_syncs(setup.config, clients.source, clients.target, report)
    check_features(setup.config, clients.source, clients.target, report)
    check.expiry()


class _FlowCheck:
    def __init__(self, setup: FlowSetup, clients: Clients, report: FlowReport) -> None:
        self._setup = setup
        self._flow: FlowConfig = setup.config
        self._clients = clients
        self._report = report
        self._source_metadata = clients.source.metadata(None)
        self._target_metadata = clients.target.metadata(None)
        verdict = setup.guard.check(
            clients.source, clients.target, self._source_metadata, self._target_metadata
        )
        all_topics = mirrored_topics(self._flow, self._source_metadata)
        self._mirrored = {name: all_topics[name] for name in all_topics if name in verdict.rows}
        for name, error in verdict.errors.items():
            self._problem(error, name)
        report.notes += verdict.notes
        self._remote = {
            name: setup.policy.format_remote_topic(self._flow.source_alias, name)
            for name in self._mirrored
        }

    @property
    def _may_grow(self) -> bool:
        keeps = self._flow.same_partitions or self._flow.keyed_partitions
        return self._flow.new_topics.enabled and not keeps

    def _problem(self, error: TwinlogError, topic: str | None = None) -> None:
        self._report.problems.append(Problem.of(error, topic))

    # -- topics that would be mirrored ---------------------------------------------------------

    def topics(self) -> None:
        missing = [
            name
            for name in self._mirrored
            if self._remote[name] not in self._target_metadata.topics
        ]
        source, target = self._clients[:2]
        new = new_topic_configs(
            self._flow,
            source,
            target,
            self._target_metadata,
            {name: self._remote[name] for name in missing},
        )
        self._report.notes += filter(None, [new.unknown])
        begins = topic_begins(
            self._flow,
            self._clients.source,
            self._mirrored.values(),
            self._has_position,
            self._problem,
        )
        for name, topic in self._mirrored.items():
            self._report.topics.append(self._topic(topic, new.by_topic.get(name, {}), begins[name]))
        self._report.notes += [
            absence(self._flow, name)
            for name in missing_named_topics(self._flow, self._source_metadata)
        ]
        self._report.notes += unkept_names(self._flow, self._mirrored)
        self._report.notes += group_notes(self._flow, self._clients.source)
        if missing and self._flow.new_topics.enabled:
            self._creation(missing, new.by_topic)

    def _topic(
        self, topic: TopicMetadata, configs: Mapping[str, str], begin: TopicBegin
    ) -> TopicReport:
        remote = self._remote[topic.name]
        known = self._target_metadata.topics.get(remote)
        wanted = len(topic.partitions)
        creates = self._flow.new_topics.enabled
        if known is None:
            plan, count = Plan.CREATE if creates else Plan.MISSING, 0
            if not creates:
                self._problem(topic_missing_error(self._flow, remote), topic.name)
        else:
            count = len(known.partitions)
            plan = Plan.GROW if count < wanted and self._may_grow else Plan.EXISTS
            if count != wanted and self._flow.same_partitions:
                error = partitions_differ_error(self._flow, remote, count, wanted)
                self._problem(error, topic.name)
            elif self._flow.places_by_key(wanted, count):
                self._report.notes.append(
                    f"{self._flow.flow}: topic {remote} has {plural(count, 'partition')} on "
                    f"{self._flow.flow.target}, and {wanted} on {self._flow.flow.source}: "
                    "records are placed by key"
                )
            elif count < wanted and not creates:
                error = topic_too_small_error(self._flow, remote, count, wanted)
                self._problem(error, topic.name)
        return TopicReport(
            topic=topic.name,
            remote_topic=remote,
            partitions=wanted,
            plan=plan,
            remote_partitions=count,
            configs=configs if plan is Plan.CREATE else {},
            start=begin.text,
            begins=begin.offsets,
        )

    def _creation(self, missing: Sequence[str], configs: Mapping[str, Mapping[str, str]]) -> None:
        """Let the brokers validate the creation of every topic."""
        live, factor = len(self._target_metadata.brokers), self._flow.new_topics.replication_factor
        if (refused := replication_refused(self._flow, live, len(missing))) is not None:
            self._problem(refused)
            return
        differing: dict[int, list[str]] = {}
        for name in missing:
            topic = self._mirrored[name]
            if (too_long := name_too_long_error(self._flow, name, self._remote[name])) is not None:
                self._problem(too_long, name)
                continue
            partitions = new_partitions(self._flow, topic)
            creation = self._try_creation(
                self._remote[name], partitions, factor, configs.get(name, {})
            )
            if isinstance(creation, TwinlogError):
                self._problem(creation, name)
            elif creation.partitions != len(topic.partitions):
                differing.setdefault(creation.partitions, []).append(name)
        self._report.notes += [
            new_counts_note(self._flow, count, names) for count, names in sorted(differing.items())
        ]

    def _try_creation(
        self, remote: str, partitions: int, factor: int, configs: Mapping[str, str]
    ) -> TopicCreation | TwinlogError:
        """Return the topic that the cluster would create, or the error."""
        try:
            answer = validate_topic(
                self._clients.target,
                remote,
                partitions=partitions,
                replication_factor=factor,
                configs=configs,
            )
        except TwinlogError as error:
            return error
        if answer.is_new:
            return answer
        return denied_error(self._flow.flow.target, "DESCRIBE", remote)

    # -- rights --------------------------------------------------------------------------------

    def source_rights(self) -> None:
        seen = visible_topics(
            self._clients.lane_source, self._clients.source, self._source_metadata, self._mirrored
        )
        for name in self._mirrored:
            if not is_permitted(seen, name, Operation.READ):
                self._problem(denied_error(self._flow.flow.source, "READ", name), name)
        synced = self._flow.config_sync.enabled
        read = [
            name
            for name in self._mirrored
            if synced or self._remote[name] not in self._target_metadata.topics
        ]
        self._report.notes += hidden_configs(
            self._source_metadata, self._flow.flow.source, read, "configs are not copied"
        )

    def target_rights(self) -> None:
        existing = {
            name: remote
            for name, remote in self._remote.items()
            if remote in self._target_metadata.topics
        }
        seen = visible_topics(
            self._clients.lane_target,
            self._clients.target,
            self._target_metadata,
            existing.values(),
        )
        for name, remote in existing.items():
            for right in (Operation.WRITE, Operation.READ):
                if not is_permitted(seen, remote, right):
                    self._problem(denied_error(self._flow.flow.target, right.name, remote), name)
            wanted, count = self._mirrored[name], self._target_metadata.topics[remote]
            grows = len(count.partitions) < len(wanted.partitions)
            if (
                grows
                and self._may_grow
                and not is_permitted(self._target_metadata, remote, Operation.ALTER)
            ):
                self._problem(denied_error(self._flow.flow.target, "ALTER", remote), name)
        self._report.notes += hidden_configs(
            self._target_metadata,
            self._flow.flow.target,
            existing.values(),
            "limits are taken as Kafka's defaults",
        )

    def internal_topics(self) -> None:
        own = (STATE_TOPIC, map_topic_of(self._flow.flow))
        letters = dead_letter_topic(self._flow.flow, self._flow.transforms)
        for name in (*own, *filter(None, [letters])):
            for error in self._own_topic_errors(name):
                self._problem(error)
        self._report.notes += hidden_configs(
            self._target_metadata,
            self._flow.flow.target,
            [name for name in own if name in self._target_metadata.topics],
            "cleanup.policy is not checked",
        )
        self._report.notes += [
            f"the capabilities of {self._flow.flow.target} cannot be tested, so the guarantee "
            f"would be '{NO_CAPABILITIES.guarantee}': {error}"
            for error in self._own_topic_errors(PROBE_TOPIC)
        ]

    def _own_topic_errors(self, name: str) -> Iterator[TwinlogError]:
        if name not in self._target_metadata.topics:
            factor = self._flow.state_topic_replication_factor
            creation = self._try_creation(name, 1, factor, {})
            if isinstance(creation, TwinlogError):
                yield creation
            return
        for right in (Operation.WRITE, Operation.READ):
            if not is_permitted(self._target_metadata, name, right):
                yield denied_error(self._flow.flow.target, right.name, name)

    def group(self) -> None:
        """Check the group through which one driver is elected as the leader of a flow."""
        try:
            check_group_read(self._clients.target, f"twinlog-{self._flow.flow}")
        except Unauthorized as error:
            self._problem(error)

    # -- existing records on the target --------------------------------------------------------

    def state(self) -> None:
        """Add a note if the last run of this flow has not ended cleanly."""
        if STATE_TOPIC not in self._target_metadata.topics or not is_permitted(
            self._target_metadata, STATE_TOPIC, Operation.READ
        ):
            return
        history = state_rows(self._clients.target).history(str(self._flow.flow))
        last = None if history is None else history.latest
        if last is not None and history is not None and not history.is_closed:
            self._report.notes.append(
                f"generation {last.generation} of this flow is not closed: {_where_led(last)}"
            )

    def foreign_data(self) -> None:
        """Report partitions of prefixed remote topics with records but no row in the offset map."""
        if self._setup.is_identity:
            return
        targets = {
            TopicPartition(topic.topic, number): TopicPartition(topic.remote_topic, number)
            for topic in self._report.topics
            if topic.plan not in (Plan.CREATE, Plan.MISSING)
            # leave out topics whose records are placed by key, because other clients may write to
            # their remote topics
            if not self._flow.places_by_key(topic.partitions, topic.remote_partitions)
            if is_permitted(self._target_metadata, topic.remote_topic, Operation.READ)
            for number in range(min(topic.partitions, topic.remote_partitions))
        }
        known = self._mapped if targets else ()
        unknown = {
            tp: remote for tp, remote in targets.items() if self._key(tp, remote) not in known
        }
        logs = read_ends(self._clients.target, unknown.values(), Want.STARTS)
        for tp, remote in unknown.items():
            start, end, problem = logs[remote].start, logs[remote].end, logs[remote].problem
            if problem is not None:
                self._problem(problem, tp.topic)
            elif start is not None and end is not None and start < end:
                span = foreign_data(remote, Span(start, end))
                self._problem(span.in_flow(str(self._flow.flow)), tp.topic)

    def _key(self, tp: TopicPartition, remote: TopicPartition) -> PartitionKey:
        return PartitionKey(
            self._source_metadata.topics[tp.topic].topic_id,
            self._target_metadata.topics[remote.topic].topic_id,
            tp.partition,
        )

    def _has_position(self, tp: TopicPartition) -> bool:
        remote = TopicPartition(self._remote[tp.topic], tp.partition)
        known = self._target_metadata.topics.get(remote.topic)
        if known is None:
            return False
        key = self._key(tp, remote)
        by_key = key._replace(branch=0, branches=len(known.partitions))
        return key in self._mapped or by_key in self._mapped

    @cached_property
    def _mapped(self) -> Container[PartitionKey]:
        if not is_permitted(self._target_metadata, map_topic_of(self._flow.flow), Operation.READ):
            return ()
        return read_maps(
            self._clients.target, self._flow.flow, self._target_metadata, after=NO_ENDS
        )

    def expiry(self) -> None:
        if self._flow.producer_id_expiration_ms is not None:
            return
        try:
            describe_broker_configs(self._clients.target, [EXPIRY_CONFIG])
        except Unauthorized:
            self._report.notes.append(
                f"{EXPIRY_CONFIG} of {self._flow.flow.target} is not readable, so every partition "
                "counts as unprotected, and is copied slowly for a minute after a failure: grant "
                "DESCRIBE_CONFIGS on the cluster, or set twinlog.target.producer.id.expiration.ms "
                "to the brokers' value"
            )


def _where_led(last: Claim) -> str:
    lives = is_running_here(last.host, last.pid, last.started_ms)
    if lives is None:
        return f"it runs on {last.host} (process {last.pid}), or was lost there with its lanes"
    what = (
        "runs on this host"
        if lives
        else "of this host has ended; its lanes may still send for a while"
    )
    return f"process {last.pid} {what}"


SHOWN: Final = 20


def check_syncs(
    flow: FlowConfig, source: ClusterClient, target: ClusterClient, report: FlowReport
) -> None:
    """Add to the report what the syncs would change, and the permissions that the syncs lack."""
    if not flow.new_topics.enabled:
        return
    refused = {problem.topic for problem in report.problems}
    copies = copies_by_name(flow, source, target)
    left_alone = _unchangeable(flow, target)
    remotes = {
        name: remote
        for name, remote in copies.items()
        if name not in refused and name not in left_alone
    }
    report.notes += [
        f"{flow.flow}: configs and ACLs of {copies[name]} are not changed: it had the code {code} "
        "when the flow last ran"
        for name, code in sorted(left_alone.items())
        if name in copies
    ]
    if flow.config_sync.enabled:
        _configs(flow, remotes, source, target, report)
    if flow.acl_sync.enabled:
        new_topics = {
            topic.topic: topic.remote_topic for topic in report.topics if topic.plan is Plan.CREATE
        }
        _acls(flow, remotes | new_topics, source, target, report)


def _unchangeable(flow: FlowConfig, target: ClusterClient) -> dict[str, str]:
    """Return the source topics whose remote topics the flow must not change, with the reason. They
    are known from the leader's report of the last minutes. Topics that were not reported yet are
    found only when a mirror starts their partitions.
    """
    rows = status_rows(target, target.metadata(None), int(time.time() * 1000))
    status = published_status(str(flow.flow), rows or [])
    return {
        unusual.topic: unusual.code or unusual.state
        for unusual in (() if status is None else status.unusual)
        if unusual.state == PartitionState.TAKEN_OVER or has(unusual.code, Trait.NOT_OURS)
    }


def _configs(
    flow: FlowConfig,
    remotes: Mapping[str, str],
    source: ClusterClient,
    target: ClusterClient,
    report: FlowReport,
) -> None:
    drift = find_drift(flow, remotes, source, target)
    changes = [
        f"config of {remote}: {', '.join(map(str, differences))}"
        for remote, differences in drift.topics.items()
    ]
    report.changes += changes[:SHOWN]
    if len(changes) > SHOWN:
        report.changes.append(f"configs of {plural(len(changes) - SHOWN, 'more topic')}")
    report.notes += shortened_retention_lines(drift)
    seen = target.metadata([*drift.topics]) if drift.topics else None
    denied = [*drift.closed]
    if seen is not None:
        denied += [
            name for name in drift.topics if not is_permitted(seen, name, Operation.ALTER_CONFIGS)
        ]
    if denied:
        report.notes.append(closed_configs(flow, denied))


def _acls(
    flow: FlowConfig,
    remotes: Mapping[str, str],
    source: ClusterClient,
    target: ClusterClient,
    report: FlowReport,
) -> None:
    try:
        changes = find_acl_changes(flow, remotes, source, target)
    except Unauthorized as error:
        report.notes.append(f"ACLs are not copied: {error}; or {OFF_KEY}")
        return
    except BrokerRefused as error:
        if error.code != SECURITY_DISABLED:
            raise
        return
    for what, acls in (("to be created", changes.missing), ("to be deleted", changes.leftover)):
        if acls:
            shown = first_few(map(str, acls))
            report.changes.append(f"{plural(len(acls), 'ACL')} {what}: {shown}")
    rights = describe_cluster(target).operations
    if (
        (changes.missing or changes.leftover)
        and rights is not None
        and Operation.ALTER not in rights
    ):
        report.notes.append(
            f"ACLs are not copied to {flow.flow.target}: grant ALTER on the cluster, or {OFF_KEY} "
            "[CLUSTER_UNAUTHORIZED]"
        )


# For `check`: permissions that a flow's features (syncs, checkpoints, heartbeats, ...) lack, as far
# as brokers report them before anything is written. Group permissions are queried from any broker,
# although only a coordinator knows all.


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenTopic:
    """A topic to which a feature writes, with the permissions that it needs."""

    client: ClusterClient
    topic: str
    so: str
    """What the feature leaves out if a permission is missing."""
    hint: str
    rights: tuple[Operation, ...] = (Operation.WRITE, Operation.READ)


def check_features(
    flow: FlowConfig, source: ClusterClient, target: ClusterClient, report: FlowReport
) -> None:
    """Add notes on features that lack permissions. Only unreadable offsets of MirrorMaker 1's group
    are reported as a problem.
    """
    for written in _written_topics(flow, source, target):
        error = _missing(written)
        if error is not None:
            report.notes.append(f"{written.so}: {error}; or {written.hint}")
    if flow.groups.sync_s is not None:
        report.notes += _groups_to_set(flow, source, target)
    if flow.source_group.group_id:
        _source_group(flow, source, report)


def _written_topics(
    flow: FlowConfig, source: ClusterClient, target: ClusterClient
) -> Iterator[_WrittenTopic]:
    policy = policy_of(flow)
    if flow.groups.checkpoints_s is not None:
        yield _WrittenTopic(
            client=target,
            topic=policy.checkpoints_topic(flow.source_alias),
            so="checkpoints are not written",
            hint="set emit.checkpoints.enabled=false",
        )
    for client, into_target in ((target, True), (source, False)):
        if any(beat.into_target is into_target for beat in flow.heartbeats):
            yield _WrittenTopic(
                client=client,
                topic=HEARTBEATS_TOPIC,
                so=f"no heartbeats into {client.alias}",
                hint="set emit.heartbeats.enabled=false",
                rights=(Operation.WRITE,),
            )
    if flow.status_interval_seconds:
        yield _WrittenTopic(
            client=target,
            topic=STATUS_TOPIC,
            so="the status is shown only on the mirror's host",
            hint="set twinlog.status.interval.seconds=0",
            rights=(Operation.WRITE,),
        )
    syncs = flow.offset_syncs
    if syncs is not None:
        yield _WrittenTopic(
            client=target if syncs.on_target else source,
            topic=offset_syncs_topic(flow, syncs),
            so="offset syncs are not written",
            hint="set emit.offset-syncs.enabled=false"
            if syncs.on_target
            else "write them to the target: offset-syncs.topic.location=target",
        )


def _missing(written: _WrittenTopic) -> TwinlogError | None:
    """Return an error for the first permission that is certainly missing, or None."""
    client, topic = written.client, written.topic
    seen = client.metadata([topic])
    if not seen.topics[topic].error:
        lacking = (right for right in written.rights if not is_permitted(seen, topic, right))
        return next((denied_error(client.alias, right.name, topic) for right in lacking), None)
    hidden = seen.topics[topic].error == TOPIC_AUTHORIZATION_FAILED
    try:
        validate_topic(client, topic, partitions=1, replication_factor=DEFAULT)
    except Unauthorized as error:
        return hidden_topic_error(client, topic, may_create=False) if hidden else error
    except (BrokerRefused, Unsupported):
        return None  # no permission is missing: a policy rejects the topic, or the brokers are old
    return hidden_topic_error(client, topic, may_create=True) if hidden else None


def _source_group(flow: FlowConfig, source: ClusterClient, report: FlowReport) -> None:
    group, alias = flow.source_group.group_id, flow.flow.source
    if hidden_groups(source, [group]):
        report.problems.append(
            Problem(
                code="GROUP_UNAUTHORIZED",
                message=f"{flow.flow}: the offsets of group {group} of {alias}, at which the copy "
                f"would begin, are not readable: grant DESCRIBE on group {group}, or READ, which "
                "also allows committing its offsets",
            )
        )
    elif unreadable_groups(source, [group]):
        report.notes.append(
            f"offsets of group {group} are not committed on {alias}: grant READ on group {group} "
            "[GROUP_UNAUTHORIZED]"
        )


def _groups_to_set(flow: FlowConfig, source: ClusterClient, target: ClusterClient) -> Iterator[str]:
    groups = list_groups(Coordinators(source))
    chosen = [
        name
        for name, group in groups.items()
        if (group.has_offsets or group.is_share) and flow.groups.selects(name)
    ]
    refused = unreadable_groups(target, chosen)
    if refused:
        yield (
            f"offsets of {plural(len(refused), 'group')} on {flow.flow.target} cannot be set "
            f"({first_few(sorted(refused))}): grant READ on group {min(refused)}, or set "
            "sync.group.offsets.enabled=false [GROUP_UNAUTHORIZED]"
        )
