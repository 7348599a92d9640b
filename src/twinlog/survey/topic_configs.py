"""Reads topic configs for a flow: configs for new remote topics, limits of batches in remote
topics, and the retention of source topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import ClusterMetadata, Operation
from twinlog.cluster.topics.configs import describe_topic_configs
from twinlog.cluster.topics.topic_admin import DEFAULT, validate_topic
from twinlog.config.flow.schema import FlowConfig
from twinlog.errors import TwinlogError, Unauthorized
from twinlog.mirror.names.config_rules import (
    own_values,
    unknown_line,
    unknown_names,
    wanted_configs,
)
from twinlog.mirror.names.filters import ConfigPropertyFilter
from twinlog.quantities import first_few, plural
from twinlog.survey.rights import is_permitted

POLICY: Final = "cleanup.policy"
RETENTION_MS: Final = "retention.ms"
NO_LIMIT: Final = -1
"""The retention of a topic that never deletes records by age."""

UNKNOWN_NAME: Final = "Unknown topic config name:"
"""The beginning of a broker's error message for a config that it does not know."""

DEFAULT_LIMIT_BYTES: Final = 1_048_588
"""Kafka's default of max.message.bytes, assumed if the user is not permitted to read it."""

BEFORE_MAX: Final = "message.timestamp.before.max.ms"
NO_LIMIT_MS: Final = (1 << 63) - 1
AFTER_MAX: Final = "message.timestamp.after.max.ms"
HOUR_MS: Final = 3_600_000
"""Default of message.timestamp.after.max.ms, on which `mirror.copy.partition` relies."""


@dataclass(slots=True, kw_only=True)
class NewConfigs:
    """Configs for new remote topics, and notes on configs that they do not get."""

    by_topic: dict[str, dict[str, str]] = field(default_factory=dict)
    """Configs by source topic, without topics whose configs this user is not permitted to read."""
    unread: str = ""
    """Note on source topics whose configs this user is not permitted to read, or empty."""
    unknown: str = ""
    """Note on configs that the target's brokers do not know, or empty."""


def new_topic_configs(
    flow: FlowConfig,
    source: ClusterClient,
    target: ClusterClient,
    at_target: ClusterMetadata,
    remote: Mapping[str, str],
) -> NewConfigs:
    """Return the configs for remote topics that will be created. `remote`: their names by source
    topic.

    As in the config sync, configs that the target's brokers do not know are left out.
    """
    chosen, out = ConfigPropertyFilter.of(flow), NewConfigs()
    failed: dict[str, TwinlogError] = {}
    for name, answer in describe_topic_configs(source, remote).items():
        if isinstance(answer, TwinlogError):
            failed[name] = answer
        else:
            out.by_topic[name] = own_values(wanted_configs(chosen, answer))
    out.unread = unread_configs(flow, failed) if failed else ""
    unknown = _unknown_configs(
        target, at_target, {remote[name]: out.by_topic[name] for name in out.by_topic}
    )
    if unknown:
        out.unknown = f"{flow.flow}: {unknown_line(flow.flow.target, [unknown])}"
        for configs in out.by_topic.values():
            for name in unknown & configs.keys():
                del configs[name]
    return out


def _unknown_configs(
    target: ClusterClient, at_target: ClusterMetadata, wanted: Mapping[str, Mapping[str, str]]
) -> set[str]:
    """Return the config names that the target's brokers do not know.

    The names are compared with the configs of any readable topic of the target. If there is no such
    topic, the brokers validate the creation of a topic with each config.
    """
    values = {
        name: (remote, value)
        for remote, configs in wanted.items()
        for name, value in configs.items()
    }
    if not values:
        return set()
    readable = (
        name
        for name in at_target.topics
        if is_permitted(at_target, name, Operation.DESCRIBE_CONFIGS)
    )
    known = describe_topic_configs(target, [*islice(readable, 1)])
    for answer in known.values():
        if not isinstance(answer, TwinlogError):
            return {*unknown_names({name: value for name, (_, value) in values.items()}, answer)}
    return {
        name for name, (remote, value) in values.items() if _is_refused(target, remote, name, value)
    }


def _is_refused(target: ClusterClient, remote: str, name: str, value: str) -> bool:
    """Return True if brokers refuse to create a topic for a config's name, not for its value."""
    try:
        validate_topic(
            target, remote, partitions=1, replication_factor=DEFAULT, configs={name: value}
        )
    except TwinlogError as error:
        return f"{UNKNOWN_NAME} {name}" in str(error)
    return False


def unread_configs(flow: FlowConfig, failed: Mapping[str, TwinlogError]) -> str:
    """Return a note on source topics whose configs this user is not permitted to read."""
    return (
        f"{flow.flow}: the configs of {plural(len(failed), 'topic')} are not copied "
        f"({first_few(failed)}): {next(iter(failed.values()))}"
    )


def retentions(source: ClusterClient, topics: Iterable[str]) -> dict[str, int]:
    """Return retention.ms, or NO_LIMIT, of topics with readable configs. Raises TwinlogError."""
    by_topic: dict[str, int] = {}
    for topic, configs in describe_topic_configs(source, topics).items():
        if isinstance(configs, TwinlogError):
            continue
        values = {entry.name: entry.value for entry in configs}
        retention_ms = int(values.get(RETENTION_MS) or -1)
        is_limited = "delete" in (values.get(POLICY) or "") and retention_ms >= 0
        by_topic[topic] = retention_ms if is_limited else NO_LIMIT
    return by_topic


class TargetRules(NamedTuple):
    """A remote topic's configs about batches, or Kafka's defaults if reading is not permitted."""

    limit_bytes: int = DEFAULT_LIMIT_BYTES
    has_log_append_time: bool | None = None
    may_reject_records: bool = True
    """True if the topic may refuse records without a key or with certain timestamps."""
    compresses: bool = False


UNKNOWN_RULES: Final = TargetRules()


def target_rules(
    flow: FlowConfig, target: ClusterClient, names: Iterable[str]
) -> tuple[dict[str, TargetRules], str]:
    """Return (rules by remote topic, note). The note lists topics whose configs this user is not
    permitted to read, or is empty.
    """
    rules: dict[str, TargetRules] = {}
    denied: dict[str, TwinlogError] = {}
    for name, answer in describe_topic_configs(target, names).items():
        if isinstance(answer, TwinlogError):
            if isinstance(answer, Unauthorized):
                denied[name] = answer
            continue
        values = {entry.name: entry.value for entry in answer if entry.value}
        picky = "compact" in values.get("cleanup.policy", "")
        picky = picky or int(values.get(BEFORE_MAX, NO_LIMIT_MS)) < NO_LIMIT_MS
        picky = picky or int(values.get(AFTER_MAX, HOUR_MS)) < HOUR_MS
        rules[name] = TargetRules(
            int(values.get("max.message.bytes", DEFAULT_LIMIT_BYTES)),
            values.get("message.timestamp.type") == "LogAppendTime",
            picky,
            values.get("compression.type", "producer") != "producer",
        )
    if not denied:
        return rules, ""
    return rules, (
        f"{flow.flow}: Kafka's defaults are assumed for the limits of "
        f"{plural(len(denied), 'remote topic')} ({first_few(denied)}): "
        f"{next(iter(denied.values()))}"
    )
