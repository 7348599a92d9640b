"""In which test a key acts, for the page: where none is named, the one that tries every key."""

from __future__ import annotations

from typing import Final

EVERY_KEY: Final = "unit/config/test_every_key.py"

_BY_FILE: Final = {
    "broker/test_acl_sync.py": (
        "sync.topic.acls.enabled twinlog.sync.topic.acls.prefixed twinlog.sync.topic.acls.removal "
        "topic.creation.enable"
    ),
    "broker/test_budget.py": "twinlog.max.bytes.per.second twinlog.priority",
    "broker/test_config_sync.py": "sync.topic.configs.interval.seconds twinlog.sync.retention",
    "broker/test_discovery.py": (
        "topics.exclude config.properties.exclude refresh.topics.enabled "
        "refresh.topics.interval.seconds replication.factor"
    ),
    "broker/test_emissions.py": (
        "emit.heartbeats.enabled emit.offset-syncs.enabled offset-syncs.topic.location "
        "offset.lag.max heartbeats.replication.enabled source.cluster.alias target.cluster.alias"
    ),
    "faults/test_real_losses.py": (
        "groups emit.checkpoints.interval.seconds refresh.groups.interval.seconds "
        "sync.group.offsets.enabled sync.group.offsets.interval.seconds"
    ),
    "broker/test_mirror_maker_1.py": "twinlog.new.topic.partitions",
    "broker/test_rename.py": "twinlog.rename",
    "broker/test_near_replicas.py": "consumer.client.rack",
    "broker/test_least_privilege.py": "twinlog.target.producer.id.expiration.ms",
    "broker/test_steering.py": "twinlog.rpo.seconds",
    "broker/test_tuning.py": (
        "twinlog.compression producer.batch.size consumer.fetch.max.bytes "
        "consumer.max.partition.fetch.bytes consumer.fetch.min.bytes consumer.fetch.max.wait.ms "
        "producer.buffer.memory producer.compression.type "
        "producer.max.request.size producer.request.timeout.ms"
    ),
    "broker/test_verification.py": "twinlog.verify",
    "faults/test_backpressure.py": "twinlog.lane.memory.bytes",
    "faults/test_fan_out.py": "twinlog.target.partitions",
    "faults/test_outage.py": "consumer.request.timeout.ms",
    "faults/test_h04_position.py": "consumer.auto.offset.reset",
    "faults/test_h06_source_loss.py": "twinlog.source.loss",
    "faults/test_start.py": "twinlog.start twinlog.start.new",
    "faults/test_deep_path.py": "consumer.isolation.level",
    "unit/config/test_rest_keys.py": (
        "twinlog.rest.tokens.file twinlog.rest.monitoring.open twinlog.rest.tls.certificate.file "
        "twinlog.rest.tls.private.file twinlog.rest.tls.client.ca.file "
        "twinlog.rest.tls.client.role"
    ),
    "unit/config/test_series_keys.py": (
        "twinlog.metrics.labels twinlog.metrics.partitions metric.names.formats"
    ),
    "unit/cli/test_run_options.py": "twinlog.state.topic.replication.factor",
    "unit/config/test_custom_policy.py": "replication.policy.class",
    "unit/config/test_emissions.py": (
        "emit.heartbeats.interval.seconds heartbeats.topic.replication.factor "
        "offset-syncs.topic.replication.factor"
    ),
    "unit/config/test_precedence.py": (
        "enabled replication.policy.separator replication.policy.internal.topic.separator.enabled"
    ),
    "unit/config/test_providers.py": "config.providers",
    "unit/config/test_tuning.py": "admin.request.timeout.ms",
    "unit/config/test_values.py": (
        "tasks.max topic.filter.class config.property.filter.class transforms topics "
        "twinlog.lease.seconds"
    ),
    "unit/mirror/test_filters.py": "use.defaults.from",
}

TESTED: Final = {key: file for file, keys in _BY_FILE.items() for key in keys.split()}


def tested_in(key: str) -> str:
    """The file below tests/; a client's setting has its role in front."""
    return TESTED.get(key, EVERY_KEY)
