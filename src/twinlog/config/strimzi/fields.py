"""Every field of a KafkaMirrorMaker2 resource, and what it does here: one table.

It covers the versions v1alpha1, v1beta2 and v1. Fields that are in none of them are refused, as
`kubectl` refuses them: a misspelt `topicsPattern` would else mirror everything.

`docs/strimzi.md` is made from it: python -m twinlog.config.pages.strimzi_page
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from twinlog.config.strimzi.yaml_nodes import Node
from twinlog.config.values.nearest import nearest
from twinlog.errors import ConfigError


class Use(StrEnum):
    """What a field does here."""

    USED = "used"
    NO_MEANING = "no meaning here"
    """Accepted and said once: there is no Kubernetes and no Kafka Connect here."""
    REFUSED = "refused"
    """An error: without it the copy would differ, or could not connect."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a section."""

    name: str
    use: Use
    meaning: str


_USED, _NOTHING, _REFUSED = Use.USED, Use.NO_MEANING, Use.REFUSED

RESOURCE: Final = (
    Field(
        "apiVersion",
        _USED,
        "`kafka.strimzi.io/` and `v1alpha1`, `v1beta2` or `v1`; with another group a note",
    ),
    Field("kind", _USED, "`KafkaMirrorMaker2`; a `List` is looked into"),
    Field("metadata", _NOTHING, "names, labels and annotations of Kubernetes"),
    Field("spec", _USED, "what follows"),
    Field("status", _NOTHING, "what the operator last saw"),
)
SPEC: Final = (
    Field("clusters", _USED, "the clusters, up to v1beta2"),
    Field("connectCluster", _USED, "alias of the target, up to v1beta2"),
    Field("target", _USED, "the target cluster, from v1beta2 on"),
    Field("mirrors", _USED, "one flow each"),
    Field("version", _NOTHING, "of Kafka Connect"),
    Field(
        "replicas",
        _NOTHING,
        "start the command as often as you like: flows spread, one process leads each",
    ),
    Field("image", _NOTHING, "of a container"),
    Field("resources", _NOTHING, "of a container"),
    Field("livenessProbe", _NOTHING, "see /healthz"),
    Field("readinessProbe", _NOTHING, "see /readyz"),
    Field("jvmOptions", _NOTHING, "of Kafka Connect's JVM"),
    Field("jmxOptions", _NOTHING, "of Kafka Connect's JVM"),
    Field("logging", _NOTHING, "see --log-file and --log-format"),
    Field("clientRackInitImage", _NOTHING, "of a container"),
    Field("rack", _NOTHING, "needs Kubernetes' nodes; `consumer.client.rack` says it here"),
    Field("affinity", _NOTHING, "v1alpha1: where containers run"),
    Field("tolerations", _NOTHING, "v1alpha1: where containers run"),
    Field("metrics", _NOTHING, "v1alpha1: see /metrics"),
    Field("metricsConfig", _NOTHING, "see /metrics"),
    Field("tracing", _NOTHING, "interceptors of Java clients"),
    Field(
        "template",
        _NOTHING,
        "for Kubernetes' objects; only variables and mounts of secrets are used",
    ),
    Field(
        "externalConfiguration",
        _NOTHING,
        "for a container; only variables and mounts of secrets are used",
    ),
)
CLUSTER: Final = (
    Field("alias", _USED, "the cluster's name"),
    Field("bootstrapServers", _USED, "`<alias>.bootstrap.servers`"),
    Field("tls", _USED, "TLS, with trustedCertificates as `ssl.truststore.certificates`"),
    Field("authentication", _USED, "`ssl.keystore.*` or `sasl.*`"),
    Field("config", _USED, "each key as `<alias>.<key>`"),
)
TARGET_ONLY: Final = (
    Field("groupId", _USED, "`<alias>.group.id`: Kafka Connect's"),
    Field("configStorageTopic", _USED, "`<alias>.config.storage.topic`: Kafka Connect's"),
    Field("statusStorageTopic", _USED, "`<alias>.status.storage.topic`: Kafka Connect's"),
    Field("offsetStorageTopic", _USED, "`<alias>.offset.storage.topic`: Kafka Connect's"),
)
TLS: Final = (
    Field("trustedCertificates", _USED, "none means the certificates that this machine trusts"),
)
CERTIFICATE: Final = (
    Field("secretName", _USED, "a folder below --secrets"),
    Field("certificate", _USED, "a file in it"),
    Field("pattern", _USED, "or all files whose names match: `*.crt`"),
)
CERTIFICATE_AND_KEY: Final = (
    Field("secretName", _USED, "a folder below --secrets"),
    Field("certificate", _USED, "a file in it: the chain"),
    Field("key", _USED, "a file in it: the private key"),
)
PASSWORD_SECRET: Final = (
    Field("secretName", _USED, "a folder below --secrets"),
    Field("password", _USED, "a file in it"),
)
CLIENT_SECRET: Final = (
    Field("secretName", _USED, "a folder below --secrets"),
    Field("key", _USED, "a file in it"),
)
AUTHENTICATION: Final = (
    Field("type", _USED, "`tls`, `scram-sha-256`, `scram-sha-512`, `plain`, `oauth`, `custom`"),
    Field("certificateAndKey", _USED, "tls"),
    Field("username", _USED, "scram, plain"),
    Field("passwordSecret", _USED, "scram, plain"),
    Field("sasl", _USED, "custom: whether it is SASL"),
    Field(
        "config",
        _USED,
        "custom: keys that begin with `sasl.` or `ssl.keystore.`; Strimzi's login handler too",
    ),
    Field("clientId", _USED, "oauth: client credentials"),
    Field("clientSecret", _USED, "oauth: client credentials"),
    Field("tokenEndpointUri", _USED, "oauth: `sasl.oauthbearer.token.endpoint.url`"),
    Field("scope", _USED, "oauth"),
    Field("audience", _REFUSED, "oauth: not sent here"),
    Field("saslExtensions", _REFUSED, "oauth: not sent here"),
    Field("grantType", _REFUSED, "oauth: only client credentials are known here"),
    Field("clientAssertion", _REFUSED, "oauth: the client shows its secret here"),
    Field("clientAssertionLocation", _REFUSED, "oauth: the client shows its secret here"),
    Field("clientAssertionType", _REFUSED, "oauth: the client shows its secret here"),
    Field("accessToken", _REFUSED, "oauth: a fixed token ends"),
    Field("accessTokenLocation", _REFUSED, "oauth: a fixed token ends"),
    Field("refreshToken", _REFUSED, "oauth: only client credentials are known here"),
    Field("tlsTrustedCertificates", _REFUSED, "oauth: the machine's certificates are used"),
    Field("disableTlsHostnameVerification", _REFUSED, "oauth: host names are always checked"),
    Field("connectTimeoutSeconds", _NOTHING, "oauth"),
    Field("readTimeoutSeconds", _NOTHING, "oauth"),
    Field("httpRetries", _NOTHING, "oauth: requests are tried again anyway"),
    Field("httpRetryPauseMs", _NOTHING, "oauth: requests are tried again anyway"),
    Field("maxTokenExpirySeconds", _NOTHING, "oauth"),
    Field("accessTokenIsJwt", _NOTHING, "oauth"),
    Field("enableMetrics", _NOTHING, "oauth"),
    Field("includeAcceptHeader", _NOTHING, "oauth"),
)
MIRROR: Final = (
    Field("sourceCluster", _USED, "alias of the source, up to v1beta2"),
    Field("targetCluster", _USED, "alias of the target, up to v1beta2"),
    Field("source", _USED, "the source cluster, from v1beta2 on"),
    Field("sourceConnector", _USED, "copies; absent: nothing is copied"),
    Field("checkpointConnector", _USED, "translates group offsets; absent: it does not"),
    Field("heartbeatConnector", _USED, "emits heartbeats; absent: it does not"),
    Field("topicsPattern", _USED, "`topics`"),
    Field("topicsExcludePattern", _USED, "`topics.exclude`"),
    Field("topicsBlacklistPattern", _USED, "its old name"),
    Field("groupsPattern", _USED, "`groups`"),
    Field("groupsExcludePattern", _USED, "`groups.exclude`"),
    Field("groupsBlacklistPattern", _USED, "its old name"),
)
CONNECTOR: Final = (
    Field("tasksMax", _USED, "of sourceConnector: `tasks.max`, the most lanes of the flow"),
    Field("config", _USED, "each key as `<source>-><target>.<key>`"),
    Field("state", _USED, "`paused` and `stopped`: as if the section were absent"),
    Field("pause", _USED, "`true`: as if the section were absent"),
    Field("version", _NOTHING, "of a Java class"),
    Field("autoRestart", _NOTHING, "what can be tried again always is"),
    Field("listOffsets", _NOTHING, "positions are in the target itself"),
    Field("alterOffsets", _NOTHING, "positions are in the target itself"),
)

SECTIONS: Final = {
    "the resource": RESOURCE,
    "spec": SPEC,
    "spec.clusters[], spec.target, spec.mirrors[].source": CLUSTER,
    "spec.target": TARGET_ONLY,
    "tls": TLS,
    "tls.trustedCertificates[]": CERTIFICATE,
    "authentication": AUTHENTICATION,
    "authentication.certificateAndKey": CERTIFICATE_AND_KEY,
    "authentication.passwordSecret": PASSWORD_SECRET,
    "authentication.clientSecret": CLIENT_SECRET,
    "spec.mirrors[]": MIRROR,
    "spec.mirrors[].sourceConnector, checkpointConnector, heartbeatConnector": CONNECTOR,
}


class SectionReader:
    """Opens sections by their table, and remembers the fields that do nothing."""

    def __init__(self) -> None:
        self.idle: list[tuple[Node, Field]] = []
        self.errors: list[ConfigError] = []
        """Of unknown and refused fields; reading continues without them."""
        self.meant: set[str] = set()
        """Fields that unknown ones are taken for: that such a one is missing follows."""

    def section(self, node: Node, table: Iterable[Field]) -> dict[str, Node]:
        """The used fields of a section."""
        known = {field.name: field for field in table}
        used: dict[str, Node] = {}
        for name, value in node.fields().items():
            field = known.get(name)
            if field is None:
                near = nearest(name, known)
                todo = f"did you mean {near}?" if near else "remove it"
                self.errors.append(value.refuse("KafkaMirrorMaker2 has no such field", todo))
                self.meant |= {near} if near else set()
                continue
            match field.use:
                case Use.USED:
                    used[name] = value
                case Use.NO_MEANING:
                    self.idle.append((value, field))
                case Use.REFUSED:
                    what = f"cannot be honoured ({field.meaning})"
                    self.errors.append(value.refuse(what, "remove it"))
        return used
