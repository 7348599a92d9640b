"""Twinlog's own keys of the process: HTTP authentication, TLS, and the exported metrics.

They are written without a prefix.
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
        meaning=(
            "file of API tokens, written by `twinlog token new`; every request then needs one of "
            "them, on any address"
        ),
    ),
    KeyDefinition(
        name=OPEN_MONITORING,
        kind=KeyKind.BOOLEAN,
        default="false",
        scope=KeyScope.PROCESS,
        meaning=(
            "`/metrics`, `/healthz` and `/readyz` need no token; if neither tokens nor client "
            "certificates are configured, only these paths are served at an address that other "
            "hosts can reach"
        ),
    ),
    KeyDefinition(
        name=CERTIFICATE_FILE,
        kind=KeyKind.STRING,
        scope=KeyScope.PROCESS,
        meaning="serve HTTPS instead of HTTP: the server's certificate with its chain, as PEM",
    ),
    KeyDefinition(
        name=PRIVATE_KEY_FILE,
        kind=KeyKind.STRING,
        scope=KeyScope.PROCESS,
        meaning=(
            "the private key of that certificate, as PEM; default: it is in the certificate's file"
        ),
    ),
    KeyDefinition(
        name=CLIENT_CA_FILE,
        kind=KeyKind.STRING,
        scope=KeyScope.PROCESS,
        meaning=(
            "require client certificates that one of these authorities signed (PEM); such clients "
            "need no token"
        ),
    ),
    KeyDefinition(
        name=CLIENT_ROLE,
        kind=KeyKind.CHOICE,
        default="read",
        scope=KeyScope.PROCESS,
        meaning="role of a client with such a certificate and no token",
        choices=("read", "operate"),
    ),
    KeyDefinition(
        name=METRICS_LABELS,
        kind=KeyKind.LIST,
        default="",
        scope=KeyScope.PROCESS,
        meaning=(
            "labels added to every series of `/metrics`, such as `namespace=kafka, "
            "strimzi_io_cluster=shop`"
        ),
    ),
    KeyDefinition(
        name=METRICS_PARTITIONS,
        kind=KeyKind.BOOLEAN,
        default="true",
        scope=KeyScope.PROCESS,
        meaning=(
            "`false`: `/metrics` has no series per partition, except for partitions that have "
            "stopped (`twinlog_partition_error`); panels and alerts per topic then have no data"
        ),
    ),
)

OWN_PROCESS_NAMES: Final = frozenset(key.name for key in OWN_PROCESS_KEYS)
