"""The fence of a switchover by ACLs: DENY WRITE for everybody on the topics of the source.

**Problem.** A switchover loses no record only if producers have stopped before the last record is
copied. The ACLs that stop them must be removed again if the switchover is aborted, perhaps by
another run on another host. But an ACL has no field for its owner, and an operator may have created
the same ACL before.

**Invariant.** For each topic with one of Twinlog's ACLs, the state topic has an intent of the kind
FENCE. An equal ACL that existed before belongs to another client: it gets no intent, and is not
removed.

    put up     intents, then ACLs        take down    ACLs, then intents

**Failures**

- *A run dies between the intents and the ACLs*: there are intents without ACLs. The next put-up
  creates the ACLs; the next take-down deletes the intents.
- *A run dies between the ACLs and the intents of a take-down*: again intents without ACLs.
- *A response is lost*: the step is repeated. Creating or deleting an ACL twice has no further
  effect.
- *Another client removes an ACL, or a super user writes, whom ACLs do not stop*: the proof of the
  fence finds producers that still write (`drain.FenceProof`).

**Rejected:** a list of the ACLs in memory, or in a file. If the run died, no other run could
distinguish Twinlog's ACLs from those of operators. So commands store no state of their own (ADR
23).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.acls import (
    SECURITY_DISABLED,
    create_topic_acls,
    delete_topic_acls,
    topic_acls,
)
from twinlog.cluster.topics.configs import describe_broker_configs
from twinlog.control.cutover.scope import CutoverScope
from twinlog.errors import BrokerRefused, TwinlogError
from twinlog.mirror.names.acl_rules import EVERYBODY, fenced_topics
from twinlog.mirror.state.intents import FlowIntents, IntentKind
from twinlog.quantities import first_few
from twinlog.wire.topic_settings import WRITE, Pattern, Permission, TopicAcl

ANY_HOST: Final = "*"
ANY_TOPIC: Final = "*"
OPEN_WITHOUT_ACL: Final = "allow.everyone.if.no.acl.found"
OTHER_FENCES: Final = "ACLs cannot stop producers of the source: use --fence hook or --fence none"


def fence_acl(topic: str) -> TopicAcl:
    """Return the ACL that keeps producers from writing to a topic."""
    return TopicAcl(
        name=topic,
        pattern=int(Pattern.LITERAL),
        principal=EVERYBODY,
        host=ANY_HOST,
        operation=WRITE,
        permission=int(Permission.DENY),
    )


def locked_out_topics(
    source: ClusterClient, topics: Iterable[str], acls: Iterable[TopicAcl]
) -> list[str]:
    """Return the topics that every user can access because they have no ACL. A fence is an ACL, so
    it would keep readers out of these topics as well.

    `allow.everyone.if.no.acl.found` is the authorizer's own key. Brokers list it but hide its value
    (ConfigHelper.scala treats keys of unknown type as sensitive), so a listed key counts as true.
    """
    try:
        broker_configs = describe_broker_configs(source, [OPEN_WITHOUT_ACL])
    except TwinlogError:
        return []  # for example, this user is not permitted to describe configs
    values = [
        entries[OPEN_WITHOUT_ACL].value
        for entries in broker_configs.values()
        if OPEN_WITHOUT_ACL in entries
    ]
    if all(value == "false" for value in values):
        return []
    known = list(acls)
    return [topic for topic in topics if not any(_is_for(acl, topic) for acl in known)]


def _is_for(acl: TopicAcl, topic: str) -> bool:
    if acl.pattern == Pattern.PREFIXED:
        return topic.startswith(acl.name)
    return acl.name in (topic, ANY_TOPIC)


def wanted_fences(scope: CutoverScope, intents: FlowIntents) -> list[str]:
    """Return the scope's topics with an intent FENCE, even if they are no longer mirrored."""
    return [topic for topic in intents.topics(IntentKind.FENCE) if scope.names(topic)]


class AclFence:
    """Creates, checks and removes the fence's ACLs on the topics of one scope."""

    def __init__(self, scope: CutoverScope) -> None:
        self._scope = scope

    def put_up(self, topics: Sequence[str]) -> list[str]:
        """Fence the topics. Return the topics for which another client had already created the ACL.

        In three cases nothing is changed and an error is raised: BrokerRefused (SECURITY_DISABLED)
        if the source has no authorizer, Unauthorized if this user has no ALTER permission, and
        FlowError (FENCE_SHUTS_OUT) if readers would be kept out.
        """
        scope = self._scope
        ours = {*wanted_fences(scope, scope.intents())}
        try:
            acls = topic_acls(scope.source, needs="ALTER")
        except BrokerRefused as error:
            is_off = error.code == SECURITY_DISABLED
            raise error.with_addition(OTHER_FENCES) if is_off else error from None
        if open_ := locked_out_topics(scope.source, topics, acls):
            raise scope.error(
                f"{first_few(open_)} on the source has no ACL, and brokers have "
                f"{OPEN_WITHOUT_ACL}, so a fence by ACL would keep readers out as well. Allow the "
                "readers by ACLs first, or stop the producers yourself with --fence hook or "
                "--fence none",
                code="FENCE_SHUTS_OUT",
            )
        others = fenced_topics(acls) - ours
        self.put_back([topic for topic in topics if topic not in others])
        return sorted(others.intersection(topics))

    def put_back(self, topics: Sequence[str]) -> None:
        """Write the fence's intents and create its ACLs. ACLs are not read first, because a broker
        may still list removed ones.
        """
        steering, fenced = self._scope.steering, self._scope.rows().fenced(self._scope.name)
        rows = [
            change.intent.encode()
            for change in steering.changes(IntentKind.FENCE, topics)
            if change.is_needed or change.intent.topic not in fenced
        ]
        if rows:
            steering.append(rows)
        create_topic_acls(self._scope.source, [fence_acl(topic) for topic in topics])

    def remove_own(self) -> list[str]:
        """Remove Twinlog's fences on the topics of the scope. Return these topics."""
        scope = self._scope
        fence_topics = wanted_fences(scope, scope.intents())
        if not fence_topics:
            return []
        delete_topic_acls(scope.source, [fence_acl(topic) for topic in fence_topics])
        scope.steering.set(IntentKind.FENCE, fence_topics, is_set=False)
        return fence_topics

    def fenced_topics(self, intents: FlowIntents) -> list[str]:
        """Return the topics that have an intent FENCE and are fenced now. The ACL of an intent may
        never have been created, or may have been removed with Kafka's tools.
        """
        fence_topics = wanted_fences(self._scope, intents)
        try:
            return sorted({*fence_topics} - {*self.missing(fence_topics)}) if fence_topics else []
        except TwinlogError:
            # no topic counts as fenced, so the gates are checked, and `put_up` reports the error
            return []

    def missing(self, topics: Iterable[str]) -> list[str]:
        """Return the topics in `topics` that no fence protects now."""
        return sorted({*topics} - fenced_topics(topic_acls(self._scope.source)))

    def open_brokers(self, topics: Sequence[str]) -> list[int]:
        """Return the brokers of the source that do not enforce the fence yet."""
        source = self._scope.source
        nodes = sorted(source.metadata([]).brokers)
        return [
            node
            for node in nodes
            if not fenced_topics(topic_acls(source, node=node)).issuperset(topics)
        ]
