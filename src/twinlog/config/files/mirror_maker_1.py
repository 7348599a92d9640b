"""Reads MirrorMaker 1's two files and its flags as an mm2.properties with one flow.

As with MirrorMaker 1, topics keep their names, and configs, ACLs, groups and heartbeats are not
copied. The source gets its alias from `--source`, or else from the consumer group, because several
mirrors into one target have different groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from twinlog.config.files.names import names_by_prefix
from twinlog.config.files.properties import PropertiesText, decode, parse_properties
from twinlog.config.files.providers import provider_key
from twinlog.config.files.raw import RawConfig, read_bytes
from twinlog.config.flow.connect import IN_PYTHON
from twinlog.config.keys.client_keys import is_connection_key
from twinlog.config.keys.key_table import MIRROR_PACKAGE
from twinlog.config.values.origin import Setting, Settings, refuse
from twinlog.config.values.types import trimmed
from twinlog.config.values.warnings import ConfigWarning, WarningCode
from twinlog.errors import ConfigError

TARGET: Final = "target"
DEFAULTS: Final = "MirrorMaker 1's way"
"""Origin of settings that the user did not write."""

INTERNAL_TOPICS: Final = r"__.*, mm2.*\.internal"
_GROUP: Final = "group.id"
_NOT_IN_AN_ALIAS: Final = re.compile(r"[^A-Za-z0-9._-]+")
_OPAQUE: Final = frozenset(
    ("key.deserializer", "value.deserializer", "key.serializer", "value.serializer")
)
_IDLE_CONSUMER: Final = _OPAQUE | {
    "partition.assignment.strategy",
    "client.id",
    "enable.auto.commit",
    "auto.commit.interval.ms",
    "exclude.internal.topics",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "group.instance.id",
}
_IDLE_PRODUCER: Final = _OPAQUE | {"client.id", "partitioner.class"}
_OLD: Final = {
    "zookeeper.connect": "the consumer before Kafka 0.9",
    "metadata.broker.list": "the producer before Kafka 0.9",
    "broker.list": "the producer before Kafka 0.9",
}
_METADATA_AGE: Final = "metadata.max.age.ms"
_FIXED: Final = {
    "replication.policy.class": MIRROR_PACKAGE + "IdentityReplicationPolicy",
    "replication.factor": "-1",
    "config.properties.exclude": ".*",
    "sync.topic.configs.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "emit.heartbeats.enabled": "false",
    "heartbeats.replication.enabled": "false",
    "emit.checkpoints.enabled": "false",
    "emit.offset-syncs.enabled": "false",
    "sync.group.offsets.enabled": "false",
    "twinlog.target.partitions": "keyed",
    "twinlog.new.topic.partitions": "default",
}
_REFRESH_SECONDS: Final = "300"
"""Consumers discover new topics every metadata.max.age.ms, which is five minutes by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """MirrorMaker 1's flags as text, or None if not given."""

    include: str
    include_flag: str = "--include"
    exclude: str | None = None
    streams: str | None = None
    commit_interval_ms: str | None = None
    source: str | None = None
    """Alias of the source (Twinlog's own flag), or None for the name of the consumer group."""
    idle: tuple[str, ...] = ()
    """Flags that were given and have no effect."""


def read_pair(consumer: Path, producer: Path, options: PairOptions) -> RawConfig:
    """Return both files as one configuration. Raises ConfigError for invalid files."""
    reading, writing = _read(consumer, "consumer"), _read(producer, "producer")
    source, target = reading.settings, writing.settings
    group = source.get(_GROUP)
    if group is None:
        raise ConfigError(
            "missing; add the group of this MirrorMaker", file=str(consumer), key=_GROUP
        )
    if not trimmed(group.value):
        raise refuse(group, "has no group", "write the group of this MirrorMaker")
    alias = _alias(options.source or group.value)
    idle: list[Setting] = []
    settings: list[Setting] = [
        Setting(key="clusters", value=f"{alias}, {TARGET}", file=DEFAULTS),
        Setting(key="emit.heartbeats.enabled", value="false", file=DEFAULTS),
        Setting(key=f"{alias}.consumer.auto.offset.reset", value="latest", file=DEFAULTS),
    ]
    settings += _cluster_settings(
        source, alias, "consumer", _IDLE_CONSUMER | {_GROUP, _METADATA_AGE}, idle
    )
    # each file has its own providers, which may have the same names
    scope = f"{TARGET}." if any(map(provider_key, source)) else ""
    settings += _cluster_settings(target, TARGET, "producer", _IDLE_PRODUCER, idle, scope)
    settings += _flow_settings(f"{alias}->{TARGET}", group, source.get(_METADATA_AGE), options)
    return RawConfig(
        file=str(consumer),
        more_files=(str(producer),),
        # if a key is set twice, the later setting applies, so defaults come first
        settings=Settings({setting.key: setting for setting in settings}),
        warnings=(
            *reading.warnings,
            *writing.warnings,
            *_unused_warnings(str(consumer), idle, options.idle),
        ),
        names=names_by_prefix(
            (alias, TARGET),
            dict.fromkeys((f"{alias}.consumer.", f"{alias}.", "target.producer.", "target."), ""),
        ),
    )


def _alias(text: str) -> str:
    alias = _NOT_IN_AN_ALIAS.sub("_", text.strip())
    return f"{alias}-source" if alias == TARGET else alias


def _read(path: Path, role: str) -> PropertiesText:
    data = read_bytes(path, f"MirrorMaker 1's {role} configuration")
    return parse_properties(decode(data), file=str(path))


def _cluster_settings(
    settings: Settings,
    alias: str,
    role: str,
    not_passed: frozenset[str],
    idle: list[Setting],
    providers: str = "",
) -> Iterator[Setting]:
    """Yield the settings of a file under the keys of a cluster. `providers`: the prefix of the keys
    of config providers.
    """
    for key, setting in settings.items():
        if key in _OLD:
            raise refuse(setting, f"is of {_OLD[key]}", "write bootstrap.servers = host:9092")
        if key == "interceptor.classes":
            raise refuse(setting, "Twinlog cannot run Java classes", IN_PYTHON)
        if key in not_passed:
            if key in _IDLE_CONSUMER | _IDLE_PRODUCER:
                idle.append(setting)
        elif provider_key(key):
            yield replace(setting, key=f"{providers}{key}", field=key)
        elif is_connection_key(key):
            yield replace(setting, key=f"{alias}.{key}", field=key)
        else:
            yield replace(setting, key=f"{alias}.{role}.{key}", field=key)
    if "bootstrap.servers" not in settings:
        path = next(iter(settings.values())).file if settings else f"the {role} configuration"
        raise ConfigError(
            "missing; add: bootstrap.servers = host:9092", file=str(path), key="bootstrap.servers"
        )


def _flow_settings(
    flow: str, group: Setting, metadata_age: Setting | None, options: PairOptions
) -> Iterator[Setting]:
    def one(key: str, value: str, flag: str = DEFAULTS) -> Setting:
        return Setting(key=f"{flow}.{key}", value=value, file=flag)

    yield one("enabled", "true")
    for key, value in _FIXED.items():
        yield one(key, value)
    yield one("topics", _pattern(options.include), options.include_flag)
    if options.exclude is None:
        yield one("topics.exclude", INTERNAL_TOPICS)
    else:
        yield one("topics.exclude", f"{INTERNAL_TOPICS}, {_pattern(options.exclude)}", "--exclude")
    if options.streams is not None:
        yield one("tasks.max", options.streams, "--num.streams")
    yield replace(group, key=f"{flow}.twinlog.source.group.id", field=_GROUP)
    if options.commit_interval_ms is not None:
        key = "twinlog.source.group.commit.interval.ms"
        yield one(key, options.commit_interval_ms, "--offset.commit.interval.ms")
    yield one("refresh.topics.interval.seconds", _REFRESH_SECONDS)
    if metadata_age is not None and metadata_age.value.strip().isdecimal():
        seconds = str(max(1, int(metadata_age.value) // 1000))
        key = f"{flow}.refresh.topics.interval.seconds"
        yield replace(metadata_age, key=key, value=seconds, field=_METADATA_AGE)


def _pattern(text: str) -> str:
    """Remove blanks and surrounding quotes from a pattern, as MirrorMaker 1 does. Commas in the
    pattern mean `|`, as in lists of names.
    """
    return text.replace(" ", "").strip("\"'")


def _unused_warnings(
    file: str, idle: list[Setting], flags: tuple[str, ...]
) -> Iterator[ConfigWarning]:
    """Yield a warning about ignored (de)serializers, and one about all else that has no effect."""
    opaque = [setting for setting in idle if setting.key in _OPAQUE]
    others = [setting for setting in idle if setting.key not in _OPAQUE]
    if opaque:
        listed = ", ".join(f"{setting.key} ({setting.location})" for setting in opaque)
        yield _warning(file, f"keys and values are always bytes: {listed}")
    if others or flags:
        listed = ", ".join([*(f"{setting.key} ({setting.location})" for setting in others), *flags])
        yield _warning(file, f"accepted without effect: {listed}")


def _warning(file: str, message: str) -> ConfigWarning:
    return ConfigWarning(code=WarningCode.NO_MEANING, file=file, line=None, key="", message=message)
