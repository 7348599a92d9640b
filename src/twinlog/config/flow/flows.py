"""Reads one enabled flow from its settings."""

from __future__ import annotations

from dataclasses import replace

from twinlog.config.flow.emissions import own_heartbeat, read_offset_syncs
from twinlog.config.flow.groups import read_groups
from twinlog.config.flow.policies import policy_config, refuse_java_classes
from twinlog.config.flow.precedence import (
    cluster_settings,
    data_producer,
    flow_settings,
    source_client,
    target_client,
)
from twinlog.config.flow.schema import (
    AclSyncConfig,
    ConfigSyncConfig,
    FlowConfig,
    FlowProperties,
    LanesConfig,
    NewTopicsConfig,
    RefreshConfig,
    SourceGroupConfig,
    VerifyMode,
)
from twinlog.config.flow.transforms import read_transforms
from twinlog.config.flow.tuning import lane_memory, read_tuning
from twinlog.config.flow.values import FlowValues
from twinlog.config.keys.client_keys import AUTO_OFFSET_RESET, ISOLATION_LEVEL, Role
from twinlog.config.series import metric_names
from twinlog.config.values.origin import ClientProperties, Settings, refuse
from twinlog.config.values.types import to_boolean, to_choice, trimmed
from twinlog.model import Flow, Isolation, StartKind


def read_flow(raw: Settings, flow: Flow) -> FlowConfig:
    """Return the configuration of an enabled flow. Raises ConfigError for the first invalid
    value.
    """
    settings = flow_settings(raw, flow)
    values = FlowValues(settings)
    values.check_all()
    consumer = source_client(settings, Role.CONSUMER)
    clients = FlowProperties(
        source_consumer=consumer,
        source_admin=source_client(settings, Role.ADMIN),
        target_admin=target_client(settings, Role.ADMIN),
        target_consumer=target_client(settings, Role.CONSUMER),
        target_producer=data_producer(cluster_settings(raw, flow.target), settings),
    )
    refuse_java_classes(settings, clients)
    refuse_contradictions(settings, consumer)
    producer = clients.target_producer
    refreshes, refresh_s = values.rounds("refresh.topics")
    syncs_configs, configs_s = values.rounds("sync.topic.configs")
    syncs_acls, acls_s = values.rounds("sync.topic.acls")
    return FlowConfig(
        flow=flow,
        source_alias=values.text_or("source.cluster.alias", flow.source),
        target_alias=values.text_or("target.cluster.alias", flow.target),
        topics=values.names("topics"),
        topics_exclude=values.names("topics.exclude"),
        heartbeats_replication_enabled=values.boolean("heartbeats.replication.enabled"),
        policy=policy_config(settings),
        refresh=RefreshConfig(enabled=refreshes, interval_seconds=refresh_s),
        new_topics=NewTopicsConfig(
            enabled=values.boolean("topic.creation.enable"),
            replication_factor=values.replicas("replication.factor"),
            default_partitions=values.choice_or("twinlog.new.topic.partitions", "source")
            == "default",
        ),
        config_sync=ConfigSyncConfig(
            enabled=syncs_configs,
            interval_seconds=configs_s,
            exclude=values.names("config.properties.exclude"),
            use_defaults_from=values.text("use.defaults.from"),
            keeps_retention=values.choice_or("twinlog.sync.retention", "follow") == "raise-only",
        ),
        acl_sync=AclSyncConfig(
            enabled=syncs_acls,
            interval_seconds=acls_s,
            prefixed=values.boolean("twinlog.sync.topic.acls.prefixed"),
            removal=values.boolean("twinlog.sync.topic.acls.removal"),
        ),
        groups=read_groups(values),
        heartbeats=own_heartbeat(values, flow),
        offset_syncs=read_offset_syncs(values),
        isolation_level=_isolation(consumer),
        start=replace(
            values.starts("twinlog.start", _reset(consumer)),
            new_from_earliest=values.choice_or("twinlog.start.new", "start") == "earliest",
        ),
        source_group=SourceGroupConfig(
            group_id=values.text("twinlog.source.group.id"),
            commit_interval_ms=values.number("twinlog.source.group.commit.interval.ms"),
        ),
        same_partitions=values.choice_or("twinlog.target.partitions", "grow") == "same",
        keyed_partitions=values.choice_or("twinlog.target.partitions", "grow") == "keyed",
        accept_source_loss=values.choice_or("twinlog.source.loss", "stop") == "accept",
        rpo_seconds=values.number_or_none("twinlog.rpo.seconds"),
        rpo_enforced=values.choice_or("twinlog.rpo.enforce", "none") == "quota",
        status_interval_seconds=values.number("twinlog.status.interval.seconds"),
        verify=VerifyMode(values.choice_or("twinlog.verify", "sample")),
        metric_names=metric_names(values.setting("metric.names.formats")),
        reload_interval_seconds=values.number("twinlog.config.reload.interval.seconds"),
        lanes=LanesConfig(
            tasks_max=values.number_or_none("tasks.max"),
            lease_seconds=values.number("twinlog.lease.seconds"),
            memory_bytes=lane_memory(
                settings.get("twinlog.lane.memory.bytes"),
                producer,
                values.number("twinlog.lane.memory.bytes"),
            ),
            max_bytes_per_second=values.number_or_none("twinlog.max.bytes.per.second"),
            priorities=values.priorities("twinlog.priority"),
        ),
        tuning=read_tuning(consumer, producer, settings.get("twinlog.compression")),
        transforms=read_transforms(settings),
        producer_id_expiration_ms=values.number_or_none("twinlog.target.producer.id.expiration.ms"),
        state_topic_replication_factor=values.replicas("twinlog.state.topic.replication.factor"),
        clients=clients,
        settings=settings,
    )


def _isolation(consumer: ClientProperties) -> Isolation:
    if ISOLATION_LEVEL not in consumer:
        return Isolation.READ_COMMITTED
    return Isolation(to_choice(consumer.origin(ISOLATION_LEVEL), tuple(Isolation)))


def _reset(consumer: ClientProperties) -> StartKind:
    """Return where the copy starts for partitions without a position."""
    if AUTO_OFFSET_RESET not in consumer:
        return StartKind.EARLIEST
    choices = StartKind.EARLIEST, StartKind.LATEST
    return StartKind(to_choice(consumer.origin(AUTO_OFFSET_RESET), choices))


_EMITS_SYNCS = "emit.offset-syncs.enabled"
_SYNCS_PREFIXES = ("offset-syncs-", "offset-syncs.topic.")
"""As in MirrorSourceConfig.validate (KIP-1031)."""

_EXACTLY_ONCE = "exactly.once.support"
_NEW_PARTITIONS = "twinlog.new.topic.partitions"
_PARTITIONS = "twinlog.target.partitions"
_ENFORCES = "twinlog.rpo.enforce"
_RPO = "twinlog.rpo.seconds"
_RENAME = "twinlog.rename"
_ACLS_BY_NAME = ("twinlog.sync.topic.acls.prefixed", "twinlog.sync.topic.acls.removal")


def refuse_contradictions(settings: Settings, consumer: ClientProperties) -> None:
    """Raise ConfigError for a line that needs what another line disables."""
    emits = settings.get(_EMITS_SYNCS)
    if emits is not None and not to_boolean(emits):
        for name, setting in settings.items():
            if name.startswith(_SYNCS_PREFIXES):
                raise refuse(
                    setting,
                    f"there is no offset-syncs topic: {emits.key} is false ({emits.location})",
                    "remove one of the two lines",
                )
    renames = settings.get(_RENAME)
    for name in _ACLS_BY_NAME:
        acls = settings.get(name)
        if renames is not None and trimmed(renames.value) and acls and to_boolean(acls):
            raise refuse(
                acls,
                f"with {renames.key} ({renames.location}) the prefix of a name does not "
                "tell which ACLs belong to which remote topic",
                "remove one of the two lines; literal ACLs are copied to the new names",
            )
    fewer = settings.get(_NEW_PARTITIONS)
    kept = settings.get(_PARTITIONS)
    is_keyed = kept is not None and trimmed(kept.value) == "keyed"
    if fewer is not None and trimmed(fewer.value) == "default" and not is_keyed:
        raise refuse(
            fewer,
            "if the target's partition count differs from the source's, records can only "
            "be distributed by key",
            f"add {_PARTITIONS} = keyed, or remove this line",
            lacks=_PARTITIONS,
        )
    enforced = settings.get(_ENFORCES)
    if enforced is not None and trimmed(enforced.value) == "quota" and _RPO not in settings:
        raise refuse(
            enforced,
            f"{_RPO} is not set, so there is nothing to enforce",
            f"add {_RPO} = NUMBER",
            lacks=_RPO,
        )
    wanted = settings.get(_EXACTLY_ONCE)
    reads_all = trimmed(consumer.get(ISOLATION_LEVEL, "")) == Isolation.READ_UNCOMMITTED
    if wanted is not None and trimmed(wanted.value).lower() == "required" and reads_all:
        isolation = consumer.origin(ISOLATION_LEVEL)
        raise refuse(
            wanted,
            f"records of aborted transactions would be copied: {isolation.key} is "
            f"read_uncommitted ({isolation.location})",
            "remove one of the two lines",
        )
