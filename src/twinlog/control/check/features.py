"""Rights that features beside the copy lack, for `check`: as far as brokers tell before anything is
written.

A topic that is not there yet, and that we may see, may turn out not to be ours to write. Groups are
asked of any broker: only their coordinator knows of a right that is missing beside others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import list_groups
from twinlog.cluster.groups.group_rights import may_describe_groups, unreadable_groups
from twinlog.cluster.net.metadata import Operation
from twinlog.cluster.topics.mm2_topics import hidden_topic
from twinlog.cluster.topics.topic_admin import DEFAULT, validate_topic
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.check.report import FlowReport, Problem
from twinlog.errors import BrokerRefused, TwinlogError, Unauthorized, Unsupported
from twinlog.mirror.names.filters import offset_syncs_topic, policy_of
from twinlog.mirror.names.naming import HEARTBEATS_TOPIC, STATUS_TOPIC
from twinlog.quantities import first_few, plural
from twinlog.survey.rights import denied, may
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """A topic that a feature writes."""

    client: ClusterClient
    topic: str
    so: str
    """What is left out without the right."""
    hint: str
    rights: tuple[Operation, ...] = (Operation.WRITE, Operation.READ)


def check_features(
    flow: FlowConfig, source: ClusterClient, target: ClusterClient, report: FlowReport
) -> None:
    """Add to the report's notes; only a position of MirrorMaker 1 that is hidden is a problem."""
    for one in _written(flow, source, target):
        error = _missing(one)
        if error is not None:
            report.notes.append(f"{one.so}: {error}; or {one.hint}")
    if flow.groups.sync_s is not None:
        report.notes += _groups_to_set(flow, source, target)
    if flow.source_group.group_id:
        _source_group(flow, source, report)


def _written(flow: FlowConfig, source: ClusterClient, target: ClusterClient) -> Iterator[_Written]:
    policy = policy_of(flow)
    if flow.groups.checkpoints_s is not None:
        yield _Written(
            client=target,
            topic=policy.checkpoints_topic(flow.source_alias),
            so="checkpoints are not written",
            hint="set emit.checkpoints.enabled=false",
        )
    for client, into_target in ((target, True), (source, False)):
        if any(beat.into_target is into_target for beat in flow.heartbeats):
            yield _Written(
                client=client,
                topic=HEARTBEATS_TOPIC,
                so=f"no heartbeats into {client.alias}",
                hint="set emit.heartbeats.enabled=false",
                rights=(Operation.WRITE,),
            )
    if flow.status_interval_seconds:
        yield _Written(
            client=target,
            topic=STATUS_TOPIC,
            so="the status is shown on the mirror's host alone",
            hint="set twinlog.status.interval.seconds=0",
            rights=(Operation.WRITE,),
        )
    syncs = flow.offset_syncs
    if syncs is not None:
        yield _Written(
            client=target if syncs.on_target else source,
            topic=offset_syncs_topic(flow, syncs),
            so="offset syncs are not written",
            hint="set emit.offset-syncs.enabled=false"
            if syncs.on_target
            else "write them to the target: offset-syncs.topic.location=target",
        )


def _missing(one: _Written) -> TwinlogError | None:
    """The first right that is surely missing."""
    client, topic = one.client, one.topic
    seen = client.metadata([topic])
    if not seen.topics[topic].error:
        lacking = (right for right in one.rights if not may(seen, topic, right))
        return next((denied(client.alias, right.name, topic) for right in lacking), None)
    hidden = seen.topics[topic].error == TOPIC_AUTHORIZATION_FAILED
    try:
        validate_topic(client, topic, partitions=1, replication_factor=DEFAULT)
    except Unauthorized as error:
        return hidden_topic(client, topic, may_create=False) if hidden else error
    except (BrokerRefused, Unsupported):
        return None  # no matter of rights: a policy of the cluster, or old brokers
    return hidden_topic(client, topic, may_create=True) if hidden else None


def _source_group(flow: FlowConfig, source: ClusterClient, report: FlowReport) -> None:
    group, alias = flow.source_group.group_id, flow.flow.source
    if not may_describe_groups(source, group):
        report.problems.append(
            Problem(
                code="GROUP_UNAUTHORIZED",
                message=f"{flow.flow}: where group {group} of {alias} stands, and the copy is to "
                f"begin, may not be read: grant DESCRIBE on group {group}, or READ, which lets "
                "its offsets be committed as well",
            )
        )
    elif unreadable_groups(source, [group]):
        report.notes.append(
            f"offsets of group {group} are not committed on {alias}: grant READ on group {group} "
            "[GROUP_UNAUTHORIZED]"
        )


def _groups_to_set(flow: FlowConfig, source: ClusterClient, target: ClusterClient) -> Iterator[str]:
    found = list_groups(Coordinators(source))
    chosen = [
        name
        for name, one in found.items()
        if (one.has_offsets or one.is_share) and flow.groups.selects(name)
    ]
    refused = unreadable_groups(target, chosen)
    if refused:
        yield (
            f"offsets of {plural(len(refused), 'group')} on {flow.flow.target} cannot be set "
            f"({first_few(sorted(refused))}): grant READ on group {min(refused)}, or set "
            "sync.group.offsets.enabled=false [GROUP_UNAUTHORIZED]"
        )
