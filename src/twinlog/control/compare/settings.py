"""Compares configs of topics, ACLs and quotas: what the flow's syncs would change, and what they
leave alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.acls import SECURITY_DISABLED, topic_acls
from twinlog.cluster.topics.configs import describe_topic_configs
from twinlog.cluster.topics.quotas import client_quotas
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.compare.deviation import Aspect, Deviation, FlowComparison
from twinlog.control.duties.acl_sync import find_acl_changes
from twinlog.control.duties.config_sync import closed_configs, find_drift
from twinlog.errors import BrokerRefused, TwinlogError, Unauthorized, Unsupported
from twinlog.mirror.names.acl_rules import EVERY_TOPIC
from twinlog.mirror.names.config_rules import ConfigDiff, unknown_line
from twinlog.mirror.names.filters import ConfigPropertyFilter
from twinlog.survey.copied_topics import copies_by_name
from twinlog.survey.topic_configs import unread_configs
from twinlog.wire.topic_acl import Pattern, TopicAcl
from twinlog.wire.topic_config import ConfigEntry, ConfigSource

DEFAULT: Final = "(default)"
NO_CREATION: Final = "topic.creation.enable = false"
CONFIGS_OFF: Final = "sync.topic.configs.enabled = false"
ACLS_OFF: Final = "sync.topic.acls.enabled = false"
KEPT: Final = "twinlog.sync.retention = raise-only"
NOT_COPIED: Final = "config.properties.exclude, or a default of the brokers"
OF_CLUSTERS: Final = "quotas belong to each cluster and are not mirrored"


def configs_off(flow: FlowConfig) -> str:
    """Return why the flow copies no configs; empty if it does."""
    off = "" if flow.config_sync.enabled else CONFIGS_OFF
    return off if flow.new_topics.enabled else NO_CREATION


def acls_off(flow: FlowConfig) -> str:
    """Return why the flow copies no ACLs; empty if it does."""
    off = "" if flow.acl_sync.enabled else ACLS_OFF
    return off if flow.new_topics.enabled else NO_CREATION


def compare_configs(
    flow: FlowConfig,
    source: ClusterClient,
    target: ClusterClient,
    remote: Mapping[str, str],
    out: FlowComparison,
    *,
    with_left_alone: bool,
) -> None:
    """Compare configs; `remote` has the remote names of mirrored topics that exist."""
    off = configs_off(flow)
    if off and not with_left_alone:
        return
    names = {its: name for name, its in remote.items()}
    drift = find_drift(flow, copies_by_name(flow, source, target), source, target)
    found = [
        _config(names[its], one, off)
        for its, some in drift.topics.items()
        if its in names
        for one in some
    ]
    if with_left_alone:
        kept = (
            (names[its], one) for its, some in drift.kept.items() if its in names for one in some
        )
        found += [_config(name, one, KEPT) for name, one in kept]
        found += _never_copied(flow, source, target, remote)
    out.add(Aspect.CONFIG, len(remote) - len(drift.unread), found)
    if drift.unread:
        out.notes.append(unread_configs(flow, drift.unread))
    if drift.closed:
        out.notes.append(closed_configs(flow, drift.closed))
    if drift.unknown:
        out.notes.append(unknown_line(flow.flow.target, drift.unknown.values()))


def _config(name: str, one: ConfigDiff, off: str) -> Deviation:
    source = DEFAULT if one.new is None else one.new
    target = DEFAULT if one.old is None else one.old
    return Deviation(Aspect.CONFIG, name, one.name, source, target, off)


def _never_copied(
    flow: FlowConfig, source: ClusterClient, target: ClusterClient, remote: Mapping[str, str]
) -> Iterator[Deviation]:
    """Yield topic-level values that differ and that the filter leaves out."""
    chosen = ConfigPropertyFilter.of(flow)
    here = describe_topic_configs(source, remote)
    there = describe_topic_configs(target, remote.values())
    for name, its in remote.items():
        ours, theirs = _entries(here[name]), _entries(there[its])
        for key in sorted({*ours, *theirs}):
            one, other = ours.get(key), theirs.get(key)
            if one is None or chosen.may_be_copied(one) or not (_is_own(one) or _is_own(other)):
                continue
            if one.is_sensitive or other is None or other.value == one.value:
                continue
            values = one.value or DEFAULT, other.value or DEFAULT
            yield Deviation(Aspect.CONFIG, name, key, *values, NOT_COPIED)


def _entries(found: list[ConfigEntry] | TwinlogError) -> dict[str, ConfigEntry]:
    if isinstance(found, TwinlogError):
        return {}
    return {entry.name: entry for entry in found}


def _is_own(one: ConfigEntry | None) -> bool:
    return one is not None and one.source == ConfigSource.DYNAMIC_TOPIC


def compare_acls(
    flow: FlowConfig,
    source: ClusterClient,
    target: ClusterClient,
    remote: Mapping[str, str],
    out: FlowComparison,
    *,
    with_left_alone: bool,
) -> None:
    """Compare ACLs that apply to one of `remote`'s topics on the target: those that it lacks, and,
    if the flow deletes ACLs, those that it should not have.
    """
    off = acls_off(flow)
    if off and not with_left_alone:
        return
    try:
        total = len(topic_acls(source))
        found = find_acl_changes(flow, copies_by_name(flow, source, target), source, target)
    except Unauthorized as error:
        out.note(f"ACLs are not compared: {error}")
        return
    except BrokerRefused as error:
        if error.code != SECURITY_DISABLED:
            raise
        out.note(f"there are no ACLs to compare: {error}")
        return
    names = sorted(remote.values())
    missing = [one for one in found.missing if _covers(one, names)]
    leftover = [one for one in found.leftover if _covers(one, names)]
    lacks = (Deviation(Aspect.ACL, str(one), "", "there", "missing", off) for one in missing)
    has = (Deviation(Aspect.ACL, str(one), "", "missing", "there", off) for one in leftover)
    out.add(Aspect.ACL, total, [*lacks, *has])


def _covers(acl: TopicAcl, names: Sequence[str]) -> bool:
    """Return True if the ACL applies to one of these sorted names."""
    if acl.name == EVERY_TOPIC:
        return True
    at = bisect_left(names, acl.name)
    found = names[at] if at < len(names) else ""
    return found.startswith(acl.name) if acl.pattern == Pattern.PREFIXED else found == acl.name


def compare_quotas(source: ClusterClient, target: ClusterClient, out: FlowComparison) -> None:
    """Compare quotas, for information only: they are not mirrored."""
    try:
        ours, theirs = (
            {(one.whose, one.key): one.value for one in client_quotas(client)}
            for client in (source, target)
        )
    except (Unauthorized, Unsupported) as error:
        out.note(f"quotas are not compared: {error}")
        return
    found = []
    for key in (keys := sorted({*ours, *theirs})):
        here, there = (
            "none" if key not in values else f"{values[key]:.15g}" for values in (ours, theirs)
        )
        if ours.get(key) != theirs.get(key):
            found.append(Deviation(Aspect.QUOTA, *key, here, there, OF_CLUSTERS))
    out.add(Aspect.QUOTA, len(keys), found)
