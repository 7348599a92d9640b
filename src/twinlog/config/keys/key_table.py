"""All configuration keys by name."""

from __future__ import annotations

from typing import Final

from twinlog.config.keys.client_keys import SECURITY_KEYS
from twinlog.config.keys.flow_keys import FLOW_KEYS
from twinlog.config.keys.key_types import KeyDefinition, KeyKind, KeyScope, Support

# Twinlog's own keys: those of flows, and those of the process (HTTP and the exported metrics).
# All start with `twinlog.`, so MirrorMaker 2 can still run the file. Keys of the process are
# written without a prefix.

_key = KeyDefinition
_ACTS, _TARGET, _PROCESS = Support.ACTS, KeyScope.TARGET, KeyScope.PROCESS
_BOOLEAN, _SHORT, _INT, _LONG = KeyKind.BOOLEAN, KeyKind.SHORT, KeyKind.INT, KeyKind.LONG
_STRING, _CHOICE, _LIST = KeyKind.STRING, KeyKind.CHOICE, KeyKind.LIST
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
TRANSFORMS: Final = "twinlog.transforms"
TRANSFORMS_ON_ERROR: Final = "twinlog.transforms.on-error"
TRANSFORMS_QUARANTINE: Final = "twinlog.transforms.quarantine.topic"
TRANSFORMS_ENVIRONMENT: Final = "twinlog.transforms.environment"
TRANSFORMS_REMOVED: Final = "twinlog.transforms.removed"
TRANSFORMS_MEMORY: Final = "twinlog.transforms.memory.bytes"

# fmt: off
OWN_KEYS: Final = (
    _key("twinlog.start", _LIST, None, _ACTS,  # the source consumer's auto.offset.reset
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
    _key("twinlog.target.partitions", _CHOICE, "grow", _ACTS,
         "`grow` adds missing partitions to a remote topic; `same` adds none, and stops topics "
         "whose counts differ; `keyed` adds none, and distributes records of such topics by key, "
         "as MirrorMaker 1 does", choices=("grow", "same", "keyed")),
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
         "maximum memory of the processes that run the functions of transforms, with their JVM; if "
         "they need more, they are ended, and started again (docs/transforms.md)",
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
"""Deprecated name to current name."""

CONNECTOR_NAMES = frozenset(
    {definition.name for definition in FLOW_KEYS} | set(RENAMED) | SECURITY_KEYS
)
"""Names that reach every flow as top-level keys."""

OWN_FLOW_NAMES = frozenset(definition.name for definition in OWN_KEYS)
OWN_TARGET_NAMES = frozenset(
    definition.name for definition in FLOW_KEYS + OWN_KEYS if definition.scope is KeyScope.TARGET
)
"""Keys that are also read as `B.key`: Twinlog's own target keys, and one of Connect's workers."""
