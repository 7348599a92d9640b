"""Twinlog's own keys of the process: who may come in over HTTP, and which series it serves.

They stand without a prefix.
"""

from __future__ import annotations

from typing import Final

from twinlog.config.keys.key_types import KeyDefinition, KeyKind, KeyScope

TOKENS_FILE: Final = "twinlog.rest.tokens.file"
OPEN_MONITORING: Final = "twinlog.rest.monitoring.open"
CERTIFICATE_FILE: Final = "twinlog.rest.tls.certificate.file"
PRIVATE_KEY_FILE: Final = "twinlog.rest.tls.private.file"
CLIENT_CA_FILE: Final = "twinlog.rest.tls.client.ca.file"
CLIENT_ROLE: Final = "twinlog.rest.tls.client.role"
METRICS_LABELS: Final = "twinlog.metrics.labels"
METRICS_PARTITIONS: Final = "twinlog.metrics.partitions"

OWN_PROCESS_KEYS: Final = (
    KeyDefinition(
        name=TOKENS_FILE,
        kind=KeyKind.STRING,
        scope=KeyScope.PROCESS,
        meaning="a file that `twinlog token new` writes: requests need one of its tokens, on every "
        "address",
    ),
    KeyDefinition(
        name=OPEN_MONITORING,
        kind=KeyKind.BOOLEAN,
        default="false",
        scope=KeyScope.PROCESS,
        meaning="`/metrics`, `/healthz` and `/readyz` need no token; without tokens or client "
        "certificates they alone are served at an address that others reach",
    ),
    KeyDefinition(
        name=CERTIFICATE_FILE,
        kind=KeyKind.STRING,
        scope=KeyScope.PROCESS,
        meaning="HTTPS in place of HTTP: the server's certificate with its chain, as PEM",
    ),
    KeyDefinition(
        name=PRIVATE_KEY_FILE,
        kind=KeyKind.STRING,
        scope=KeyScope.PROCESS,
        meaning="the private key of that certificate, as PEM; without it: in the same file",
    ),
    KeyDefinition(
        name=CLIENT_CA_FILE,
        kind=KeyKind.STRING,
        scope=KeyScope.PROCESS,
        meaning="clients must show a certificate that one of these authorities signed (PEM); they "
        "need no token then",
    ),
    KeyDefinition(
        name=CLIENT_ROLE,
        kind=KeyKind.CHOICE,
        default="read",
        scope=KeyScope.PROCESS,
        meaning="what a client with such a certificate may do without a token",
        choices=("read", "operate"),
    ),
    KeyDefinition(
        name=METRICS_LABELS,
        kind=KeyKind.LIST,
        default="",
        scope=KeyScope.PROCESS,
        meaning="labels that every series of `/metrics` carries, as `namespace=kafka, "
        "strimzi_io_cluster=shop`",
    ),
    KeyDefinition(
        name=METRICS_PARTITIONS,
        kind=KeyKind.BOOLEAN,
        default="true",
        scope=KeyScope.PROCESS,
        meaning="`false`: `/metrics` has no series of single partitions but those that have "
        "stopped (`twinlog_partition_error`); panels and alerts by topic then show nothing",
    ),
)

OWN_PROCESS_NAMES: Final = frozenset(key.name for key in OWN_PROCESS_KEYS)
