"""Which partitions a flow mirrors: source topics that pass the filters, and their remote topics,
made where missing.

As MirrorMaker 2 does it: same partition count, the flow's replication factor, the source's own
configs that pass the config filter; partitions are added when the source grows; nothing is ever
deleted or shrunk.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from twinlog.cluster import admin
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.metadata import ClusterMetadata, TopicMetadata
from twinlog.config.schema import FlowConfig
from twinlog.control.partitions import PartitionPlan
from twinlog.errors import ConfigError, TwinlogError
from twinlog.mirror.filters import (
    ConfigPropertyFilter,
    TopicConfigEntry,
    TopicSelector,
)
from twinlog.mirror.naming import ReplicationPolicy
from twinlog.model import TopicPartition

log = logging.getLogger(__name__)

DEFAULT_LIMIT_BYTES: Final = 1_048_588
"""max.message.bytes where it may not be read."""

BEFORE_MAX: Final = "message.timestamp.before.max.ms"
NO_LIMIT_MS: Final = (1 << 63) - 1
AFTER_MAX: Final = "message.timestamp.after.max.ms"
HOUR_MS: Final = 3_600_000
"""The default, which `mirror.copy` counts on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProblem:
    """One topic that cannot be mirrored now."""

    topic: str
    partitions: int
    error: TwinlogError


@dataclass(slots=True, kw_only=True)
class Discovery:
    """What one look found."""

    plans: list[PartitionPlan] = field(default_factory=list)
    problems: list[TopicProblem] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    grown: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Remote topics that a dry run would create."""


def mirrored_topics(flow: FlowConfig, found: ClusterMetadata) -> dict[str, TopicMetadata]:
    """The source topics that pass the filters, by name."""
    selector = TopicSelector.of(flow)
    return {
        name: topic
        for name, topic in sorted(found.topics.items())
        if selector.selects(name) and not topic.is_internal
    }


def new_topic_configs(
    flow: FlowConfig, source: ClusterClient, names: list[str]
) -> dict[str, dict[str, str]]:
    """What remote topics that are to be created get as configs; nothing where they may not be
    read.
    """
    chosen = ConfigPropertyFilter.of(flow)
    answers = admin.describe_topic_configs(source, names).items() if names else ()
    return {
        name: chosen.for_new_topic([_entry(entry) for entry in answer])
        for name, answer in answers
        if not isinstance(answer, TwinlogError)
    }


def discover(
    flow: FlowConfig,
    policy: ReplicationPolicy,
    source: ClusterClient,
    target: ClusterClient,
    *,
    create: bool = True,
) -> Discovery:
    """Read both clusters, and create or grow remote topics unless told only to look."""
    topics = mirrored_topics(flow, source.metadata(None))
    out = Discovery()
    remote = {name: policy.format_remote_topic(flow.source_alias, name) for name in topics}
    there = target.metadata(None)
    missing = [name for name in topics if remote[name] not in there.topics]
    if missing:
        _check_replication_factor(flow, there, missing)
    source_configs = _configs(source, missing, out, topics)
    for name, topic in topics.items():
        try:
            _ensure(
                flow, target, topic, there, remote[name], source_configs.get(name, {}), out, create
            )
        except TwinlogError as error:
            out.problems.append(
                TopicProblem(topic=name, partitions=len(topic.partitions), error=error)
            )
    _plan(topics, remote, target, out)
    return out


def _check_replication_factor(
    flow: FlowConfig, there: ClusterMetadata, missing: Iterable[str]
) -> None:
    live = len(there.brokers)
    if flow.replication_factor > live:
        raise ConfigError(
            f"{flow.flow}: replication.factor = {flow.replication_factor}, but only {live} "
            "brokers of "
            f"{flow.flow.target} are alive, so {len(list(missing))} topics cannot be created; set "
            f"{flow.flow}.replication.factor to at most {live}, or -1 for the brokers' default",
            code="REPLICATION_FACTOR",
        )


def _configs(
    source: ClusterClient,
    names: list[str],
    out: Discovery,
    topics: dict[str, TopicMetadata],
) -> dict[str, list[admin.ConfigEntry]]:
    if not names:
        return {}
    described: dict[str, list[admin.ConfigEntry]] = {}
    for name, answer in admin.describe_topic_configs(source, names).items():
        if isinstance(answer, TwinlogError):
            # without the right to read them the topic is made with the target's defaults
            log.warning("topic=%s configs are not copied: %s", name, answer)
        else:
            described[name] = answer
    return described


def _ensure(  # noqa: PLR0913, PLR0917 (one step of `discover`, cut out to be read)
    flow: FlowConfig,
    target: ClusterClient,
    topic: TopicMetadata,
    there: ClusterMetadata,
    remote: str,
    configs: Iterable[admin.ConfigEntry],
    out: Discovery,
    create: bool,
) -> None:
    wanted = len(topic.partitions)
    known = there.topics.get(remote)
    if known is None:
        if not create:
            out.missing.append(remote)
            return
        entries = [_entry(entry) for entry in configs]
        admin.create_topic(
            target,
            remote,
            partitions=wanted,
            replication_factor=flow.replication_factor,
            configs=ConfigPropertyFilter.of(flow).for_new_topic(entries),
        )
        admin.wait_for_topic(target, remote, partitions=wanted)
        out.created.append(remote)
    elif not known.error and len(known.partitions) < wanted and create:
        admin.create_partitions(target, remote, wanted)
        admin.wait_for_topic(target, remote, partitions=wanted)
        out.grown.append(remote)


def _entry(entry: admin.ConfigEntry) -> TopicConfigEntry:
    return TopicConfigEntry(
        name=entry.name,
        value=entry.value,
        source=entry.source,
        is_default=entry.is_default,
        is_read_only=entry.is_read_only,
        is_sensitive=entry.is_sensitive,
    )


def _plan(
    topics: dict[str, TopicMetadata],
    remote: dict[str, str],
    target: ClusterClient,
    out: Discovery,
) -> None:
    bad = {problem.topic for problem in out.problems}
    names = [name for name in topics if name not in bad and remote[name] not in out.missing]
    if not names:
        return
    there = target.metadata(sorted({remote[name] for name in names})).topics
    rules = _target_rules(target, [remote[name] for name in names])
    for name in names:
        found = there.get(remote[name])
        if found is None or found.error:
            continue
        for partition in topics[name].partitions:
            out.plans.append(
                PartitionPlan(
                    source=TopicPartition(name, partition.partition),
                    target=TopicPartition(remote[name], partition.partition),
                    source_topic_id=topics[name].topic_id,
                    target_topic_id=found.topic_id,
                    limit_bytes=rules.get(remote[name], UNKNOWN_RULES).limit_bytes,
                    stamps_own_time=rules.get(remote[name], UNKNOWN_RULES).stamps_own_time,
                    is_picky=rules.get(remote[name], UNKNOWN_RULES).is_picky,
                )
            )


class _TargetRules(NamedTuple):
    """What a target topic's configs say of batches; defaults where they may not be read."""

    limit_bytes: int = DEFAULT_LIMIT_BYTES
    stamps_own_time: bool = False
    is_picky: bool = True
    """It may refuse single records: those without a key, or with certain timestamps."""


UNKNOWN_RULES: Final = _TargetRules()


def _target_rules(target: ClusterClient, names: list[str]) -> dict[str, _TargetRules]:
    rules: dict[str, _TargetRules] = {}
    for name, answer in admin.describe_topic_configs(target, names).items():
        if isinstance(answer, TwinlogError):
            continue
        values = {entry.name: entry.value for entry in answer if entry.value}
        picky = "compact" in values.get("cleanup.policy", "")
        picky = picky or int(values.get(BEFORE_MAX, NO_LIMIT_MS)) < NO_LIMIT_MS
        picky = picky or int(values.get(AFTER_MAX, HOUR_MS)) < HOUR_MS
        rules[name] = _TargetRules(
            int(values.get("max.message.bytes", DEFAULT_LIMIT_BYTES)),
            values.get("message.timestamp.type") == "LogAppendTime",
            picky,
        )
    return rules
