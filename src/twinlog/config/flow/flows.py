"""Builds the FlowConfig of one enabled flow from its settings and the key table's defaults."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from twinlog.config.flow.connect import CHAIN, read_chain
from twinlog.config.flow.custom_classes import custom_pattern
from twinlog.config.flow.policies import policy_config, refuse_java_classes, with_routers
from twinlog.config.flow.precedence import (
    candidate_flows,
    cluster_settings,
    connector_client,
    data_producer,
    flow_settings,
    setting_of,
)
from twinlog.config.flow.schema import (
    AclSyncConfig,
    ConfigSyncConfig,
    FlowConfig,
    FlowProperties,
    GroupsConfig,
    HeartbeatConfig,
    LanesConfig,
    NewTopicsConfig,
    OffsetSyncsConfig,
    PolicyConfig,
    RefreshConfig,
    SourceGroupConfig,
    TargetPartitions,
    VerifyMode,
)
from twinlog.config.flow.start import to_priorities, to_starts
from twinlog.config.flow.transforms import read_transforms
from twinlog.config.flow.tuning import lane_memory, read_tuning
from twinlog.config.keys.client_keys import AUTO_OFFSET_RESET, ISOLATION_LEVEL, Role
from twinlog.config.keys.key_table import (
    BESIDE,
    DEFINITIONS,
    TARGET_PARTITIONS,
    TRANSFORMS_MEMORY,
    KeyKind,
)
from twinlog.config.regex.patterns import NamePattern
from twinlog.config.series import metric_names
from twinlog.config.values.origin import ClientProperties, Setting, Settings, refuse
from twinlog.config.values.renames import KEY as RENAME
from twinlog.config.values.types import (
    to_boolean,
    to_choice,
    to_list,
    to_names,
    to_number,
    trimmed,
)
from twinlog.model import Flow, Isolation, StartKind


class FlowValues:
    """A flow's settings as typed values."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def check_all(self) -> None:
        """Raise ConfigError if any key of the key table has an invalid value, even if the key has
        no effect. MirrorMaker 2 does the same.
        """
        for name in self._settings:
            match DEFINITIONS[name].kind if name in DEFINITIONS else None:
                case KeyKind.BOOLEAN:
                    self.boolean(name)
                case KeyKind.SHORT | KeyKind.INT | KeyKind.LONG:
                    self.number(name)
                case KeyKind.CHOICE:
                    self.choice(name)
                case KeyKind.NAMES:
                    self.names(name)
                case _:
                    pass  # any text is valid

    def boolean(self, name: str) -> bool:
        return to_boolean(self.setting(name))

    def enabled_and_interval(self, stem: str) -> tuple[bool, int]:
        """Return (is_enabled, interval in seconds) of the periodic task whose keys begin with
        `stem`.
        """
        name = f"{stem}.interval.seconds"
        interval = self.number(name)
        if interval == 0:
            raise refuse(self._settings[name], "the interval must not be 0", "write at least 1")
        # MirrorMaker 2 treats a negative interval as "never"
        return self.boolean(f"{stem}.enabled") and interval > 0, interval

    def number(self, name: str) -> int:
        definition = DEFINITIONS[name]
        return to_number(self.setting(name), width=definition.kind.value, low=definition.low)

    def number_or_none(self, name: str) -> int | None:
        return self.number(name) if name in self._settings else None

    def replicas(self, name: str) -> int:
        """Return a replication factor, or -1 for the broker's default."""
        factor = self.number(name)
        if factor == 0 or factor < -1:
            raise refuse(
                self._settings[name],
                f"{factor} is not a number of replicas",
                "write at least 1, or -1 for the broker's default",
            )
        return factor

    def replicas_or_none(self, name: str) -> int | None:
        """Return a replication factor, or None if the key is not set."""
        return self.replicas(name) if name in self._settings else None

    def names(self, name: str) -> NamePattern:
        return custom_pattern(self._settings, name) or to_names(self.setting(name))

    def text(self, name: str) -> str:
        return trimmed(self.setting(name).value)

    def text_or(self, name: str, default: str) -> str:
        setting = self._settings.get(name)
        return default if setting is None else trimmed(setting.value)

    def choice(self, name: str) -> str:
        return to_choice(self.setting(name), DEFINITIONS[name].choices)

    def setting(self, name: str) -> Setting:
        return setting_of(self._settings, name)


def read_flow(raw: Settings, flow: Flow) -> FlowConfig:
    """Return the configuration of an enabled flow. Raises ConfigError for an invalid value."""
    settings = flow_settings(raw, flow)
    values = FlowValues(settings)
    values.check_all()
    consumer = connector_client(settings, "source", Role.CONSUMER)
    clients = FlowProperties(
        source_consumer=consumer,
        source_admin=connector_client(settings, "source", Role.ADMIN),
        target_admin=connector_client(settings, "target", Role.ADMIN),
        target_consumer=connector_client(settings, "target", Role.CONSUMER),
        target_producer=data_producer(cluster_settings(raw, flow.target), settings),
    )
    refuse_java_classes(settings, clients)
    refuse_contradictions(settings, consumer)
    source_alias = values.text_or("source.cluster.alias", flow.source)
    policy = policy_config(settings)
    chain = read_chain(settings, flow, policy.prefix(source_alias))
    policy = with_routers(policy, chain.routers, settings)
    refuse_acls_by_name(settings, policy)
    producer = clients.target_producer
    refreshes, refresh_s = values.enabled_and_interval("refresh.topics")
    syncs_configs, configs_s = values.enabled_and_interval("sync.topic.configs")
    syncs_acls, acls_s = values.enabled_and_interval("sync.topic.acls")
    return FlowConfig(
        flow=flow,
        source_alias=source_alias,
        target_alias=values.text_or("target.cluster.alias", flow.target),
        topics=values.names("topics"),
        topics_exclude=values.names("topics.exclude"),
        heartbeats_replication_enabled=values.boolean("heartbeats.replication.enabled"),
        policy=policy,
        refresh=RefreshConfig(enabled=refreshes, interval_seconds=refresh_s),
        new_topics=NewTopicsConfig(
            enabled=values.boolean("topic.creation.enable"),
            replication_factor=values.replicas("replication.factor"),
            default_partitions=values.choice("twinlog.new.topic.partitions") == "default",
        ),
        config_sync=ConfigSyncConfig(
            enabled=syncs_configs,
            interval_seconds=configs_s,
            exclude=values.names("config.properties.exclude"),
            use_defaults_from=values.text("use.defaults.from"),
            keeps_retention=values.choice("twinlog.sync.retention") == "raise-only",
        ),
        acl_sync=AclSyncConfig(
            enabled=syncs_acls,
            interval_seconds=acls_s,
            prefixed=values.boolean("twinlog.sync.topic.acls.prefixed"),
            removal=values.boolean("twinlog.sync.topic.acls.removal"),
        ),
        groups=read_groups(values),
        heartbeats=_heartbeats(values, flow, into_target=True),
        offset_syncs=read_offset_syncs(values),
        isolation_level=_isolation(consumer),
        start=replace(
            to_starts(values.setting("twinlog.start"), _reset(consumer)),
            new_from_earliest=values.choice("twinlog.start.new") == "earliest",
        ),
        source_group=SourceGroupConfig(
            group_id=values.text("twinlog.source.group.id"),
            commit_interval_ms=values.number("twinlog.source.group.commit.interval.ms"),
        ),
        target_partitions=TargetPartitions(values.choice(TARGET_PARTITIONS)),
        beside=_flows(values.setting(BESIDE)),
        accept_source_loss=values.choice("twinlog.source.loss") == "accept",
        rpo_seconds=values.number_or_none("twinlog.rpo.seconds"),
        rpo_enforced=values.choice("twinlog.rpo.enforce") == "quota",
        status_interval_seconds=values.number("twinlog.status.interval.seconds"),
        verify=VerifyMode(values.choice("twinlog.verify")),
        metric_names=metric_names(values.setting("metric.names.formats")),
        reload_interval_seconds=values.number("twinlog.config.reload.interval.seconds"),
        lanes=LanesConfig(
            tasks_max=values.number_or_none("tasks.max"),
            lease_seconds=values.number("twinlog.lease.seconds"),
            has_warm_standby=values.choice("twinlog.spark.standby") == "warm",
            memory_bytes=lane_memory(
                settings.get("twinlog.lane.memory.bytes"),
                producer,
                values.number("twinlog.lane.memory.bytes"),
            ),
            max_bytes_per_second=values.number_or_none("twinlog.max.bytes.per.second"),
            priorities=to_priorities(values.setting("twinlog.priority")),
        ),
        tuning=read_tuning(
            consumer,
            producer,
            settings.get("twinlog.compression"),
            gathers=values.choice("twinlog.latency") == "balanced",
        ),
        transforms=read_transforms(settings, chain, memory_bytes=values.number(TRANSFORMS_MEMORY)),
        producer_id_expiration_ms=values.number_or_none("twinlog.target.producer.id.expiration.ms"),
        state_topic_replication_factor=values.replicas("twinlog.state.topic.replication.factor"),
        clients=clients,
        settings=settings,
    )


def _flows(setting: Setting) -> frozenset[Flow]:
    flows = frozenset(map(Flow.of, to_list(setting)))
    for flow in flows:
        if not (flow.source and flow.target):
            raise refuse(setting, f'"{setting.value}" is not the name of a flow', "write A->B")
    return flows


def _isolation(consumer: ClientProperties) -> Isolation:
    if ISOLATION_LEVEL not in consumer:
        return Isolation.READ_COMMITTED
    return Isolation(to_choice(consumer.origin(ISOLATION_LEVEL), tuple(Isolation)))


def _reset(consumer: ClientProperties) -> StartKind:
    """Return `auto.offset.reset`, where the copy of a partition without a position starts."""
    if AUTO_OFFSET_RESET not in consumer:
        return StartKind.EARLIEST
    choices = StartKind.EARLIEST, StartKind.LATEST
    return StartKind(to_choice(consumer.origin(AUTO_OFFSET_RESET), choices))


_EMITS_SYNCS = "emit.offset-syncs.enabled"
_SYNCS_PREFIXES = ("offset-syncs-", "offset-syncs.topic.")
"""Prefixes of keys that MirrorSourceConfig.validate rejects without offset syncs (KIP-1031)."""

_EXACTLY_ONCE = "exactly.once.support"
_NEW_PARTITIONS = "twinlog.new.topic.partitions"
_KEYED = ("keyed", "all-keyed")
_ENFORCES = "twinlog.rpo.enforce"
_RPO = "twinlog.rpo.seconds"
_ACLS_BY_NAME = ("twinlog.sync.topic.acls.prefixed", "twinlog.sync.topic.acls.removal")


def refuse_acls_by_name(settings: Settings, policy: PolicyConfig) -> None:
    """Raise ConfigError if topics are renamed and ACLs are selected by the prefix of a name."""
    renames = settings.get(RENAME if policy.renames.rules else CHAIN)
    for name in _ACLS_BY_NAME:
        acls = setting_of(settings, name)
        if policy.renames and renames is not None and to_boolean(acls):
            raise refuse(
                acls,
                f"with {renames.key} ({renames.location}) the prefix of a name does not "
                "tell which ACLs belong to which remote topic",
                "remove one of the two lines; literal ACLs are copied to the new names",
            )


def refuse_contradictions(settings: Settings, consumer: ClientProperties) -> None:
    """Raise ConfigError for a line that needs a setting which is missing or disabled."""
    emits = setting_of(settings, _EMITS_SYNCS)
    if not to_boolean(emits):
        for name, setting in settings.items():
            if name.startswith(_SYNCS_PREFIXES):
                raise refuse(
                    setting,
                    f"there is no offset-syncs topic: {emits.key} is false ({emits.location})",
                    "remove one of the two lines",
                )
    fewer = setting_of(settings, _NEW_PARTITIONS)
    is_keyed = trimmed(setting_of(settings, TARGET_PARTITIONS).value) in _KEYED
    if trimmed(fewer.value) == "default" and not is_keyed:
        raise refuse(
            fewer,
            "if the target's partition count differs from the source's, records can only "
            "be distributed by key",
            f"add {TARGET_PARTITIONS} = keyed, or remove this line",
            missing_key=TARGET_PARTITIONS,
        )
    enforced = setting_of(settings, _ENFORCES)
    if trimmed(enforced.value) == "quota" and _RPO not in settings:
        raise refuse(
            enforced,
            f"{_RPO} is not set, so there is nothing to enforce",
            f"add {_RPO} = NUMBER",
            missing_key=_RPO,
        )
    wanted = setting_of(settings, _EXACTLY_ONCE)
    reads_all = trimmed(consumer.get(ISOLATION_LEVEL, "")) == Isolation.READ_UNCOMMITTED
    if trimmed(wanted.value).lower() == "required" and reads_all:
        isolation = consumer.origin(ISOLATION_LEVEL)
        raise refuse(
            wanted,
            f"records of aborted transactions would be copied: {isolation.key} is "
            f"read_uncommitted ({isolation.location})",
            "remove one of the two lines",
        )


# Heartbeats and offset syncs, for clients of MirrorMaker 2. MirrorMaker 2 runs a herder for every
# pair of clusters that is enabled *or* emits heartbeats, which is the default. So with only A->B
# enabled, a B->A herder writes heartbeats into A, and their copies in B show that A is alive.
# Twinlog runs only enabled flows. If a pair is not enabled, its heartbeat is written by an enabled
# flow that connects to the pair's target anyway. This is the first flow into that cluster, or else
# the first flow out of it. No heartbeats are written into a cluster without flows.


def read_offset_syncs(values: FlowValues) -> OffsetSyncsConfig | None:
    """Return the configuration of offset syncs, or None if they are disabled."""
    if not values.boolean("emit.offset-syncs.enabled"):
        return None
    return OffsetSyncsConfig(
        on_target=values.choice("offset-syncs.topic.location") == "target",
        lag_max=values.number("offset.lag.max"),
        replication_factor=values.replicas_or_none("offset-syncs.topic.replication.factor"),
    )


def with_lone_heartbeats(
    raw: Settings, flows: Sequence[FlowConfig], aliases: Sequence[str], nearby: Collection[str]
) -> tuple[FlowConfig, ...]:
    """Return the flows, extended by the heartbeats of pairs that are not enabled.

    `nearby`: the clusters of --clusters, or empty. If it is not empty, only pairs into these
    clusters have heartbeats, because MirrorMaker 2 would run no herder for other pairs.
    """
    out = {config.flow: config for config in flows}
    for pair in candidate_flows(aliases):
        if pair in out or (nearby and pair.target not in nearby):
            continue
        writers = [flow for flow in out if flow.target == pair.target]
        writers += [flow for flow in out if flow.source == pair.target]
        if writers:
            config, is_into = out[writers[0]], writers[0].target == pair.target
            beats = _heartbeats(FlowValues(flow_settings(raw, pair)), pair, into_target=is_into)
            out[config.flow] = replace(config, heartbeats=(*config.heartbeats, *beats))
    return tuple(out.values())


def _heartbeats(
    values: FlowValues, pair: Flow, *, into_target: bool
) -> tuple[HeartbeatConfig, ...]:
    """Return the heartbeat of a pair, or () if its heartbeats are disabled."""
    beats, interval = values.enabled_and_interval("emit.heartbeats")
    if not beats:
        return ()
    heartbeat = HeartbeatConfig(
        source_alias=values.text_or("source.cluster.alias", pair.source),
        target_alias=values.text_or("target.cluster.alias", pair.target),
        into_target=into_target,
        interval_seconds=interval,
        replication_factor=values.replicas_or_none("heartbeats.topic.replication.factor"),
    )
    return (heartbeat,)


def read_groups(values: FlowValues) -> GroupsConfig:
    """Return which groups are translated, and the intervals of the tasks for groups."""
    return GroupsConfig(
        include=values.names("groups"),
        exclude=values.names("groups.exclude"),
        refresh_s=_interval_s(values, "refresh.groups"),
        checkpoints_s=_interval_s(values, "emit.checkpoints"),
        sync_s=_interval_s(values, "sync.group.offsets"),
        checkpoints_replication_factor=values.replicas_or_none(
            "checkpoints.topic.replication.factor"
        ),
    )


def _interval_s(values: FlowValues, stem: str) -> int | None:
    interval = values.number(f"{stem}.interval.seconds")
    # MirrorMaker 2 treats a negative interval as "never", and 0 as "as often as possible"
    return interval if values.boolean(f"{stem}.enabled") and interval >= 0 else None
