"""Decides which ACLs of source topics are copied to remote topics: MirrorMaker 2's rules, and more.

MirrorMaker 2 copies an ACL if its pattern is LITERAL and its name would be mirrored as a topic. In
Twinlog, that topic must also exist and be copied. Otherwise the ACL might grant access to an
unrelated topic.

ALLOW WRITE is left out, because a remote topic has one writer. ALLOW ALL becomes ALLOW READ. All
other ACLs, including DENY, are copied unchanged. By default, no ACL is ever removed.

DENY WRITE for every user is not copied, because on a remote topic it would block the copy itself. A
switchover sets this ACL on the source, and it must not follow the producers to the target.

`twinlog.sync.topic.acls.prefixed` also copies PREFIXED patterns, each under the name that its
topics get, and maps the literal `*` to the prefix of remote topics.
`twinlog.sync.topic.acls.removal` removes ACLs from the target that the source does not have (any
more), if a sync by these rules could have created them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from twinlog.config.flow.schema import FlowConfig, PolicyKind
from twinlog.mirror.names.filters import TopicSelector
from twinlog.wire.topic_settings import ALL, READ, WRITE, Pattern, Permission, TopicAcl

EVERY_TOPIC = "*"
EVERYBODY = "User:*"


class AclRules:
    """Which ACLs of the source a flow copies, and in which form."""

    def __init__(self, flow: FlowConfig) -> None:
        self._selector, self._alias = TopicSelector.of(flow), flow.source_alias
        self._prefixed, self._removal = flow.acl_sync.prefixed, flow.acl_sync.removal
        is_identity = flow.policy.kind is PolicyKind.IDENTITY
        stem = "" if is_identity else f"{flow.source_alias}{flow.policy.separator}"
        self._stem = None if flow.policy.custom else stem
        """Prefix of every remote topic's name. It is empty under the identity policy, and None if a
        custom policy names remote topics, whose prefix is unknown.
        """

    def target_acls(self, source: Iterable[TopicAcl], topics: Collection[str]) -> set[TopicAcl]:
        """Return the ACLs that the target should have. `source`: the source's ACLs. `topics`: the
        source topics that are copied.

        An ACL for a topic that is not copied grants no right on the target, even if a topic of that
        name would be mirrored.
        """
        copies = (
            self._copy(expanded, topics)
            for acl in source
            if not (_is_for_writers(acl) or denies_all_writers(acl))
            for expanded in self._meant(acl, topics)
        )
        return {acl for acl in copies if acl is not None}

    def _meant(self, acl: TopicAcl, topics: Collection[str]) -> Iterable[TopicAcl]:
        """Return the ACL itself. If topics keep their names and the ACL is for `*`, return one ACL
        for each of `topics` instead, because `*` would match every topic of the target.
        """
        if self._stem == "" and acl.pattern == Pattern.LITERAL and acl.name == EVERY_TOPIC:
            return [acl._replace(name=name) for name in topics]
        return [acl]

    def _copy(self, acl: TopicAcl, topics: Collection[str]) -> TopicAcl | None:
        is_lone = acl.pattern == Pattern.LITERAL and acl.name != EVERY_TOPIC
        if is_lone and acl.name not in topics:
            return None
        if acl.pattern == Pattern.LITERAL and self._selector.selects(acl.name):
            if self._prefixed and self._stem and acl.name == EVERY_TOPIC:
                return _for_remote(acl, self._stem, Pattern.PREFIXED)
            remote = self._selector.policy.format_remote_topic(self._alias, acl.name)
            return _for_remote(acl, remote, Pattern.LITERAL)
        covers = acl.pattern == Pattern.PREFIXED and any(t.startswith(acl.name) for t in topics)
        if self._prefixed and covers and self._stem is not None:
            return _for_remote(acl, self._stem + acl.name, Pattern.PREFIXED)
        return None

    def leftover(
        self,
        target: Iterable[TopicAcl],
        wanted_acls: Collection[TopicAcl],
        remotes: Collection[str],
    ) -> set[TopicAcl]:
        """Return the ACLs to remove from the target: those that an earlier sync could have created
        for the topics `remotes`, and that are not in `wanted_acls`.

        Return an empty set if remote topics have no known prefix, because any ACL may then be the
        target's own.
        """
        if not self._removal or not self._stem:
            return set()
        stem = self._stem
        return {
            acl
            for acl in target
            if acl not in wanted_acls and self._could_be_ours(acl, stem) and _is_about(acl, remotes)
        }

    def _could_be_ours(self, acl: TopicAcl, stem: str) -> bool:
        is_copied = not (_is_for_writers(acl) or _allows_all(acl) or denies_all_writers(acl))
        if not is_copied or not acl.name.startswith(stem):
            return False
        return self._prefixed if acl.pattern == Pattern.PREFIXED else True


def _is_about(acl: TopicAcl, remotes: Collection[str]) -> bool:
    if acl.pattern == Pattern.PREFIXED:
        return any(name.startswith(acl.name) for name in remotes)
    return acl.name in remotes


def _is_for_writers(acl: TopicAcl) -> bool:
    return acl.permission == Permission.ALLOW and acl.operation == WRITE


def denies_all_writers(acl: TopicAcl) -> bool:
    """Return True if the ACL denies WRITE to every user, so that only super users can write."""
    return (acl.permission, acl.operation, acl.principal, acl.host) == (
        Permission.DENY,
        WRITE,
        EVERYBODY,
        "*",
    )


def fenced_topics(acls: Iterable[TopicAcl]) -> set[str]:
    """Return the topics with a literal ACL that denies WRITE to everybody, whoever created it."""
    return {acl.name for acl in acls if denies_all_writers(acl) and acl.pattern == Pattern.LITERAL}


def _allows_all(acl: TopicAcl) -> bool:
    return acl.permission == Permission.ALLOW and acl.operation == ALL


def _for_remote(acl: TopicAcl, name: str, pattern: Pattern) -> TopicAcl:
    operation = READ if _allows_all(acl) else acl.operation
    return acl._replace(name=name, pattern=int(pattern), operation=operation)
