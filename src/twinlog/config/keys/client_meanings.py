"""What settings of Java's clients mean for the copy: a row for each that people set.

Where a row's client is "the source's consumer" or "the target's producer", the same key of another
client changes nothing.
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


_TIMEOUT = "limit of one response, while its bytes arrive; at least 1000"
_ACTING: Final = (
    _acts(_CONSUMER, "isolation.level", "read_committed",
          "whether what was rolled back is left out (MirrorMaker 2: read_uncommitted)"),
    _acts(_CONSUMER, "auto.offset.reset", "earliest",
          "where a partition starts that was never copied"),
    _acts(_CONSUMER, "fetch.max.bytes", "8388608", "the most that one Fetch answer brings"),
    _acts(_CONSUMER, "max.partition.fetch.bytes", "2097152",
          "the most of one partition in it; a larger batch comes as a whole"),
    _acts(_CONSUMER, "fetch.min.bytes", "1",
          "a Fetch answer waits until the source has so much, or for fetch.max.wait.ms: fewer and "
          "larger ones, and records that arrive so much later"),
    _acts(_CONSUMER, "fetch.max.wait.ms", "500",
          "how long a Fetch waits at the broker, 5 to 500: partitions that are given to a lane or "
          "taken from it wait behind it"),
    _acts(_CONSUMER, "client.rack", "",
          "partitions are read from a replica in this rack where brokers offer it (KIP-392)"),
    _acts(_CONSUMER, "request.timeout.ms", "30000", _TIMEOUT),
    _acts(_PRODUCER, "batch.size", "",
          "batches of at most 8 records that follow each other are joined until they hold so much; "
          "default: batches keep the size that they have at the source"),
    _acts(_PRODUCER, "buffer.memory", "67108864",
          "how much fetched data a lane may hold, at least 1 MiB; twinlog.lane.memory.bytes wins"),
    _acts(_PRODUCER, "compression.type", "",
          "the codec of batches that are not compressed, or are re-encoded anyway; others keep "
          "theirs, unless twinlog.compression=enforce; default: all keep theirs"),
    _acts(_PRODUCER, "max.request.size", "1048576",
          "a Produce request is closed when it holds so much, at most 64 MiB; a batch may be "
          "larger"),
    _acts(_PRODUCER, "request.timeout.ms", "30000", _TIMEOUT),
    _acts(_ADMIN, "request.timeout.ms", "30000", _TIMEOUT),
    *(_acts(role, "config.providers", "", "providers that resolve ${name:..} in values")
      for role in Role),
)  # fmt: skip

_WITHOUT: Final = {
    _PRODUCER: {
        "acks": "always `all`: with less, what counts as copied could be lost; its cost is the "
        "wait for the in-sync replicas",
        "enable.idempotence": "always on",
        "linger.ms": "nothing waits: what has arrived is sent",
        "max.in.flight.requests.per.connection": "16 batches a partition, in order all the same",
        "delivery.timeout.ms retries": "a batch is tried until it is on the target",
        "max.block.ms": "nothing blocks: reading pauses",
        "compression.gzip.level compression.lz4.level compression.zstd.level": "batches pass as "
        "they are; what is re-encoded has Java's default levels: 6 for gzip, 3 for zstd, the "
        "fastest for lz4",
        "transaction.timeout.ms transaction.two.phase.commit.enable transactional.id": "there are "
        "no transactions",
        "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms "
        "partitioner.class partitioner.ignore.keys": "a record keeps its partition",
        "key.serializer value.serializer": "bytes always",
    },
    _CONSUMER: {
        "max.poll.records max.poll.interval.ms": "nothing is polled",
        "check.crcs": "always checked",
        "group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms "
        "partition.assignment.strategy session.timeout.ms share.acknowledgement.mode "
        "share.acquire.mode": "the copy reads without a group",
        "auto.commit.interval.ms enable.auto.commit": "nothing is committed at the source",
        "allow.auto.create.topics": "reading never creates a topic",
        "exclude.internal.topics": "the flow's filters decide",
        "key.deserializer value.deserializer": "bytes always",
    },
    _ADMIN: {
        "bootstrap.controllers": "brokers are asked",
        "retries": "retriable errors always are tried again",
    },
}
_OF_ANY: Final = {
    "client.id": "always twinlog-SOURCE->TARGET",
    "default.api.timeout.ms": "requests have their own deadlines here",
    "interceptor.classes metric.reporters auto.include.jmx.reporter security.providers": "Java "
    "classes",
    "enable.metrics.push metrics.num.samples metrics.recording.level metrics.sample.window.ms": (
        "metrics are those of docs/monitoring.md"
    ),
    "receive.buffer.bytes send.buffer.bytes": "the system sizes them and lets them grow with the "
    "link (net.ipv4.tcp_rmem, tcp_wmem); a number would end that",
    "reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms": (
        "a pause is a random part of a time that doubles with each failure in a row: from 0.1 s up "
        "to 2 s where a call waits, to 30 s elsewhere; one partition's trouble delays no other"
    ),
    "metadata.max.age.ms metadata.max.idle.ms": "leaders are looked up when a broker or a "
    "connection says that they moved, and those of the source once a minute; topics "
    "and partitions every refresh.topics.interval.seconds",
    "metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy": "the addresses of "
    "bootstrap.servers are always tried beside those that the cluster told",
    "connections.max.idle.ms": "connections in use stay open; one that a broker closes is opened "
    "again when it is needed",
    "client.dns.lookup": "all addresses of a name are tried in turn, as with use_all_dns_ips",
    "socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms": "10 s for all "
    "addresses of a broker's name together",
}


def _without_meaning(role: Role) -> dict[str, str]:
    found: dict[str, str] = {}
    for group in (_WITHOUT[role], _OF_ANY):
        for names, meaning in group.items():
            found |= dict.fromkeys(words(names), meaning)
    return found


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
