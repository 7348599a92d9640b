"""Copies the ACLs of source topics to remote topics. `check` uses the comparison as well.

The rules are in `mirror.names.acl_rules`. Both clusters are read first, and only missing ACLs are
created. A cluster without an authorizer has no ACLs, which is no error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.acls import (
    SECURITY_DISABLED,
    create_topic_acls,
    delete_topic_acls,
    topic_acls,
)
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.duties.handed_topics import TopicRounds
from twinlog.control.duties.rounds import LedFlow
from twinlog.errors import BrokerRefused, TwinlogError, Unauthorized
from twinlog.flow_log import FlowLog
from twinlog.mirror.names.acl_rules import AclRules
from twinlog.quantities import first_few, plural
from twinlog.survey.copied_topics import CopiedTopic, unchanged_pairs
from twinlog.wire.topic_settings import TopicAcl

log = logging.getLogger(__name__)

OFF_KEY: Final = "set sync.topic.acls.enabled=false"
"""Advice at the end of log lines about missing permissions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclChanges:
    """The ACLs that the target lacks, and the ACLs that it should not have. Both are sorted."""

    missing: tuple[TopicAcl, ...]
    leftover: tuple[TopicAcl, ...]


def find_acl_changes(
    flow: FlowConfig, remotes: Mapping[str, str], source: ClusterClient, target: ClusterClient
) -> AclChanges:
    """Compare the ACLs of source topics with those of their remote topics (`remotes`). Raises
    BrokerRefused (SECURITY_DISABLED) if a cluster has no authorizer, and Unauthorized if this user
    lacks the permission DESCRIBE.
    """
    rules = AclRules(flow)
    wanted = rules.target_acls(topic_acls(source), remotes)
    if not wanted and not flow.acl_sync.removal:
        return AclChanges(missing=(), leftover=())
    target_acls = topic_acls(target, needs="ALTER")
    return AclChanges(
        missing=tuple(sorted(wanted - target_acls)),
        leftover=tuple(sorted(rules.leftover(target_acls, wanted, remotes.values()))),
    )


def give_acls(
    flow: FlowConfig,
    remotes: Mapping[str, str],
    source: ClusterClient,
    target: ClusterClient,
    confirm: Callable[[], None] = lambda: None,
) -> AclChanges:
    """Make the ACLs of remote topics equal to their source topics' ACLs. Raises as
    `find_acl_changes`.

    `confirm` is called before anything is changed, and raises if the change is not permitted.
    """
    changes = find_acl_changes(flow, remotes, source, target)
    if changes.missing or changes.leftover:
        confirm()
    # DENY rules are created first, so that a denied user can never read the topic
    create_topic_acls(target, sorted(changes.missing, key=lambda acl: acl.permission))
    delete_topic_acls(target, changes.leftover)
    return changes


def acls_of_new(
    flow: FlowConfig, remotes: Mapping[str, str], source: ClusterClient, target: ClusterClient
) -> Iterator[str]:
    """Create the ACLs of new, empty remote topics before anything is copied to them. Yield a log
    line if the ACLs cannot be created.
    """
    if not remotes or not flow.acl_sync.enabled:
        return
    try:
        give_acls(flow, remotes, source, target)
    except Unauthorized as error:
        yield _not_copied_line(flow, error)
    except TwinlogError as error:
        if error.code != SECURITY_DISABLED:
            yield f"{flow.flow}: ACLs of new topics are copied later: {error}"


def _not_copied_line(flow: FlowConfig, error: Unauthorized) -> str:
    return f"{flow.flow}: ACLs are not copied: {error}; or {OFF_KEY}"


class AclSync(TopicRounds):
    """The duty that syncs ACLs: creates missing ACLs, and deletes extra ones if configured."""

    name = "topic ACLs"

    def __init__(self, flow: LedFlow) -> None:
        super().__init__(flow, "ACLs", float(flow.config.acl_sync.interval_seconds))
        self._log = FlowLog(log, flow.name)
        self._is_off_logged = False

    def sync(self, topics: Sequence[CopiedTopic], *, is_whole: bool) -> None:
        del is_whole
        with ClusterClient(self._flow.source) as source, ClusterClient(self._flow.target) as target:
            try:
                remotes = unchanged_pairs(topics, source, target)
                changes = give_acls(
                    self._flow.config,
                    remotes,
                    source,
                    target,
                    lambda: self.require_unchanged(topics, remotes, source, target),
                )
            except Unauthorized as error:
                self._flow.log_once(_not_copied_line(self._flow.config, error))
                return
            except BrokerRefused as error:
                if error.code != SECURITY_DISABLED:
                    raise
                if not self._is_off_logged:
                    self._is_off_logged = True
                    self._log.info("there are no ACLs to copy: %s", error)
                return
        self._log_acls("created", changes.missing)
        self._log_acls("deleted", changes.leftover)

    def _log_acls(self, what: str, acls: tuple[TopicAcl, ...]) -> None:
        if acls:
            count, shown = plural(len(acls), "ACL"), first_few(map(str, acls))
            self._log.info("%s %s: %s", count, what, shown)


def acl_sync(flow: LedFlow) -> AclSync | None:
    """Return the flow's duty, or None if ACL sync is not enabled."""
    config = flow.config
    return AclSync(flow) if config.acl_sync.enabled and config.new_topics.enabled else None
