"""Which ACLs of source topics their remote topics get: MirrorMaker 2's rules, and two of our own.

MirrorMaker 2 copies an ACL where its pattern is LITERAL and its name would be mirrored as a topic.
ALLOW WRITE is left out, since a remote topic has one writer; ALLOW ALL becomes ALLOW READ; all
others, DENY included, are copied as they are. Nothing is ever removed.

`twinlog.sync.topic.acls.prefixed` adds PREFIXED patterns, each under the name its topics get, and
takes the literal `*` for what it means. `twinlog.sync.topic.acls.removal` takes away what the
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
            prefixed=flow.sync_topic_acls_prefixed,
            removal=flow.sync_topic_acls_removal,
        )

    def wanted(self, source: Iterable[TopicAcl], topics: Collection[str]) -> set[TopicAcl]:
        """What the target should have; `topics` are the mirrored ones, for patterns."""
        copies = (self._copy(acl, topics) for acl in source if not _is_for_writers(acl))
        return {acl for acl in copies if acl is not None}

    def _copy(self, acl: TopicAcl, topics: Collection[str]) -> TopicAcl | None:
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

    def leftover(self, target: Iterable[TopicAcl], wanted: Collection[TopicAcl]) -> set[TopicAcl]:
        """What a sync could have made and would not make now.

        Nothing where names do not begin with the source's: there an ACL may be the target's own.
        """
        if not self.removal or not self.stem:
            return set()
        stem = self.stem
        return {acl for acl in target if acl not in wanted and self._could_be_ours(acl, stem)}

    def _could_be_ours(self, acl: TopicAcl, stem: str) -> bool:
        if not acl.name.startswith(stem) or _is_for_writers(acl) or _allows_all(acl):
            return False
        if acl.pattern == Pattern.PREFIXED:
            return self.prefixed
        return self.selector.selects(acl.name.removeprefix(stem))


def _is_for_writers(acl: TopicAcl) -> bool:
    return acl.permission == Permission.ALLOW and acl.operation == WRITE


def _allows_all(acl: TopicAcl) -> bool:
    return acl.permission == Permission.ALLOW and acl.operation == ALL


def _for_remote(acl: TopicAcl, name: str, pattern: Pattern) -> TopicAcl:
    operation = READ if _allows_all(acl) else acl.operation
    return acl._replace(name=name, pattern=int(pattern), operation=operation)
