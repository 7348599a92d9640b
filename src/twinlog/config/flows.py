"""The values of one enabled flow, read from its settings by the key table."""

from __future__ import annotations

from twinlog.config.client_keys import AUTO_OFFSET_RESET, ISOLATION_LEVEL, Role
from twinlog.config.contradictions import refuse_contradictions
from twinlog.config.emissions import own_heartbeat, read_offset_syncs
from twinlog.config.groups import FACTOR, read_groups
from twinlog.config.key_types import Kind
from twinlog.config.keys import DEFINITIONS
from twinlog.config.origin import ClientProperties, Setting, Settings, refuse
from twinlog.config.patterns import NamePattern
from twinlog.config.policies import policy_config, refuse_java_classes
from twinlog.config.priority import Priorities, to_priorities
from twinlog.config.resolve import (
    cluster_settings,
    data_producer,
    flow_settings,
    source_client,
    target_client,
)
from twinlog.config.schema import FlowConfig, IsolationLevel, OffsetReset
from twinlog.config.start import Starts, to_starts
from twinlog.config.tuning import lane_memory, read_tuning
from twinlog.config.values import (
    to_boolean,
    to_choice,
    to_names,
    to_number,
    trimmed,
)
from twinlog.errors import ConfigError
from twinlog.model import Flow, StartKind


def read_flow(raw: Settings, flow: Flow) -> FlowConfig:
    """All values of an enabled flow; the first wrong one is refused."""
    settings = flow_settings(raw, flow)
    values = _Values(settings)
    values.check_all()
    refuse_java_classes(settings)
    consumer = source_client(settings, Role.CONSUMER)
    refuse_contradictions(settings, consumer)
    producer = data_producer(cluster_settings(raw, flow.target), settings)
    reset = _reset(consumer)
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
        replication_factor=_replication_factor(values, "replication.factor"),
        config_properties_exclude=values.names("config.properties.exclude"),
        use_defaults_from=values.text("use.defaults.from"),
        refresh_topics_enabled=refreshes,
        refresh_topics_interval_seconds=refresh_s,
        topic_creation_enabled=values.boolean("topic.creation.enable"),
        sync_topic_configs_enabled=syncs_configs,
        sync_topic_configs_interval_seconds=configs_s,
        sync_topic_acls_enabled=syncs_acls,
        sync_topic_acls_interval_seconds=acls_s,
        sync_topic_acls_prefixed=values.boolean("twinlog.sync.topic.acls.prefixed"),
        sync_topic_acls_removal=values.boolean("twinlog.sync.topic.acls.removal"),
        groups=read_groups(
            values, _replication_factor(values, FACTOR) if FACTOR in settings else None
        ),
        heartbeats=own_heartbeat(settings, flow),
        offset_syncs=read_offset_syncs(settings),
        tasks_max=values.number_or_none("tasks.max"),
        isolation_level=_isolation(consumer),
        auto_offset_reset=reset,
        start=values.starts("twinlog.start", StartKind(reset.value)),
        source_group_id=values.text("twinlog.source.group.id"),
        source_group_commit_interval_ms=values.number("twinlog.source.group.commit.interval.ms"),
        same_partitions=values.choice_or("twinlog.target.partitions", "grow") == "same",
        keyed_partitions=values.choice_or("twinlog.target.partitions", "grow") == "keyed",
        accept_source_loss=values.choice_or("twinlog.source.loss", "stop") == "accept",
        lease_seconds=values.number("twinlog.lease.seconds"),
        reload_interval_seconds=values.number("twinlog.config.reload.interval.seconds"),
        lane_memory_bytes=lane_memory(
            settings.get("twinlog.lane.memory.bytes"),
            producer,
            values.number("twinlog.lane.memory.bytes"),
        ),
        tuning=read_tuning(consumer, producer, settings.get("twinlog.compression")),
        max_bytes_per_second=values.number_or_none("twinlog.max.bytes.per.second"),
        priorities=values.priorities("twinlog.priority"),
        producer_id_expiration_ms=values.number_or_none("twinlog.target.producer.id.expiration.ms"),
        state_topic_replication_factor=_replication_factor(
            values, "twinlog.state.topic.replication.factor"
        ),
        source_consumer=consumer,
        source_admin=source_client(settings, Role.ADMIN),
        target_admin=target_client(settings, Role.ADMIN),
        target_consumer=target_client(settings, Role.CONSUMER),
        target_producer=producer,
        settings=settings,
    )


class _Values:
    """Typed reading of a flow's settings, with the table's defaults."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def check_all(self) -> None:
        """Every typed key must be readable, also those that do nothing yet: so it is in MM2."""
        for name in self._settings:
            if name in DEFINITIONS:
                self._check(name)

    def _check(self, name: str) -> None:
        match DEFINITIONS[name].kind:
            case Kind.BOOLEAN:
                self.boolean(name)
            case Kind.SHORT | Kind.INT | Kind.LONG:
                self.number_or_none(name)
            case Kind.CHOICE:
                self.choice_or(name, "")
            case Kind.NAMES:
                self.names(name)
            case Kind.STRING | Kind.LIST:
                pass  # any text will do

    def boolean(self, name: str) -> bool:
        return to_boolean(self._setting_or_default(name))

    def rounds(self, stem: str) -> tuple[bool, int]:
        """Whether something is done again and again, and every how many seconds."""
        name = f"{stem}.interval.seconds"
        interval = self.number(name)
        if interval == 0:
            raise self.refusal(name, "an interval of 0 cannot be kept", "write at least 1")
        # MM2 turns a negative interval into "never"
        return self.boolean(f"{stem}.enabled") and interval > 0, interval

    def priorities(self, name: str) -> Priorities:
        return to_priorities(self._setting_or_default(name))

    def starts(self, name: str, reset: StartKind) -> Starts:
        setting = self._settings.get(name)
        return Starts.everywhere(reset) if setting is None else to_starts(setting, reset)

    def number(self, name: str) -> int:
        return self._number(name, self._setting_or_default(name))

    def number_or_none(self, name: str) -> int | None:
        setting = self._settings.get(name)
        return None if setting is None else self._number(name, setting)

    def _number(self, name: str, setting: Setting) -> int:
        definition = DEFINITIONS[name]
        return to_number(setting, width=definition.kind.value, low=definition.low)

    def names(self, name: str) -> NamePattern:
        return to_names(self._setting_or_default(name))

    def text(self, name: str) -> str:
        return trimmed(self._setting_or_default(name).value)

    def text_or(self, name: str, default: str) -> str:
        setting = self._settings.get(name)
        return default if setting is None else trimmed(setting.value)

    def choice_or(self, name: str, default: str) -> str:
        setting = self._settings.get(name)
        return default if setting is None else to_choice(setting, DEFINITIONS[name].choices)

    def refusal(self, name: str, what: str, todo: str) -> ConfigError:
        return refuse(self._settings[name], what, todo)

    def _setting_or_default(self, name: str) -> Setting:
        default = DEFINITIONS[name].default or ""
        return self._settings.get(name) or Setting(key=name, value=default, file="<default>")


def _replication_factor(values: _Values, name: str) -> int:
    factor = values.number(name)
    if factor == 0:
        raise values.refusal(
            name, "0 replicas are none", "write at least 1, or -1 for the broker's default"
        )
    return factor


def _isolation(consumer: ClientProperties) -> IsolationLevel:
    if ISOLATION_LEVEL not in consumer:
        return IsolationLevel.READ_COMMITTED
    return IsolationLevel(to_choice(consumer.origin(ISOLATION_LEVEL), tuple(IsolationLevel)))


def _reset(consumer: ClientProperties) -> OffsetReset:
    if AUTO_OFFSET_RESET not in consumer:
        return OffsetReset.EARLIEST
    return OffsetReset(to_choice(consumer.origin(AUTO_OFFSET_RESET), tuple(OffsetReset)))
