"""Writes docs/strimzi.md from the table of fields, so that the page cannot lag behind it.

python -m twinlog.config.pages.strimzi_page > docs/strimzi.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final

from twinlog.config.strimzi.fields import SECTIONS, Field

_TOP: Final = """\
# Strimzi's KafkaMirrorMaker2

This page is made from the table in `src/twinlog/config/strimzi/fields.py` (`python -m
twinlog.config.pages.strimzi_page`); a test fails when it is not current.

Every command that takes a configuration takes a `KafkaMirrorMaker2` resource as well, as YAML or
JSON (`kubectl get kafkamirrormaker2 NAME -o yaml`), in the versions `v1alpha1`, `v1beta2` and `v1`:

    twinlog check mirror.yaml --secrets ./secrets
    twinlog mirror mirror.yaml --secrets ./secrets
    twinlog convert mirror.yaml --secrets ./secrets > mm2.properties

- A file with several documents is fine; the `KafkaMirrorMaker2` among them counts.
- A part runs where its section stands: without `sourceConnector` nothing is copied, without
  `checkpointConnector` no group offsets are translated, without `heartbeatConnector` no heartbeats
  are emitted. An empty section (`{}`) is one.
- An absent pattern means MirrorMaker 2's default: all topics but internal ones, all groups but
  those of consoles and Connect.
- Values may be strings, booleans or numbers. Keys below a `config` are those of
  `docs/configuration.md`.
- A wrong file is refused with its name and the line, exit code 2. So is a field that no version of
  the resource has: `topicPattern` instead of `topicsPattern` would else mirror everything.

## Secrets

What Kubernetes would mount is read from a folder: `--secrets DIR` with a file
`DIR/<secretName>/<key>` for each key, as a volume of secrets looks. For one secret:

    mkdir -p secrets/my-user
    kubectl get secret my-user -o jsonpath='{.data.password}' | base64 -d > secrets/my-user/password

Values stay references to these files, by Kafka's own `DirectoryConfigProvider`: no message, log or
converted file holds what is in them. A password with a quote, a backslash or a line end in it is
refused, because the text of a login cannot hold it. `${name:namespace/secret:key}` of Strimzi's
`KubernetesSecretConfigProvider` is looked up in the same folder; Kafka's own providers work as in
`docs/configuration.md`. What connects to nothing (`check --explain`, `convert`) needs no folder:
without `--secrets` no secret is read, and their output shows `/SECRETS` as the folder.

The operator's own providers need no `config.providers`: `${strimzienv:NAME}`,
`${strimzifile:path:key}`, `${strimzidir:path:key}` and `${strimzisecrets:namespace/secret:key}`.
If `template` or `externalConfiguration` sets a variable from a secret, or mounts a secret, and
`--secrets` has that secret, its files are used. Otherwise variables are read from this process's
environment, and paths from this machine's file system.

## Where a flow and three connectors differ

Strimzi gives each connector a `config` of its own; a flow of MirrorMaker 2 has one. A key is taken
from the connector it belongs to; what they share (`replication.policy.class`,
`offset-syncs.topic.location`, ...) from `sourceConnector`. A key that stands elsewhere does nothing
there, with Strimzi neither, and is said. `consumer.` keys below `config` of a source cluster act
here; with Strimzi only those of the connector do, and these win here too.

## Fields

"No meaning here" is accepted and said once; "refused" is an error.
"""


def render() -> str:
    """The whole page."""
    return _TOP + "\n".join(_parts())


def _parts() -> Iterator[str]:
    for section, fields in SECTIONS.items():
        yield f"\n### {section}\n"
        yield _table(fields)


def _table(fields: Iterable[Field]) -> str:
    lines = ["| field | | |", "| --- | --- | --- |"]
    lines += [f"| `{field.name}` | {field.use.value} | {field.meaning} |" for field in fields]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
