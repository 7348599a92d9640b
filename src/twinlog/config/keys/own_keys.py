"""Twinlog's own keys: one table.

All start with `twinlog.`, so that MirrorMaker 2 can still run the file.
"""

from __future__ import annotations

from twinlog.config.keys.key_types import KeyDefinition, KeyKind, KeyScope

_MEBIBYTE = 1 << 20

OWN_KEYS = (
    KeyDefinition(
        name="twinlog.start",
        kind=KeyKind.LIST,
        default=None,  # the source consumer's auto.offset.reset
        meaning="where a partition starts that was never copied: `earliest`, `latest`, a time, or "
        "by topic, as `orders:2026-11-01T00:00:00Z, audit:0=120;1=77, .*:latest`; default: "
        "auto.offset.reset",
        replaces=("twinlog.source.start",),
    ),
    KeyDefinition(
        name="twinlog.start.new",
        kind=KeyKind.CHOICE,
        default="start",
        meaning="where topics and partitions start that are made after the flow first ran: as "
        "`twinlog.start` says, or `earliest`, so that `latest` leaves out nothing that is written "
        "before they are found",
        choices=("start", "earliest"),
    ),
    KeyDefinition(
        name="twinlog.rename",
        kind=KeyKind.LIST,
        default="",
        meaning="other names for topics on the target, as `orders:eu-orders, pay-(.*):pay.$1`: "
        "Java expressions for whole names of the source, the first that matches counts; the "
        "replication policy names what comes out",
    ),
    KeyDefinition(
        name="twinlog.source.loss",
        kind=KeyKind.CHOICE,
        default="stop",
        meaning="what to do when the source deleted records before they were copied",
        choices=("stop", "accept"),
    ),
    KeyDefinition(
        name="twinlog.lease.seconds",
        kind=KeyKind.INT,
        default="300",
        meaning="how long one Spark job holds its partitions",
        low=1,
    ),
    KeyDefinition(
        name="twinlog.config.reload.interval.seconds",
        kind=KeyKind.INT,
        default="0",
        meaning="how often a running mirror looks whether this file changed; 0: only at a SIGHUP",
        low=0,
    ),
    KeyDefinition(
        name="twinlog.lane.memory.bytes",
        kind=KeyKind.LONG,
        default=str(64 * _MEBIBYTE),
        meaning="how much fetched data a lane may hold; without it: the target producer's "
        "buffer.memory",
        low=_MEBIBYTE,
    ),
    KeyDefinition(
        name="twinlog.compression",
        kind=KeyKind.CHOICE,
        default="keep",
        scope=KeyScope.TARGET,
        meaning="`enforce` gives every batch the target producer's compression.type; `keep` only "
        "those that are not compressed or are re-encoded anyway",
        choices=("keep", "enforce"),
    ),
    KeyDefinition(
        name="twinlog.max.bytes.per.second",
        kind=KeyKind.LONG,
        meaning="the most that a flow copies in a second, as batches are on the wire; default: all",
        low=1024,
    ),
    KeyDefinition(
        name="twinlog.status.interval.seconds",
        kind=KeyKind.INT,
        default="5",
        meaning="how often the process that leads a flow writes its status to the target, for "
        "`twinlog status` on other hosts; 0: never",
        low=0,
    ),
    KeyDefinition(
        name="twinlog.verify",
        kind=KeyKind.CHOICE,
        default="sample",
        meaning="whether a mirror reads its copy back and compares it with the source while it "
        "runs, with at most 3 % of its own CPU: `sample` the newest records of each partition in "
        "turn, `full` all of them, as fast as that goes",
        choices=("off", "sample", "full"),
    ),
    KeyDefinition(
        name="twinlog.rpo.seconds",
        kind=KeyKind.INT,
        meaning="the recovery point objective: where losing the source would lose more than its "
        "last seconds, the flow is DEGRADED, and its reason says what holds it back",
        low=1,
    ),
    KeyDefinition(
        name="twinlog.rpo.enforce",
        kind=KeyKind.CHOICE,
        default="none",
        meaning="`quota`: while twinlog.rpo.seconds is not kept and records are copied, producers "
        "of the source get a quota, until the flow has caught up; needs ALTER_CONFIGS and "
        "DESCRIBE_CONFIGS on the source cluster",
        choices=("none", "quota"),
    ),
    KeyDefinition(
        name="twinlog.priority",
        kind=KeyKind.LIST,
        default="",
        meaning="topics' shares of twinlog.max.bytes.per.second, as `payments.*:10, logs:1`",
    ),
    KeyDefinition(
        name="twinlog.sync.topic.acls.prefixed",
        kind=KeyKind.BOOLEAN,
        default="false",
        meaning="copy PREFIXED ACLs that cover a mirrored topic, and `*` as the prefix of all",
    ),
    KeyDefinition(
        name="twinlog.sync.topic.acls.removal",
        kind=KeyKind.BOOLEAN,
        default="false",
        meaning="take ACLs off remote topics that the source's topics do not have; never ALLOW "
        "WRITE and ALLOW ALL, and only with the default policy",
    ),
    KeyDefinition(
        name="twinlog.sync.retention",
        kind=KeyKind.CHOICE,
        default="follow",
        meaning="whether the sync of configs may shorten the life of records on the target: "
        "`follow` the source, or `raise-only`, where a lower retention, `delete` or `compact` in "
        "cleanup.policy are left to people",
        choices=("follow", "raise-only"),
    ),
    KeyDefinition(
        name="twinlog.source.group.id",
        kind=KeyKind.STRING,
        meaning="a group of the source, as MirrorMaker 1 had one: a partition that was never "
        "copied starts at its offset, and what is on the target is committed for it",
    ),
    KeyDefinition(
        name="twinlog.source.group.commit.interval.ms",
        kind=KeyKind.LONG,
        default="60000",
        meaning="how often offsets of twinlog.source.group.id are committed",
        low=1,
    ),
    KeyDefinition(
        name="twinlog.target.partitions",
        kind=KeyKind.CHOICE,
        default="grow",
        meaning="`grow` adds partitions that a remote topic lacks; `same` adds none, and refuses "
        "topics whose counts differ; `keyed` adds none, and places the records of such topics by "
        "key, as MirrorMaker 1",
        choices=("grow", "same", "keyed"),
    ),
    KeyDefinition(
        name="twinlog.new.topic.partitions",
        kind=KeyKind.CHOICE,
        default="source",
        meaning="how many partitions a remote topic is created with: as many as its `source` has, "
        "or num.partitions of the target (`default`, which needs `twinlog.target.partitions = "
        "keyed`), as a producer's auto.create.topics.enable did for MirrorMaker 1",
        choices=("source", "default"),
    ),
    KeyDefinition(
        name="twinlog.target.producer.id.expiration.ms",
        kind=KeyKind.LONG,
        scope=KeyScope.TARGET,
        meaning="producer.id.expiration.ms of the target, for users that may not read it there",
        low=1,
    ),
    KeyDefinition(
        name="twinlog.state.topic.replication.factor",
        kind=KeyKind.SHORT,
        default="-1",
        scope=KeyScope.TARGET,
        meaning="the replication factor of Twinlog's own topics on the target; -1: the broker's",
        low=-1,
    ),
)
