"""Frozen dataclasses for the configuration of a process.

`load.load` creates a MirrorConfig. The classes here read neither files nor the environment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.addresses import Address
from twinlog.config.flow.precedence import cluster_client
from twinlog.config.flow.start import Priorities, Starts
from twinlog.config.flow.transforms import TransformsConfig
from twinlog.config.flow.tuning import Tuning
from twinlog.config.keys.client_keys import Role
from twinlog.config.regex.patterns import NamePattern
from twinlog.config.rest import OPEN, RestConfig
from twinlog.config.series import ALL_SERIES, MetricNames, SeriesConfig
from twinlog.config.values.origin import ClientProperties, Setting, Settings
from twinlog.config.values.renames import NO_RENAMES, Renames
from twinlog.config.values.warnings import ConfigWarning
from twinlog.model import Flow, Isolation, is_own_group


class PolicyKind(StrEnum):
    """Whether remote topics are renamed (`default`) or keep their names (`identity`)."""

    DEFAULT = "default"
    IDENTITY = "identity"


class TargetPartitions(StrEnum):
    """What happens if a remote topic has another partition count than its source topic."""

    GROW = "grow"
    """Missing partitions are added."""
    SAME = "same"
    """The topic is not copied."""
    KEYED = "keyed"
    """Records are placed by key."""
    ALL_KEYED = "all-keyed"
    """Records are placed by key, also if the counts are equal."""


class VerifyMode(StrEnum):
    """Which records of its own copy a running mirror compares with the source."""

    OFF = "off"
    SAMPLE = "sample"
    """The newest records of each partition, one partition after another."""
    FULL = "full"
    """All records, once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """One cluster. `servers` is empty if the file has none and no enabled flow needs them."""

    alias: str
    servers: tuple[Address, ...]
    settings: Settings = field(repr=False)

    def client_properties(self, role: Role) -> ClientProperties:
        """Return the Java properties of a client that belongs to no flow. FlowConfig has the
        properties of clients that belong to a flow.
        """
        return cluster_client(self.settings, role)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """The replication policy that names a flow's topics, and its parameters."""

    kind: PolicyKind
    separator: str
    internal_separator: str
    """Separator in the names of MirrorMaker 2's internal topics (KIP-949)."""
    custom: str = ""
    """`module:Class` of a policy in Python, or empty. `kind` shows whether it keeps topic names."""
    renames: Renames = NO_RENAMES
    """Renaming rules, applied before the policy, and Kafka Connect's routers, applied after it."""

    def prefix(self, source_alias: str) -> str | None:
        """Return the text that the policy puts before a source topic's name, or None if it names
        topics in another way.
        """
        if self.custom or self.renames.rules:
            return None
        return "" if self.kind is PolicyKind.IDENTITY else f"{source_alias}{self.separator}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatConfig:
    """A heartbeat that a flow's leader writes, for this flow or for a flow that is not enabled."""

    source_alias: str
    target_alias: str
    into_target: bool
    """True if the heartbeat is written to the writing flow's target, False if to its source."""
    interval_seconds: int
    replication_factor: int | None
    """Replication factor of the heartbeats topic, or None if not set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSyncsConfig:
    """Where and how often MirrorMaker 2's offset syncs are written."""

    on_target: bool
    lag_max: int
    """Maximum distance between offset syncs, in records (offset.lag.max)."""
    replication_factor: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshConfig:
    """How often new topics are discovered."""

    enabled: bool
    interval_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopicsConfig:
    """Whether remote topics are created and changed, and how."""

    enabled: bool
    """True if remote topics are created, extended and reconfigured (topic.creation.enable)."""
    replication_factor: int
    """Replication factor of new remote topics; -1 is the broker's default."""
    default_partitions: bool
    """True if new topics get the target's num.partitions (twinlog.new.topic.partitions=default)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSyncConfig:
    enabled: bool
    interval_seconds: int
    exclude: NamePattern
    """Topic configs that are not copied (config.properties.exclude)."""
    use_defaults_from: str
    keeps_retention: bool = False
    """True if configs that shorten retention are not copied (twinlog.sync.retention=raise-only)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclSyncConfig:
    enabled: bool
    interval_seconds: int
    prefixed: bool
    removal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsConfig:
    """The keys of MirrorMaker 2's checkpoint connector; intervals in seconds."""

    include: NamePattern
    exclude: NamePattern
    refresh_s: int | None
    """Interval in which new groups are discovered, or None if only at the start."""
    checkpoints_s: int | None
    """Interval in which checkpoints are written, or None if never."""
    sync_s: int | None
    """Interval in which offsets of idle groups are set, or None if never."""
    checkpoints_replication_factor: int | None
    """Replication factor of the checkpoints topic, or None if not set."""

    def selects(self, group: str) -> bool:
        """Return True if offsets of this group are translated. Twinlog's own groups are never
        translated, regardless of the filters.
        """
        if is_own_group(group):
            return False
        return self.include.matches(group) and not self.exclude.matches(group)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceGroupConfig:
    """The consumer group on the source that shows the position of the copy, as in MirrorMaker 1."""

    group_id: str
    """ID of the consumer group (twinlog.source.group.id), or empty if not set."""
    commit_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowProperties:
    """Java properties of the flow's clients."""

    source_consumer: ClientProperties
    source_admin: ClientProperties
    target_admin: ClientProperties
    target_consumer: ClientProperties
    target_producer: ClientProperties
    """The producer of the copied records."""

    def of_source(self) -> tuple[ClientProperties, ...]:
        return self.source_consumer, self.source_admin

    def of_target(self) -> tuple[ClientProperties, ...]:
        return self.target_producer, self.target_consumer, self.target_admin


@dataclass(frozen=True, slots=True, kw_only=True)
class LanesConfig:
    """Number and limits of lanes, and the duration of a lease (the Spark job of the lanes)."""

    tasks_max: int | None
    lease_seconds: int
    has_warm_standby: bool
    """True if twinlog.spark.standby=warm: a standby already has an executor of a Spark cluster."""
    memory_bytes: int
    max_bytes_per_second: int | None
    """Rate limit of all lanes together (twinlog.max.bytes.per.second), or None for no limit."""
    priorities: Priorities


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    """The configuration of one enabled flow."""

    flow: Flow
    source_alias: str
    """The source's alias in topic names: source.cluster.alias, or else its alias in the file."""
    target_alias: str

    topics: NamePattern
    topics_exclude: NamePattern
    heartbeats_replication_enabled: bool
    policy: PolicyConfig
    refresh: RefreshConfig
    new_topics: NewTopicsConfig
    config_sync: ConfigSyncConfig
    acl_sync: AclSyncConfig

    heartbeats: tuple[HeartbeatConfig, ...]
    offset_syncs: OffsetSyncsConfig | None
    """Configuration of offset syncs, or None if emit.offset-syncs.enabled=false."""

    groups: GroupsConfig

    isolation_level: Isolation

    start: Starts
    """Where the copy of a partition that was never copied starts (twinlog.start)."""
    source_group: SourceGroupConfig
    target_partitions: TargetPartitions
    """What happens if the partition counts of a topic differ (twinlog.target.partitions)."""
    beside: frozenset[Flow]
    """Flows that are permitted to copy topics that this flow also copies (twinlog.beside)."""
    accept_source_loss: bool
    """True to resume after records that were deleted before their copy (twinlog.source.loss)."""
    rpo_seconds: int | None
    """Recovery point objective (twinlog.rpo.seconds), or None if not set."""
    rpo_enforced: bool
    """True to throttle the source's producers while the RPO is exceeded (twinlog.rpo.enforce)."""
    status_interval_seconds: int
    """How often the status is written (twinlog.status.interval.seconds), or 0 for never."""
    verify: VerifyMode
    """Which copied records are compared with the source (twinlog.verify)."""
    metric_names: frozenset[MetricNames]
    """Formats of the names of MirrorMaker 2's metrics (metric.names.formats)."""
    reload_interval_seconds: int
    """How often to check the file (twinlog.config.reload.interval.seconds), or 0 for never."""
    lanes: LanesConfig
    tuning: Tuning
    """Request sizes, waits and codec, from client settings."""
    transforms: TransformsConfig
    """Transforms of records: twinlog.transforms, and Kafka Connect's `transforms`."""
    producer_id_expiration_ms: int | None
    """twinlog.target.producer.id.expiration.ms, or None if not set."""
    state_topic_replication_factor: int

    clients: FlowProperties
    settings: Settings = field(repr=False)
    """All settings of the flow's connectors, each with its line."""
    released: frozenset[str] = frozenset()
    """Topics that were released with a command. They do not come from the file."""

    @property
    def same_partitions(self) -> bool:
        """True if a topic is not copied when its partition count differs on the target."""
        return self.target_partitions is TargetPartitions.SAME

    @property
    def keyed_partitions(self) -> bool:
        """True if records are placed by key, at least in topics whose partition counts differ."""
        return self.target_partitions in (TargetPartitions.KEYED, TargetPartitions.ALL_KEYED)

    def places_by_key(self, source_count: int, target_count: int) -> bool:
        """Return True if the records of a topic with these partition counts are placed by key."""
        differs = source_count != target_count
        return self.target_partitions is TargetPartitions.ALL_KEYED or (
            self.keyed_partitions and differs
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorConfig:
    """A configuration ready to run. `flows` has at least one enabled flow."""

    file: str
    clusters: tuple[ClusterConfig, ...]
    flows: tuple[FlowConfig, ...]
    elsewhere: tuple[FlowConfig, ...] = ()
    """Enabled flows that `--clusters` leaves to other processes. This process shows them, but does
    not run them.
    """
    http_listener: Address | None = None
    """The HTTP address in `listeners`, which applies if the command line sets none."""
    rest: RestConfig = OPEN
    """HTTP authentication and TLS (twinlog.rest.*)."""
    series: SeriesConfig = ALL_SERIES
    """Configuration of the series of `/metrics` (twinlog.metrics.*)."""
    warnings: tuple[ConfigWarning, ...]
    lines: tuple[Setting, ...] = field(default=(), repr=False)
    """All settings, in the order of the file."""
    more_files: tuple[str, ...] = ()
    """The files after the first one, if the process was started with several."""

    @property
    def every_flow(self) -> tuple[FlowConfig, ...]:
        """Return the flows that this process runs, and those that it leaves to other processes."""
        return (*self.flows, *self.elsewhere)

    def cluster(self, alias: str) -> ClusterConfig:
        return next(cluster for cluster in self.clusters if cluster.alias == alias)
