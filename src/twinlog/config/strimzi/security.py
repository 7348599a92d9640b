"""Converts `tls` and `authentication` of a cluster to Kafka's keys, as Strimzi's operator does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from twinlog.config.keys.client_keys import SECURITY_PROTOCOL
from twinlog.config.strimzi.fields import (
    AUTHENTICATION,
    CERTIFICATE,
    CERTIFICATE_AND_KEY,
    CLIENT_SECRET,
    PASSWORD_SECRET,
    TLS,
    SectionReader,
)
from twinlog.config.strimzi.secrets import Secrets
from twinlog.config.strimzi.yaml_nodes import Node
from twinlog.errors import ConfigError

_MODULES: Final = "org.apache.kafka.common.security."
_PLAIN: Final = _MODULES + "plain.PlainLoginModule"
_SCRAM: Final = _MODULES + "scram.ScramLoginModule"
_OAUTH: Final = _MODULES + "oauthbearer.OAuthBearerLoginModule"
_CUSTOM_PREFIXES: Final = ("sasl.", "ssl.keystore.")
_TRUE: Final = "true"


class KeyValue(NamedTuple):
    key: str
    value: str
    at: Node


class SecurityReader:
    """Reads the security settings of clusters. Secrets remain variables."""

    def __init__(self, reader: SectionReader, secrets: Secrets) -> None:
        self._reader = reader
        self._secrets = secrets

    def read(self, cluster: Mapping[str, Node]) -> Iterator[KeyValue]:
        """Yield the keys of a cluster without its alias, or none for PLAINTEXT."""
        tls, authentication = cluster.get("tls"), cluster.get("authentication")
        is_sasl = False
        if tls is not None:
            yield from self._trust(tls)
        if authentication is not None:
            pairs = list(self._authentication(authentication, has_tls=tls is not None))
            is_sasl = any(pair.key == "sasl.mechanism" for pair in pairs)
            yield from pairs
        at = authentication if is_sasl else tls
        if at is not None:
            security = "SSL" if tls is not None else "PLAINTEXT"
            yield KeyValue(SECURITY_PROTOCOL, f"SASL_{security}" if is_sasl else security, at)

    def _trust(self, tls: Node) -> Iterator[KeyValue]:
        listed = self._reader.section(tls, TLS).get("trustedCertificates")
        certificates = [
            text for entry in (listed.items() if listed else ()) for text in self._files(entry)
        ]
        if listed is not None and certificates:
            yield KeyValue("ssl.truststore.type", "PEM", listed)
            yield KeyValue("ssl.truststore.certificates", "\n".join(certificates), listed)

    def _files(self, entry: Node) -> list[str]:
        fields = self._reader.section(entry, CERTIFICATE)
        secret = _required(entry, fields, "secretName")
        if "pattern" in fields and "certificate" not in fields:
            return self._secrets.matching(secret, fields["pattern"])
        return [self._secrets.text(secret, _required(entry, fields, "certificate"))]

    def _authentication(self, node: Node, *, has_tls: bool) -> Iterator[KeyValue]:
        fields = self._reader.section(node, AUTHENTICATION)
        kind = _required(node, fields, "type")
        match kind.text():
            case "tls":
                if not has_tls:
                    raise node.refuse("a client certificate needs TLS", "add `tls: {}` next to it")
                yield from self._client_certificate(_required(node, fields, "certificateAndKey"))
            case "plain":
                yield from self._password(node, fields, kind, "PLAIN", _PLAIN)
            case "scram-sha-256" | "scram-sha-512" as name:
                yield from self._password(node, fields, kind, name.upper(), _SCRAM)
            case "oauth":
                yield from self._oauth(node, fields, kind)
            case "custom":
                yield from self._custom(node, fields)
            case _:
                raise kind.refuse(
                    f'"{kind.text()}" is not supported',
                    "write tls, scram-sha-256, scram-sha-512, plain, oauth or custom",
                )

    def _client_certificate(self, node: Node) -> Iterator[KeyValue]:
        fields = self._reader.section(node, CERTIFICATE_AND_KEY)
        secret = _required(node, fields, "secretName")
        chain, key = _required(node, fields, "certificate"), _required(node, fields, "key")
        yield KeyValue("ssl.keystore.type", "PEM", node)
        yield KeyValue("ssl.keystore.certificate.chain", self._secrets.text(secret, chain), chain)
        yield KeyValue("ssl.keystore.key", self._secrets.text(secret, key), key)

    def _password(
        self, node: Node, fields: Mapping[str, Node], kind: Node, mechanism: str, module: str
    ) -> Iterator[KeyValue]:
        user = _required(node, fields, "username")
        source = _required(node, fields, "passwordSecret")
        parts = self._reader.section(source, PASSWORD_SECRET)
        password = self._secrets.jaas_text(
            _required(source, parts, "secretName"), _required(source, parts, "password")
        )
        yield KeyValue("sasl.mechanism", mechanism, kind)
        yield KeyValue(
            "sasl.jaas.config",
            f'{module} required username="{_escaped(user.text())}" password="{password}";',
            node,
        )

    def _oauth(self, node: Node, fields: Mapping[str, Node], kind: Node) -> Iterator[KeyValue]:
        for name in ("username", "passwordSecret"):
            if name in fields:
                raise fields[name].refuse(
                    "only client credentials are supported", "write clientId and clientSecret"
                )
        endpoint = _required(node, fields, "tokenEndpointUri")
        client = _required(node, fields, "clientId")
        source = _required(node, fields, "clientSecret")
        parts = self._reader.section(source, CLIENT_SECRET)
        secret = self._secrets.jaas_text(
            _required(source, parts, "secretName"), _required(source, parts, "key")
        )
        options = f'clientId="{_escaped(client.text())}" clientSecret="{secret}"'
        if "scope" in fields:
            options += f' scope="{_escaped(fields["scope"].text())}"'
        yield KeyValue("sasl.mechanism", "OAUTHBEARER", kind)
        yield KeyValue("sasl.oauthbearer.token.endpoint.url", endpoint.text(), endpoint)
        yield KeyValue("sasl.jaas.config", f"{_OAUTH} required {options};", node)

    @staticmethod
    def _custom(node: Node, fields: Mapping[str, Node]) -> Iterator[KeyValue]:
        config = fields["config"].fields() if "config" in fields else {}
        for key, value in config.items():
            if not key.startswith(_CUSTOM_PREFIXES):
                raise value.refuse(
                    "is not a key of custom authentication",
                    f"only keys with {' and '.join(_CUSTOM_PREFIXES)} are allowed here; "
                    "put others into the cluster's `config`",
                )
            yield KeyValue(key, value.text(), value)
        is_sasl = "sasl" in fields and fields["sasl"].text() == _TRUE
        if is_sasl and "sasl.mechanism" not in config:
            raise node.refuse("SASL without a mechanism", "add sasl.mechanism to its `config`")
        if not is_sasl and "sasl.mechanism" in config:
            raise node.refuse("a mechanism without SASL", "add `sasl: true`")


def _required(section: Node, fields: Mapping[str, Node], name: str) -> Node:
    if name not in fields:
        raise missing(section, name)
    return fields[name]


def missing(section: Node, name: str) -> ConfigError:
    """Return the error for a section that lacks a field."""
    error = section.refuse(f"{name} is missing", f"add `{name}: ...`")
    error.lacks = name
    return error


def _escaped(text: str) -> str:
    return re.sub(r'(["\\])', r"\\\1", text)
