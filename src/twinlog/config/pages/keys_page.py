"""Writes docs/configuration.md from the key tables, so that the page cannot lag behind them.

python -m twinlog.config.pages.keys_page > docs/configuration.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from twinlog.config.keys.client_meanings import CLIENT_MEANINGS, ClientKey
from twinlog.config.keys.flow_keys import FLOW_KEYS
from twinlog.config.keys.key_types import KeyDefinition, Support
from twinlog.config.keys.own_keys import OWN_KEYS
from twinlog.config.keys.process_keys import OWN_PROCESS_KEYS
from twinlog.config.keys.worker_meanings import WORKER_MEANINGS
from twinlog.config.pages import first_keys

_TOP: Final = """\
# Configuration

Twinlog reads the `mm2.properties` file that MirrorMaker 2 reads.

"""

_RULES: Final = """\
## How a file is read

By MirrorMaker 2's rules:

- `clusters = A, B` names the clusters, `A.bootstrap.servers` says where one is.
- `A->B.enabled = true` turns the flow from A to B on.
- `A->B.key` sets a key of one flow, `key` alone that of every flow. A flow's own line wins.
- `A.security.protocol`, `A.ssl.*` and `A.sasl.*` go to all clients of cluster A; `A.consumer.key`,
  `A.producer.key` and `A.admin.key` to one kind of them. Without a cluster before it, such a key is
  for all clusters.
- Values of lists of names are Java regular expressions, each for a whole name.
- `A.consumer.isolation.level` (default `read_committed`) and `A.consumer.auto.offset.reset`
  (`earliest`) are those of the copy from A.
- `${name:path:key}` in a value is looked up by the config provider of that name: Kafka's
  `FileConfigProvider`, `DirectoryConfigProvider` and `EnvVarConfigProvider`.

A wrong value is an error: file, line, key, what is wrong, what to write (exit code 2). An unknown
key is a warning with the nearest known name, an unknown `twinlog.` key an error. `twinlog check
FILE` prints all of it without starting anything; `twinlog check FILE --explain` says what each key
of the file does, with its line (`--defaults`: also those that it leaves out). It connects to
nothing.

On the command line, for `mirror` and `check`:

- `--clusters west-1 west-2` or `--clusters west-1,west-2` runs only the flows into these clusters.
- `--set KEY=VALUE` is one more line at the end of the file.
- Each of Twinlog's own keys has a flag: `--source-loss` is `twinlog.source.loss`. It wins over
  every line of the file.
- Several files run side by side in one process, each read alone: nothing of one reaches another.
  A flow may be on in one of them only.

The tables are made from those in `src/twinlog/config/` (`python -m
twinlog.config.pages.keys_page`); a test fails when they are not current. The last column of each
names the test, below `tests/`, that runs with the key; `test_every_key` sets each key of every
table and checks what is said about it.

"""

_SECTIONS: Final = (
    (Support.ACTS, "## Keys of a flow that act", ""),
    (
        Support.NO_MEANING,
        "## Accepted, without a meaning here",
        "They are about Kafka Connect or Java; a file that has them runs unchanged, and `twinlog "
        "check` lists them.\n\n",
    ),
)

_WORKERS: Final = """\
`B.key`, for all flows into B, or `key` alone for those of the process and for the families
`offset.storage`, `status.storage`, `config.storage`, `task`, `worker` and the converters.

"""

_CLIENTS: Final = """\
`A.consumer.key` for what reads from A, `B.producer.key` or `A->B.producer.override.key` for what
writes to B, `A.admin.key` and `B.admin.key` for what looks at topics, configs and groups. What acts
stands first. `A->B.producer.key` reaches nothing, as in MirrorMaker 2, and is warned about;
`A->B.consumer.key` loses to `A.consumer.key`. `A.admin.bootstrap.servers` and the like give one
kind of client another address, and `A->B.source.consumer.key`, `A->B.source.admin.key`,
`A->B.producer.override.key`, `A->B.target.admin.key` and `A->B.target.consumer.key` give one flow
another connection. `A->B.source.cluster.key` and `A->B.target.cluster.key` lose to `A.key` and
`B.key`, and to `key`, and never reach what writes to B, as in MirrorMaker 2, and are warned about.

"""

_ORDER: Final = (Support.ACTS, Support.NO_MEANING)

_SECURITY: Final = """\
## TLS and SASL

Under the names of Kafka's Java clients, for each cluster:

| key | values |
| --- | --- |
| `security.protocol` | `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT`, `SASL_SSL` |
| `sasl.mechanism` | `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER` |
| `sasl.jaas.config` | the login module of the mechanism with its options, as Java takes it |
| `sasl.oauthbearer.token.endpoint.url`, `...scope` | a token by client credentials |
| `sasl.login.callback.handler.class` | Kafka's own, or Strimzi's with `oauth.*` |
| `ssl.truststore.*`, `ssl.keystore.*`, `ssl.key.password` | PEM (file or text), PKCS12, JKS |
| `ssl.endpoint.identification.algorithm` | empty turns the check of the host name off |
| `ssl.enabled.protocols`, `ssl.cipher.suites` | as in Java; TLS 1.2 and 1.3 |

Files and secrets are read by the driver alone and reach the lanes over the channel: never through
Spark's configuration, job descriptions or event log. What opens the channel to a lane does go
through Spark, which is authenticated and encrypted for that: see [security](security.md).
Kerberos (`GSSAPI`) and Java classes
(other `*.callback.handler.class`, `ssl.engine.factory.class`) are refused with a message. The
prefix `kafkashaded.`, which Databricks adds to the names of Kafka's classes, is ignored.
"""


def render() -> str:
    """The whole page."""
    return _TOP + first_keys.render() + _RULES + "\n".join(_parts()) + "\n" + _SECURITY


def _parts() -> Iterator[str]:
    yield "## Twinlog's own keys\n"
    yield "All begin with `twinlog.`, so that the file stays runnable by MirrorMaker 2.\n"
    yield _table(OWN_KEYS)
    yield (
        "Of the process, written without a prefix; [REST](rest.md) and "
        "[monitoring](monitoring.md#fewer-series-more-labels) say more:\n"
    )
    yield _table(OWN_PROCESS_KEYS)
    for support, heading, text in _SECTIONS:
        yield f"{heading}\n"
        yield text + _table(key for key in FLOW_KEYS if key.support is support)
    yield "## Keys of the process and of Connect's workers\n"
    yield _WORKERS
    yield _grid(
        ("key", "meaning here", "tested in"),
        ([f"`{name}`", meaning, EVERY_KEY] for name, meaning in sorted(WORKER_MEANINGS.items())),
    )
    yield "## Settings of clients\n"
    yield _CLIENTS
    rows = sorted(CLIENT_MEANINGS, key=lambda row: _ORDER.index(row.support))
    yield _grid(
        ("setting", "default", "meaning here", "tested in"), (_client_row(row) for row in rows)
    )


def _table(keys: Iterable[KeyDefinition]) -> str:
    return _grid(
        ("key", "type", "default", "meaning here", "tested in"),
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
    meaning = key.meaning + "".join(f"; was `{old}`" for old in key.replaces)
    return f"`{key.name}`", kind, default, meaning, tested_in(key.name)


if __name__ == "__main__":
    sys.stdout.write(render())


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
