"""Finds the partitions that a flow mirrors: the source topics that pass the filters, and their
remote topics, which are created if missing.

As in MirrorMaker 2, a remote topic gets the source topic's partition count, the flow's replication
factor, and the source's own configs that pass the config filter. With
`twinlog.new.topic.partitions=default`, the target decides the partition count. Partitions are added
when the source grows. Nothing is ever deleted or shrunk. With `topic.creation.enable=false` nothing
is created or grown, so whatever is missing on the target is a problem until another client creates
it.

**Stale metadata**

A broker answers from the metadata that it has. A broker that was frozen, starved or cut off from
the controller has old metadata, and still lists itself as alive. So a topic in a response exists or
existed, and a topic that the response lacks may exist nevertheless. If the response were trusted,
`--once` would end successfully without copying anything, and a running mirror would stop copying a
healthy topic.

The topics that should exist are those that the configuration names without a pattern, and those
that the flow has begun to copy. If a response lacks such a topic, other brokers are queried for it
by name:

- If no broker shows the topic, it is deleted, or hidden from Twinlog's user. After a deletion, a
  stale response shows more topics, not fewer.
- If a broker shows it, the brokers differ, and this discovery has no result. No topic is created,
  and no copy begins or ends. The next discovery queries a random broker.
- If no other broker responds although there are other brokers, there is no result either.

The check only reads, so a crash or concurrent checks change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from twinlog.cluster.client import MISSING_GRACE_S, ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import fetch_offsets
from twinlog.cluster.net.metadata import ClusterMetadata, Operation, TopicMetadata
from twinlog.cluster.net.retry import CHANCE
from twinlog.cluster.topics.topic_admin import (
    DEFAULT,
    create_partitions,
    create_topic,
    wait_for_topic,
)
from twinlog.codes import Trait, has
from twinlog.config.flow.schema import FlowConfig, PolicyKind
from twinlog.config.values.renames import LONGEST_NAME
from twinlog.errors import (
    BrokerRefused,
    ClusterError,
    Fate,
    PartitionError,
    TwinlogError,
    Unsupported,
    or_raise,
)
from twinlog.mirror.names.filters import TopicSelector
from twinlog.mirror.names.naming import DefaultReplicationPolicy
from twinlog.mirror.names.renaming import refused_names
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.copies import CopyRow
from twinlog.model import NO_TOPIC_ID, TopicPartition
from twinlog.quantities import first_few, plural
from twinlog.survey.rights import denied_error, is_permitted
from twinlog.survey.topic_configs import UNKNOWN_RULES, new_topic_configs, target_rules
from twinlog.wire.error_codes import (
    NONE,
    TOPIC_ALREADY_EXISTS,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_for,
)

MOST_QUERIED_BROKERS: Final = 5
"""Maximum number of brokers to query. If so many brokers have equally stale metadata, the cluster
has no controller.
"""

MIN_RESPONSES: Final = 2
"""Minimum number of responses, or fewer if the cluster has fewer brokers. One response may be from
the broker that discovery queried.
"""


def require_gone(client: ClusterClient, metadata: ClusterMetadata, names: Collection[str]) -> None:
    """Raise BrokerRefused BROKERS_DIFFER (retriable) unless other brokers lack these topics, too.

    Before it raises, the client is closed, so that the next discovery queries another broker.
    """
    lacking = sorted(name for name in names if name not in metadata.topics)
    if not lacking or not metadata.brokers:
        return
    answers = [*_metadata_responses(client, metadata, lacking)]
    shown = {
        name for answer in answers for name, topic in answer.topics.items() if topic.error == NONE
    }
    if shown:
        what = f"one broker lists {first_few(sorted(shown))}, another broker does not"
    elif len(answers) < min(MIN_RESPONSES, len(metadata.brokers)):
        what = f"one broker does not list {first_few(lacking)}, and the others do not respond"
    else:
        return
    client.close()
    raise BrokerRefused(
        f"cluster {client.alias}: brokers differ about {plural(len(lacking), 'topic')} ({what}): "
        "one of the brokers has stale metadata; if this persists, check the brokers' connections "
        "to the controller",
        code="BROKERS_DIFFER",
        fate=Fate.RETRIABLE,
    )


def hidden_topics(
    client: ClusterClient, metadata: ClusterMetadata, names: Collection[str]
) -> list[str]:
    """Return the names that `metadata` lacks because this user is not permitted to see the topics.
    They may still exist. Raises BROKERS_DIFFER as `require_gone` does.
    """
    require_gone(client, metadata, names)
    lacking = sorted({*names} - metadata.topics.keys())
    topics = client.metadata(lacking).topics if lacking else {}
    return [name for name, topic in topics.items() if topic.error == TOPIC_AUTHORIZATION_FAILED]


def shown_by_any(client: ClusterClient) -> Iterator[TopicMetadata]:
    """Yield all topics that some of the queried brokers show. A topic may be repeated."""
    for answer in _metadata_responses(client, client.metadata([]), None):
        yield from answer.topics.values()


def _metadata_responses(
    client: ClusterClient, metadata: ClusterMetadata, names: Collection[str] | None
) -> Iterator[ClusterMetadata]:
    nodes = sorted(metadata.brokers)
    for node in CHANCE.sample(nodes, min(MOST_QUERIED_BROKERS, len(nodes))):
        try:
            yield client.metadata_from(node, names)
        except ClusterError:
            continue  # the caller judges whether enough brokers have responded


NEEDED_OPERATIONS: Final = (Operation.WRITE, Operation.READ)
"""Operations required on remote topics: WRITE to copy, READ to see how far the copy is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProblem:
    """Why one topic, or its partitions from `first` on, cannot be mirrored now."""

    topic: str
    partitions: int
    """The source topic's partition count."""
    error: TwinlogError
    first: int = 0


def may_pass(problems: Iterable[TopicProblem]) -> bool:
    """Return True if users or lanes may resolve one of the problems. Only a later discovery can
    detect that.
    """
    codes = {problem.error.code for problem in problems}
    return any(has(code, Trait.MAY_PASS) for code in codes) or "TOPIC_ALREADY_EXISTS" in codes


@dataclass(slots=True, kw_only=True)
class Discovery:
    source_topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    plans: list[PartitionPlan] = field(default_factory=list)
    problems: list[TopicProblem] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    grown: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Remote topics that a dry run would create."""
    notes: list[str] = field(default_factory=list)
    """Notes on work that is left out although the flow continues, one line each."""
    absent: list[str] = field(default_factory=list)
    """Source topics that the configuration names without a pattern and that do not exist."""

    @property
    def partition_counts(self) -> dict[str, int]:
        """Return the partition counts of all topics that the source lists."""
        return {name: len(topic.partitions) for name, topic in self.source_topics.items()}

    def fail(self, topic: TopicMetadata, error: TwinlogError, first: int = 0) -> None:
        """Note why a topic, or its partitions from `first` on, cannot be mirrored now."""
        count = len(topic.partitions)
        problem = TopicProblem(topic=topic.name, partitions=count, error=error, first=first)
        self.problems.append(problem)

    def fail_each(
        self, topics: Mapping[str, TopicMetadata], errors: Mapping[str, TwinlogError]
    ) -> None:
        """Note why each of these topics cannot be mirrored."""
        for name, error in errors.items():
            self.fail(topics[name], error)

    def fail_absent(self, flow: FlowConfig) -> None:
        """Add a problem for each absent topic, because `--once` does not wait for topics."""
        for name in self.absent:
            error = not_copied_error(flow, name)
            self.problems.append(TopicProblem(topic=name, partitions=1, error=error))


class Guard(Protocol):
    """Decides which topics must not be copied (`control.loops.guard`)."""

    def admit(
        self,
        source: ClusterClient,
        target: ClusterClient,
        topics: Mapping[str, TopicMetadata],
        at_source: ClusterMetadata,
        at_target: ClusterMetadata,
    ) -> TopicVerdicts: ...

    def growth_refusal(
        self, topic: TopicMetadata, remote: TopicMetadata, target: ClusterClient
    ) -> TwinlogError | None: ...

    def on_planned(
        self, target: ClusterClient, verdict: TopicVerdicts, plans: Iterable[PartitionPlan]
    ) -> None: ...


@dataclass(slots=True, kw_only=True)
class TopicVerdicts:
    """The topics that may be copied, and the reasons why other topics must not be copied."""

    rows: dict[str, CopyRow] = field(default_factory=dict)
    """Rows for the target's state topic, for topics that may be copied."""
    errors: dict[str, TwinlogError] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    copied: frozenset[str] = frozenset()
    """Source topics that the flow has begun to copy, whether they still exist or not."""
    unrelated_topics: dict[str, TwinlogError] = field(default_factory=dict)
    """Source topics whose remote name belongs to an unrelated topic."""

    def exclude(self, unrelated_topics: Mapping[str, TwinlogError]) -> None:
        """Exclude these topics from the copy."""
        self.unrelated_topics.update(unrelated_topics)
        for name, error in unrelated_topics.items():
            self.rows.pop(name, None)
            self.errors.setdefault(name, error)


def mirrored_topics(flow: FlowConfig, metadata: ClusterMetadata) -> dict[str, TopicMetadata]:
    """Return the source topics, by name, that pass the filters and whose new names are accepted."""
    topics = selected_topics(flow, metadata)
    refused = refused_names(flow, topics)
    return {name: topic for name, topic in topics.items() if name not in refused}


def selected_topics(flow: FlowConfig, metadata: ClusterMetadata) -> dict[str, TopicMetadata]:
    """Return the source topics that pass the filters, by name."""
    selector = TopicSelector.of(flow)
    return {
        name: topic
        for name, topic in sorted(metadata.topics.items())
        if selector.selects(name) and not topic.is_internal
    }


def discover(
    flow: FlowConfig,
    policy: DefaultReplicationPolicy,
    source: ClusterClient,
    target: ClusterClient,
    *,
    create: bool = True,
    lanes_share_user: bool = False,
    guard: Guard | None = None,
) -> Discovery:
    """Read both clusters, and create or grow remote topics unless `create` is False.

    Before that, `guard` decides which topics would come back in a loop, or be copied twice.
    `lanes_share_user`: True if lanes connect to the target as the same user as `target`. Topics for
    which the user lacks one of NEEDED are then problems, because without READ a copy can begin, but
    never be resumed.
    """
    all_topics = source.metadata(None)
    topics = selected_topics(flow, all_topics)
    out = Discovery(source_topics=all_topics.topics, absent=missing_named_topics(flow, all_topics))
    refusals = refused_names(flow, topics)
    out.fail_each(topics, refusals)
    topics = {name: topic for name, topic in topics.items() if name not in refusals}
    at_target = target.metadata(None)
    verdict = None
    if guard is not None:
        verdict = guard.admit(source, target, topics, all_topics, at_target)
        out.fail_each(topics, verdict.errors)
        out.notes += verdict.notes
        selector = TopicSelector.of(flow)
        begun = {name for name in verdict.copied if selector.selects(name)}
        require_gone(source, all_topics, begun.union(out.absent))
        if not topics and not out.absent and not out.problems:
            out.notes.append(nothing_matches(flow, all_topics))
        topics = {name: topic for name, topic in topics.items() if name in verdict.rows}
    remote = {name: policy.format_remote_topic(flow.source_alias, name) for name in topics}
    missing = [name for name in topics if remote[name] not in at_target.topics]
    refused = None
    if missing and flow.new_topics.enabled:
        refused = replication_refused(flow, len(at_target.brokers), len(missing))
        if refused is not None and len(missing) == len(topics):
            raise refused
    out.notes += [f"{flow.flow}: {absence(flow, name)}" for name in out.absent]
    creates = create and flow.new_topics.enabled
    new = new_topic_configs(
        flow, source, target, at_target, {name: remote[name] for name in missing if creates}
    )
    out.notes += filter(None, (new.unread, new.unknown))
    for name, topic in topics.items():
        try:
            if refused is not None and name in missing:
                raise refused  # only missing topics fail, existing topics continue
            configs = new.by_topic.get(name, {})  # empty if reading the configs is denied
            _ensure(flow, target, topic, at_target, remote[name], configs, out, create, guard)
        except TwinlogError as error:
            # existing partitions continue even if others cannot be added
            known = at_target.topics.get(remote[name])
            unusable = known is None or known.error or flow.same_partitions
            out.fail(topic, error, 0 if unusable or known is None else len(known.partitions))
    judged = {} if guard is None else at_target.topics
    _plan(flow, topics, remote, target, out, lanes_share_user, judged)
    if guard is not None and verdict is not None:
        guard.on_planned(target, verdict, out.plans)
    if create:
        out.plans = with_group_starts(flow, source, out.plans)
    return out


def replication_refused(flow: FlowConfig, live: int, count: int) -> ClusterError | None:
    """Return the error if replication.factor exceeds the brokers that are alive now, else None."""
    if flow.new_topics.replication_factor <= live:
        return None
    are = "is" if live == 1 else "are"
    return ClusterError(
        f"replication.factor = {flow.new_topics.replication_factor}, but only "
        f"{plural(live, 'broker')} of {flow.flow.target} {are} alive, so {plural(count, 'topic')} "
        f"cannot be created: start the other brokers, or set {flow.flow}.replication.factor to at "
        f"most {live}, or to -1 for the brokers' default",
        flow=flow.flow,
        code="REPLICATION_FACTOR",
        fate=Fate.RETRIABLE,
    )


def name_too_long_error(flow: FlowConfig, topic: str, remote: str) -> PartitionError | None:
    """Return the error if a topic's remote name exceeds Kafka's maximum length, else None."""
    if len(remote) <= LONGEST_NAME:
        return None
    return PartitionError(
        f"topic {topic} would have a name of {len(remote)} characters on {flow.flow.target}, but "
        f"Kafka allows {LONGEST_NAME}: exclude the topic with topics.exclude, or shorten the alias "
        "(source.cluster.alias) before anything is copied",
        flow=flow.flow,
        code="NAME_TOO_LONG",
    )


def _ensure(  # noqa: PLR0913, PLR0917 (one step of `discover`, cut out to be read)
    flow: FlowConfig,
    target: ClusterClient,
    topic: TopicMetadata,
    at_target: ClusterMetadata,
    remote: str,
    configs: Mapping[str, str],
    discovery: Discovery,
    create: bool,
    guard: Guard | None,
) -> None:
    count = len(topic.partitions)
    existing = at_target.topics.get(remote)
    if existing is None:
        if not flow.new_topics.enabled:
            raise topic_missing_error(flow, remote)
        if not create:
            discovery.missing.append(remote)
            return
        if (too_long := name_too_long_error(flow, topic.name, remote)) is not None:
            raise too_long
        _create(flow, target, topic, remote, configs)
        discovery.created.append(remote)
    elif not existing.error and flow.same_partitions and len(existing.partitions) != count:
        raise partitions_differ_error(flow, remote, len(existing.partitions), count)
    elif existing.error or flow.keyed_partitions or len(existing.partitions) >= count:
        return
    elif not flow.new_topics.enabled:
        raise topic_too_small_error(flow, remote, len(existing.partitions), count)
    elif guard is not None and (error := guard.growth_refusal(topic, existing, target)) is not None:
        raise error
    elif create:
        create_partitions(target, remote, count)
        wait_for_topic(target, remote, partitions=count, first=len(existing.partitions))
        discovery.grown.append(remote)


def _create(
    flow: FlowConfig,
    target: ClusterClient,
    topic: TopicMetadata,
    remote: str,
    configs: Mapping[str, str],
) -> None:
    creation = create_topic(
        target,
        remote,
        partitions=new_partitions(flow, topic),
        replication_factor=flow.new_topics.replication_factor,
        configs=configs,
    )
    if not creation.is_new and flow.policy.kind is not PolicyKind.IDENTITY:
        raise created_since_error(flow, remote)
    wait_for_topic(target, remote, partitions=max(creation.partitions, 1))


def new_partitions(flow: FlowConfig, topic: TopicMetadata) -> int:
    """Return the partition count for a new remote topic, or -1 for the target's num.partitions."""
    return DEFAULT if flow.new_topics.default_partitions else len(topic.partitions)


def new_counts_note(flow: FlowConfig, count: int, names: Sequence[str]) -> str:
    """Return the note on topics that would get another partition count than their source.

    `count` is -1 if the target does not show its default.
    """
    default = f"num.partitions of {flow.flow.target}"
    many = f"the partition count {default}, which Twinlog's user may not read. If a source topic"
    if count > 0:
        many = f"{plural(count, 'partition')} ({default}). Because each source topic"
    return (
        f"{flow.flow}: {plural(len(names), 'topic')} would be created with {many} has another "
        f"count, its records are placed by key ({first_few(names)})"
    )


def partitions_differ_error(
    flow: FlowConfig, remote: str, count: int, wanted_count: int
) -> PartitionError:
    """Return the error for a remote topic with another partition count than its source topic, if
    the flow does not distribute records by key.
    """
    return PartitionError(
        f"topic {remote} has {plural(count, 'partition')} on {flow.flow.target}, but its source "
        f"topic has {wanted_count}: make the counts equal, exclude the topic, or place its "
        "records by key with twinlog.target.partitions = keyed",
        flow=flow.flow,
        code="PARTITIONS_DIFFER",
        fate=Fate.RETRIABLE,
    )


def _plan(
    flow: FlowConfig,
    topics: dict[str, TopicMetadata],
    remote: dict[str, str],
    target: ClusterClient,
    discovery: Discovery,
    lanes_share_user: bool,
    checked_topics: Mapping[str, TopicMetadata],
) -> None:
    usable = {problem.topic: problem.first for problem in discovery.problems}
    names = [
        name for name in topics if usable.get(name) != 0 and remote[name] not in discovery.missing
    ]
    if not names:
        return
    metadata = _settled_metadata(target, sorted({remote[name] for name in names}))
    at_target = metadata.topics
    rules, unread = target_rules(flow, target, [remote[name] for name in names])
    discovery.notes += filter(None, (unread,))
    for name in names:
        remote_topic = at_target.get(remote[name])
        if remote_topic is None or remote_topic.error:
            code = UNKNOWN_TOPIC_OR_PARTITION if remote_topic is None else remote_topic.error
            doing = f"reading metadata of topic {remote[name]}"
            error = error_for(code, cluster=flow.flow.target, doing=doing)
            discovery.fail(topics[name], error)
            continue
        if not _is_judged(remote_topic, checked_topics):
            discovery.fail(topics[name], created_since_error(flow, remote[name]))
            continue
        if NO_TOPIC_ID == topics[name].topic_id == remote_topic.topic_id:
            discovery.fail(topics[name], without_ids_error(flow, name))
            continue
        lacks = [
            right for right in NEEDED_OPERATIONS if not is_permitted(metadata, remote[name], right)
        ]
        if lanes_share_user and lacks:
            discovery.fail(
                topics[name], denied_error(flow.flow.target, lacks[0].name, remote[name])
            )
            continue
        count = len(remote_topic.partitions)
        targets = count if flow.places_by_key(len(topics[name].partitions), count) else 0
        transform = flow.transforms.digest_of(name)
        for partition in topics[name].partitions[: usable.get(name)]:
            discovery.plans.append(
                PartitionPlan(
                    source=TopicPartition(name, partition.number),
                    target=TopicPartition(remote[name], 0 if targets else partition.number),
                    targets=targets,
                    transform=transform,
                    source_topic_id=topics[name].topic_id,
                    target_topic_id=remote_topic.topic_id,
                    **rules.get(remote[name], UNKNOWN_RULES)._asdict(),
                )
            )


def _is_judged(topic: TopicMetadata, checked_topics: Mapping[str, TopicMetadata]) -> bool:
    """Return True if the guard has checked this topic, or if the topic did not exist when the guard
    checked, so that this flow creates it.
    """
    before = checked_topics.get(topic.name)
    return before is None or before.error != NONE or before.topic_id == topic.topic_id


def _settled_metadata(target: ClusterClient, names: list[str]) -> ClusterMetadata:
    """Return the topics' metadata, after a wait if a broker with stale metadata lacks some."""
    try:
        return target.metadata(names, allow_missing=False, timeout_s=MISSING_GRACE_S)
    except ClusterError:
        return target.metadata(names)


def with_group_starts(
    flow: FlowConfig, source: ClusterClient, plans: Iterable[PartitionPlan]
) -> list[PartitionPlan]:
    """Return the plans. If the consumer group in twinlog.source.group.id has an offset for a
    partition, the copy of this partition begins at that offset.

    Raises TwinlogError if the offsets cannot be read, because the copy must not begin at any other
    offset.
    """
    group = flow.source_group.group_id
    known = list(plans)
    if not group or not known:
        return known
    offsets = or_raise(fetch_offsets(Coordinators(source), [group])[group])
    return [
        replace(plan, begin_at=offsets[plan.source].offset) if plan.source in offsets else plan
        for plan in known
    ]


# Messages about topics that are missing or that appeared unexpectedly.

PLAIN_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def missing_named_topics(flow: FlowConfig, metadata: ClusterMetadata) -> list[str]:
    """Return missing topics that the configuration names without a pattern."""
    selector = TopicSelector.of(flow)
    plain = (e for e in flow.topics.entries if set(e) <= PLAIN_NAME and selector.selects(e))
    return [name for name in plain if name not in metadata.topics]


def absence(flow: FlowConfig, name: str) -> str:
    """Return the message for a named topic that does not exist."""
    return (
        f"topic {name} does not exist on {flow.flow.source}, or Twinlog's user may not DESCRIBE it "
        "(READ is enough); it is mirrored as soon as it is visible"
    )


def not_copied_error(flow: FlowConfig, name: str) -> PartitionError:
    """Return the error for a missing topic with `--once`, which does not wait for topics."""
    return PartitionError(
        f"topic {name} does not exist on {flow.flow.source}, or Twinlog's user may not "
        "DESCRIBE it, so it is not copied; create it, grant READ, or remove it from `topics`",
        flow=flow.flow,
        code="TOPIC_MISSING",
        fate=Fate.RETRIABLE,
    )


def without_ids_error(flow: FlowConfig, name: str) -> Unsupported:
    """Return the error for a topic if neither it nor its remote topic has an ID. The offset map
    identifies topics by these two IDs, so all topics without IDs would share their rows.
    """
    source, target = flow.flow.source, flow.flow.target
    return Unsupported(
        f"topic {name} is not copied: the brokers of both {source} and {target} have no topic IDs, "
        "by which the offset map distinguishes topics: upgrade one of the clusters to Kafka 2.8 or "
        "later, with inter.broker.protocol.version 2.8 or later",
        flow=flow.flow,
    )


def nothing_matches(flow: FlowConfig, metadata: ClusterMetadata) -> str:
    """Return the message for a flow that mirrors no topic."""
    many = plural(sum(not topic.is_internal for topic in metadata.topics.values()), "topic")
    return (
        f"{flow.flow}: nothing is copied: {flow.flow.source} shows {many} to Twinlog's user, and "
        "`topics` matches none; correct the pattern, or grant READ on the intended topics "
        "[MATCHES_NOTHING]"
    )


def topic_missing_error(flow: FlowConfig, remote: str) -> PartitionError:
    """Return the error for a missing remote topic that the configuration forbids to create."""
    return PartitionError(
        f"topic {remote} does not exist on {flow.flow.target}, and "
        "topic.creation.enable=false: create the topic; its copy begins as soon as it exists",
        flow=flow.flow,
        code="TARGET_TOPIC_MISSING",
        fate=Fate.RETRIABLE,
    )


def topic_too_small_error(
    flow: FlowConfig, remote: str, count: int, wanted_count: int
) -> PartitionError:
    """Return the error for a remote topic with too few partitions, if adding some is forbidden."""
    return PartitionError(
        f"topic {remote} has {plural(count, 'partition')} on {flow.flow.target}, but its source "
        f"topic has {wanted_count}, and topic.creation.enable=false: add the missing partitions; "
        "the existing partitions are copied",
        flow=flow.flow,
        code="TARGET_TOPIC_TOO_SMALL",
        fate=Fate.RETRIABLE,
    )


def created_since_error(flow: FlowConfig, remote: str) -> TwinlogError:
    """Return the error for a remote topic that was created after the guard's check. Another client
    has created it, or a request of Twinlog whose response was lost. The next discovery checks the
    topic.
    """
    return error_for(
        TOPIC_ALREADY_EXISTS,
        cluster=flow.flow.target,
        doing=f"creating topic {remote}",
        advice="the topic was created a moment ago; its records are checked before anything is "
        "copied to it",
    )
