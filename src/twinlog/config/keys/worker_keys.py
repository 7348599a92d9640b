"""Keys of the process and of Connect's workers. They are accepted; few have an effect.

The names are those of Kafka 4.3's DistributedConfig without the client settings, which are in
`client_keys`.
"""

from __future__ import annotations

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
"""`B.key`, for the worker of all flows into B."""

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
