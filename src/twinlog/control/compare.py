"""`twinlog diff`: compares everything that a mirror keeps equal on the two clusters of each flow,
without writing to either. Replication policy, filters and syncs determine what is kept equal.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from twinlog.cluster.client import ClusterClient, prompt_client
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import Group
from twinlog.cluster.groups.group_offsets import GroupOffsets
from twinlog.cluster.groups.share_groups import offsets_of
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.cluster.topics.acls import SECURITY_DISABLED, topic_acls
from twinlog.cluster.topics.configs import describe_topic_configs
from twinlog.cluster.topics.quotas import client_quotas
from twinlog.config.flow.schema import FlowConfig, MirrorConfig, PolicyKind
from twinlog.control.check.group_readiness import GroupSurvey, survey_groups
from twinlog.control.check.offline_status import idle_flow_interface
from twinlog.control.duties.acl_sync import find_acl_changes
from twinlog.control.duties.config_sync import closed_configs, find_drift
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.flow.wiring import flow_setup
from twinlog.errors import BrokerRefused, TwinlogError, Unauthorized, Unsupported, UsageError
from twinlog.mirror.names.acl_rules import EVERY_TOPIC
from twinlog.mirror.names.config_rules import ConfigDiff, unknown_line
from twinlog.mirror.names.filters import (
    ConfigPropertyFilter,
    TopicSelector,
    Verdict,
    is_remote_topic_of,
    policy_of,
)
from twinlog.mirror.names.naming import is_own_topic
from twinlog.mirror.names.renaming import refused_names
from twinlog.quantities import plural
from twinlog.survey.copied_topics import copies_by_name
from twinlog.survey.discovery import mirrored_topics, selected_topics
from twinlog.survey.state_reader import state_rows_if_any
from twinlog.survey.topic_configs import unread_configs
from twinlog.wire.topic_settings import ConfigEntry, ConfigSource, Pattern, TopicAcl

DEFAULT: Final = "(default)"
NO_CREATION: Final = "topic.creation.enable = false"
CONFIGS_OFF: Final = "sync.topic.configs.enabled = false"
ACLS_OFF: Final = "sync.topic.acls.enabled = false"
KEPT: Final = "twinlog.sync.retention = raise-only"
NOT_COPIED: Final = "config.properties.exclude, or a default of the brokers"
OF_CLUSTERS: Final = "quotas belong to each cluster and are not mirrored"


def configs_off(flow: FlowConfig) -> str:
    """Return the setting that turns the copy of configs off, or empty if it is on."""
    off = "" if flow.config_sync.enabled else CONFIGS_OFF
    return off if flow.new_topics.enabled else NO_CREATION


def acls_off(flow: FlowConfig) -> str:
    """Return the setting that turns the copy of ACLs off, or empty if it is on."""
    off = "" if flow.acl_sync.enabled else ACLS_OFF
    return off if flow.new_topics.enabled else NO_CREATION


def _config(name: str, diff: ConfigDiff, why_off: str) -> Deviation:
    source = DEFAULT if diff.new is None else diff.new
    target = DEFAULT if diff.old is None else diff.old
    return Deviation(Aspect.CONFIG, name, diff.name, source, target, why_off)


def _entries(entries: list[ConfigEntry] | TwinlogError) -> dict[str, ConfigEntry]:
    if isinstance(entries, TwinlogError):
        return {}
    return {entry.name: entry for entry in entries}


def _is_own(entry: ConfigEntry | None) -> bool:
    return entry is not None and entry.source == ConfigSource.DYNAMIC_TOPIC


def _covers(acl: TopicAcl, names: Sequence[str]) -> bool:
    """Return True if the ACL applies to a topic in `names`, which must be sorted."""
    if acl.name == EVERY_TOPIC:
        return True
    at = bisect_left(names, acl.name)
    name = names[at] if at < len(names) else ""
    return name.startswith(acl.name) if acl.pattern == Pattern.PREFIXED else name == acl.name


# The results of a comparison: deviations that the flow should have removed (differences), and those
# that it leaves as they are.


class Aspect(StrEnum):
    """A kind of compared items. The members are in the order of the output."""

    TOPIC = "topics"
    PARTITIONS = "partitions"
    REPLICATION_FACTOR = "replication factors"
    CONFIG = "configs"
    ACL = "ACLs"
    QUOTA = "quotas"
    GROUP = "groups"


@dataclass(frozen=True, slots=True)
class Deviation:
    """An item that differs between the two clusters."""

    FIELDS = "aspect=aspect.name.lower name detail source target left_alone"

    aspect: Aspect
    name: str
    """The source topic, the group, the ACL, or the entity of a quota."""
    detail: str = ""
    """Name of the config, or the partition of a group's offset, if `name` is not enough."""
    source: str = ""
    target: str = ""
    left_alone: str = ""
    """Why the flow leaves the deviation as it is. Empty if the flow should have removed it."""

    @property
    def is_difference(self) -> bool:
        return not self.left_alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """Numbers of compared items and of deviations of one aspect."""

    compared: int
    different: int
    left_alone: int


@dataclass(slots=True, kw_only=True)
class FlowComparison:
    """The results for one flow. They are added while the comparison runs."""

    flow: str
    compared: dict[Aspect, int] = field(default_factory=dict)
    """Number of compared items by aspect. Aspects that could not be compared are missing."""
    deviations: list[Deviation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """A line for each failed comparison, with the reason."""

    def add(self, aspect: Aspect, compared: int, deviations: Iterable[Deviation]) -> None:
        self.compared[aspect] = compared
        self.deviations += deviations

    def note(self, line: str) -> None:
        """Add a note about a failed comparison, unless the same note was already added."""
        if line not in self.notes:
            self.notes.append(line)

    @property
    def differences(self) -> list[Deviation]:
        """Deviations that the flow should have removed."""
        return [deviation for deviation in self.deviations if deviation.is_difference]

    def totals(self) -> dict[Aspect, Total]:
        out = {}
        for aspect in Aspect:
            if aspect in self.compared:
                of_aspect = [
                    deviation for deviation in self.deviations if deviation.aspect is aspect
                ]
                different = sum(deviation.is_difference for deviation in of_aspect)
                out[aspect] = Total(
                    compared=self.compared[aspect],
                    different=different,
                    left_alone=len(of_aspect) - different,
                )
        return out

    def as_json(self, *, with_left_alone: bool) -> dict[str, Any]:
        """Return the content of the JSON output. `with_left_alone`: include all deviations."""
        return {
            "flow": self.flow,
            "is_equal": not self.differences,
            "totals": {aspect.name.lower(): total for aspect, total in self.totals().items()},
            "deviations": self.deviations if with_left_alone else self.differences,
            "notes": self.notes,
        }


MANY: Final = 1_000
"""If a flow has at least this many topics, a comparison takes long, so its steps are shown."""


def matching(topics: str | None, where: str) -> Callable[[str], bool]:
    """Return a function that returns True if the regular expression matches a whole name. None
    matches every name. Raises UsageError with `where` if the expression is invalid.
    """
    if topics is None:
        return lambda _: True
    try:
        compiled = re.compile(topics)
    except (re.error, OverflowError, RecursionError) as problem:
        raise UsageError(f"{where}: {topics} is not a regular expression: {problem}") from None
    return lambda name: compiled.fullmatch(name) is not None


def compare_flows(
    config: MirrorConfig,
    matches: Callable[[str], bool],
    *,
    with_left_alone: bool,
    say: Callable[[str], None],
) -> Iterator[FlowComparison]:
    """Compare each flow. `matches` selects the source topics to compare. `with_left_alone` adds
    deviations that flows leave as they are. Raises TwinlogError if a cluster cannot be queried.
    """
    for flow in config.flows:
        setup = flow_setup(flow)
        with prompt_client(setup.source) as source, prompt_client(setup.target) as target:
            comparer = _Comparer(setup, source, target, matches, with_left_alone=with_left_alone)
            yield comparer.compared(say)


def compare_topic_configs(
    setup: FlowSetup,
    source: ClusterClient,
    target: ClusterClient,
    matches: Callable[[str], bool],
) -> FlowComparison:
    """Compare only the topic configs of one flow."""
    comparer = _Comparer(setup, source, target, matches, with_left_alone=False)
    comparer.configs()
    return comparer.out


class _Comparer:
    """Compares the two clusters of one flow: differences that the flow should have removed, and
    with `with_left_alone` also those that it leaves as they are.
    """

    def __init__(
        self,
        setup: FlowSetup,
        source: ClusterClient,
        target: ClusterClient,
        matches: Callable[[str], bool],
        *,
        with_left_alone: bool,
    ) -> None:
        self.out = FlowComparison(flow=setup.name)
        self._setup, self._source, self._target, self._matches = setup, source, target, matches
        self._with_left_alone = with_left_alone
        self._source_metadata, self._target_metadata = source.metadata(None), target.metadata(None)
        released = state_rows_if_any(target).intents(setup.name).unmirrored_topics
        self._flow = replace(setup.config, released=released)
        mirrored = mirrored_topics(self._flow, self._source_metadata)
        self._remote = remote_names(self._flow, filter(matches, mirrored))
        """Names of remote topics by source topic, for the compared topics."""
        self._present = {
            name: remote
            for name, remote in self._remote.items()
            if remote in self._target_metadata.topics
        }

    def compared(self, say: Callable[[str], None]) -> FlowComparison:
        def report(what: str) -> None:
            if len(self._remote) >= MANY:
                say(f"{self._setup.name}: comparing {what}")

        topics = [deviation for deviation in self._topics() if self._matches(deviation.name)]
        self.out.add(Aspect.TOPIC, len(self._remote), topics)
        self.out.add(Aspect.PARTITIONS, len(self._present), self._partitions())
        self.out.add(Aspect.REPLICATION_FACTOR, len(self._present), self._replication())
        report(f"configs of {plural(len(self._present), 'topic')}")
        self.configs()
        report("ACLs")
        self._acls()
        if self._with_left_alone:
            self._quotas()
        if self._with_left_alone or self._flow.groups.sync_s is not None:
            report("groups")
            self._groups()
        return self.out

    # -- topics, partition counts and replication factors, by the clusters' metadata only

    def _topics(self) -> Iterator[Deviation]:
        """Yield topics that exist on only one of the clusters, and topics that are not copied."""
        flow, source_topics = self._flow, self._source_metadata.topics
        target_topics = self._target_metadata.topics
        for name, wanted in self._remote.items():
            if wanted not in target_topics:
                yield Deviation(Aspect.TOPIC, name, "", _size(source_topics[name]), MISSING)
        selected = selected_topics(flow, self._source_metadata)
        for name, error in refused_names(flow, selected).items():
            target = f"not copied [{error.code}]"
            yield Deviation(Aspect.TOPIC, name, "", _size(source_topics[name]), target)
        selector = TopicSelector.of(flow)
        for name, topic in source_topics.items():
            verdict = Verdict.INTERNAL if topic.is_internal else selector.verdict(name)
            if verdict in SHOWN_VERDICTS:
                yield Deviation(Aspect.TOPIC, name, "", _size(topic), "", verdict.value)
        if flow.policy.kind is PolicyKind.IDENTITY:
            return  # without an alias in names, the target's copies look like other topics
        policy = policy_of(flow)
        copied = {*remote_names(flow, source_topics).values()}
        for name, topic in target_topics.items():
            if is_own_topic(name) or policy.is_internal_topic(name):
                continue
            if is_remote_topic_of(policy, flow.source_alias, name) and name not in copied:
                # with rename rules, the source topic's name cannot be derived from the remote name
                renames = bool(flow.policy.renames)
                upstream = name if renames else policy.upstream_topic(name) or name
                note = (NO_SOURCE, NOT_NAMED)[renames]
                yield Deviation(Aspect.TOPIC, upstream, "", MISSING, _size(topic), note)

    def _partitions(self) -> Iterator[Deviation]:
        """Yield differing partition counts. A remote topic gets new partitions when its source
        topic does, but partitions are never removed.
        """
        for name, target_topic in self._present.items():
            topic = self._source_metadata.topics[name]
            remote_topic = self._target_metadata.topics[target_topic]
            wanted, count = len(topic.partitions), len(remote_topic.partitions)
            if count != wanted and not remote_topic.error:
                why = _why_other_count(self._flow, more=count > wanted)
                yield Deviation(Aspect.PARTITIONS, name, "", str(wanted), str(count), why)

    def _replication(self) -> Iterator[Deviation]:
        """Yield replication factors that differ from `replication.factor`. If it is not set, or the
        topic has it, yield factors that differ from the source topic's, for information only.
        """
        factor = self._flow.new_topics.replication_factor
        for name, target_topic in self._present.items():
            topic = self._source_metadata.topics[name]
            remote_topic = self._target_metadata.topics[target_topic]
            if not remote_topic.partitions or not topic.partitions:
                continue
            source_counts, counts = _factors(topic), _factors(remote_topic)
            text = ", ".join(map(str, counts))
            if factor > 0 and counts != [factor]:
                expected = f"replication.factor = {factor}"
                yield Deviation(Aspect.REPLICATION_FACTOR, name, "", expected, text)
            if source_counts != counts and (factor <= 0 or counts == [factor]):
                why = "replication.factor sets that of remote topics"
                expected = ", ".join(map(str, source_counts))
                yield Deviation(Aspect.REPLICATION_FACTOR, name, "", expected, text, why)

    # -- what the syncs of the flow change

    def configs(self) -> None:
        """Compare the configs of the existing remote topics."""
        # topics that are not compared count as released, so that they are ignored
        unseen = {name for name in self._source_metadata.topics if not self._matches(name)}
        flow = replace(self._flow, released=self._flow.released | unseen)
        source, target, off = self._source, self._target, configs_off(flow)
        if off and not self._with_left_alone:
            return
        names = {target_topic: name for name, target_topic in self._present.items()}
        drift = find_drift(flow, copies_by_name(flow, source, target), source, target)
        deviations = [
            _config(names[target_topic], diff, off)
            for target_topic, diffs in drift.topics.items()
            if target_topic in names
            for diff in diffs
        ]
        if self._with_left_alone:
            kept = (
                (names[target_topic], diff)
                for target_topic, diffs in drift.kept.items()
                if target_topic in names
                for diff in diffs
            )
            deviations += [_config(name, diff, KEPT) for name, diff in kept]
            deviations += self._never_copied(flow)
        self.out.add(Aspect.CONFIG, len(self._present) - len(drift.unread), deviations)
        if drift.unread:
            self.out.notes.append(unread_configs(flow, drift.unread))
        if drift.closed:
            self.out.notes.append(closed_configs(flow, drift.closed))
        if drift.unknown:
            self.out.notes.append(unknown_line(flow.flow.target, drift.unknown.values()))

    def _never_copied(self, flow: FlowConfig) -> Iterator[Deviation]:
        """Yield differing values that are set for a topic, but not copied by the sync."""
        chosen = ConfigPropertyFilter.of(flow)
        source_configs = describe_topic_configs(self._source, self._present)
        target_configs = describe_topic_configs(self._target, self._present.values())
        for name, target_topic in self._present.items():
            source_entries, target_entries = (
                _entries(source_configs[name]),
                _entries(target_configs[target_topic]),
            )
            for key in sorted({*source_entries, *target_entries}):
                entry, other = source_entries.get(key), target_entries.get(key)
                if (
                    entry is None
                    or chosen.may_be_copied(entry)
                    or not (_is_own(entry) or _is_own(other))
                ):
                    continue
                if entry.is_sensitive or other is None or other.value == entry.value:
                    continue
                values = entry.value or DEFAULT, other.value or DEFAULT
                yield Deviation(Aspect.CONFIG, name, key, *values, NOT_COPIED)

    def _acls(self) -> None:
        """Compare the ACLs on the target that apply to a remote topic. ACLs that the target lacks
        are deviations. If the flow deletes ACLs, those that it should not have are deviations, too.
        """
        flow, source, target = self._flow, self._source, self._target
        why_off = acls_off(flow)
        if why_off and not self._with_left_alone:
            return
        try:
            total = len(topic_acls(source))
            changes = find_acl_changes(flow, copies_by_name(flow, source, target), source, target)
        except Unauthorized as error:
            self.out.note(f"ACLs are not compared: {error}")
            return
        except BrokerRefused as error:
            if error.code != SECURITY_DISABLED:
                raise
            self.out.note(f"there are no ACLs to compare: {error}")
            return
        names = sorted(self._remote.values())
        missing = [acl for acl in changes.missing if _covers(acl, names)]
        leftover = [acl for acl in changes.leftover if _covers(acl, names)]
        lacks = (Deviation(Aspect.ACL, str(a), "", "there", "missing", why_off) for a in missing)
        has = (Deviation(Aspect.ACL, str(a), "", "missing", "there", why_off) for a in leftover)
        self.out.add(Aspect.ACL, total, [*lacks, *has])

    def _quotas(self) -> None:
        """Compare quotas. They are never mirrored, so differences are only information."""
        try:
            source_quotas, target_quotas = (
                {(quota.whose, quota.key): quota.value for quota in client_quotas(client)}
                for client in (self._source, self._target)
            )
        except (Unauthorized, Unsupported) as error:
            self.out.note(f"quotas are not compared: {error}")
            return
        deviations = []
        for key in (keys := sorted({*source_quotas, *target_quotas})):
            source_value, target_value = (
                "none" if key not in values else f"{values[key]:.15g}"
                for values in (source_quotas, target_quotas)
            )
            if source_quotas.get(key) != target_quotas.get(key):
                deviations.append(
                    Deviation(Aspect.QUOTA, *key, source_value, target_value, OF_CLUSTERS)
                )
        self.out.add(Aspect.QUOTA, len(keys), deviations)

    def _groups(self) -> None:
        """Compare the offsets of the target's groups with those that the flow's sync would set, for
        partitions that have a counterpart on the target.
        """
        led = idle_flow_interface(self._setup, self._source, self._target, self.out.notes.append)
        views = tuple(view for view in led.partitions() if self._matches(view.source.topic))
        sync_s, target = led.config.groups.sync_s, Coordinators(self._target)
        led = replace(led, partitions=lambda: views)
        survey = survey_groups(led, Coordinators(self._source), target)
        why_off = SYNC_OFF if sync_s is None else ""
        follows = f"it is active on {led.config.flow.source}, and synchronized every {sync_s} s"
        offsets = offsets_of(
            target,
            [group.name for group in survey.selected if not group.is_share],
            [group.name for group in survey.selected if group.is_share],
            furthest=True,
        )
        deviations: list[Deviation] = []
        for group in survey.selected:
            target_offsets = offsets.get(group.name, {})
            if isinstance(target_offsets, TwinlogError):
                self.out.note(f"group {group.name} is not compared: {target_offsets}")
                continue
            counterpart = survey.there.get(group.name)
            active = follows if group.is_active else ""
            why = why_off or why_left_alone(group, counterpart) or active
            deviations += _group_deviations(group, survey, target_offsets, why)
        self.out.add(Aspect.GROUP, len(survey.selected), deviations)


MISSING: Final = "missing"
SHOWN_VERDICTS: Final = (
    Verdict.NOT_INCLUDED,
    Verdict.EXCLUDED,
    Verdict.CYCLE,
    Verdict.RELEASED,
)
NO_SOURCE: Final = "its source topic no longer exists; the mirror never deletes topics"
NOT_NAMED: Final = "no source topic has this name here; the mirror never deletes topics"


def remote_names(flow: FlowConfig, topics: Iterable[str]) -> dict[str, str]:
    policy = policy_of(flow)
    return {name: policy.format_remote_topic(flow.source_alias, name) for name in topics}


def _size(topic: TopicMetadata) -> str:
    return plural(len(topic.partitions), "partition")


def _factors(topic: TopicMetadata) -> list[int]:
    return sorted({len(partition.replicas) for partition in topic.partitions})


def _why_other_count(flow: FlowConfig, *, more: bool) -> str:
    if flow.keyed_partitions:
        return "records are placed by key (twinlog.target.partitions)"
    if flow.same_partitions or not more:
        return ""
    return "additional partitions on the target are never removed"


SYNC_OFF: Final = "sync.group.offsets.enabled = false"
ACTIVE_THERE: Final = "it is active on the target, so its own commits count"
AHEAD: Final = "it is ahead on the target: an idle group is never moved back"
OTHER_KIND: Final = "a group of another type has that name on the target"


def why_left_alone(group: Group, counterpart: Group | None) -> str:
    """Return why the flow does not set a group's offsets on the target, or empty if it does."""
    if counterpart is None:
        return ""
    if counterpart.is_active:
        return ACTIVE_THERE
    is_same = counterpart.is_share if group.is_share else counterpart.has_offsets
    return "" if is_same else OTHER_KIND


def _group_deviations(
    group: Group, survey: GroupSurvey, target_offsets: GroupOffsets, why: str
) -> Iterator[Deviation]:
    source_offsets = survey.offsets[group.name]
    if isinstance(source_offsets, TwinlogError):
        return
    for tp, committed in sorted(source_offsets.items()):
        if tp in survey.without_counterpart or tp not in survey.counterparts:
            continue
        counterpart = survey.counterparts[tp]
        wanted = counterpart.translate(committed.offset).offset
        stands = (
            target_offsets[counterpart.target].offset
            if counterpart.target in target_offsets
            else None
        )
        if stands == wanted:
            continue
        is_ahead = stands is not None and stands > wanted
        source = f"{committed.offset}, which corresponds to {wanted}"
        target = "none" if stands is None else str(stands)
        left_alone = why or (AHEAD if is_ahead else "")
        partition = str(counterpart.target)
        yield Deviation(Aspect.GROUP, group.name, partition, source, target, left_alone)
