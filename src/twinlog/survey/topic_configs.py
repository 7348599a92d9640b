"""What configs of topics mean for a flow: which of them new remote topics get, which batches remote
topics take, and how long the source keeps its records.
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
from twinlog.survey.rights import may

POLICY: Final = "cleanup.policy"
RETENTION_MS: Final = "retention.ms"
NO_LIMIT: Final = -1
"""Of a topic that keeps its records however old they are."""

UNKNOWN_NAME: Final = "Unknown topic config name:"
"""What brokers say of a config that they do not have."""

DEFAULT_LIMIT_BYTES: Final = 1_048_588
"""max.message.bytes where it may not be read."""

BEFORE_MAX: Final = "message.timestamp.before.max.ms"
NO_LIMIT_MS: Final = (1 << 63) - 1
AFTER_MAX: Final = "message.timestamp.after.max.ms"
HOUR_MS: Final = 3_600_000
"""The default, which `mirror.copy.partition` counts on."""


@dataclass(slots=True, kw_only=True)
class NewConfigs:
    """Configs that remote topics are created with, and those that they cannot have."""

    of: dict[str, dict[str, str]] = field(default_factory=dict)
    """By source topic; those that may not be read are not in it."""
    unread: str = ""
    """Note on topics whose configs may not be read, or empty."""
    unknown: str = ""
    """Note on configs that the target's brokers do not know, or empty."""


def new_topic_configs(
    flow: FlowConfig,
    source: ClusterClient,
    target: ClusterClient,
    there: ClusterMetadata,
    remote: Mapping[str, str],
) -> NewConfigs:
    """Return what remote topics that are to be created get as configs. `remote`: their names, by
    source topic.

    One rule with the config sync: names that the target's brokers do not have are left out.
    """
    chosen, out = ConfigPropertyFilter.of(flow), NewConfigs()
    failed: dict[str, TwinlogError] = {}
    for name, answer in describe_topic_configs(source, remote).items():
        if isinstance(answer, TwinlogError):
            failed[name] = answer
        else:
            out.of[name] = own_values(wanted_configs(chosen, answer))
    out.unread = unread_configs(flow, failed) if failed else ""
    unknown = _unknown_configs(target, there, {remote[name]: out.of[name] for name in out.of})
    if unknown:
        out.unknown = f"{flow.flow}: {unknown_line(flow.flow.target, [unknown])}"
        for configs in out.of.values():
            for name in unknown & configs.keys():
                del configs[name]
    return out


def _unknown_configs(
    target: ClusterClient, there: ClusterMetadata, wanted: Mapping[str, Mapping[str, str]]
) -> set[str]:
    """Return the names that no topic of the target can have: by any topic of it whose configs may
    be read, else by what its brokers say of a new topic with each of them.
    """
    values = {
        name: (remote, value) for remote, some in wanted.items() for name, value in some.items()
    }
    if not values:
        return set()
    readable = (name for name in there.topics if may(there, name, Operation.DESCRIBE_CONFIGS))
    known = describe_topic_configs(target, [*islice(readable, 1)])
    for answer in known.values():
        if not isinstance(answer, TwinlogError):
            return {*unknown_names({name: value for name, (_, value) in values.items()}, answer)}
    return {
        name for name, (remote, value) in values.items() if _is_refused(target, remote, name, value)
    }


def _is_refused(target: ClusterClient, remote: str, name: str, value: str) -> bool:
    """Whether brokers refuse a new topic for the name of a config, not for its value."""
    try:
        validate_topic(
            target, remote, partitions=1, replication_factor=DEFAULT, configs={name: value}
        )
    except TwinlogError as error:
        return f"{UNKNOWN_NAME} {name}" in str(error)
    return False


def unread_configs(flow: FlowConfig, failed: Mapping[str, TwinlogError]) -> str:
    """What to say of source topics whose configs may not be read."""
    return (
        f"{flow.flow}: the configs of {plural(len(failed), 'topic')} are not copied "
        f"({first_few(failed)}): {next(iter(failed.values()))}"
    )


def retentions(source: ClusterClient, topics: Iterable[str]) -> dict[str, int]:
    """retention.ms of topics whose configs may be read, or NO_LIMIT; raises TwinlogError."""
    found: dict[str, int] = {}
    for topic, configs in describe_topic_configs(source, topics).items():
        if isinstance(configs, TwinlogError):
            continue
        values = {entry.name: entry.value for entry in configs}
        retention_ms = int(values.get(RETENTION_MS) or -1)
        is_limited = "delete" in (values.get(POLICY) or "") and retention_ms >= 0
        found[topic] = retention_ms if is_limited else NO_LIMIT
    return found


class TargetRules(NamedTuple):
    """What a target topic's configs say of batches; defaults where they may not be read."""

    limit_bytes: int = DEFAULT_LIMIT_BYTES
    stamps_own_time: bool | None = None
    is_picky: bool = True
    """It may refuse single records: those without a key, or with certain timestamps."""
    compresses: bool = False


UNKNOWN_RULES: Final = TargetRules()


def target_rules(
    flow: FlowConfig, target: ClusterClient, names: Iterable[str]
) -> tuple[dict[str, TargetRules], str]:
    """Return what remote topics' configs say, and a note on those that may not be read."""
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
        f"{flow.flow}: the limits of {plural(len(denied), 'remote topic')} are taken as "
        f"Kafka's defaults ({first_few(denied)}): {next(iter(denied.values()))}"
    )
