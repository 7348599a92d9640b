"""Warnings about settings that take effect, as in Java, but are insecure.

The checks do not connect to the clusters, and messages never show values of config providers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final
from urllib.parse import urlsplit

from twinlog.config.files.providers import without_variables
from twinlog.config.flow.custom_classes import METHODS, SEPARATES
from twinlog.config.flow.schema import FlowConfig
from twinlog.config.keys.client_keys import SECURITY_PROTOCOL
from twinlog.config.values.origin import ClientProperties, Setting, Settings
from twinlog.config.values.types import trimmed
from twinlog.config.values.warnings import ConfigWarning, WarningCode, warning

_MECHANISM: Final = "sasl.mechanism"
_ENDPOINTS: Final = (
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.jwks.endpoint.url",
)
_IDENTIFICATION: Final = "ssl.endpoint.identification.algorithm"
_IN_CLEAR: Final = {"PLAIN": "the password", "OAUTHBEARER": "the token"}
_JAAS: Final = "sasl.jaas.config"
_NEED_A_PROTOCOL: Final = {
    _JAAS: "SASL_SSL",
    _MECHANISM: "SASL_SSL",
    "ssl.truststore.location": "SSL",
    "ssl.truststore.certificates": "SSL",
    "ssl.keystore.location": "SSL",
}
_SECRET_OF_JAAS: Final = re.compile(
    r"(password|clientSecret|oauth\.client\.secret)\s*=\s*[\"']?[^\"'\s;]", re.IGNORECASE
)
_ENDPOINT_OF_JAAS: Final = re.compile(
    r"oauth\.token\.endpoint\.uri\s*=\s*[\"']?http:", re.IGNORECASE
)
_SECRETS: Final = ("ssl.key.password", "ssl.keystore.password", "ssl.keystore.key")
"""Keys of secrets. The password of a truststore is missing, because its content is public."""
_POLICY: Final = "replication.policy.class"


def audit_security(flows: Collection[FlowConfig]) -> Iterator[ConfigWarning]:
    """Yield warnings about settings that an attacker on the network, or the author of the file,
    could exploit. Each line is reported once.
    """
    seen: set[tuple[Setting, str]] = set()
    for flow in flows:
        for setting, message, code in _flow_warnings(flow):
            if (setting, message) not in seen:
                seen.add((setting, message))
                yield warning(code, setting, message)


def _flow_warnings(flow: FlowConfig) -> Iterator[tuple[Setting, str, WarningCode]]:
    clients = (
        flow.clients.source_consumer,
        flow.clients.source_admin,
        flow.clients.target_producer,
        flow.clients.target_admin,
    )
    for client in clients:
        for setting, message in _client_secrets(client):
            yield setting, message, WarningCode.INSECURE
        for setting, message in _without_protocol(client):
            yield setting, message, WarningCode.NO_PROTOCOL
    for key in (_POLICY, *METHODS):
        custom = flow.settings.get(key)
        if custom is None or SEPARATES not in custom.value:
            continue
        message = (
            "this module is executed as the current user whenever the file is read, also by "
            "`check`, `convert` and `--explain`"
        )
        yield custom, message, WarningCode.CUSTOM_CODE


def _without_protocol(client: ClientProperties) -> Iterator[tuple[Setting, str]]:
    """Yield TLS and SASL settings that have no effect."""
    if SECURITY_PROTOCOL in client:
        return
    for key, protocol in _NEED_A_PROTOCOL.items():
        if key in client and trimmed(client[key]):
            setting = client.origin(key)
            wanted = setting.key.removesuffix(key) + SECURITY_PROTOCOL
            yield (
                setting,
                f"has no effect: {wanted} is not set, so connections are PLAINTEXT; write "
                f"{wanted} = {protocol}",
            )
            return


def audit_secrets(raw: Settings) -> Iterator[ConfigWarning]:
    """Yield one warning for all passwords in the file itself, at the first of them."""
    secrets = [
        setting for setting in raw.values() if setting.line is not None and _holds_secret(setting)
    ]
    if not secrets:
        return
    others = sorted({setting.line for setting in secrets[1:] if setting.line is not None})
    also = f" (also on line {', '.join(map(str, others))})" if others else ""
    yield warning(
        WarningCode.SECRET_IN_FILE,
        secrets[0],
        f"a secret in the file{also}: everyone who can read the file can read it; write "
        f"${{env:NAME}}, and config.providers = env, config.providers.env.class = "
        "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    )


def _holds_secret(setting: Setting) -> bool:
    if setting.from_provider:
        return False
    written = without_variables(setting.without_placeholders)
    if setting.key.endswith(_JAAS):
        return _SECRET_OF_JAAS.search(written) is not None
    return setting.key.endswith(_SECRETS) and bool(written)


def _client_secrets(client: ClientProperties) -> Iterator[tuple[Setting, str]]:
    protocol = trimmed(client.get(SECURITY_PROTOCOL, "")).upper()
    mechanism = trimmed(client.get(_MECHANISM, "")).upper()
    if protocol == "SASL_PLAINTEXT" and mechanism in _IN_CLEAR:
        yield (
            client.origin(SECURITY_PROTOCOL),
            f"{mechanism} over SASL_PLAINTEXT sends {_IN_CLEAR[mechanism]} unencrypted; "
            "use SASL_SSL",
        )
    if protocol.startswith("SASL_") and mechanism == "OAUTHBEARER":
        in_clear = [
            key
            for key in _ENDPOINTS
            if urlsplit(trimmed(client.get(key, ""))).scheme.lower() == "http"
        ]
        if _ENDPOINT_OF_JAAS.search(client.get(_JAAS, "")):
            in_clear.append(_JAAS)
        for key in in_clear:
            message = "over http the client's secret and the token are sent unencrypted; use https"
            yield client.origin(key), message
    if protocol in ("SSL", "SASL_SSL") and not trimmed(client.get(_IDENTIFICATION, "https")):
        yield (
            client.origin(_IDENTIFICATION),
            "empty, so any certificate of a trusted issuer is accepted as the broker's; "
            "remove the line",
        )
