"""A Strimzi KafkaMirrorMaker2 resource as the settings of an mm2.properties, each with its line.

Strimzi's operator starts connectors where a section for them stands, and only there; this file says
the same in MirrorMaker 2's words (`A->B.enabled`, `emit.heartbeats.enabled`, an empty `topics`), so
that everything behind it is shared with properties files. Three things differ between the two:

- A connector has settings of its own; a flow of MirrorMaker 2 has one set. Each key is taken from
  the connector it belongs to; what they share, from the source connector.
- `consumer.x` of a source connector reaches its consumer, which `A->B.consumer.x` does only where
  `A.consumer.x` is absent: it becomes `A->B.source.consumer.x`.
- Without a heartbeat section nothing emits heartbeats, not even into the source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from twinlog.config.flow_keys import CONNECTOR_ONLY
from twinlog.config.origin import Setting, Settings
from twinlog.config.raw import RawConfig
from twinlog.config.schema import ConfigWarning, WarningCode
from twinlog.config.strimzi_document import KIND, find_resource
from twinlog.config.strimzi_fields import (
    CLUSTER,
    CONNECTOR,
    MIRROR,
    RESOURCE,
    SPEC,
    TARGET_ONLY,
    Reader,
)
from twinlog.config.strimzi_providers import PROVIDERS, with_secrets
from twinlog.config.strimzi_secrets import PROVIDER, PROVIDER_CLASS, Secrets
from twinlog.config.strimzi_security import SecurityReader, missing
from twinlog.config.yaml_nodes import Node
from twinlog.model import Flow

VERSIONS: Final = ("v1alpha1", "v1beta2", "v1")
_GROUP: Final = "kafka.strimzi.io/"
_ALIAS: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}")
_SOURCE, _CHECKPOINT, _HEARTBEAT = "sourceConnector", "checkpointConnector", "heartbeatConnector"
_CONNECTORS: Final = (_SOURCE, _CHECKPOINT, _HEARTBEAT)
_UNREMARKABLE: Final = ("metadata", "status")
_CONNECT_TOPICS: Final = {
    "group.id": "mirrormaker2-cluster",
    "offset.storage.topic": "mirrormaker2-cluster-offsets",
    "config.storage.topic": "mirrormaker2-cluster-configs",
    "status.storage.topic": "mirrormaker2-cluster-status",
}
"""What the operator sets where the resource says nothing: where MirrorMaker 2 kept its state."""
_TARGET_KEYS: Final = {
    "groupId": "group.id",
    "offsetStorageTopic": "offset.storage.topic",
    "configStorageTopic": "config.storage.topic",
    "statusStorageTopic": "status.storage.topic",
}
_PATTERNS: Final = {
    "topicsPattern": "topics",
    "topicsExcludePattern": "topics.exclude",
    "topicsBlacklistPattern": "topics.blacklist",
    "groupsPattern": "groups",
    "groupsExcludePattern": "groups.exclude",
    "groupsBlacklistPattern": "groups.blacklist",
}
_CONSUMER: Final = "consumer."


def read_resource(text: str, *, file: str, secrets: Path | None) -> RawConfig:
    """The KafkaMirrorMaker2 resource of a file, under MirrorMaker 2's keys."""
    return _ResourceReader(find_resource(text, file=file), secrets).read()


class _ResourceReader:
    """Collects settings; a key that is set twice is refused."""

    def __init__(self, resource: Mapping[str, Node], secrets: Path | None) -> None:
        self._resource = resource
        self._file = resource["kind"].file
        self._reader = Reader()
        self._secrets = Secrets(secrets)
        self._security = SecurityReader(self._reader, self._secrets)
        self._settings: dict[str, Setting] = {}
        self._warnings: list[ConfigWarning] = []
        self._clusters: dict[str, Node] = {}

    def read(self) -> RawConfig:
        kind = self._resource["kind"]
        self._check_version(kind)
        document = self._section_of_document()
        if "spec" not in document:
            raise missing(kind, "spec")
        spec = self._reader.section(document["spec"], SPEC)
        mirrors = spec.get("mirrors")
        if mirrors is None or not mirrors.items():
            raise (mirrors or document["spec"]).refuse("no mirror", "add an entry to spec.mirrors")
        target = self._target(spec)
        flows = [self._ends(mirror, target) for mirror in mirrors.items()]
        first = next(iter(self._clusters.values()))
        self._set("clusters", ", ".join(self._clusters), spec.get("clusters", first))
        self._set("emit.heartbeats.enabled", "false", mirrors)
        runs = [self._mirror(flow, node, fields) for flow, node, fields in flows]
        if not any(runs):
            raise mirrors.refuse(
                "without a connector section nothing runs", f"add `{_SOURCE}: {{}}` to a mirror"
            )
        self._settings = with_secrets(self._settings, self._secrets)
        self._use_secrets(kind)
        self._say_idle()
        return RawConfig(
            file=self._file, settings=Settings(self._settings), warnings=tuple(self._warnings)
        )

    def _check_version(self, kind: Node) -> None:
        version = self._resource.get("apiVersion")
        if version is None:
            raise missing(kind, "apiVersion")
        known = [_GROUP + name for name in VERSIONS]
        if version.text() not in known:
            raise version.refuse(
                f'"{version.text()}" is no version of a {KIND}', f"write {' or '.join(known)}"
            )

    def _section_of_document(self) -> dict[str, Node]:
        known = {field.name for field in RESOURCE}
        for name, node in self._resource.items():
            if name not in known:
                raise node.refuse(f"a {KIND} has no such field", "is it meant to be in spec?")
        return {name: node for name, node in self._resource.items() if name not in _UNREMARKABLE}

    # clusters

    def _target(self, spec: Mapping[str, Node]) -> str | None:
        """The alias that mirrors write to unless they say otherwise."""
        for node in spec["clusters"].items() if "clusters" in spec else ():
            self._cluster(node, self._reader.section(node, CLUSTER))
        if "target" in spec:
            node = spec["target"]
            fields = self._reader.section(node, CLUSTER + TARGET_ONLY)
            alias = self._cluster(node, fields)
            for name, key in _TARGET_KEYS.items():
                if name in fields:
                    self._set(f"{alias}.{key}", fields[name].text(), fields[name])
            return alias
        connect = spec.get("connectCluster")
        if connect is None:
            return None
        alias = self._known_alias(connect)
        for key, value in _CONNECT_TOPICS.items():
            if f"{alias}.{key}" not in self._settings:
                self._set(f"{alias}.{key}", value, connect)
        return alias

    def _cluster(self, node: Node, fields: Mapping[str, Node]) -> str:
        for name in ("alias", "bootstrapServers"):
            if name not in fields:
                raise missing(node, name)
        alias = fields["alias"].text()
        if not _ALIAS.fullmatch(alias):
            raise fields["alias"].refuse(
                f'"{alias}" is no alias', "write letters, digits, dots, _ and -"
            )
        if alias in self._clusters:
            raise fields["alias"].refuse(
                f"{alias} stands already on line {self._clusters[alias].line}",
                "give each cluster its own alias, once",
            )
        self._clusters[alias] = fields["alias"]
        servers = fields["bootstrapServers"]
        self._set(f"{alias}.bootstrap.servers", servers.text(), servers)
        for pair in self._security.read(fields):
            self._set(f"{alias}.{pair.key}", pair.value, pair.at)
        for key, value in (fields["config"].fields() if "config" in fields else {}).items():
            shared = key == PROVIDERS or key.startswith(f"{PROVIDERS}.")
            self._set(key if shared else f"{alias}.{key}", value.text(), value)
        return alias

    def _known_alias(self, node: Node) -> str:
        alias = node.text()
        if alias not in self._clusters:
            listed = ", ".join(self._clusters) or "nothing"
            raise node.refuse(f"{alias} is no cluster", f"spec.clusters names {listed}")
        return alias

    # mirrors

    def _ends(self, mirror: Node, target: str | None) -> tuple[Flow, Node, dict[str, Node]]:
        fields = self._reader.section(mirror, MIRROR)
        if "source" in fields:
            source = self._cluster(
                fields["source"], self._reader.section(fields["source"], CLUSTER)
            )
        elif "sourceCluster" in fields:
            source = self._known_alias(fields["sourceCluster"])
        else:
            raise missing(mirror, "source")
        if "targetCluster" in fields:
            target = self._known_alias(fields["targetCluster"])
        if target is None:
            raise missing(mirror, "targetCluster")
        if source == target:
            raise mirror.refuse("source and target are the same cluster", "name two clusters")
        return Flow(source, target), mirror, fields

    def _mirror(self, flow: Flow, mirror: Node, fields: Mapping[str, Node]) -> bool:
        """Whether anything of the mirror runs."""
        sections = {
            name: self._reader.section(fields[name], CONNECTOR)
            for name in _CONNECTORS
            if name in fields
        }
        running = {name: one for name, one in sections.items() if not self._is_paused(one)}
        self._set(f"{flow}.enabled", "true" if running else "false", mirror)
        if not running:
            return False
        for name, key in _PATTERNS.items():
            if name in fields and not (key == "topics" and _SOURCE not in running):
                self._set(f"{flow}.{key}", fields[name].text(), fields[name])
        if "tasksMax" in running.get(_SOURCE, {}):
            tasks = running[_SOURCE]["tasksMax"]
            self._set(f"{flow}.tasks.max", tasks.text(), tasks)
        if _SOURCE not in running:
            self._set(f"{flow}.topics", "", mirror)
            self._set(f"{flow}.heartbeats.replication.enabled", "false", mirror)
        self._connectors(flow, running)
        self._switches(flow, mirror, running)
        return True

    @staticmethod
    def _is_paused(section: Mapping[str, Node]) -> bool:
        state = section.get("state")
        if state is not None:
            if state.text() not in ("running", "paused", "stopped"):
                raise state.refuse(
                    f'"{state.text()}" is no state', "write running, paused or stopped"
                )
            return state.text() != "running"
        return "pause" in section and section["pause"].text() == "true"

    def _connectors(self, flow: Flow, running: Mapping[str, Mapping[str, Node]]) -> None:
        leading = next(name for name in _CONNECTORS if name in running)
        for name, section in running.items():
            config = section["config"].fields() if "config" in section else {}
            for key, value in config.items():
                owner = next((one for one, keys in CONNECTOR_ONLY.items() if key in keys), None)
                full = f"{flow}.{self._connector_key(key)}"
                if name == (owner or leading):
                    # a pattern of the mirror wins, as with the operator
                    if full not in self._settings or key not in _PATTERNS.values():
                        self._set(full, value.text(), value)
                elif owner is not None:
                    self._warn(value, key, f"no key of a {name}; write it in {owner}")
                elif not self._is_the_same(full, value):
                    self._warn(value, key, f"one for all connectors: that of {leading} counts")

    @staticmethod
    def _connector_key(key: str) -> str:
        if key.startswith(_CONSUMER) and ".override." not in key:
            return f"source.{key}"
        return key

    def _is_the_same(self, full: str, value: Node) -> bool:
        there = self._settings.get(full)
        return there is not None and there.value == value.text()

    def _warn(self, at: Node, key: str, message: str) -> None:
        self._warnings.append(
            ConfigWarning(
                code=WarningCode.DEAD_KEY, file=self._file, line=at.line, key=key, message=message
            )
        )

    def _switches(
        self, flow: Flow, mirror: Node, running: Mapping[str, Mapping[str, Node]]
    ) -> None:
        if f"{flow}.emit.heartbeats.enabled" not in self._settings:
            on = "true" if _HEARTBEAT in running else "false"
            self._set(f"{flow}.emit.heartbeats.enabled", on, mirror)
        if _CHECKPOINT not in running:
            for key in ("emit.checkpoints.enabled", "sync.group.offsets.enabled"):
                self._set(f"{flow}.{key}", "false", mirror)

    # settings

    def _set(self, key: str, value: str, at: Node) -> None:
        there = self._settings.get(key)
        if there is not None:
            raise at.refuse(f"{key} is set already by line {there.line}", "say it once")
        self._settings[key] = Setting(key=key, value=value, file=at.file, line=at.line)

    def _use_secrets(self, kind: Node) -> None:
        """Name the provider that finds secrets, where one is needed."""
        if not self._secrets.is_used:
            return
        if f"{PROVIDERS}.{PROVIDER}.class" in self._settings:
            raise kind.refuse(
                f"the config provider `{PROVIDER}` is needed for secrets", "rename yours"
            )
        named = self._settings.pop(PROVIDERS, None)
        names = f"{named.value}, {PROVIDER}" if named and named.value.strip() else PROVIDER
        self._set(PROVIDERS, names, kind)
        self._set(f"{PROVIDERS}.{PROVIDER}.class", PROVIDER_CLASS, kind)

    def _say_idle(self) -> None:
        if not self._reader.idle:
            return
        listed = ", ".join(f"{node.path} (line {node.line})" for node, _ in self._reader.idle)
        self._warnings.append(
            ConfigWarning(
                code=WarningCode.NO_MEANING,
                file=self._file,
                line=None,
                key="",
                message=f"without a meaning here: {listed}; docs/strimzi.md says why",
            )
        )
