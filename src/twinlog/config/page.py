"""Writes docs/configuration.md from the key tables, so that the page cannot lag behind them.

python -m twinlog.config.page > docs/configuration.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final

from twinlog.config.client_keys import LATER_CLIENT_KEYS
from twinlog.config.flow_keys import FLOW_KEYS
from twinlog.config.key_types import KeyDefinition, Support
from twinlog.config.own_keys import OWN_KEYS

_TOP: Final = """\
# Configuration

This page is made from the tables in `src/twinlog/config/` (`python -m twinlog.config.page`); a test
fails when it is not current.

Twinlog reads the `mm2.properties` file that MirrorMaker 2 reads, by MirrorMaker 2's rules:

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
FILE` prints all of it without starting anything.

"""

_SECTIONS: Final = (
    (Support.ACTS, "## Keys of a flow that act", ""),
    (
        Support.LATER,
        "## Accepted, not implemented yet",
        "Setting one of them is said in one warning (`NOT_YET`).\n\n",
    ),
    (
        Support.NO_MEANING,
        "## Accepted, without a meaning here",
        "They are about Kafka Connect or Java; a file that has them runs unchanged.\n\n",
    ),
)

_SECURITY: Final = """\
## TLS and SASL

Under the names of Kafka's Java clients, for each cluster:

| key | values |
| --- | --- |
| `security.protocol` | `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT`, `SASL_SSL` |
| `sasl.mechanism` | `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER` |
| `sasl.jaas.config` | the login module of the mechanism with its options, as Java takes it |
| `sasl.oauthbearer.token.endpoint.url`, `...scope` | a token by client credentials |
| `ssl.truststore.*`, `ssl.keystore.*`, `ssl.key.password` | PEM (file or text), PKCS12, JKS |
| `ssl.endpoint.identification.algorithm` | empty turns the check of the host name off |
| `ssl.enabled.protocols`, `ssl.cipher.suites` | as in Java; TLS 1.2 and 1.3 |

Files and secrets are read by the driver alone and reach the lanes over the channel: never through
Spark's configuration, job descriptions or event log. Kerberos (`GSSAPI`) and Java classes
(`*.callback.handler.class`, `ssl.engine.factory.class`) are refused with a message.
"""


def render() -> str:
    """The whole page."""
    return _TOP + "\n".join(_parts()) + "\n" + _SECURITY


def _parts() -> Iterator[str]:
    yield "## Twinlog's own keys\n"
    yield "All begin with `twinlog.`, so that the file stays runnable by MirrorMaker 2.\n"
    yield _table(OWN_KEYS)
    for support, heading, text in _SECTIONS:
        yield f"{heading}\n"
        yield text + _table(key for key in FLOW_KEYS if key.support is support)
    yield "## Client settings that are accepted and not implemented yet\n"
    for role, keys in LATER_CLIENT_KEYS.items():
        yield f"- `{role.value}`: " + ", ".join(f"`{key}`" for key in sorted(keys))
    yield ""


def _table(keys: Iterable[KeyDefinition]) -> str:
    lines = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    lines += [_row(key) for key in sorted(keys, key=lambda key: key.name)]
    return "\n".join(lines) + "\n"


def _row(key: KeyDefinition) -> str:
    default = "" if key.default in (None, "") else f"`{key.default}`"
    kind = " or ".join(f"`{choice}`" for choice in key.choices) or key.kind.value
    meaning = key.meaning + "".join(f"; was `{old}`" for old in key.replaces)
    cells = (f"`{key.name}`", kind, default, meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(render())
