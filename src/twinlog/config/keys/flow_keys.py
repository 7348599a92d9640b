"""The keys of MirrorMaker 2's three connectors: one table for `key` and `A->B.key`.

One table is enough because every connector of a flow gets the keys of all three. Defaults are those
of MirrorMaker 2 4.3.
"""

from __future__ import annotations

from twinlog.config.keys.key_types import KeyDefinition, KeyKind, KeyScope, Support

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
    """Return the only connector from which a key is read, by Strimzi's name, or None if it is
    shared. Each connector may have transforms, but only copied records are transformed here.
    """
    if key.partition(".")[0] in ("transforms", "predicates"):
        return "sourceConnector"
    return next((section for section, keys in CONNECTOR_ONLY.items() if key in keys), None)
