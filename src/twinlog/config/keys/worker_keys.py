"""Keys of the process and of Connect's workers. They are accepted; few have an effect.

The names are those of Kafka 4.3's DistributedConfig without the client settings, which are in
`client_keys`.
"""

from __future__ import annotations

from typing import Final

from twinlog.config.keys.client_keys import words

WORKER_KEYS = words("""
    access.control.allow.methods access.control.allow.origin admin.listeners client.id
    config.storage.replication.factor config.storage.topic connect.protocol
    connector.client.config.override.policy exactly.once.source.support group.id
    header.converter header.converter.plugin.version heartbeat.interval.ms
    inter.worker.key.generation.algorithm inter.worker.key.size inter.worker.key.ttl.ms
    inter.worker.signature.algorithm inter.worker.verification.algorithms
    key.converter key.converter.plugin.version listeners metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms offset.flush.interval.ms
    offset.flush.timeout.ms offset.storage.partitions offset.storage.replication.factor
    offset.storage.topic plugin.discovery plugin.path rebalance.timeout.ms
    response.http.headers.config rest.advertised.host.name rest.advertised.listener
    rest.advertised.port rest.extension.classes scheduled.rebalance.max.delay.ms session.timeout.ms
    ssl.client.auth status.storage.partitions status.storage.replication.factor status.storage.topic
    task.shutdown.graceful.timeout.ms topic.creation.enable topic.tracking.allow.reset
    topic.tracking.enable value.converter value.converter.plugin.version worker.sync.timeout.ms
    worker.unsync.backoff.ms
    """)
"""Keys that are read as `B.key`, for the worker of all flows into B."""

PROCESS_KEYS = words("""
    clusters dedicated.mode.enable.internal.rest access.control.allow.methods
    access.control.allow.origin admin.listeners listeners response.http.headers.config
    rest.advertised.host.name rest.advertised.listener rest.advertised.port rest.extension.classes
    ssl.client.auth
    """)
"""`key` alone, read once for the process."""

TOP_LEVEL_WORKER_PREFIXES = (
    "offset.storage",
    "status.storage",
    "config.storage",
    "key.converter",
    "value.converter",
    "header.converter",
    "task",
    "worker",
)
"""A top-level key with one of these prefixes reaches the workers of every target."""

LISTENER_PREFIXES = ("listeners.https.", "admin.listeners.https.")


# The effect of the keys of the process and of Connect's workers, or why they have none.

_GROUPS: Final = {
    "clusters": "acts: the aliases of the clusters; every ordered pair of them can be a flow",
    "dedicated.mode.enable.internal.rest": "processes find each other through the target",
    "listeners": (
        "acts: HTTP is served at the first http:// one. If other hosts could reach it and no "
        "authentication is configured, it is served at its port of 127.0.0.1. `twinlog mirror "
        "--listen` takes precedence"
    ),
    "admin.listeners rest.advertised.host.name rest.advertised.listener "
    "rest.advertised.port response.http.headers.config access.control.allow.methods "
    "access.control.allow.origin rest.extension.classes ssl.client.auth": (
        "for MirrorMaker 2's REST API; `twinlog mirror --listen` sets the HTTP address"
    ),
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

_OF_PREFIX: Final = "for Connect's workers, which Twinlog does not have"


def worker_meaning(name: str, *, everywhere: bool) -> str | None:
    """Return the meaning of a key of a worker or of the process, or None for any other key.

    `everywhere`: the key has no alias prefix; such keys with a worker prefix reach the workers of
    every target.
    """
    if name in WORKER_MEANINGS and name in WORKER_KEYS | PROCESS_KEYS:
        return WORKER_MEANINGS[name]
    if name.startswith(("listeners.https.", "admin.listeners.https.")):
        return WORKER_MEANINGS["admin.listeners"]
    family = everywhere and name.startswith(TOP_LEVEL_WORKER_PREFIXES)
    return _OF_PREFIX if family else None
