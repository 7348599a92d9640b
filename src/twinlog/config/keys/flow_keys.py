"""The keys of MirrorMaker 2's three connectors: one table for `key` and `A->B.key`.

All three connectors of a flow get the union, so one table serves them. Defaults are those of
MirrorMaker 2 4.3.
"""

from __future__ import annotations

from twinlog.config.keys.key_types import KeyDefinition, KeyKind, KeyScope, Support

_ACTS, _NOTHING = Support.ACTS, Support.NO_MEANING
_BOOLEAN, _SHORT, _INT, _LONG = KeyKind.BOOLEAN, KeyKind.SHORT, KeyKind.INT, KeyKind.LONG
_STRING, _CHOICE, _LIST, _NAMES = KeyKind.STRING, KeyKind.CHOICE, KeyKind.LIST, KeyKind.NAMES

MIRROR_PACKAGE = "org.apache.kafka.connect.mirror."

DEFAULT_TOPICS_EXCLUDE = r"mm2.*\.internal, .*\.replica, __.*"
DEFAULT_GROUPS_EXCLUDE = "console-consumer-.*, connect-.*, __.*"
DEFAULT_CONFIG_PROPERTIES_EXCLUDE = (
    "follower.replication.throttled.replicas, leader.replication.throttled.replicas, "
    "message.timestamp.difference.max.ms, log.message.timestamp.before.max.ms, "
    "log.message.timestamp.after.max.ms, message.timestamp.type, "
    "unclean.leader.election.enable, min.insync.replicas"
)


def _key(  # noqa: PLR0913, a row of a table
    name: str,
    kind: KeyKind,
    default: str | None,
    support: Support,
    meaning: str,
    *,
    low: int | None = None,
    choices: tuple[str, ...] = (),
    replaces: tuple[str, ...] = (),
) -> KeyDefinition:
    return KeyDefinition(
        name=name,
        kind=kind,
        default=default,
        support=support,
        meaning=meaning,
        low=low,
        choices=choices,
        replaces=replaces,
    )


# fmt: off
_SHARED = (
    _key("enabled", _BOOLEAN, "false", _ACTS, "turns a flow on"),
    _key("source.cluster.alias", _STRING, None, _ACTS, "prefix of topics; default: the alias"),
    _key("target.cluster.alias", _STRING, None, _ACTS, "the target in cycles; default: its alias"),
    _key("replication.policy.class", _STRING, MIRROR_PACKAGE + "DefaultReplicationPolicy",
         _ACTS, "remote topics get the source's alias in front, keep their names (Identity), or "
         "are named by a class in Python: `package.module:Class`"),
    _key("replication.policy.separator", _STRING, ".", _ACTS,
         "between alias and topic; blank: no effect under the identity policy, and with a blank "
         "source.cluster.alias the identity policy applies"),
    _key("replication.policy.internal.topic.separator.enabled", _BOOLEAN, "true", _ACTS,
         "false keeps `.` in names of internal topics (KIP-949); read only with the separator"),
    _key("tasks.max", _INT, None, _ACTS, "upper bound for the lanes of a flow", low=1),
    _key("admin.timeout.ms", _LONG, "60000", _NOTHING, "requests have their own deadlines here"),
    _key("forwarding.admin.class", _STRING, "org.apache.kafka.clients.admin.ForwardingAdmin",
         _ACTS, "only the default: a Java class cannot create topics here (KIP-787)"),
    _key("metric.reporters", _LIST, None, _NOTHING, "Java classes"),
    _key("metric.names.formats", _LIST, "legacy", _ACTS,
         "names of MirrorMaker 2's series in /metrics: `legacy`, `new` or both (KIP-1280)"),
    _key("auto.include.jmx.reporter", _BOOLEAN, "true", _NOTHING, "3.x only"),
    _key("offset-syncs.topic.location", _CHOICE, "source", _ACTS,
         "the cluster that holds the offset-syncs topic", choices=("source", "target")),
    _key("emit.offset-syncs.enabled", _BOOLEAN, "true", _ACTS, "KIP-1031"),
    _key("topic.filter.class", _STRING, MIRROR_PACKAGE + "DefaultTopicFilter", _ACTS,
         "only the default: a Java class cannot choose topics here"),
)

_SOURCE = (
    _key("topics", _NAMES, ".*", _ACTS, "topics to mirror", replaces=("topics.whitelist",)),
    _key("topics.exclude", _NAMES, DEFAULT_TOPICS_EXCLUDE, _ACTS,
         "topics not to mirror; wins over `topics`", replaces=("topics.blacklist",)),
    _key("config.properties.exclude", _NAMES, DEFAULT_CONFIG_PROPERTIES_EXCLUDE, _ACTS,
         "topic configs that are not copied; a name of timestamps' limits, as in the default, "
         "leaves out `message.timestamp.before.max.ms` and `...after.max.ms` too",
         replaces=("config.properties.blacklist",)),
    _key("use.defaults.from", _STRING, "target", _ACTS,
         "`source` copies the source's defaults as explicit values"),
    _key("config.property.filter.class", _STRING, MIRROR_PACKAGE + "DefaultConfigPropertyFilter",
         _ACTS, "only the default: a Java class cannot choose configs here"),
    _key("refresh.topics.enabled", _BOOLEAN, "true", _ACTS, "look for new topics and partitions"),
    _key("refresh.topics.interval.seconds", _LONG, "600", _ACTS, "how often; negative is never"),
    _key("replication.factor", _INT, "2", _ACTS, "of new remote topics; -1: the default", low=-1),
    _key("heartbeats.replication.enabled", _BOOLEAN, "true", _ACTS,
         "mirror heartbeats topics whatever the filter says (KIP-1089)"),
    _key("sync.topic.configs.enabled", _BOOLEAN, "true", _ACTS,
         "keep a remote topic's configs equal to the source's, and remove overrides that it lacks"),
    _key("sync.topic.configs.interval.seconds", _LONG, "600", _ACTS,
         "how often; negative is never"),
    _key("sync.topic.acls.enabled", _BOOLEAN, "true", _ACTS,
         "copy topics' ACLs: LITERAL ones; ALLOW WRITE never, ALLOW ALL as READ; none is removed"),
    _key("sync.topic.acls.interval.seconds", _LONG, "600", _ACTS, "how often; negative is never"),
    KeyDefinition(
        name="topic.creation.enable", kind=_BOOLEAN, default="true", scope=KeyScope.TARGET,
        support=_ACTS, meaning="false: remote topics are neither made, grown nor reconfigured, and "
        "get no ACLs; a missing one waits (`TARGET_TOPIC_MISSING`). Also as `B.` and `A->B.`",
    ),
    _key("offset-syncs.topic.replication.factor", _SHORT, "3", _ACTS, "of the offset-syncs topic"),
    _key("offset.lag.max", _LONG, "100", _ACTS, "how far offset syncs may lie apart"),
    _key("consumer.poll.timeout.ms", _LONG, "1000", _NOTHING, "nothing is polled here"),
    _key("use.incremental.alter.configs", _STRING, "required", _NOTHING, "3.x only"),
    _key("add.source.alias.to.metrics", _BOOLEAN, "true", _NOTHING, "3.x only"),
    _key("task.assigned.partitions", _LIST, None, _NOTHING, "MM2 writes it itself"),
    _key("task.index", _INT, None, _NOTHING, "MM2 writes it itself"),
    _key("exactly.once.support", _STRING, "requested", _NOTHING, "every copy is exactly once"),
    _key("transaction.boundary", _STRING, "poll", _NOTHING, "there are no transactions"),
    _key("transaction.boundary.interval.ms", _LONG, None, _NOTHING, "there are no transactions"),
    _key("offsets.storage.topic", _STRING, None, _NOTHING, "positions are in the target itself"),
    _key("topic.creation.groups", _LIST, None, _NOTHING, "topics are made like the source's"),
)

_CHECKPOINT = (
    _key("groups", _NAMES, ".*", _ACTS, "groups whose offsets are translated",
         replaces=("groups.whitelist",)),
    _key("groups.exclude", _NAMES, DEFAULT_GROUPS_EXCLUDE, _ACTS, "groups left out",
         replaces=("groups.blacklist",)),
    _key("group.filter.class", _STRING, MIRROR_PACKAGE + "DefaultGroupFilter", _ACTS,
         "only the default"),
    _key("refresh.groups.enabled", _BOOLEAN, "true", _ACTS, "look for new groups"),
    _key("refresh.groups.interval.seconds", _LONG, "600", _ACTS, "how often"),
    _key("emit.checkpoints.enabled", _BOOLEAN, "true", _ACTS, "write translated group offsets"),
    _key("emit.checkpoints.interval.seconds", _LONG, "60", _ACTS, "how often"),
    _key("sync.group.offsets.enabled", _BOOLEAN, "false", _ACTS, "set offsets of idle groups"),
    _key("sync.group.offsets.interval.seconds", _LONG, "60", _ACTS, "how often"),
    _key("checkpoints.topic.replication.factor", _SHORT, "3", _ACTS, "of the checkpoints topic"),
    _key("task.assigned.groups", _LIST, None, _NOTHING, "MM2 writes it itself"),
)

_HEARTBEAT = (
    _key("emit.heartbeats.enabled", _BOOLEAN, "true", _ACTS, "write heartbeats to the target"),
    _key("emit.heartbeats.interval.seconds", _LONG, "1", _ACTS, "how often"),
    _key("heartbeats.topic.replication.factor", _SHORT, "3", _ACTS, "of the heartbeats topic"),
)

_CONNECT = (
    _key("name", _STRING, None, _NOTHING, "of a connector"),
    _key("connector.class", _STRING, None, _NOTHING, "Java class"),
    _key("connector.plugin.version", _STRING, None, _NOTHING, "Java class"),
    _key("tasks.max.enforce", _BOOLEAN, "true", _NOTHING, "tasks.max is always kept"),
    _key("key.converter", _STRING, None, _NOTHING, "bytes are never converted"),
    _key("value.converter", _STRING, None, _NOTHING, "bytes are never converted"),
    _key("header.converter", _STRING, None, _NOTHING, "bytes are never converted"),
    _key("key.converter.plugin.version", _STRING, None, _NOTHING, "Java class"),
    _key("value.converter.plugin.version", _STRING, None, _NOTHING, "Java class"),
    _key("header.converter.plugin.version", _STRING, None, _NOTHING, "Java class"),
    _key("transforms", _LIST, "", _ACTS, "must be empty: Java classes cannot run here"),
    _key("predicates", _LIST, "", _NOTHING, "belong to transforms"),
    _key("config.action.reload", _STRING, "restart", _NOTHING, "Connect only"),
    _key("config.providers", _LIST, "", _ACTS, "providers that resolve ${name:..} in values"),
    _key("errors.retry.timeout", _LONG, "0", _NOTHING, "retriable errors always are"),
    _key("errors.retry.delay.max.ms", _LONG, "60000", _NOTHING, "retriable errors always are"),
    _key("errors.tolerance", _STRING, "none", _NOTHING, "no record is ever skipped"),
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
"""Names that only one of the three connectors reads, by what Strimzi calls it."""
