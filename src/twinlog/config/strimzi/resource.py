"""Reads a Strimzi KafkaMirrorMaker2 resource as settings of an mm2.properties, each with its line.

Strimzi's operator starts a connector only if a section for it exists. This module expresses that
with MirrorMaker 2's keys (`A->B.enabled`, `emit.heartbeats.enabled`, an empty `topics`), so all
later steps are shared with properties files. Without a heartbeat section no heartbeats are emitted,
not even into the source. `mirror` describes the other differences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from twinlog.config.files.file_names import REST, FileNames
from twinlog.config.files.providers import PROVIDERS
from twinlog.config.files.raw import RawConfig
from twinlog.config.keys.client_keys import BOOTSTRAP_SERVERS
from twinlog.config.keys.flow_keys import CONNECTOR_ONLY
from twinlog.config.strimzi.document import KIND, find_resource
from twinlog.config.strimzi.fields import (
    CLUSTER,
    MIRROR,
    RESOURCE,
    SPEC,
    TARGET_ONLY,
    SectionReader,
)
from twinlog.config.strimzi.mirror import PATTERNS, MirrorReader
from twinlog.config.strimzi.providers import OF_PODS, pod_of, with_secrets
from twinlog.config.strimzi.secrets import PROVIDER, PROVIDER_CLASS, Secrets
from twinlog.config.strimzi.security import SecurityReader, missing
from twinlog.config.strimzi.settings import Collected
from twinlog.config.strimzi.yaml_nodes import Node
from twinlog.config.values.origin import Settings
from twinlog.errors import ConfigError
from twinlog.model import Flow

VERSIONS: Final = ("v1alpha1", "v1beta2", "v1")
_GROUP: Final = "kafka.strimzi.io/"
_ALIAS: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}")
_UNREMARKABLE: Final = ("metadata", "status")
_CONNECT_TOPICS: Final = {
    "group.id": "mirrormaker2-cluster",
    "offset.storage.topic": "mirrormaker2-cluster-offsets",
    "config.storage.topic": "mirrormaker2-cluster-configs",
    "status.storage.topic": "mirrormaker2-cluster-status",
}
"""Defaults that the operator sets if the resource does not: where MirrorMaker 2 stored its state.
"""
_TARGET_KEYS: Final = {
    "groupId": "group.id",
    "offsetStorageTopic": "offset.storage.topic",
    "configStorageTopic": "config.storage.topic",
    "statusStorageTopic": "status.storage.topic",
}


def read_resource(documents: list[Node], *, file: str, secrets: Path | None) -> RawConfig:
    """Return a KafkaMirrorMaker2 resource as settings with MirrorMaker 2's keys."""
    reader = _ResourceReader(find_resource(documents, file=file), secrets)
    try:
        return reader.read()
    except ConfigError as error:
        reader.raise_all(error)


class _ResourceReader:
    """Reads one resource."""

    def __init__(self, resource: Mapping[str, Node], secrets: Path | None) -> None:
        self._resource = resource
        self._file = resource["kind"].file
        self._reader = SectionReader()
        self._secrets = Secrets(secrets)
        self._security = SecurityReader(self._reader, self._secrets)
        self._found = Collected(self._file)
        self._mirrors = MirrorReader(self._reader, self._found)
        self._clusters: dict[str, Node] = {}

    @property
    def _errors(self) -> tuple[ConfigError, ...]:
        """Errors that did not stop the rest of the resource from being read."""
        missing_folder = self._secrets.error
        return (*self._reader.errors, *([missing_folder] if missing_folder else []))

    def raise_all(self, error: ConfigError) -> NoReturn:
        """Raise `error` with all errors found before. Leave it out if it is a consequence of one of
        them.
        """
        follows = error.lacks in self._reader.meant
        errors = [*self._errors, *([] if follows else [error])]
        first, *more = sorted(errors, key=lambda one: one.line or 0)
        first.more = tuple(more)
        raise first

    def read(self) -> RawConfig:
        kind = self._resource["kind"]
        self._check_version(kind)
        document = self._section_of_document()
        if "spec" not in document:
            raise missing(kind, "spec")
        spec = self._reader.section(document["spec"], SPEC)
        mirrors = spec.get("mirrors")
        if mirrors is None or not mirrors.items():
            raise (mirrors or document["spec"]).refuse(
                ("has no mirror"), "add an entry to spec.mirrors"
            )
        target = self._target(spec)
        flows = [self._ends(mirror, target) for mirror in mirrors.items()]
        first = next(iter(self._clusters.values()))
        self._found.set("clusters", ", ".join(self._clusters), spec.get("clusters", first))
        self._found.set("emit.heartbeats.enabled", "false", mirrors)
        runs = [self._mirrors.read(flow, node, fields) for flow, node, fields in flows]
        if not any(runs):
            raise mirrors.refuse(
                ("no mirror has a connector section, so nothing runs"),
                "add `sourceConnector: {}` to a mirror",
            )
        pod = pod_of(document["spec"].fields())
        self._found.settings = with_secrets(self._found.settings, self._secrets, pod)
        self._use_secrets(kind)
        self._say_idle(OF_PODS if pod else ())
        return RawConfig(
            file=self._file,
            settings=Settings(self._found.settings),
            warnings=tuple(self._found.warnings),
            errors=self._errors,
            names=FieldNames(self._found),
        )

    def _check_version(self, kind: Node) -> None:
        version = self._resource.get("apiVersion")
        if version is None:
            raise missing(kind, "apiVersion")
        known = [_GROUP + name for name in VERSIONS]
        group, _, name = version.text().rpartition("/")
        if group and name in VERSIONS:
            if version.text() not in known:
                self._found.read_as(version, f"read as {_GROUP}{name}, the same resource")
        else:
            raise version.refuse(
                f'"{version.text()}" is not a version of {KIND}', f"write {' or '.join(known)}"
            )

    def _section_of_document(self) -> dict[str, Node]:
        known = {field.name for field in RESOURCE}
        for name, node in self._resource.items():
            if name not in known:
                raise node.refuse(
                    f"{KIND} has no such field", ("did you mean to put it into spec?")
                )
        return {name: node for name, node in self._resource.items() if name not in _UNREMARKABLE}

    # clusters

    def _target(self, spec: Mapping[str, Node]) -> str | None:
        """Return the default target alias of mirrors."""
        for node in spec["clusters"].items() if "clusters" in spec else ():
            self._cluster(node, self._reader.section(node, CLUSTER))
        if "target" in spec:
            node = spec["target"]
            fields = self._reader.section(node, CLUSTER + TARGET_ONLY)
            alias = self._cluster(node, fields)
            for name, key in _TARGET_KEYS.items():
                if name in fields:
                    self._found.set(f"{alias}.{key}", fields[name].text(), fields[name])
            return alias
        connect = spec.get("connectCluster")
        if connect is None:
            return None
        alias = self._known_alias(connect)
        for key, value in _CONNECT_TOPICS.items():
            if f"{alias}.{key}" not in self._found.settings:
                self._found.set(f"{alias}.{key}", value, connect)
        return alias

    def _cluster(self, node: Node, fields: Mapping[str, Node]) -> str:
        for name in ("alias", "bootstrapServers"):
            if name not in fields:
                raise missing(node, name)
        alias = fields["alias"].text()
        if not _ALIAS.fullmatch(alias):
            raise fields["alias"].refuse(
                f'"{alias}" is not a valid alias', "use letters, digits, dots, _ and -"
            )
        if alias in self._clusters:
            raise fields["alias"].refuse(
                f"{alias} is already used on line {self._clusters[alias].line}",
                "give each cluster one alias of its own",
            )
        self._clusters[alias] = fields["alias"]
        self._found.sections[f"{alias}."] = node.path
        servers = fields["bootstrapServers"]
        self._found.set(f"{alias}.bootstrap.servers", servers.text(), servers)
        for pair in self._security.read(fields):
            self._found.set(f"{alias}.{pair.key}", pair.value, pair.at)
        for key, value in (fields["config"].fields() if "config" in fields else {}).items():
            shared = f"{key}.".startswith(f"{PROVIDERS}.")
            self._found.set(key if shared else f"{alias}.{key}", value.text(), value)
        return alias

    def _known_alias(self, node: Node) -> str:
        alias = node.text()
        if alias not in self._clusters:
            listed = ", ".join(self._clusters) or "nothing"
            raise node.refuse(f"{alias} is not a cluster", f"spec.clusters has {listed}")
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

    def _use_secrets(self, kind: Node) -> None:
        """Add the provider that reads secrets, if one is needed."""
        if not self._secrets.is_used:
            return
        if f"{PROVIDERS}.{PROVIDER}.class" in self._found.settings:
            raise kind.refuse(
                f"the config provider name `{PROVIDER}` is needed for secrets",
                "rename your provider",
            )
        named = self._found.settings.pop(PROVIDERS, None)
        names = f"{named.value}, {PROVIDER}" if named and named.value.strip() else PROVIDER
        self._found.set(PROVIDERS, names, kind)
        self._found.set(f"{PROVIDERS}.{PROVIDER}.class", PROVIDER_CLASS, kind)

    def _say_idle(self, used: tuple[str, ...]) -> None:
        idle = [node for node, field in self._reader.idle if field.name not in used]
        if not idle:
            return
        listed = ", ".join(f"{node.path} (line {node.line})" for node in idle)
        self._found.say(f"without effect: {listed}; see docs/strimzi.md")


# Messages name the field of a resource that sets a key, because that is what the user edits. For a
# key that the resource does not set, they name the field that the operator would read.

_ARROW: Final = "->"
_PATTERN_OF: Final = {key: name for name, key in PATTERNS.items()}


class FieldNames(FileNames):
    """Maps keys in the messages of one resource to its fields."""

    def __init__(self, found: Collected) -> None:
        self._fields = {key: one.field for key, one in found.settings.items()}
        self._sections = dict(found.sections)
        flows = [re.escape(one) for one in self._sections if _ARROW in one]
        # a word that begins with an alias may be a topic, so only known keys are replaced
        of_clusters = {one for one in self._sections if _ARROW not in one}
        keys = {one + BOOTSTRAP_SERVERS for one in of_clusters} | {
            key for key in self._fields if key.startswith(tuple(of_clusters))
        }
        known = sorted(map(re.escape, keys), key=len, reverse=True)
        flow_keys = [f"(?:{'|'.join(flows)}){REST}"] if flows else []
        super().__init__([*flow_keys, *known])

    def field(self, key: str) -> str:
        if key in self._fields:
            return self._fields[key]
        section = next((one for one in self._sections if key.startswith(one)), None)
        if section is None:
            return key
        path, rest = self._sections[section], key[len(section) :]
        if _ARROW not in section:
            name = "bootstrapServers" if rest == BOOTSTRAP_SERVERS else f"config.{rest}"
            return f"{path}.{name}"
        if rest in _PATTERN_OF:
            return f"{path}.{_PATTERN_OF[rest]}"
        rest = rest.removeprefix("source.") if rest.startswith("source.consumer.") else rest
        connector = next(
            (one for one, keys in CONNECTOR_ONLY.items() if rest in keys), "sourceConnector"
        )
        return f"{path}.{connector}.config.{rest}"
