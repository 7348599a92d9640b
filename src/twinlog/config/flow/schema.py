"""The configuration as values: what a run is to do, frozen, with the origin of everything kept.

`load.load` makes a MirrorConfig; nothing below it reads a file or the environment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.addresses import Address
from twinlog.config.flow.groups import GroupsConfig
from twinlog.config.flow.precedence import cluster_client
from twinlog.config.flow.priority import Priorities
from twinlog.config.flow.start import Starts
from twinlog.config.flow.tuning import Tuning
from twinlog.config.keys.client_keys import Role
from twinlog.config.regex.patterns import NamePattern
from twinlog.config.rest import OPEN, RestConfig
from twinlog.config.series import ALL_SERIES, MetricNames, SeriesConfig
from twinlog.config.values.origin import ClientProperties, Setting, Settings
from twinlog.config.values.renames import NO_RENAMES, Renames
from twinlog.config.values.warnings import ConfigWarning
from twinlog.model import Flow, Isolation


class PolicyKind(StrEnum):
    """How remote topics are named."""

    DEFAULT = "default"
    IDENTITY = "identity"


class VerifyMode(StrEnum):
    """What a mirror compares of its own copy while it runs."""

    OFF = "off"
    SAMPLE = "sample"
    """The newest records of each partition in turn."""
    FULL = "full"
    """Everything, once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """One cluster by its alias; `servers` is empty where no flow needs it and none is named."""

    alias: str
    servers: tuple[Address, ...]
    settings: Settings = field(repr=False)

    def client_properties(self, role: Role) -> ClientProperties:
        """Java properties for a client that belongs to no flow; a flow's are in FlowConfig."""
        return cluster_client(self.settings, role)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """Which replication policy names a flow's topics, and with what."""

    kind: PolicyKind
    separator: str
    internal_separator: str
    """What stands in the names of MM2's internal topics (KIP-949)."""
    custom: str = ""
    """`module:Class` of a policy in Python; `kind` then says whether it keeps names."""
    renames: Renames = NO_RENAMES
    """What source topics are called before the policy names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatConfig:
    """One heartbeat that a flow's leader writes: the flow's own, or one that stands for a flow
    that is not enabled.
    """

    source_alias: str
    target_alias: str
    into_target: bool
    """Into the target of the flow that writes it, or else into its source."""
    interval_seconds: int
    replication_factor: int | None
    """Of the heartbeats topic; None where nobody said it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSyncsConfig:
    """Where MirrorMaker 2's offset syncs are written, and how close together they lie."""

    on_target: bool
    lag_max: int
    """offset.lag.max, in records."""
    replication_factor: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshConfig:
    """How often new topics are looked for."""

    enabled: bool
    interval_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopicsConfig:
    """Which remote topics may be made, and how; without it none is changed either."""

    enabled: bool
    """topic.creation.enable: remote topics may be created, grown and reconfigured."""
    replication_factor: int
    """-1 is the broker's default."""
    default_partitions: bool
    """twinlog.new.topic.partitions = default: they get num.partitions of the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSyncConfig:
    """Configs of topics that are kept equal."""

    enabled: bool
    interval_seconds: int
    exclude: NamePattern
    """config.properties.exclude"""
    use_defaults_from: str
    keeps_retention: bool = False
    """twinlog.sync.retention=raise-only: nothing that shortens the life of records is copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclSyncConfig:
    """ACLs of topics that are copied."""

    enabled: bool
    interval_seconds: int
    prefixed: bool
    removal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceGroupConfig:
    """The group on the source that shows how far the copy is, as MirrorMaker 1's did."""

    group_id: str
    """twinlog.source.group.id; empty is none."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LanesConfig:
    """How many lanes copy, for how long each, and what they may take."""

    tasks_max: int | None
    lease_seconds: int
    memory_bytes: int
    max_bytes_per_second: int | None
    """twinlog.max.bytes.per.second, of all lanes together; None is no limit."""
    priorities: Priorities


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    """Everything that one enabled flow is to do."""

    flow: Flow
    source_alias: str
    """The source's name in topic names: its alias, unless source.cluster.alias says otherwise."""
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
    """None where emit.offset-syncs.enabled=false."""

    groups: GroupsConfig

    isolation_level: Isolation

    start: Starts
    """twinlog.start"""
    source_group: SourceGroupConfig
    same_partitions: bool
    """twinlog.target.partitions = same: topics whose counts differ are refused, none is grown."""
    keyed_partitions: bool
    """twinlog.target.partitions = keyed: records of such topics are placed by key."""
    accept_source_loss: bool
    """twinlog.source.loss: continue behind records that the source deleted before they were
    copied.
    """
    rpo_seconds: int | None
    """twinlog.rpo.seconds; None where nobody said it."""
    rpo_enforced: bool
    """twinlog.rpo.enforce = quota: producers of the source are held back until it is kept."""
    status_interval_seconds: int
    """twinlog.status.interval.seconds; 0 is never."""
    verify: VerifyMode
    """twinlog.verify"""
    metric_names: frozenset[MetricNames]
    """metric.names.formats"""
    reload_interval_seconds: int
    """twinlog.config.reload.interval.seconds; 0 is never."""
    lanes: LanesConfig
    tuning: Tuning
    """Sizes and codec, from settings of the clients."""
    producer_id_expiration_ms: int | None
    """twinlog.target.producer.id.expiration.ms; None where nobody said it."""
    state_topic_replication_factor: int

    clients: FlowProperties
    settings: Settings = field(repr=False)
    """All settings of the flow's connectors, each with its line."""
    released: frozenset[str] = frozenset()
    """Topics that people have released from it since; no file says that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorConfig:
    """A configuration, ready to run; `flows` holds the enabled ones only, at least one."""

    file: str
    clusters: tuple[ClusterConfig, ...]
    flows: tuple[FlowConfig, ...]
    elsewhere: tuple[FlowConfig, ...] = ()
    """Enabled flows that `--clusters` leaves to other processes: not run here, but shown."""
    http_listener: Address | None = None
    """Of `listeners`: where monitoring is served when the command line names no address."""
    rest: RestConfig = OPEN
    """Of `twinlog.rest.*`: who may come in over HTTP."""
    series: SeriesConfig = ALL_SERIES
    """Of `twinlog.metrics.*`: what `/metrics` serves."""
    warnings: tuple[ConfigWarning, ...]
    lines: tuple[Setting, ...] = field(default=(), repr=False)
    """All that was read, in the order of the file."""
    more_files: tuple[str, ...] = ()
    """Those behind the first one, where one process runs several."""

    @property
    def every_flow(self) -> tuple[FlowConfig, ...]:
        """Those that this process runs, and those that others do."""
        return (*self.flows, *self.elsewhere)

    def cluster(self, alias: str) -> ClusterConfig:
        return next(cluster for cluster in self.clusters if cluster.alias == alias)

    def flow(self, flow: Flow) -> FlowConfig:
        return next(config for config in self.flows if config.flow == flow)
