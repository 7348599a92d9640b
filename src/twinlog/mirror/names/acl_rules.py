"""Which ACLs of source topics their remote topics get: MirrorMaker 2's rules, and two of our own.

MirrorMaker 2 copies an ACL where its pattern is LITERAL and its name would be mirrored as a topic;
here that topic must be there and copied, or the ACL might open a topic of somebody else.
ALLOW WRITE is left out, since a remote topic has one writer; ALLOW ALL becomes ALLOW READ; all
others, DENY included, are copied as they are. Nothing is ever removed.

DENY WRITE for everybody is not copied: on a remote topic it would shut the copy itself out, and a
switchover sets it on the source, where it must not follow the producers to the target.

`twinlog.sync.topic.acls.prefixed` adds PREFIXED patterns, each under the name its topics get, and
takes the literal `*` for what it means. `twinlog.sync.topic.acls.removal` removes what the
source does not have (any more), as far as such a sync could have made it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Self

from twinlog.config.flow.schema import FlowConfig, PolicyKind
from twinlog.mirror.names.filters import TopicSelector
from twinlog.wire.topic_acl import ALL, READ, WRITE, Pattern, Permission, TopicAcl

EVERY_TOPIC = "*"
EVERYBODY = "User:*"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRules:
    """The rules of one flow."""

    selector: TopicSelector
    source_alias: str
    stem: str | None
    """What every remote name begins with, nothing under the identity policy; None where only the
    policy's own code knows.
    """
    prefixed: bool
    removal: bool

    @classmethod
    def of(cls, flow: FlowConfig) -> Self:
        stem: str | None = f"{flow.source_alias}{flow.policy.separator}"
        if flow.policy.kind is PolicyKind.IDENTITY:
            stem = ""
        return cls(
            selector=TopicSelector.of(flow),
            source_alias=flow.source_alias,
            stem=None if flow.policy.custom else stem,
            prefixed=flow.acl_sync.prefixed,
            removal=flow.acl_sync.removal,
        )

    def wanted(self, source: Iterable[TopicAcl], topics: Collection[str]) -> set[TopicAcl]:
        """What the target should have for copies of these source topics. An ACL of another topic,
        though its name would be mirrored, is nobody's right to a copy.
        """
        copies = (
            self._copy(one, topics)
            for acl in source
            if not (_is_for_writers(acl) or shuts_writers_out(acl))
            for one in self._meant(acl, topics)
        )
        return {acl for acl in copies if acl is not None}

    def _meant(self, acl: TopicAcl, topics: Collection[str]) -> Iterable[TopicAcl]:
        """Where names stay, `*` would be about every topic of the target."""
        if self.stem == "" and acl.pattern == Pattern.LITERAL and acl.name == EVERY_TOPIC:
            return [acl._replace(name=name) for name in topics]
        return [acl]

    def _copy(self, acl: TopicAcl, topics: Collection[str]) -> TopicAcl | None:
        is_lone = acl.pattern == Pattern.LITERAL and acl.name != EVERY_TOPIC
        if is_lone and acl.name not in topics:
            return None
        if acl.pattern == Pattern.LITERAL and self.selector.selects(acl.name):
            if self.prefixed and self.stem and acl.name == EVERY_TOPIC:
                return _for_remote(acl, self.stem, Pattern.PREFIXED)
            return _for_remote(acl, self._remote(acl.name), Pattern.LITERAL)
        covers = acl.pattern == Pattern.PREFIXED and any(t.startswith(acl.name) for t in topics)
        if self.prefixed and covers and self.stem is not None:
            return _for_remote(acl, self.stem + acl.name, Pattern.PREFIXED)
        return None

    def _remote(self, name: str) -> str:
        return self.selector.policy.format_remote_topic(self.source_alias, name)

    def leftover(
        self,
        target: Iterable[TopicAcl],
        wanted: Collection[TopicAcl],
        remotes: Collection[str],
    ) -> set[TopicAcl]:
        """What a sync could have made for these remote topics and would not make now.

        Nothing where names do not begin with the source's: there an ACL may be the target's own.
        """
        if not self.removal or not self.stem:
            return set()
        stem = self.stem
        return {
            acl
            for acl in target
            if acl not in wanted and self._could_be_ours(acl, stem) and _is_about(acl, remotes)
        }

    def _could_be_ours(self, acl: TopicAcl, stem: str) -> bool:
        if not acl.name.startswith(stem) or _is_for_writers(acl) or _allows_all(acl):
            return False
        if shuts_writers_out(acl):
            return False
        return self.prefixed if acl.pattern == Pattern.PREFIXED else True


def _is_about(acl: TopicAcl, remotes: Collection[str]) -> bool:
    if acl.pattern == Pattern.PREFIXED:
        return any(name.startswith(acl.name) for name in remotes)
    return acl.name in remotes


def _is_for_writers(acl: TopicAcl) -> bool:
    return acl.permission == Permission.ALLOW and acl.operation == WRITE


def shuts_writers_out(acl: TopicAcl) -> bool:
    """Whether nobody may write with it, but for super users."""
    return (acl.permission, acl.operation, acl.principal, acl.host) == (
        Permission.DENY,
        WRITE,
        EVERYBODY,
        "*",
    )


def fenced_topics(acls: Iterable[TopicAcl]) -> set[str]:
    """Return the topics with a literal ACL that denies WRITE to everybody, whoever created it."""
    return {acl.name for acl in acls if shuts_writers_out(acl) and acl.pattern == Pattern.LITERAL}


def _allows_all(acl: TopicAcl) -> bool:
    return acl.permission == Permission.ALLOW and acl.operation == ALL


def _for_remote(acl: TopicAcl, name: str, pattern: Pattern) -> TopicAcl:
    operation = READ if _allows_all(acl) else acl.operation
    return acl._replace(name=name, pattern=int(pattern), operation=operation)
