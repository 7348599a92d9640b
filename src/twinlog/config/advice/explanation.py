"""Explains a configuration key by key for each flow: the effective value, its line and its effect.

It also lists lines without effect, and differences from MirrorMaker 2. It does not connect to the
clusters and never shows secrets.

`CLIENT_MEANINGS` has the effect of each Java client setting on the copy, per role. If an entry is
only for the source's consumer or the target's producer, the key has no effect for other clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from twinlog.config.flow.connect import CHAIN, CONNECT_PREFIXES
from twinlog.config.flow.precedence import prefixes
from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.config.flow.transforms import TRANSFORM_KEYS, TRANSFORMS_PREFIX
from twinlog.config.flow.tuning import MOST_REQUEST_BYTES
from twinlog.config.keys.client_keys import CLIENT_KEYS, Role, is_connection_key, words
from twinlog.config.keys.key_table import DEFINITIONS, RENAMED, Support, worker_meaning
from twinlog.config.values.origin import ClientProperties, Setting, Settings, shown_key
from twinlog.config.values.types import to_number, trimmed

_PRODUCER, _CONSUMER, _ADMIN = Role.PRODUCER, Role.CONSUMER, Role.ADMIN


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKey:
    """One setting of a kind of client, with its meaning for the copy."""

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
         "fetch.max.wait.ms; a higher value means fewer and larger responses, and more latency"),
    _acts(_CONSUMER, "fetch.max.wait.ms", "500",
         "how long a broker may hold a Fetch request, 5 to 500; a lane gets or gives up partitions "
         "only between two fetches"),
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
         "codec of batches that are uncompressed or re-encoded anyway; other batches keep their "
         "codec, unless twinlog.compression=enforce; default: all batches keep their codec"),
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
            "always `all`: with another value, records that count as copied could be lost; the "
            "cost is the wait for the in-sync replicas"
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
        "the pause before a retry is a random part of a time that doubles with each consecutive "
        "failure: from 0.1 s up to 2 s if a call waits, else up to 30 s; an error of one partition "
        "does not delay other partitions"
    ),
    "metadata.max.age.ms metadata.max.idle.ms": (
        "leaders are queried when a broker or a connection reports a change, and leaders of the "
        "source also once a minute; topics and partitions are queried every "
        "refresh.topics.interval.seconds"
    ),
    "metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy": (
        "the addresses of bootstrap.servers are always tried in addition to those that the "
        "cluster returned"
    ),
    "connections.max.idle.ms": (
        "connections in use stay open; if a broker closes one, it is reopened when needed"
    ),
    "client.dns.lookup": (
        "all addresses of a host name are tried in turn, which is Kafka's use_all_dns_ips"
    ),
    "socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms": (
        "10 s for all addresses of a broker's host name together"
    ),
}


def _rows() -> tuple[ClientKey, ...]:
    rows = list(_ACTING)
    known = {(row.role, row.name) for row in rows}
    for role, keys in CLIENT_KEYS.items():
        groups = (*_WITHOUT[role].items(), *_OF_ANY.items())
        without = {name: meaning for names, meaning in groups for name in words(names)}
        rows += (
            ClientKey(role=role, name=name, support=Support.NO_MEANING, meaning=without[name])
            for name in sorted(keys)
            if (role, name) not in known and not is_connection_key(name)
        )
    return tuple(rows)


CLIENT_MEANINGS: Final = _rows()
MEANING_OF: Final = {(row.role, row.name): row for row in CLIENT_MEANINGS}


_CONNECTION = "connection of this client to its cluster"

_OF_THE_PROCESS: Final = frozenset({"clusters", "listeners"})
"""Keys that belong to no flow but have an effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedKey:
    """One key of a flow, or one line of a file, with its value and effect."""

    key: str
    """The key as written in the file, or as it could be written if the file lacks the key."""
    value: str
    file: str = ""
    """The file or the flag of the command line; empty for a default."""
    line: int | None = None
    support: Support
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedFlow:
    """Every key of a flow, and its differences from MirrorMaker 2."""

    flow: str
    keys: tuple[ExplainedKey, ...]
    differences: tuple[str, ...]


def explain(config: FlowConfig) -> ExplainedFlow:
    """Return the flow's own keys, followed by the keys of its clients."""
    return ExplainedFlow(
        flow=str(config.flow),
        keys=(*_flow_keys(config.settings), *_connect_keys(config), *_client_keys(config)),
        differences=tuple(_differences(config)),
    )


def without_meaning(config: MirrorConfig) -> tuple[ExplainedKey, ...]:
    """Return the lines that are accepted without effect, in the order of the file."""
    aliases = [cluster.alias for cluster in config.clusters]
    keys = []
    for setting in config.lines:
        meaning = _why_no_effect(setting.key, aliases)
        if meaning is not None:
            keys.append(_explain(setting, Support.NO_MEANING, meaning))
    return tuple(keys)


def _flow_keys(settings: Settings) -> Iterator[ExplainedKey]:
    for name, definition in sorted(DEFINITIONS.items()):
        default = Setting(key=name, value=definition.default or "", file="")
        yield _explain(settings.get(name) or default, definition.support, definition.meaning)
    for name, setting in settings.stripped(TRANSFORMS_PREFIX).items():
        part = name.rpartition(".")[2]
        if part in TRANSFORM_KEYS:
            yield _explain(setting, Support.ACTS, f"a transform: {TRANSFORM_KEYS[part]}")


def _connect_keys(config: FlowConfig) -> Iterator[ExplainedKey]:
    for name, setting in config.settings.items():
        if name.startswith(CONNECT_PREFIXES) and setting not in config.transforms.unread:
            yield _explain(setting, Support.ACTS, "an option of `transforms` or `predicates`")


def _client_keys(config: FlowConfig) -> Iterator[ExplainedKey]:
    clients = config.clients
    source = {Role.CONSUMER: clients.source_consumer, Role.ADMIN: clients.source_admin}
    target = {Role.PRODUCER: clients.target_producer, Role.ADMIN: clients.target_admin}
    for alias, by_role in ((config.flow.source, source), (config.flow.target, target)):
        # a line may set a connection setting of several clients
        users: dict[ExplainedKey, list[str]] = {}
        for role, client in by_role.items():
            for key in _explain_client(client, alias, role):
                users.setdefault(key, []).append(f"{alias}.{role}.*")
        for key, names in users.items():
            of_clients = f"{_CONNECTION} ({', '.join(names)})"
            yield replace(key, meaning=of_clients) if key.meaning == _CONNECTION else key


def _explain_client(client: ClientProperties, alias: str, role: Role) -> Iterator[ExplainedKey]:
    defaults = {
        row.name: row.default
        for row in CLIENT_MEANINGS
        if row.role is role and row.support is Support.ACTS
    }
    for name in sorted({*client, *defaults}):
        row = MEANING_OF.get((role, name))
        if row is None and not is_connection_key(name):
            continue  # unknown keys are reported as warnings
        support = Support.ACTS if row is None else row.support
        meaning = _CONNECTION if row is None else row.meaning
        if name in client:
            yield _explain(client.origin(name), support, meaning)
        else:
            key = f"{alias}.{role}.{name}"
            yield ExplainedKey(key=key, value=defaults[name], support=support, meaning=meaning)


def _explain(setting: Setting, support: Support, meaning: str) -> ExplainedKey:
    shown = setting.shown if setting.secret else setting.value
    return ExplainedKey(
        key=shown_key(setting.key),
        value=shown,
        file=setting.file,
        line=setting.line,
        support=support,
        meaning=meaning,
    )


_ROOTS: Final = {
    "topic.creation.": "topic.creation.groups",
    **{f"{name}.converter.": f"{name}.converter" for name in ("key", "value", "header")},
}
"""For each prefix below which users choose key names, the key whose meaning is shown for them."""


def _why_no_effect(key: str, aliases: list[str]) -> str | None:
    """Return why a line has no effect, or None if it has one or is reported as a warning."""
    for prefix in prefixes(key, aliases):
        name = RENAMED.get(key[len(prefix) :], key[len(prefix) :])
        definition = DEFINITIONS.get(name)
        if definition is not None:
            return definition.meaning if definition.support is Support.NO_MEANING else None
        client = name.removeprefix("source.").removeprefix("target.")
        client = client.replace("producer.override.", "producer.", 1)
        for role in Role:
            row = MEANING_OF.get((role, client.removeprefix(f"{role}.")))
            if prefix and client.startswith(f"{role}.") and row is not None:
                return row.meaning if row.support is Support.NO_MEANING else None
        root = next((root for start, root in _ROOTS.items() if name.startswith(start)), None)
        if root is not None and definition is None:
            return DEFINITIONS[root].meaning
        worker = worker_meaning(name, everywhere=not prefix)
        if worker is not None and key not in _OF_THE_PROCESS and "->" not in prefix:
            return worker
    return None


def _differences_of_chain(config: FlowConfig) -> Iterator[str]:
    routers = config.policy.renames.routers
    if routers or any(entry.connect for entry in config.transforms.entries):
        yield (
            f"{config.settings[CHAIN].key}: applied to copied records only; a dedicated "
            "MirrorMaker 2 applies it to its heartbeats and checkpoints as well"
        )
    if routers:
        yield (
            f"{config.settings[CHAIN].key}: the names from a RegexRouter apply to the creation and "
            "configuration of topics and to the translation of offsets, for which MirrorMaker 2 "
            "uses the names of the replication policy; heartbeats topics keep their names"
        )


def _differences(config: FlowConfig) -> Iterator[str]:
    source, target = config.flow.source, config.flow.target
    consumer, producer = config.clients.source_consumer, config.clients.target_producer
    if "isolation.level" not in consumer:
        yield (
            f"{source}.consumer.isolation.level is read_committed (MirrorMaker 2: "
            "read_uncommitted), so records of aborted transactions are not copied; set it to "
            "read_uncommitted to copy them too"
        )
    if config.lanes.tasks_max is None:
        yield (
            "tasks.max is not set, so a flow has as many lanes as there are cores (MirrorMaker 2: "
            "1 task)"
        )
    yield (
        "copies are exactly once even without exactly.once.source.support, if `check --probe` "
        "reports this guarantee"
    )
    yield from _differences_of_chain(config)
    if "acks" in producer and trimmed(producer["acks"]) not in ("all", "-1"):
        yield (
            f"{producer.origin('acks').key}: acks is always all; with another value, records that "
            "count as copied could be lost. The cost is the wait for the in-sync replicas"
        )
    if "linger.ms" in producer:
        yield f"{producer.origin('linger.ms').key}: always 0; records are sent when they arrive"
    asked = producer.origin("max.request.size") if "max.request.size" in producer else None
    if asked is not None and to_number(asked, width="int", low=0) > MOST_REQUEST_BYTES:
        yield (
            f"{asked.key}: {asked.value} is limited to {MOST_REQUEST_BYTES} (64 MiB): brokers "
            "accept requests of at most 100 MiB (socket.request.max.bytes), and the last batch of "
            "a request may exceed the limit; a larger batch is sent in a request of its own"
        )
    recompression = config.tuning.recompression
    if recompression is not None and not recompression.every:
        yield (
            f"{producer.origin('compression.type').key}: batches that are compressed keep their "
            f"codec; {target}.twinlog.compression = enforce re-encodes all of them"
        )
    for client, role in (
        (config.clients.source_admin, "source"),
        (config.clients.target_admin, "target"),
    ):
        other, copied = (consumer, "read from") if role == "source" else (producer, "written to")
        key = "bootstrap.servers"
        if client.get(key) != other.get(key):
            yield (
                f"{client.origin(key).key} and {other.origin(key).key} differ: the {role}'s topics "
                f"are queried at the first, and records are {copied} the second"
            )
