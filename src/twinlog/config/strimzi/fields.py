"""The fields of a KafkaMirrorMaker2 resource and their effects in Twinlog, as tables.

The tables cover the versions v1alpha1, v1beta2 and v1. Fields that no version has are rejected, as
by `kubectl`. If a misspelt `topicsPattern` were ignored, all topics would be mirrored.

docs/strimzi.md is generated from these tables: python -m tools.pages
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
    """How a field is supported."""

    USED = "used"
    NO_MEANING = "no effect"
    """Accepted, because the field configures Kubernetes or Connect. One warning names all such
    fields.
    """
    REFUSED = "refused"
    """An error: if the field were ignored, the copy would differ or could not connect."""


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    use: Use
    meaning: str


_USED, _NOTHING, _REFUSED = Use.USED, Use.NO_MEANING, Use.REFUSED

# fmt: off
RESOURCE: Final = (
    Field("apiVersion", _USED,
          "`kafka.strimzi.io/` and `v1alpha1`, `v1beta2` or `v1`; other groups give a warning"),
    Field("kind", _USED, "`KafkaMirrorMaker2`, or a `List` that has one"),
    Field("metadata", _NOTHING, "names, labels and annotations of Kubernetes"),
    Field("spec", _USED, "the sections below"),
    Field("status", _NOTHING, "status as reported by the operator"),
)
SPEC: Final = (
    Field("clusters", _USED, "the clusters, up to v1beta2"),
    Field("connectCluster", _USED, "alias of the target, up to v1beta2"),
    Field("target", _USED, "the target cluster, from v1beta2 on"),
    Field("mirrors", _USED, "one flow per entry"),
    Field("version", _NOTHING, "version of Kafka Connect"),
    Field("replicas", _NOTHING,
          "start as many processes as you need; each flow is led by one of them"),
    Field("image", _NOTHING, "for containers"),
    Field("resources", _NOTHING, "for containers"),
    Field("livenessProbe", _NOTHING, "see /healthz"),
    Field("readinessProbe", _NOTHING, "see /readyz"),
    Field("jvmOptions", _NOTHING, "for Kafka Connect's JVM"),
    Field("jmxOptions", _NOTHING, "for Kafka Connect's JVM"),
    Field("logging", _NOTHING, "see --log-file and --log-format"),
    Field("clientRackInitImage", _NOTHING, "for containers"),
    Field("rack", _NOTHING, "needs Kubernetes nodes; set `consumer.client.rack` instead"),
    Field("affinity", _NOTHING, "v1alpha1: scheduling of containers"),
    Field("tolerations", _NOTHING, "v1alpha1: scheduling of containers"),
    Field("metrics", _NOTHING, "v1alpha1: see /metrics"),
    Field("metricsConfig", _NOTHING, "see /metrics"),
    Field("tracing", _NOTHING, "uses interceptors of Java clients"),
    Field("template", _NOTHING,
          "for Kubernetes objects; only environment variables and mounted secrets are read"),
    Field("externalConfiguration", _NOTHING,
          "for a container; only environment variables and mounted secrets are read"),
)
CLUSTER: Final = (
    Field("alias", _USED, "alias of the cluster"),
    Field("bootstrapServers", _USED, "`<alias>.bootstrap.servers`"),
    Field("tls", _USED, "TLS, with trustedCertificates as `ssl.truststore.certificates`"),
    Field("authentication", _USED, "`ssl.keystore.*` or `sasl.*`"),
    Field("config", _USED, "each key is read as `<alias>.<key>`"),
)
TARGET_ONLY: Final = (
    Field("groupId", _USED, "`<alias>.group.id`: Kafka Connect's"),
    Field("configStorageTopic", _USED, "`<alias>.config.storage.topic`: Kafka Connect's"),
    Field("statusStorageTopic", _USED, "`<alias>.status.storage.topic`: Kafka Connect's"),
    Field("offsetStorageTopic", _USED, "`<alias>.offset.storage.topic`: Kafka Connect's"),
)
TLS: Final = (
    Field("trustedCertificates", _USED, "if absent, the certificates that this machine trusts"),
)
CERTIFICATE: Final = (
    Field("secretName", _USED, "name of a folder below --secrets"),
    Field("certificate", _USED, "name of a file in it"),
    Field("pattern", _USED, "instead of `certificate`: files whose names match, as `*.crt`"),
)
CERTIFICATE_AND_KEY: Final = (
    Field("secretName", _USED, "name of a folder below --secrets"),
    Field("certificate", _USED, "name of a file in it: the certificate chain"),
    Field("key", _USED, "name of a file in it: the private key"),
)
PASSWORD_SECRET: Final = (
    Field("secretName", _USED, "name of a folder below --secrets"),
    Field("password", _USED, "name of a file in it"),
)
CLIENT_SECRET: Final = (
    Field("secretName", _USED, "name of a folder below --secrets"),
    Field("key", _USED, "name of a file in it"),
)
AUTHENTICATION: Final = (
    Field("type", _USED, "`tls`, `scram-sha-256`, `scram-sha-512`, `plain`, `oauth`, `custom`"),
    Field("certificateAndKey", _USED, "tls: client certificate"),
    Field("username", _USED, "scram, plain"),
    Field("passwordSecret", _USED, "scram, plain"),
    Field("sasl", _USED, "custom: whether SASL is used"),
    Field("config", _USED,
          "custom: keys that begin with `sasl.` or `ssl.keystore.`, or Strimzi's login handler"),
    Field("clientId", _USED, "oauth: client credentials"),
    Field("clientSecret", _USED, "oauth: client credentials"),
    Field("tokenEndpointUri", _USED, "oauth: `sasl.oauthbearer.token.endpoint.url`"),
    Field("scope", _USED, "oauth"),
    Field("audience", _REFUSED, "oauth: Twinlog does not send it"),
    Field("saslExtensions", _REFUSED, "oauth: Twinlog does not send it"),
    Field("grantType", _REFUSED, "oauth: only client credentials are supported"),
    Field("clientAssertion", _REFUSED, "oauth: only a client secret is supported"),
    Field("clientAssertionLocation", _REFUSED, "oauth: only a client secret is supported"),
    Field("clientAssertionType", _REFUSED, "oauth: only a client secret is supported"),
    Field("accessToken", _REFUSED, "oauth: a fixed token expires"),
    Field("accessTokenLocation", _REFUSED, "oauth: a fixed token expires"),
    Field("refreshToken", _REFUSED, "oauth: only client credentials are supported"),
    Field("tlsTrustedCertificates", _REFUSED,
          "oauth: certificates trusted by this machine are used"),
    Field("disableTlsHostnameVerification", _REFUSED, "oauth: host names are always verified"),
    Field("connectTimeoutSeconds", _NOTHING, "oauth"),
    Field("readTimeoutSeconds", _NOTHING, "oauth"),
    Field("httpRetries", _NOTHING, "oauth: requests are always retried"),
    Field("httpRetryPauseMs", _NOTHING, "oauth: requests are always retried"),
    Field("maxTokenExpirySeconds", _NOTHING, "oauth"),
    Field("accessTokenIsJwt", _NOTHING, "oauth"),
    Field("enableMetrics", _NOTHING, "oauth"),
    Field("includeAcceptHeader", _NOTHING, "oauth"),
)
MIRROR: Final = (
    Field("sourceCluster", _USED, "alias of the source, up to v1beta2"),
    Field("targetCluster", _USED, "alias of the target, up to v1beta2"),
    Field("source", _USED, "the source cluster, from v1beta2 on"),
    Field("sourceConnector", _USED, "copies records; if absent, nothing is copied"),
    Field("checkpointConnector", _USED, "translates group offsets; if absent, none are translated"),
    Field("heartbeatConnector", _USED, "emits heartbeats; if absent, none are emitted"),
    Field("topicsPattern", _USED, "`topics`"),
    Field("topicsExcludePattern", _USED, "`topics.exclude`"),
    Field("topicsBlacklistPattern", _USED, "deprecated name of the field above"),
    Field("groupsPattern", _USED, "`groups`"),
    Field("groupsExcludePattern", _USED, "`groups.exclude`"),
    Field("groupsBlacklistPattern", _USED, "deprecated name of the field above"),
)
CONNECTOR: Final = (
    Field("tasksMax", _USED, "in sourceConnector: `tasks.max`, the flow's maximum number of lanes"),
    Field("config", _USED, "each key is read as `<source>-><target>.<key>`"),
    Field("state", _USED, "with `paused` or `stopped`, the section is treated as absent"),
    Field("pause", _USED, "with `true`, the section is treated as absent"),
    Field("version", _NOTHING, "version of a Java class"),
    Field("autoRestart", _NOTHING, "retriable errors are always retried"),
    Field("listOffsets", _NOTHING, "positions are stored in the target itself"),
    Field("alterOffsets", _NOTHING, "positions are stored in the target itself"),
)
# fmt: on

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
    """Reads sections by the tables of their fields, and collects the fields without effect."""

    def __init__(self) -> None:
        self.idle: list[tuple[Node, Field]] = []
        self.errors: list[ConfigError] = []
        """Errors of unknown and refused fields. Reading continues without these fields."""
        self.misspelt_fields: set[str] = set()
        """Names of fields that were probably meant by unknown fields. An error that such a field is
        missing is only a consequence.
        """

    def section(self, node: Node, table: Iterable[Field]) -> dict[str, Node]:
        """Return the fields of a section that have an effect, by name."""
        known = {field.name: field for field in table}
        used: dict[str, Node] = {}
        for name, value in node.fields().items():
            field = known.get(name)
            if field is None:
                near = nearest(name, known)
                todo = f"did you mean {near}?" if near else "remove it"
                self.errors.append(value.refuse("KafkaMirrorMaker2 has no such field", todo))
                self.misspelt_fields |= {near} if near else set()
                continue
            match field.use:
                case Use.USED:
                    used[name] = value
                case Use.NO_MEANING:
                    self.idle.append((value, field))
                case Use.REFUSED:
                    what = f"is not supported ({field.meaning})"
                    self.errors.append(value.refuse(what, "remove it"))
        return used
