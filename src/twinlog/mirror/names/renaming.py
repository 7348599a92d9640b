"""Finds topics that cannot have the name that `twinlog.rename` or a router of Kafka Connect gives
them, and topics that do not keep their names under the identity policy.

Each discovery compares the new names of all selected topics of a source, before any record is
written. Topics that would share one name are all refused, even if one of them was copied before the
other was created. The reason is that Twinlog cannot know which of them is intended, and that
records of two topics in one remote topic cannot be separated. Records that are already copied are
kept, and the copy continues after them when the names differ again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from twinlog.config.flow.schema import FlowConfig, PolicyKind
from twinlog.config.values.renames import KEY, LONGEST_NAME, NO_RENAMES, is_topic_name
from twinlog.errors import Fate, PartitionError
from twinlog.mirror.names.filters import is_remote_topic_of, policy_of
from twinlog.mirror.names.naming import HEARTBEATS_TOPIC, DefaultReplicationPolicy, is_own_topic
from twinlog.quantities import first_few

RENAME_CLASH: Final = "RENAME_CLASH"
RENAME_INVALID: Final = "RENAME_INVALID"


def refused_names(flow: FlowConfig, topics: Iterable[str]) -> dict[str, PartitionError]:
    """Return the error for each source topic that cannot be copied under its new name."""
    if not flow.policy.renames:
        return {}
    policy = policy_of(flow)
    out: dict[str, PartitionError] = {}
    sharing: dict[str, list[str]] = {}
    for topic in sorted(topics):
        if (why := _why_no_name(policy, flow.source_alias, topic)) is not None:
            out[topic] = _invalid_error(flow, topic, why)
        else:
            remote = policy.format_remote_topic(flow.source_alias, topic)
            sharing.setdefault(remote, []).append(topic)
    for remote, names in sharing.items():
        if len(names) > 1:
            out |= dict.fromkeys(names, _clash_error(flow, remote, names))
    return out


def is_renamed(flow: FlowConfig, topic: str) -> bool:
    """Return True if a rule or a router gives a source topic another remote name."""
    if not flow.policy.renames:
        return False
    policy, alias = policy_of(flow), flow.source_alias
    plain = replace(policy, renames=NO_RENAMES)
    return policy.format_remote_topic(alias, topic) != plain.format_remote_topic(alias, topic)


def unkept_names(flow: FlowConfig, topics: Iterable[str]) -> list[str]:
    """Return [a log line] about topics that get the source's alias as a prefix although the policy
    is identity, or [] if there are no such topics.

    MirrorMaker 2 treats every topic whose name ends in `heartbeats` as a heartbeats topic.
    """
    if flow.policy.kind is not PolicyKind.IDENTITY:
        return []
    policy = policy_of(flow)
    alias, remote = flow.source_alias, policy.format_remote_topic
    odd = [
        f"{name} is {remote(alias, name)}"
        for name in sorted(topics)
        if name != HEARTBEATS_TOPIC and _unrouted(policy, alias, name) != policy.renamed(name)
    ]
    if not odd:
        return []
    return [
        f"{flow.flow}: as in MirrorMaker 2, topics whose names end in {HEARTBEATS_TOPIC} do not "
        f"keep their names on {flow.flow.target}: {', '.join(odd)}; clients of "
        f"{flow.flow.target} need the new names"
    ]


def plain_upstream(config: FlowConfig, remote: str) -> str | None:
    """Return the upstream name that a remote topic's name shows without `twinlog.rename` and
    routers. Return None if these would give that upstream topic another remote name.
    """
    policy, alias = policy_of(config), config.source_alias
    if config.policy.kind is PolicyKind.IDENTITY:
        upstream: str | None = remote
    elif is_remote_topic_of(policy, alias, remote):
        upstream = policy.upstream_topic(remote)
    else:
        return None
    if upstream is None or not config.policy.renames:
        return upstream
    return upstream if policy.format_remote_topic(alias, upstream) == remote else None


def _unrouted(policy: DefaultReplicationPolicy, alias: str, topic: str) -> str:
    """Return a source topic's remote name without the changes by routers of Kafka Connect."""
    plain = replace(policy, renames=replace(policy.renames, routers=()))
    return plain.format_remote_topic(alias, topic)


def _why_no_name(policy: DefaultReplicationPolicy, alias: str, topic: str) -> str | None:
    remote = policy.format_remote_topic(alias, topic)
    is_routed = remote != _unrouted(policy, alias, topic)
    renamed = remote if is_routed else policy.renamed(topic)
    if renamed == topic and not is_routed:
        return None
    if not is_topic_name(renamed):
        return f'the name "{renamed}", which is not a valid topic name'
    if len(remote) > LONGEST_NAME:
        return f"a name of {len(remote)} characters, but Kafka allows at most {LONGEST_NAME}"
    if policy.is_heartbeats_topic(renamed) or policy.is_heartbeats_topic(remote):
        return f"the name {renamed}, which is that of a heartbeats topic"
    if any(policy.is_internal_topic(name) or is_own_topic(name) for name in (renamed, remote)):
        return f"the name {renamed}, which is that of an internal topic"
    return None


def _rules(flow: FlowConfig, topics: Iterable[str]) -> str:
    """Return text for a message: the rules of `twinlog.rename` and the routers that change the
    names of these topics.
    """
    policy, by_key, routers = policy_of(flow), set[str](), set[str]()
    for topic in topics:
        if (rule := policy.renames.rule(topic)) is not None:
            by_key.add(str(rule))
        name = _unrouted(policy, flow.source_alias, topic)
        for router in policy.renames.routers:
            before, name = name, router.routed(name)
            if name != before:
                routers.add(str(router))
    keys = [f"{KEY}: {', '.join(sorted(by_key))}"] if by_key else []
    return "; ".join([*keys, *sorted(routers)])


def _invalid_error(flow: FlowConfig, topic: str, why: str) -> PartitionError:
    return PartitionError(
        f"topic {topic} of {flow.flow.source} is not copied, because it would get {why} "
        f"({_rules(flow, [topic])}); correct the rule, or write a rule for this topic before it",
        flow=flow.flow,
        code=RENAME_INVALID,
    )


def _clash_error(flow: FlowConfig, remote: str, names: list[str]) -> PartitionError:
    return PartitionError(
        f"topics {first_few(names)} of {flow.flow.source} are not copied, because all of them "
        f"would get the name {remote} on {flow.flow.target} ({_rules(flow, names)}); change "
        f"the rules so that the names differ, or exclude all but one of these topics with "
        f"{flow.flow}.topics.exclude",
        flow=flow.flow,
        code=RENAME_CLASH,
        fate=Fate.RETRIABLE,
    )
