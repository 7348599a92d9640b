"""Generates docs/strimzi.md from the table of fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from twinlog.config.strimzi.fields import SECTIONS, Field

_TOP: Final = """\
# Strimzi's KafkaMirrorMaker2

This page is generated from the table in `src/twinlog/config/strimzi/fields.py` (`python -m
tools.pages`); a test fails if it is out of date.

Every command that takes a configuration file also takes a `KafkaMirrorMaker2` resource as YAML or
JSON (`kubectl get kafkamirrormaker2 NAME -o yaml`), in the versions `v1alpha1`, `v1beta2` and `v1`:

    twinlog check mirror.yaml --secrets ./secrets
    twinlog mirror mirror.yaml --secrets ./secrets
    twinlog convert mirror.yaml --secrets ./secrets > mm2.properties

- If a file has several documents, the `KafkaMirrorMaker2` among them is read.
- A connector runs only if its section exists: without `sourceConnector` nothing is copied, without
  `checkpointConnector` no group offsets are translated, and without `heartbeatConnector` no
  heartbeats are written. An empty section (`{}`) is enough.
- If a pattern is absent, MirrorMaker 2's default applies: all topics except internal ones, all
  groups except those of console consumers and Connect.
- Values may be strings, booleans or numbers. Keys below a `config` are those of
  `docs/configuration.md`.
- An invalid file is rejected with an error that names file and line (exit code 2). A field that no
  version of the resource has is also an error: if a misspelled `topicPattern` (instead of
  `topicsPattern`) were ignored, all topics would be mirrored.

## Secrets

Secrets that Kubernetes would mount are read from a folder. `--secrets DIR` needs a file
`DIR/<secretName>/<key>` for each key, which is the layout of a volume of secrets. For one secret:

    mkdir -p secrets/my-user
    kubectl get secret my-user -o jsonpath='{.data.password}' | base64 -d > secrets/my-user/password

Values remain references to these files through Kafka's `DirectoryConfigProvider`, so no message,
log or converted file contains a secret. A password with a quote, a backslash or a line break is
rejected, because `sasl.jaas.config` cannot represent it. `${name:namespace/secret:key}` of
Strimzi's `KubernetesSecretConfigProvider` is resolved from the same folder. `docs/configuration.md`
describes Kafka's own providers. Commands that do not connect to the clusters (`check --explain`,
`convert`) need no folder: without `--secrets` they read no secret, and their output shows
`/SECRETS` as the folder.

The operator's own providers need no `config.providers`: `${strimzienv:NAME}`,
`${strimzifile:path:key}`, `${strimzidir:path:key}` and `${strimzisecrets:namespace/secret:key}`.
If `template` or `externalConfiguration` sets a variable from a secret, or mounts a secret, and the
folder of `--secrets` contains this secret, its files are used. Otherwise variables are read from
the environment of the process, and paths from the file system of the machine.

## Where a flow and three connectors differ

In Strimzi each connector has its own `config`, but a flow has only one configuration. Twinlog reads
a key from the connector to which it belongs. Keys that the connectors share
(`replication.policy.class`, `offset-syncs.topic.location`, ...) are read from `sourceConnector`. If
a key is below a connector to which it does not belong, it has no effect in Strimzi or Twinlog, and
a warning reports it. In Strimzi, `consumer.` keys have an effect only below the connector's
`config`. In Twinlog, `consumer.` keys below `config` of a source cluster have an effect, too, but
those of the connector take precedence.

## Fields

A field with "no effect" is accepted with one warning; "refused" is an error.
"""


def render() -> str:
    """Return the text of docs/strimzi.md."""
    return _TOP + "\n".join(_parts())


def _parts() -> Iterator[str]:
    for section, fields in SECTIONS.items():
        yield f"\n### {section}\n"
        yield _table(fields)


def _table(fields: Iterable[Field]) -> str:
    lines = ["| field | support | meaning |", "| --- | --- | --- |"]
    lines += [f"| `{field.name}` | {field.use.value} | {field.meaning} |" for field in fields]
    return "\n".join(lines) + "\n"
