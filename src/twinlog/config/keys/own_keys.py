"""Twinlog's own keys.

All start with `twinlog.`, so MirrorMaker 2 can still run the file.
"""

from __future__ import annotations

from twinlog.config.keys.key_types import KeyDefinition, KeyKind, KeyScope

_MEBIBYTE = 1 << 20

OWN_KEYS = (
    KeyDefinition(
        name="twinlog.start",
        kind=KeyKind.LIST,
        default=None,  # the source consumer's auto.offset.reset
        meaning=(
            "where the copy starts for partitions that were never copied: `earliest`, `latest`, a "
            "time, or a list by topic such as `orders:2026-11-01T00:00:00Z, audit:0=120;1=77, "
            ".*:latest`; default: auto.offset.reset"
        ),
        replaces=("twinlog.source.start",),
    ),
    KeyDefinition(
        name="twinlog.start.new",
        kind=KeyKind.CHOICE,
        default="start",
        meaning=(
            "where the copy starts for topics and partitions that are created after the first run "
            "of the flow: `start` follows `twinlog.start`; `earliest` copies all their records, so "
            "that with `twinlog.start = latest` none is missed before they are discovered"
        ),
        choices=("start", "earliest"),
    ),
    KeyDefinition(
        name="twinlog.rename",
        kind=KeyKind.LIST,
        default="",
        meaning=(
            "other names for topics on the target, such as `orders:eu-orders, pay-(.*):pay.$1`: "
            "Java regular expressions that match whole source names; the first match applies, and "
            "the replication policy is applied to the result"
        ),
    ),
    KeyDefinition(
        name="twinlog.source.loss",
        kind=KeyKind.CHOICE,
        default="stop",
        meaning="what to do if the source deleted records before they were copied",
        choices=("stop", "accept"),
    ),
    KeyDefinition(
        name="twinlog.lease.seconds",
        kind=KeyKind.INT,
        default="300",
        meaning="how long a Spark job holds its partitions",
        low=1,
    ),
    KeyDefinition(
        name="twinlog.config.reload.interval.seconds",
        kind=KeyKind.INT,
        default="0",
        meaning="how often a running mirror checks this file for changes; 0: only on SIGHUP",
        low=0,
    ),
    KeyDefinition(
        name="twinlog.lane.memory.bytes",
        kind=KeyKind.LONG,
        default=str(64 * _MEBIBYTE),
        meaning=(
            "maximum bytes of fetched data per lane; if not set, the target producer's "
            "buffer.memory"
        ),
        low=_MEBIBYTE,
    ),
    KeyDefinition(
        name="twinlog.compression",
        kind=KeyKind.CHOICE,
        default="keep",
        scope=KeyScope.TARGET,
        meaning=(
            "`enforce` re-encodes every batch with the target producer's compression.type; `keep` "
            "applies it only to batches that are uncompressed or re-encoded anyway"
        ),
        choices=("keep", "enforce"),
    ),
    KeyDefinition(
        name="twinlog.max.bytes.per.second",
        kind=KeyKind.LONG,
        meaning=(
            "rate limit of a flow, in bytes of batches as sent over the network; default: unlimited"
        ),
        low=1024,
    ),
    KeyDefinition(
        name="twinlog.status.interval.seconds",
        kind=KeyKind.INT,
        default="5",
        meaning=(
            "how often the flow's leader writes its status to the target, for `twinlog status` on "
            "other hosts; 0: never"
        ),
        low=0,
    ),
    KeyDefinition(
        name="twinlog.verify",
        kind=KeyKind.CHOICE,
        default="sample",
        meaning=(
            "whether a running mirror reads its copy back and compares it with the source, with at "
            "most 3 % of its own CPU: `sample` compares the newest records of one partition after "
            "another, `full` all records, as fast as the limit allows"
        ),
        choices=("off", "sample", "full"),
    ),
    KeyDefinition(
        name="twinlog.rpo.seconds",
        kind=KeyKind.INT,
        meaning=(
            "recovery point objective: if losing the source would lose more than the last so many "
            "seconds, the flow is DEGRADED, and its reason names the cause"
        ),
        low=1,
    ),
    KeyDefinition(
        name="twinlog.rpo.enforce",
        kind=KeyKind.CHOICE,
        default="none",
        meaning=(
            "`quota`: while twinlog.rpo.seconds is exceeded and records are copied, set a producer "
            "quota on the source until the flow has caught up; needs ALTER_CONFIGS and "
            "DESCRIBE_CONFIGS on the source cluster"
        ),
        choices=("none", "quota"),
    ),
    KeyDefinition(
        name="twinlog.priority",
        kind=KeyKind.LIST,
        default="",
        meaning=(
            "weights of topics for sharing twinlog.max.bytes.per.second, such as `payments.*:10, "
            "logs:1`"
        ),
    ),
    KeyDefinition(
        name="twinlog.sync.topic.acls.prefixed",
        kind=KeyKind.BOOLEAN,
        default="false",
        meaning=(
            "also copy PREFIXED ACLs that cover a mirrored topic, including the prefix `*` for all "
            "topics"
        ),
    ),
    KeyDefinition(
        name="twinlog.sync.topic.acls.removal",
        kind=KeyKind.BOOLEAN,
        default="false",
        meaning=(
            "remove ACLs of remote topics that the source topics do not have, except ALLOW WRITE "
            "and ALLOW ALL; only with the default replication policy"
        ),
    ),
    KeyDefinition(
        name="twinlog.sync.retention",
        kind=KeyKind.CHOICE,
        default="follow",
        meaning=(
            "whether the config sync may shorten retention on the target: `follow` copies the "
            "source's values; `raise-only` does not lower a retention or add `delete` or `compact` "
            "to cleanup.policy"
        ),
        choices=("follow", "raise-only"),
    ),
    KeyDefinition(
        name="twinlog.source.group.id",
        kind=KeyKind.STRING,
        meaning=(
            "a consumer group on the source, as in MirrorMaker 1: the copy of a partition that was "
            "never copied starts at the group's offset, and the position of the copy is committed "
            "to the group"
        ),
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
        meaning=(
            "`grow` adds missing partitions to a remote topic; `same` adds none, and stops topics "
            "whose counts differ; `keyed` adds none, and distributes records of such topics by "
            "key, as MirrorMaker 1 does"
        ),
        choices=("grow", "same", "keyed"),
    ),
    KeyDefinition(
        name="twinlog.new.topic.partitions",
        kind=KeyKind.CHOICE,
        default="source",
        meaning=(
            "partition count of new remote topics: that of the source topic (`source`), or "
            "num.partitions of the target (`default`, only with `twinlog.target.partitions = "
            "keyed`), as with auto.create.topics.enable and MirrorMaker 1"
        ),
        choices=("source", "default"),
    ),
    KeyDefinition(
        name="twinlog.target.producer.id.expiration.ms",
        kind=KeyKind.LONG,
        scope=KeyScope.TARGET,
        meaning=(
            "the target's producer.id.expiration.ms, if the mirror's user is not permitted to read "
            "it"
        ),
        low=1,
    ),
    KeyDefinition(
        name="twinlog.state.topic.replication.factor",
        kind=KeyKind.SHORT,
        default="-1",
        scope=KeyScope.TARGET,
        meaning=(
            "replication factor of Twinlog's own topics on the target; -1: the broker's default"
        ),
        low=-1,
    ),
)
