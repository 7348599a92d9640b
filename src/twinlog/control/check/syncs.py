"""What the first sync of configs and ACLs would change on the target, for `check`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import Operation
from twinlog.cluster.topics.acls import SECURITY_DISABLED
from twinlog.cluster.topics.cluster_info import describe_cluster
from twinlog.codes import PartitionState, Trait, has
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.check.report import FlowReport, Plan
from twinlog.control.check.reported_status import status_rows
from twinlog.control.duties.acl_sync import OFF_KEY, find_acl_changes
from twinlog.control.duties.config_sync import closed_configs, find_drift, lowered
from twinlog.errors import BrokerRefused, Unauthorized
from twinlog.mirror.state.published import published_status
from twinlog.quantities import first_few, plural
from twinlog.survey.copied_topics import copies_by_name
from twinlog.survey.rights import may

SHOWN: Final = 20


def check_syncs(
    flow: FlowConfig, source: ClusterClient, target: ClusterClient, report: FlowReport
) -> None:
    """Add to the report's changes, and what is missing for them to its notes."""
    if not flow.new_topics.enabled:
        return
    refused = {problem.topic for problem in report.problems}
    named = copies_by_name(flow, source, target)
    left_alone = _left_alone(flow, target)
    remotes = {
        name: its for name, its in named.items() if name not in refused and name not in left_alone
    }
    report.notes += [
        f"{flow.flow}: configs and ACLs of {named[name]} are left as they are: it stood with "
        f"{code} when the flow ran last"
        for name, code in sorted(left_alone.items())
        if name in named
    ]
    if flow.config_sync.enabled:
        _configs(flow, remotes, source, target, report)
    if flow.acl_sync.enabled:
        made = {one.topic: one.remote_topic for one in report.topics if one.plan is Plan.CREATE}
        _acls(flow, remotes | made, source, target, report)


def _left_alone(flow: FlowConfig, target: ClusterClient) -> dict[str, str]:
    """Source topics whose copies are not the flow's to change, as its leader said in the last
    minutes, and why. What was not said is found at the start of each partition.
    """
    rows = status_rows(target, target.metadata(None), int(time.time() * 1000))
    status = published_status(str(flow.flow), rows or [])
    return {
        one.topic: one.code or one.state
        for one in (() if status is None else status.unusual)
        if one.state == PartitionState.TAKEN_OVER or has(one.code, Trait.NOT_OURS)
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
        f"config of {remote}: {', '.join(map(str, found))}"
        for remote, found in drift.topics.items()
    ]
    report.changes += changes[:SHOWN]
    if len(changes) > SHOWN:
        report.changes.append(f"configs of {plural(len(changes) - SHOWN, 'more topic')}")
    report.notes += lowered(drift)
    seen = target.metadata([*drift.topics]) if drift.topics else None
    denied = [*drift.closed]
    if seen is not None:
        denied += [name for name in drift.topics if not may(seen, name, Operation.ALTER_CONFIGS)]
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
        found = find_acl_changes(flow, remotes, source, target)
    except Unauthorized as error:
        report.notes.append(f"ACLs are not copied: {error}; or {OFF_KEY}")
        return
    except BrokerRefused as error:
        if error.code != SECURITY_DISABLED:
            raise
        return
    for what, acls in (("to be created", found.missing), ("to be deleted", found.leftover)):
        if acls:
            shown = first_few(map(str, acls))
            report.changes.append(f"{plural(len(acls), 'ACL')} {what}: {shown}")
    rights = describe_cluster(target).operations
    if (found.missing or found.leftover) and rights is not None and Operation.ALTER not in rights:
        report.notes.append(
            f"ACLs are not copied to {flow.flow.target}: grant ALTER on the cluster, or {OFF_KEY} "
            "[CLUSTER_UNAUTHORIZED]"
        )
