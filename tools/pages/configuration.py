"""Generates docs/configuration.md from the tables of keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tools.pages import first_keys
from twinlog.config.advice.explanation import CLIENT_MEANINGS, ClientKey
from twinlog.config.keys.key_table import (
    FLOW_KEYS,
    OWN_KEYS,
    OWN_PROCESS_KEYS,
    WORKER_MEANINGS,
    KeyDefinition,
    Support,
)

_TOP: Final = """\
# Configuration

Twinlog reads the `mm2.properties` file that MirrorMaker 2 reads.

"""

_RULES: Final = """\
## How a file is read

Twinlog follows MirrorMaker 2's rules:

- `clusters = A, B` sets the aliases of the clusters, and `A.bootstrap.servers` sets the addresses
  of cluster A.
- `A->B.enabled = true` enables the flow from A to B.
- `A->B.key` sets a key for one flow, and `key` alone sets it for every flow. The flow's own line
  takes precedence.
- `A.security.protocol`, `A.ssl.*` and `A.sasl.*` apply to all clients of cluster A;
  `A.consumer.key`, `A.producer.key` and `A.admin.key` apply to one kind of client.
- `security.protocol`, `ssl.*` and `sasl.*` without a cluster apply to all clusters. `consumer.key`,
  `producer.key` and `admin.key` without a cluster have no effect, and `check` warns.
- The entries of lists of names are Java regular expressions that must match the whole name.
- `A.consumer.isolation.level` (default `read_committed`) and `A.consumer.auto.offset.reset`
  (`earliest`) apply to the copy from A.
- `${name:path:key}` in a value is resolved by the config provider `name`. Kafka's
  `FileConfigProvider`, `DirectoryConfigProvider` and `EnvVarConfigProvider` are supported.

An invalid value is an error (exit code 2), and the message contains file, line, key, the problem
and a valid value. An unknown key causes a warning that suggests the nearest known key; an unknown
`twinlog.` key is an error.
`twinlog check FILE` prints all errors and warnings without starting the flows. `twinlog check FILE
--explain` prints the effect of each key of the file, with its line; with `--defaults` it also
prints the keys that are not in the file. `--explain` does not connect to the clusters.

On the command line of `mirror` and `check`:

- `--clusters west-1 west-2` or `--clusters west-1,west-2` runs only the flows into these clusters.
- `--set KEY=VALUE` adds a line to the end of the file.
- Each of Twinlog's own keys has a flag: `--source-loss` sets `twinlog.source.loss`. The flag takes
  precedence over every line of the file.
- Several files can run in one process. Each is read separately, so keys of one file do not affect
  the other files. A flow may be enabled in only one of them.

The tables are generated from those in `src/twinlog/config/` (`python -m
tools.pages`); a test fails if they are out of date. The last column names the test, below `tests/`,
that uses the key; `test_every_key` sets each key of every table and checks its documented effect.

"""

_SECTIONS: Final = (
    (Support.ACTS, "## Flow keys", ""),
    (
        Support.NO_MEANING,
        "## Flow keys without effect",
        "These keys configure Kafka Connect or Java. They are accepted, so a file that has them "
        "runs unchanged, and `twinlog check` lists them.\n\n",
    ),
)

_WORKERS: Final = """\
Write them as `B.key` for all flows into B. Keys of the process, and keys that begin with
`offset.storage`, `status.storage`, `config.storage`, `task`, `worker` or a converter's name, can
also be written without a prefix.

"""

_CLIENTS: Final = """\
| written as | applies to |
| --- | --- |
| `A.consumer.key` | the clients that fetch from A |
| `B.producer.key`, `A->B.producer.override.key` | the clients that write to B |
| `A.admin.key`, `B.admin.key` | the admin clients, for topics, configs and groups |
| `A->B.source.consumer.key`, `A->B.source.admin.key` | the source's clients of one flow |
| `A->B.target.admin.key`, `A->B.target.consumer.key` | the target's clients of one flow |

These keys can also set a connection: `A.admin.bootstrap.servers` gives one kind of client another
address, and the keys of one flow give it a connection of its own.

As in MirrorMaker 2, three forms have no effect or a low precedence. `twinlog check` warns of them:

- `A->B.producer.key` has no effect.
- `A.consumer.key` takes precedence over `A->B.consumer.key`.
- `A.key`, `B.key` and `key` take precedence over `A->B.source.cluster.key` and
  `A->B.target.cluster.key`, which never apply to the clients that write to B.

Settings that have an effect come first in the table.

"""

_ORDER: Final = (Support.ACTS, Support.NO_MEANING)

_SECURITY: Final = """\
## TLS and SASL

Set these for each cluster, under the names of Kafka's Java clients:

| key | values |
| --- | --- |
| `security.protocol` | `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT`, `SASL_SSL` |
| `sasl.mechanism` | `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER` |
| `sasl.jaas.config` | the mechanism's login module with its options, in Java's syntax |
| `sasl.oauthbearer.token.endpoint.url`, `...scope` | a token from a client credentials grant |
| `sasl.login.callback.handler.class` | Kafka's own handlers, or Strimzi's with `oauth.*` |
| `ssl.truststore.*`, `ssl.keystore.*`, `ssl.key.password` | PEM (file or text), PKCS12, JKS |
| `ssl.endpoint.identification.algorithm` | empty disables host name verification |
| `ssl.enabled.protocols`, `ssl.cipher.suites` | Java's names; TLS 1.2 and 1.3 |

Only the driver reads files and secrets. It sends them to the lanes over the channel, never through
Spark's configuration, job descriptions or event log. The credentials that open the channel to a
lane do pass through Spark, which is authenticated and encrypted for this purpose; see
[security](security.md). Kerberos (`GSSAPI`) and Java classes (other `*.callback.handler.class`,
`ssl.engine.factory.class`) are rejected with an error. The prefix `kafkashaded.`, which Databricks
adds to the names of Kafka's classes, is ignored.
"""


def render() -> str:
    """Return the text of docs/configuration.md."""
    return _TOP + first_keys.render() + _RULES + "\n".join(_parts()) + "\n" + _SECURITY


def _parts() -> Iterator[str]:
    yield "## Twinlog's own keys\n"
    yield "All begin with `twinlog.`, so MirrorMaker 2 can still run the file.\n"
    yield _table(OWN_KEYS)
    yield (
        "Keys of the process are written without a prefix; for details see [REST](rest.md) and "
        "[monitoring](monitoring.md#fewer-series-more-labels):\n"
    )
    yield _table(OWN_PROCESS_KEYS)
    for support, heading, text in _SECTIONS:
        yield f"{heading}\n"
        yield text + _table(key for key in FLOW_KEYS if key.support is support)
    yield "## Keys of the process and of Connect's workers\n"
    yield _WORKERS
    yield _grid(
        ("key", "meaning", "tested in"),
        ([f"`{name}`", meaning, EVERY_KEY] for name, meaning in sorted(WORKER_MEANINGS.items())),
    )
    yield "## Settings of clients\n"
    yield _CLIENTS
    rows = sorted(CLIENT_MEANINGS, key=lambda row: _ORDER.index(row.support))
    yield _grid(("setting", "default", "meaning", "tested in"), (_client_row(row) for row in rows))


def _table(keys: Iterable[KeyDefinition]) -> str:
    return _grid(
        ("key", "type", "default", "meaning", "tested in"),
        (_row(key) for key in sorted(keys, key=lambda key: key.name)),
    )


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _client_row(row: ClientKey) -> Sequence[str]:
    default = f"`{row.default}`" if row.default else ""
    name = f"{row.role}.{row.name}"
    return f"`{name}`", default, row.meaning, tested_in(name)


def _row(key: KeyDefinition) -> Sequence[str]:
    default = "" if key.default in (None, "") else f"`{key.default}`"
    kind = " or ".join(f"`{choice}`" for choice in key.choices) or key.kind.value
    meaning = key.meaning + "".join(f"; formerly `{old}`" for old in key.replaces)
    return f"`{key.name}`", kind, default, meaning, tested_in(key.name)


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
        "twinlog.compression twinlog.latency producer.batch.size consumer.fetch.max.bytes "
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
    "unit/config/test_connect.py": (
        "transforms predicates key.converter value.converter header.converter"
    ),
    "unit/config/test_emissions.py": (
        "emit.heartbeats.interval.seconds heartbeats.topic.replication.factor "
        "offset-syncs.topic.replication.factor"
    ),
    "unit/config/test_precedence.py": (
        "enabled replication.policy.separator replication.policy.internal.topic.separator.enabled"
    ),
    "unit/config/test_providers.py": "config.providers",
    "spark/test_cluster_life.py": "twinlog.spark.standby",
    "unit/config/test_transforms.py": (
        "twinlog.transforms twinlog.transforms.on-error twinlog.transforms.quarantine.topic"
    ),
    "unit/config/test_tuning.py": "admin.request.timeout.ms",
    "unit/config/test_values.py": (
        "tasks.max topic.filter.class config.property.filter.class topics twinlog.lease.seconds"
    ),
    "unit/mirror/test_filters.py": "use.defaults.from",
}

TESTED: Final = {key: file for file, keys in _BY_FILE.items() for key in keys.split()}


def tested_in(key: str) -> str:
    """Return the file in tests/ that tests a key. The name of a client setting has its role as
    prefix.
    """
    return TESTED.get(key, EVERY_KEY)
