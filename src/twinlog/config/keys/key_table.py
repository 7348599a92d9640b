"""All configuration keys by name, and the fields of a key.

- `FLOW_KEYS` are the keys of MirrorMaker 2's three connectors. One table is for `key` and
  `A->B.key`, because every connector of a flow gets the keys of all three. Defaults are those of
  MirrorMaker 2 4.3.
- `WORKER_KEYS` are keys of the process and of Connect's workers. All are accepted, but few have an
  effect. The names are those of Kafka 4.3's DistributedConfig without the client settings, which
  are in `client_keys`.
- `OWN_KEYS` and `OWN_PROCESS_KEYS` are Twinlog's own.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Final

from twinlog.config.keys.client_keys import SECURITY_KEYS, words


class KeyKind(StrEnum):
    """Type of a key's value."""

    BOOLEAN = "boolean"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    STRING = "string"
    CHOICE = "choice"
    LIST = "list"
    NAMES = "names"
    """A list of regular expressions, each matched against whole names."""


class KeyScope(StrEnum):
    """Where a key is looked up."""

    FLOW = "flow"
    """`A->B.key`, or `key` for every flow."""
    TARGET = "target"
    """`A->B.key`, else `B.key`, else `key`. For Twinlog's own keys, and topic.creation.enable."""
    PROCESS = "process"
    """`key` alone, read once by the process."""


class Support(StrEnum):
    """Whether a key has an effect in Twinlog."""

    ACTS = "acts"
    NO_MEANING = "no meaning"
    """Accepted without effect."""


@dataclass(frozen=True, slots=True)
class KeyDefinition:
    """One key: its type, default, effect and scope."""

    name: str
    kind: KeyKind
    default: str | None
    support: Support
    meaning: str
    _: KW_ONLY
    scope: KeyScope = KeyScope.FLOW
    low: int | None = None
    choices: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    """Deprecated names, accepted with a warning, and ignored if the current name is set."""


OWN_PREFIX = "twinlog."


_key = KeyDefinition
_ACTS, _NOTHING = Support.ACTS, Support.NO_MEANING
_BOOLEAN, _SHORT, _INT, _LONG = KeyKind.BOOLEAN, KeyKind.SHORT, KeyKind.INT, KeyKind.LONG
_STRING, _CHOICE, _LIST, _NAMES = KeyKind.STRING, KeyKind.CHOICE, KeyKind.LIST, KeyKind.NAMES

MIRROR_PACKAGE = "org.apache.kafka.connect.mirror."
_BYTES = "bytes are never converted; only `ByteArrayConverter` is accepted"

DEFAULT_TOPICS_EXCLUDE = r"mm2.*\.internal, .*\.replica, __.*"
DEFAULT_GROUPS_EXCLUDE = "console-consumer-.*, connect-.*, __.*"
DEFAULT_CONFIG_PROPERTIES_EXCLUDE = (
    "follower.replication.throttled.replicas, leader.replication.throttled.replicas, "
    "message.timestamp.difference.max.ms, log.message.timestamp.before.max.ms, "
    "log.message.timestamp.after.max.ms, message.timestamp.type, "
    "unclean.leader.election.enable, min.insync.replicas"
)


# fmt: off
_SHARED = (
    _key("enabled", _BOOLEAN, "false", _ACTS, "enables a flow"),
    _key("source.cluster.alias", _STRING, None, _ACTS,
         "prefix of remote topics; default: the source's alias"),
    _key("target.cluster.alias", _STRING, None, _ACTS,
         "the target's alias for detecting cycles; default: its alias"),
    _key("replication.policy.class", _STRING, MIRROR_PACKAGE + "DefaultReplicationPolicy", _ACTS,
         "naming of remote topics: with the source's alias as a prefix, unchanged "
         "(IdentityReplicationPolicy), or by a Python class: `package.module:Class`"),
    _key("replication.policy.separator", _STRING, ".", _ACTS,
         "separator between alias and topic. A blank one has no effect with the identity "
         "policy; if source.cluster.alias is blank too, the identity policy applies"),
    _key("replication.policy.internal.topic.separator.enabled", _BOOLEAN, "true", _ACTS,
         "false keeps `.` in names of internal topics (KIP-949); read only if the separator is "
         "set"),
    _key("tasks.max", _INT, None, _ACTS, "maximum number of lanes of a flow", low=1),
    _key("admin.timeout.ms", _LONG, "60000", _NOTHING, "requests have their own timeouts"),
    _key("forwarding.admin.class", _STRING, "org.apache.kafka.clients.admin.ForwardingAdmin", _ACTS,
         "only the default is accepted: Java classes cannot create topics in Twinlog (KIP-787)"),
    _key("metric.reporters", _LIST, None, _NOTHING, "Twinlog loads no Java classes"),
    _key("metric.names.formats", _LIST, "legacy", _ACTS,
         "names of MirrorMaker 2's series in /metrics: `legacy`, `new` or both (KIP-1280)"),
    _key("auto.include.jmx.reporter", _BOOLEAN, "true", _NOTHING, "used only by Kafka 3.x"),
    _key("offset-syncs.topic.location", _CHOICE, "source", _ACTS,
         "the cluster that has the offset-syncs topic", choices=("source", "target")),
    _key("emit.offset-syncs.enabled", _BOOLEAN, "true", _ACTS, "write offset syncs (KIP-1031)"),
    _key("topic.filter.class", _STRING, MIRROR_PACKAGE + "DefaultTopicFilter", _ACTS,
         "Kafka's default, or a class in Python: `package.module:Class`"),
)

_SOURCE = (
    _key("topics", _NAMES, ".*", _ACTS, "topics to mirror", replaces=("topics.whitelist",)),
    _key("topics.exclude", _NAMES, DEFAULT_TOPICS_EXCLUDE, _ACTS,
         "topics not to mirror; takes precedence over `topics`", replaces=("topics.blacklist",)),
    _key("config.properties.exclude", _NAMES, DEFAULT_CONFIG_PROPERTIES_EXCLUDE, _ACTS,
         "topic configs that are not copied; a name of a timestamp limit, as in the default, "
         "also excludes `message.timestamp.before.max.ms` and `...after.max.ms`",
         replaces=("config.properties.blacklist",)),
    _key("use.defaults.from", _STRING, "target", _ACTS,
         "`source` copies the source's default values as explicit values"),
    _key("config.property.filter.class", _STRING, MIRROR_PACKAGE + "DefaultConfigPropertyFilter",
         _ACTS, "Kafka's default, or a class in Python: `package.module:Class`"),
    _key("refresh.topics.enabled", _BOOLEAN, "true", _ACTS, "discover new topics and partitions"),
    _key("refresh.topics.interval.seconds", _LONG, "600", _ACTS,
         "how often new topics are discovered; negative: never"),
    _key("replication.factor", _INT, "2", _ACTS,
         "replication factor of new remote topics; -1: the broker's default", low=-1),
    _key("heartbeats.replication.enabled", _BOOLEAN, "true", _ACTS,
         "mirror heartbeats topics even if the topic filter excludes them (KIP-1089)"),
    _key("sync.topic.configs.enabled", _BOOLEAN, "true", _ACTS,
         "keep a remote topic's configs equal to the source topic's, and remove overrides that "
         "the source topic lacks"),
    _key("sync.topic.configs.interval.seconds", _LONG, "600", _ACTS,
         "how often topic configs are synced; negative: never"),
    _key("sync.topic.acls.enabled", _BOOLEAN, "true", _ACTS,
         "copy LITERAL ACLs of topics: ALLOW ALL as READ, ALLOW WRITE never; no ACL is removed"),
    _key("sync.topic.acls.interval.seconds", _LONG, "600", _ACTS,
         "how often ACLs are synced; negative: never"),
    _key("topic.creation.enable", _BOOLEAN, "true", _ACTS,
         "false: remote topics are not created, extended or reconfigured, and get no ACLs; the "
         "copy waits for a missing topic (`TARGET_TOPIC_MISSING`). Also as `B.` and `A->B.`",
         scope=KeyScope.TARGET),
    _key("offset-syncs.topic.replication.factor", _SHORT, "3", _ACTS,
         "replication factor of the offset-syncs topic"),
    _key("offset.lag.max", _LONG, "100", _ACTS,
         "maximum distance between offset syncs, in records"),
    _key("consumer.poll.timeout.ms", _LONG, "1000", _NOTHING, "there is no poll loop"),
    _key("use.incremental.alter.configs", _STRING, "required", _NOTHING, "used only by Kafka 3.x"),
    _key("add.source.alias.to.metrics", _BOOLEAN, "true", _NOTHING, "used only by Kafka 3.x"),
    _key("task.assigned.partitions", _LIST, None, _NOTHING, "MirrorMaker 2 sets it itself"),
    _key("task.index", _INT, None, _NOTHING, "MirrorMaker 2 sets it itself"),
    _key("exactly.once.support", _STRING, "requested", _NOTHING, "all copies are exactly once"),
    _key("transaction.boundary", _STRING, "poll", _NOTHING, "no transactions are used"),
    _key("transaction.boundary.interval.ms", _LONG, None, _NOTHING, "no transactions are used"),
    _key("offsets.storage.topic", _STRING, None, _NOTHING,
         "positions are stored in the target itself"),
    _key("topic.creation.groups", _LIST, None, _NOTHING, "topics are created like the source's"),
)

_CHECKPOINT = (
    _key("groups", _NAMES, ".*", _ACTS,
         "consumer groups whose offsets are translated", replaces=("groups.whitelist",)),
    _key("groups.exclude", _NAMES, DEFAULT_GROUPS_EXCLUDE, _ACTS,
         "consumer groups to leave out", replaces=("groups.blacklist",)),
    _key("group.filter.class", _STRING, MIRROR_PACKAGE + "DefaultGroupFilter", _ACTS,
         "Kafka's default, or a class in Python: `package.module:Class`"),
    _key("refresh.groups.enabled", _BOOLEAN, "true", _ACTS, "discover new consumer groups"),
    _key("refresh.groups.interval.seconds", _LONG, "600", _ACTS,
         "how often new groups are discovered"),
    _key("emit.checkpoints.enabled", _BOOLEAN, "true", _ACTS,
         "write translated group offsets to the checkpoints topic"),
    _key("emit.checkpoints.interval.seconds", _LONG, "60", _ACTS,
         "how often checkpoints are written"),
    _key("sync.group.offsets.enabled", _BOOLEAN, "false", _ACTS,
         "set the offsets of idle groups on the target"),
    _key("sync.group.offsets.interval.seconds", _LONG, "60", _ACTS,
         "how often group offsets are set"),
    _key("checkpoints.topic.replication.factor", _SHORT, "3", _ACTS,
         "replication factor of the checkpoints topic"),
    _key("task.assigned.groups", _LIST, None, _NOTHING, "MirrorMaker 2 sets it itself"),
)

_HEARTBEAT = (
    _key("emit.heartbeats.enabled", _BOOLEAN, "true", _ACTS, "write heartbeats to the target"),
    _key("emit.heartbeats.interval.seconds", _LONG, "1", _ACTS, "how often heartbeats are written"),
    _key("heartbeats.topic.replication.factor", _SHORT, "3", _ACTS,
         "replication factor of the heartbeats topic"),
)

_CONNECT = (
    _key("name", _STRING, None, _NOTHING, "name of a connector"),
    _key("connector.class", _STRING, None, _NOTHING, "Twinlog loads no Java classes"),
    _key("connector.plugin.version", _STRING, None, _NOTHING, "Twinlog loads no Java classes"),
    _key("tasks.max.enforce", _BOOLEAN, "true", _NOTHING, "tasks.max is always enforced"),
    _key("key.converter", _STRING, None, _NOTHING, _BYTES),
    _key("value.converter", _STRING, None, _NOTHING, _BYTES),
    _key("header.converter", _STRING, None, _NOTHING, _BYTES),
    _key("key.converter.plugin.version", _STRING, None, _NOTHING, "Twinlog loads no Java classes"),
    _key("value.converter.plugin.version", _STRING, None, _NOTHING,
         "Twinlog loads no Java classes"),
    _key("header.converter.plugin.version", _STRING, None, _NOTHING,
         "Twinlog loads no Java classes"),
    _key("transforms", _LIST, "", _ACTS,
         "Kafka Connect's transforms, of the classes `Filter`, `InsertHeader`, `DropHeaders` and "
         "`RegexRouter`"),
    _key("predicates", _LIST, "", _ACTS,
         "conditions of `transforms`: `TopicNameMatches`, `HasHeaderKey`, `RecordIsTombstone`"),
    _key("config.action.reload", _STRING, "restart", _NOTHING, "used only by Kafka Connect"),
    _key("config.providers", _LIST, "", _ACTS, "providers that resolve ${name:..} in values"),
    _key("errors.retry.timeout", _LONG, "0", _NOTHING, "retriable errors are always retried"),
    _key("errors.retry.delay.max.ms", _LONG, "60000", _NOTHING,
         "retriable errors are always retried"),
    _key("errors.tolerance", _STRING, "none", _NOTHING, "records are never skipped on errors"),
    _key("errors.log.enable", _BOOLEAN, "false", _NOTHING, "errors are always logged"),
    _key("errors.log.include.messages", _BOOLEAN, "false", _NOTHING, "records are never logged"),
)
# fmt: on

FLOW_KEYS = _SHARED + _SOURCE + _CHECKPOINT + _HEARTBEAT + _CONNECT

CONNECTOR_ONLY = {
    "sourceConnector": frozenset(name for key in _SOURCE for name in (key.name, *key.replaces)),
    "checkpointConnector": frozenset(
        name for key in _CHECKPOINT for name in (key.name, *key.replaces)
    ),
    "heartbeatConnector": frozenset(key.name for key in _HEARTBEAT),
}
"""Keys that only one of the three connectors reads, by Strimzi's name for the connector."""


def section_of(key: str) -> str | None:
    """Return the only connector that reads a key, by Strimzi's name, or None if it is shared.
    Transforms belong to the source connector, because only copied records are transformed here.
    """
    if key.partition(".")[0] in ("transforms", "predicates"):
        return "sourceConnector"
    return next((section for section, keys in CONNECTOR_ONLY.items() if key in keys), None)


TOP_LEVEL_WORKER_FAMILIES = (
    "offset.storage",
    "status.storage",
    "config.storage",
    "key.converter",
    "value.converter",
    "header.converter",
)
TOP_LEVEL_WORKER_PREFIXES = (*TOP_LEVEL_WORKER_FAMILIES, "task", "worker")
"""A top-level key with one of these prefixes reaches the workers of every target. Users choose the
names of keys in the families, which are settings of topics and of converters.
"""

LISTENER_PREFIXES = ("listeners.https.", "admin.listeners.https.")


# The effect of the keys of the process and of Connect's workers, or why they have none.

_OF_REST: Final = (
    "admin.listeners rest.advertised.host.name rest.advertised.listener rest.advertised.port "
    "response.http.headers.config access.control.allow.methods access.control.allow.origin "
    "rest.extension.classes ssl.client.auth"
)
_GROUPS: Final = {
    "clusters": "acts: the aliases of the clusters; every ordered pair of them can be a flow",
    "dedicated.mode.enable.internal.rest": "processes find each other through the target",
    "listeners": (
        "acts: HTTP is served at the first http:// one. If other hosts could reach it and no "
        "authentication is configured, it is served at its port of 127.0.0.1. `twinlog mirror "
        "--listen` takes precedence"
    ),
    _OF_REST: "for MirrorMaker 2's REST API; `twinlog mirror --listen` sets the HTTP address",
    "exactly.once.source.support": "all copies are exactly once, regardless of this value",
    "offset.flush.interval.ms offset.flush.timeout.ms": (
        "there is nothing to flush, because positions are stored in the target itself"
    ),
    "offset.storage.partitions offset.storage.replication.factor": (
        "positions are stored in the target itself"
    ),
    "offset.storage.topic": (
        "positions are stored in the target itself; for `twinlog mirror --adopt-mm2`, the "
        "topic that has MirrorMaker 2's offsets"
    ),
    "config.storage.replication.factor config.storage.topic status.storage.partitions "
    "status.storage.replication.factor status.storage.topic": (
        "Connect's internal topics are not used"
    ),
    "group.id": (
        "a flow's processes use Twinlog's own group; with the target's alias as prefix, the "
        "group of the workers that `twinlog mirror --adopt-mm2` takes over from"
    ),
    "client.id": "always twinlog-SOURCE->TARGET",
    "session.timeout.ms heartbeat.interval.ms rebalance.timeout.ms worker.sync.timeout.ms "
    "worker.unsync.backoff.ms": "group membership uses fixed timeouts",
    "scheduled.rebalance.max.delay.ms": "another process takes over within seconds",
    "task.shutdown.graceful.timeout.ms": "on shutdown, batches in flight are completed",
    "topic.creation.enable": "see the table of flow keys",
    "connector.client.config.override.policy": "overrides are always allowed",
    "key.converter value.converter header.converter key.converter.plugin.version "
    "value.converter.plugin.version header.converter.plugin.version": (
        "bytes are never converted; only `ByteArrayConverter` is accepted"
    ),
    "plugin.discovery plugin.path": "Twinlog loads no Java classes",
    "metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms": (
        "the metrics are those in docs/monitoring.md"
    ),
    "connect.protocol inter.worker.key.generation.algorithm inter.worker.key.size "
    "inter.worker.key.ttl.ms inter.worker.signature.algorithm "
    "inter.worker.verification.algorithms topic.tracking.allow.reset topic.tracking.enable": (
        "used only by Kafka Connect"
    ),
}

WORKER_MEANINGS: Final = {
    name: meaning for names, meaning in _GROUPS.items() for name in words(names)
}

_OF_PROCESS_ONLY: Final = words("clusters dedicated.mode.enable.internal.rest")
WORKER_KEYS = frozenset(WORKER_MEANINGS) - _OF_PROCESS_ONLY
"""Keys that are read as `B.key`, for the worker of all flows into B."""

PROCESS_KEYS = words(f"listeners {_OF_REST}") | _OF_PROCESS_ONLY
"""Keys without a prefix that are read once by the process."""

_OF_PREFIX: Final = "for Connect's workers, which Twinlog does not have"


def worker_meaning(name: str, *, everywhere: bool) -> str | None:
    """Return the meaning of a key of a worker or of the process, or None for any other key.

    `everywhere`: the key has no alias prefix. Keys without an alias reach the workers of every
    target if they begin with one of TOP_LEVEL_WORKER_PREFIXES. If the name of such a key is
    unknown, the key has a meaning only if it begins with one of TOP_LEVEL_WORKER_FAMILIES.
    """
    if name in WORKER_MEANINGS:
        return WORKER_MEANINGS[name]
    if name.startswith(LISTENER_PREFIXES):
        return WORKER_MEANINGS["admin.listeners"]
    family = everywhere and name.startswith(TOP_LEVEL_WORKER_FAMILIES)
    return _OF_PREFIX if family else None


# Twinlog's own keys: those of flows, and those of the process (HTTP and the exported metrics).
# All start with `twinlog.`, so MirrorMaker 2 can still run the file. Keys of the process are
# written without a prefix.

_TARGET, _PROCESS = KeyScope.TARGET, KeyScope.PROCESS
_MEBIBYTE = 1 << 20

TOKENS_FILE: Final = "twinlog.rest.tokens.file"
OPEN_MONITORING: Final = "twinlog.rest.monitoring.open"
CERTIFICATE_FILE: Final = "twinlog.rest.tls.certificate.file"
PRIVATE_KEY_FILE: Final = "twinlog.rest.tls.private.file"
CLIENT_CA_FILE: Final = "twinlog.rest.tls.client.ca.file"
CLIENT_ROLE: Final = "twinlog.rest.tls.client.role"
METRICS_LABELS: Final = "twinlog.metrics.labels"
METRICS_PARTITIONS: Final = "twinlog.metrics.partitions"
BESIDE: Final = "twinlog.beside"
TARGET_PARTITIONS: Final = "twinlog.target.partitions"
TRANSFORMS: Final = "twinlog.transforms"
TRANSFORMS_ON_ERROR: Final = "twinlog.transforms.on-error"
TRANSFORMS_QUARANTINE: Final = "twinlog.transforms.quarantine.topic"
TRANSFORMS_ENVIRONMENT: Final = "twinlog.transforms.environment"
TRANSFORMS_REMOVED: Final = "twinlog.transforms.removed"
TRANSFORMS_MEMORY: Final = "twinlog.transforms.memory.bytes"

# fmt: off
OWN_KEYS: Final = (
    _key("twinlog.start", _LIST, None, _ACTS,  # default: the source consumer's auto.offset.reset
         "where the copy starts for partitions that were never copied: `earliest`, `latest`, a "
         "time, or a list by topic such as `orders:2026-11-01T00:00:00Z, audit:0=120;1=77, "
         ".*:latest`; default: auto.offset.reset", replaces=("twinlog.source.start",)),
    _key("twinlog.start.new", _CHOICE, "start", _ACTS,
         "where the copy starts for topics and partitions that are created after the first run of "
         "the flow: `start` follows `twinlog.start`; `earliest` copies all their records, also "
         "those from before their discovery",
         choices=("start", "earliest")),
    _key("twinlog.rename", _LIST, "", _ACTS,
         "other names for topics on the target, such as `orders:eu-orders, pay-(.*):pay.$1`: Java "
         "regular expressions that match whole source names; the first match applies, and the "
         "replication policy is applied to the result"),
    _key(BESIDE, _LIST, "", _ACTS,
         "other flows, such as `A->B`, that may copy the same topics between the same two clusters "
         "under other aliases, because each copies a part of the records (docs/transforms.md)"),
    _key("twinlog.source.loss", _CHOICE, "stop", _ACTS,
         "what to do if the source deleted records before they were copied",
         choices=("stop", "accept")),
    _key("twinlog.lease.seconds", _INT, "300", _ACTS,
         "how long a Spark job holds its partitions", low=1),
    _key("twinlog.spark.standby", _CHOICE, "cold", _ACTS,
         "whether a standby on a Spark cluster holds executors: `cold` none, so that Spark starts "
         "when it takes over; `warm` one, by dynamic allocation", choices=("cold", "warm")),
    _key("twinlog.config.reload.interval.seconds", _INT, "0", _ACTS,
         "how often a running mirror checks this file for changes; 0: only on SIGHUP", low=0),
    _key("twinlog.lane.memory.bytes", _LONG, str(64 * _MEBIBYTE), _ACTS,
         "maximum bytes of fetched data per lane; if not set, the target producer's buffer.memory",
         low=_MEBIBYTE),
    _key("twinlog.latency", _CHOICE, "balanced", _ACTS,
         "`balanced`: while records arrive steadily, a fetch waits up to 4 ms for more of them, "
         "which saves CPU, unless fetch.min.bytes is set; `lowest`: every record is copied as soon "
         "as it arrives",
         choices=("balanced", "lowest")),
    _key("twinlog.compression", _CHOICE, "keep", _ACTS,
         "`enforce` re-encodes every batch with the target producer's compression.type; `keep` "
         "applies it only to batches that are uncompressed or re-encoded anyway",
         scope=_TARGET, choices=("keep", "enforce")),
    _key("twinlog.max.bytes.per.second", _LONG, None, _ACTS,
         "rate limit of a flow, in bytes of batches as sent over the network; default: unlimited",
         low=1024),
    _key("twinlog.status.interval.seconds", _INT, "5", _ACTS,
         "how often the flow's leader writes its status to the target, for `twinlog status` on "
         "other hosts; 0: never", low=0),
    _key("twinlog.verify", _CHOICE, "sample", _ACTS,
         "whether a running mirror reads its copy back and compares it with the source, with at "
         "most 3 % of its own CPU: `sample` compares the newest records of one partition after "
         "another, `full` all records, as fast as the limit allows",
         choices=("off", "sample", "full")),
    _key("twinlog.rpo.seconds", _INT, None, _ACTS,
         "recovery point objective in seconds: the flow is DEGRADED while more than the records of "
         "this time would be lost if the source failed, and its reason names the cause", low=1),
    _key("twinlog.rpo.enforce", _CHOICE, "none", _ACTS,
         "`quota`: while twinlog.rpo.seconds is exceeded and records are copied, set a producer "
         "quota on the source until the flow has caught up; needs ALTER_CONFIGS and "
         "DESCRIBE_CONFIGS on the source cluster", choices=("none", "quota")),
    _key("twinlog.priority", _LIST, "", _ACTS,
         "weights of topics for sharing twinlog.max.bytes.per.second, such as `payments.*:10, "
         "logs:1`"),
    _key("twinlog.sync.topic.acls.prefixed", _BOOLEAN, "false", _ACTS,
         "also copy PREFIXED ACLs that cover a mirrored topic, including the prefix `*` for all "
         "topics"),
    _key("twinlog.sync.topic.acls.removal", _BOOLEAN, "false", _ACTS,
         "remove ACLs of remote topics that the source topics do not have, except ALLOW WRITE and "
         "ALLOW ALL; only with the default replication policy"),
    _key("twinlog.sync.retention", _CHOICE, "follow", _ACTS,
         "whether the config sync may shorten retention on the target: `follow` copies the "
         "source's values; `raise-only` does not lower a retention or add `delete` or `compact` to "
         "cleanup.policy", choices=("follow", "raise-only")),
    _key("twinlog.source.group.id", _STRING, None, _ACTS,
         "a consumer group on the source, as in MirrorMaker 1: the copy of a partition that was "
         "never copied starts at the group's offset, and the position of the copy is committed to "
         "the group"),
    _key("twinlog.source.group.commit.interval.ms", _LONG, "60000", _ACTS,
         "how often offsets of twinlog.source.group.id are committed", low=1),
    _key(TARGET_PARTITIONS, _CHOICE, "grow", _ACTS,
         "`grow` adds missing partitions to a remote topic; `same` adds none, and stops topics "
         "whose counts differ; `keyed` adds none, and distributes records of such topics by key, "
         "as MirrorMaker 1 does; `all-keyed` distributes those of topics with equal counts as well",
         choices=("grow", "same", "keyed", "all-keyed")),
    _key("twinlog.new.topic.partitions", _CHOICE, "source", _ACTS,
         "partition count of new remote topics: that of the source topic (`source`), or "
         "num.partitions of the target (`default`, only with `twinlog.target.partitions = keyed`), "
         "as with auto.create.topics.enable and MirrorMaker 1", choices=("source", "default")),
    _key(TRANSFORMS, _LIST, "", _ACTS,
         "names of transforms, which change records with DataFrames. Each has two more keys: "
         "`twinlog.transforms.NAME.topics`, and `twinlog.transforms.NAME.function` or "
         "`twinlog.transforms.NAME.sql` (docs/transforms.md)"),
    _key(TRANSFORMS_ON_ERROR, _CHOICE, "stop", _ACTS,
         "what happens to a record on which a transform fails: its partition stops (`stop`), it is "
         "left out (`skip`), or it is written to a dead-letter topic (`quarantine`)",
         choices=("stop", "skip", "quarantine")),
    _key(TRANSFORMS_QUARANTINE, _STRING, None, _ACTS,
         "the dead-letter topic on the target, for `quarantine`. The name must begin with `__`, so "
         "that no flow mirrors the topic; default: `mm2-twinlog-dead-letters.A.internal` for a "
         "source `A`"),
    _key(TRANSFORMS_ENVIRONMENT, _LIST, "", _ACTS,
         "names of environment variables that the functions of transforms get, such as the key of "
         "a pseudonym; others with credentials are not passed to them"),
    _key(TRANSFORMS_REMOVED, _LIST, "", _ACTS,
         "topics whose transforms were removed on purpose, so that their records are copied "
         "unchanged from now on: names or Java regular expressions. Without it a topic that was "
         "transformed stops (`TRANSFORMS_DIFFER`)"),
    _key(TRANSFORMS_MEMORY, _LONG, str(1024 * _MEBIBYTE), _ACTS,
         "maximum memory of the processes that run the functions of a flow's transforms, with "
         "their JVM; if they need more, they are ended, and started again (docs/transforms.md)",
         low=1024 * _MEBIBYTE),
    _key("twinlog.target.producer.id.expiration.ms", _LONG, None, _ACTS,
         "the target's producer.id.expiration.ms, if the mirror's user is not permitted to read "
         "it", scope=_TARGET, low=1),
    _key("twinlog.state.topic.replication.factor", _SHORT, "-1", _ACTS,
         "replication factor of Twinlog's own topics on the target; -1: the broker's default",
         scope=_TARGET, low=-1),
)

OWN_PROCESS_KEYS: Final = (
    _key(TOKENS_FILE, _STRING, None, _ACTS,
         "file of API tokens, written by `twinlog token new`; every request then needs one of "
         "them, on any address", scope=_PROCESS),
    _key(OPEN_MONITORING, _BOOLEAN, "false", _ACTS,
         "`/metrics`, `/healthz` and `/readyz` need no token; if neither tokens nor client "
         "certificates are configured, only these paths are served at an address that other hosts "
         "can reach", scope=_PROCESS),
    _key(CERTIFICATE_FILE, _STRING, None, _ACTS,
         "serve HTTPS instead of HTTP: the server's certificate with its chain, as PEM",
         scope=_PROCESS),
    _key(PRIVATE_KEY_FILE, _STRING, None, _ACTS,
         "the private key of that certificate, as PEM; default: it is in the certificate's file",
         scope=_PROCESS),
    _key(CLIENT_CA_FILE, _STRING, None, _ACTS,
         "require client certificates that one of these authorities signed (PEM); such clients "
         "need no token", scope=_PROCESS),
    _key(CLIENT_ROLE, _CHOICE, "read", _ACTS,
         "role of a client with such a certificate and no token",
         scope=_PROCESS, choices=("read", "operate")),
    _key(METRICS_LABELS, _LIST, "", _ACTS,
         "labels added to every series of `/metrics`, such as `namespace=kafka, "
         "strimzi_io_cluster=shop`", scope=_PROCESS),
    _key(METRICS_PARTITIONS, _BOOLEAN, "true", _ACTS,
         "`false`: `/metrics` has no series per partition, except for partitions that have stopped "
         "(`twinlog_partition_error`); panels and alerts per topic then have no data",
         scope=_PROCESS),
)
# fmt: on

OWN_PROCESS_NAMES: Final = frozenset(key.name for key in OWN_PROCESS_KEYS)


DEFINITIONS: dict[str, KeyDefinition] = {
    definition.name: definition for definition in FLOW_KEYS + OWN_KEYS
}

RENAMED: dict[str, str] = {
    old: definition.name for definition in FLOW_KEYS + OWN_KEYS for old in definition.replaces
}
"""Current name of a key, by deprecated name."""

CONNECTOR_NAMES = frozenset(
    {definition.name for definition in FLOW_KEYS} | set(RENAMED) | SECURITY_KEYS
)
"""Names that apply to every flow if they are written without a prefix."""

OWN_FLOW_NAMES = frozenset(definition.name for definition in OWN_KEYS)
OWN_TARGET_NAMES = frozenset(
    definition.name for definition in FLOW_KEYS + OWN_KEYS if definition.scope is KeyScope.TARGET
)
"""Keys that are also read as `B.key`: Twinlog's own target keys, and topic.creation.enable."""
