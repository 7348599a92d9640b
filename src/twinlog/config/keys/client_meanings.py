"""The effect of each Java client setting on the copy.

The rows are per role. If a row is for the source's consumer or the target's producer, the same key
of another client has no effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.config.keys.client_keys import CLIENT_KEYS, Role, is_connection_key, words
from twinlog.config.keys.key_types import Support

_PRODUCER, _CONSUMER, _ADMIN = Role.PRODUCER, Role.CONSUMER, Role.ADMIN


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKey:
    """One setting of one kind of client."""

    role: Role
    name: str
    support: Support
    meaning: str
    default: str = ""


def _acts(role: Role, name: str, default: str, meaning: str) -> ClientKey:
    return ClientKey(role=role, name=name, default=default, support=Support.ACTS, meaning=meaning)


_TIMEOUT = "timeout for receiving a whole response; at least 1000"
_ACTING: Final = (
    _acts(_CONSUMER, "isolation.level", "read_committed",
         "whether records of aborted transactions are left out (MirrorMaker 2: "
         "read_uncommitted)"),
    _acts(_CONSUMER, "auto.offset.reset", "earliest",
         "where the copy starts for partitions that were never copied"),
    _acts(_CONSUMER, "fetch.max.bytes", "8388608", "maximum bytes per Fetch response"),
    _acts(_CONSUMER, "max.partition.fetch.bytes", "2097152",
         "maximum bytes per partition in a Fetch response; a larger batch is returned whole"),
    _acts(_CONSUMER, "fetch.min.bytes", "1",
         "a Fetch response waits until this many bytes are available, or for "
         "fetch.max.wait.ms: fewer and larger responses, but later records"),
    _acts(_CONSUMER, "fetch.max.wait.ms", "500",
         "how long a Fetch waits at the broker, 5 to 500; partitions are assigned to a lane or "
         "revoked only after it"),
    _acts(_CONSUMER, "client.rack", "",
         "fetch from a replica in this rack if the brokers support it (KIP-392)"),
    _acts(_CONSUMER, "request.timeout.ms", "30000", _TIMEOUT),
    _acts(_PRODUCER, "batch.size", "",
         "consecutive batches of at most 8 records are joined up to this size; default: "
         "batches keep their size"),
    _acts(_PRODUCER, "buffer.memory", "67108864",
         "maximum bytes of fetched data per lane, at least 1 MiB; twinlog.lane.memory.bytes "
         "takes precedence"),
    _acts(_PRODUCER, "compression.type", "",
         "codec of batches that are uncompressed or re-encoded anyway; others keep theirs "
         "unless twinlog.compression=enforce; default: all batches keep their codec"),
    _acts(_PRODUCER, "max.request.size", "1048576",
         "a Produce request is sent when it reaches this size, at most 64 MiB; a single batch "
         "may be larger"),
    _acts(_PRODUCER, "request.timeout.ms", "30000", _TIMEOUT),
    _acts(_ADMIN, "request.timeout.ms", "30000", _TIMEOUT),
    *(_acts(role, "config.providers", "", "providers that resolve ${name:..} in values")
      for role in Role),
)  # fmt: skip

_WITHOUT: Final = {
    _PRODUCER: {
        "acks": (
            "always `all`: with less, records that count as copied could be lost; the cost is "
            "the wait for the in-sync replicas"
        ),
        "enable.idempotence": "always on",
        "linger.ms": "always 0: records are sent when they arrive",
        "max.in.flight.requests.per.connection": "16 batches per partition; order is kept",
        "delivery.timeout.ms retries": "a batch is retried until it is on the target",
        "max.block.ms": "writes do not block; fetching pauses instead",
        "compression.gzip.level compression.lz4.level compression.zstd.level": (
            "batches are copied unchanged; re-encoded batches use Java's default levels: 6 for "
            "gzip, 3 for zstd, the fastest for lz4"
        ),
        "transaction.timeout.ms transaction.two.phase.commit.enable transactional.id": (
            "no transactions are used"
        ),
        "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms "
        "partitioner.class partitioner.ignore.keys": "records keep their partition",
        "key.serializer value.serializer": (
            "keys and values are always bytes; classes other than Kafka's are refused"
        ),
    },
    _CONSUMER: {
        "max.poll.records max.poll.interval.ms": "there is no poll loop",
        "check.crcs": "always checked",
        "group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms "
        "partition.assignment.strategy session.timeout.ms share.acknowledgement.mode "
        "share.acquire.mode": "the copy does not use a consumer group",
        "auto.commit.interval.ms enable.auto.commit": "the copy commits no offsets on the source",
        "allow.auto.create.topics": "fetching never creates a topic",
        "exclude.internal.topics": "the flow's topic filters apply",
        "key.deserializer value.deserializer": "keys and values are always bytes",
    },
    _ADMIN: {
        "bootstrap.controllers": "brokers are used",
        "retries": "retriable errors are always retried",
    },
}
_OF_ANY: Final = {
    "client.id": "always twinlog-SOURCE->TARGET",
    "default.api.timeout.ms": "requests have their own timeouts",
    "metric.reporters auto.include.jmx.reporter": "Twinlog loads no Java classes",
    "interceptor.classes security.providers": (
        "Twinlog loads no Java classes, so classes other than Kafka's are refused"
    ),
    "enable.metrics.push metrics.num.samples metrics.recording.level metrics.sample.window.ms": (
        "the metrics are those in docs/monitoring.md"
    ),
    "receive.buffer.bytes send.buffer.bytes": (
        "the operating system sizes the buffers and lets them grow with the link "
        "(net.ipv4.tcp_rmem, tcp_wmem); a fixed size would disable that"
    ),
    "reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms": (
        "a pause is a random part of a time that doubles with each consecutive failure: from 0.1 s "
        "up to 2 s if a call waits, else up to 30 s; an error of one partition does not delay "
        "others"
    ),
    "metadata.max.age.ms metadata.max.idle.ms": (
        "leaders are looked up when a broker or a connection reports a change, and those of "
        "the source once a minute; topics and partitions every refresh.topics.interval.seconds"
    ),
    "metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy": (
        "the addresses of bootstrap.servers are always tried in addition to those that the "
        "cluster returned"
    ),
    "connections.max.idle.ms": (
        "connections in use stay open; if a broker closes one, it is reopened when needed"
    ),
    "client.dns.lookup": "all addresses of a host name are tried in turn, as with use_all_dns_ips",
    "socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms": (
        "10 s for all addresses of a broker's host name together"
    ),
}


def _without_meaning(role: Role) -> dict[str, str]:
    meanings: dict[str, str] = {}
    for group in (_WITHOUT[role], _OF_ANY):
        for names, meaning in group.items():
            meanings |= dict.fromkeys(words(names), meaning)
    return meanings


def _rows() -> tuple[ClientKey, ...]:
    rows = list(_ACTING)
    known = {(row.role, row.name) for row in rows}
    for role, keys in CLIENT_KEYS.items():
        without = _without_meaning(role)
        rows += (
            ClientKey(
                role=role,
                name=name,
                support=Support.NO_MEANING,
                meaning=without[name],
            )
            for name in sorted(keys)
            if (role, name) not in known and not is_connection_key(name)
        )
    return tuple(rows)


CLIENT_MEANINGS: Final = _rows()
MEANING_OF: Final = {(row.role, row.name): row for row in CLIENT_MEANINGS}
