"""Typical configuration files with their expected warnings and effective values."""

from __future__ import annotations

from pathlib import Path

from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.config.load import load
from twinlog.config.regex.patterns import joined
from twinlog.config.values.origin import ClientProperties
from twinlog.config.values.warnings import WarningCode

CONFIG = Path(__file__).parents[1] / "unit" / "config"

EXAMPLES = CONFIG / "examples"

EXAMPLES_SAY: dict[str, list[tuple[int, WarningCode, str]]] = {
    "flow-shapes": [],
    "source-alias": [
        (22, WarningCode.BACKSLASH_DROPPED, "Java drops the backslash before - and .")
    ],
    "overview-mended": [
        (13, WarningCode.UNKNOWN_KEY, "did you mean us-west->us-east.emit.heartbeats.enabled?"),
    ],
    "three-data-centres": [],
    "one-flow": [
        (6, WarningCode.DEPRECATED_KEY, "write primary->backup.topics.exclude"),
        (8, WarningCode.UNKNOWN_KEY, "did you mean primary->backup.sync.group.offsets.enabled?"),
    ],
    "clients": [],
    "shared-1": [],
    "shared-2": [],
    "exactly-once": [],
    "exactly-once-preparing": [],
    "group-offsets": [],
    "tuned-migration": [
        (11, WarningCode.UNKNOWN_KEY, "did you mean my-target-cluster.producer.acks?"),
        (19, WarningCode.UNKNOWN_KEY, "did you mean my-target-cluster.offset.flush.timeout.ms?"),
        (
            21,
            WarningCode.UNKNOWN_KEY,
            "did you mean my-target-cluster.task.shutdown.graceful.timeout.ms?",
        ),
        (34, WarningCode.MATCHES_NOTHING, "`^(?!.*(heartbeats|)).*$` matches no name"),
    ],
    "patterns": [(6, WarningCode.STAR_PATTERN, "it is read as `.*`")],
    "opaque-bytes": [
        (9, WarningCode.UNKNOWN_KEY, "did you mean first.consumer.value.deserializer?"),
    ],
}
"""Expected warnings by file and line, without those about features that are not implemented."""

RESOURCES = CONFIG / "resources"

SECRETS = (
    "my-source-cluster-cluster-ca-cert/ca.crt",
    "my-target-cluster-cluster-ca-cert/ca.crt",
    "mm2-source-cluster/tls.crt",
    "mm2-source-cluster/tls.key",
    "mm2-target-cluster/password",
)

RESOURCES_SAY: dict[str, list[tuple[int | None, WarningCode, str]]] = {
    "smallest": [(None, WarningCode.NO_MEANING, "spec.version (line 7)")],
    "several-documents": [(None, WarningCode.NO_MEANING, "spec.replicas (line 16)")],
    "migration-mended": [
        (None, WarningCode.NO_MEANING, "spec.version (line 7), spec.replicas (line 8)"),
        (40, WarningCode.UNKNOWN_KEY, "did you mean my-target-cluster.producer.acks?"),
        (47, WarningCode.UNKNOWN_KEY, "did you mean my-target-cluster.offset.flush.timeout.ms?"),
        (48, WarningCode.UNKNOWN_KEY, "my-target-cluster.task.shutdown.graceful.timeout.ms?"),
        (65, WarningCode.DEAD_KEY, "set tasksMax of sourceConnector"),
    ],
    "hopeless-pattern": [(12, WarningCode.MATCHES_NOTHING, "matches no name")],
    "v1": [
        (None, WarningCode.NO_MEANING, "spec.replicas (line 6)"),
    ],
}


def example(name: str, folder: Path) -> MirrorConfig:
    secrets = folder / "secrets"
    for path in SECRETS:
        (secrets / path).parent.mkdir(parents=True, exist_ok=True)
        (secrets / path).write_text(f"text of {path}")
    return load(RESOURCES / f"{name}.yaml", environment={}, secrets=secrets)


CLIENTS = (
    "source_consumer",
    "source_admin",
    "target_admin",
    "target_consumer",
    "target_producer",
)


def effective(config: MirrorConfig) -> object:
    """Return the effective values of a configuration, without the places at which they are set."""
    clusters = {
        one.alias: {name: setting.value for name, setting in one.settings.items()}
        for one in config.clusters
    }
    return clusters, [_flow(flow) for flow in config.flows]


def _flow(flow: FlowConfig) -> object:
    clients: list[ClientProperties] = [getattr(flow.clients, name) for name in CLIENTS]
    settings = {name: one.value for name, one in flow.settings.items()}
    if settings.get("topics") == "*":
        settings["topics"] = ".*"  # `*` means `.*`, which is what the effective value shows
    for old in ("topics.blacklist", "groups.blacklist", "config.properties.blacklist"):
        settings.pop(old, None)
    topics = [joined(names.entries) for names in (flow.topics, flow.topics_exclude)]
    return flow.flow, topics, settings, [dict(one) for one in clients]


CLUSTERS = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
spec:
  connectCluster: B
  clusters:
    - alias: A
      bootstrapServers: a:9092
{a}
    - alias: B
      bootstrapServers: b:9092
{b}
  mirrors:
    - sourceCluster: A
      targetCluster: B
{mirror}
"""
COPY = "      sourceConnector: {}"


def a_resource(*, a: str = "", b: str = "", mirror: str = COPY) -> str:
    return CLUSTERS.format(a=a, b=b, mirror=mirror)
