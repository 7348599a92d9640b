"""Reads a Strimzi KafkaMirrorMaker2 resource as settings of an mm2.properties, each with its line.

Strimzi's operator starts a connector only if a section for it exists. This module expresses the
connectors that run with MirrorMaker 2's keys (`A->B.enabled`, `emit.heartbeats.enabled`, an empty
`topics`), so all later steps are shared with properties files. Without a heartbeat section no
heartbeats are emitted, not even into the source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from twinlog.config.files.connector import CLASS, is_connector
from twinlog.config.files.names import ARROW, REST, Names
from twinlog.config.files.providers import PROVIDERS, provider_key
from twinlog.config.files.raw import RawConfig
from twinlog.config.keys.client_keys import BOOTSTRAP_SERVERS
from twinlog.config.keys.key_table import section_of
from twinlog.config.strimzi.fields import (
    CLUSTER,
    CONNECTOR,
    MIRROR,
    RESOURCE,
    SPEC,
    TARGET_ONLY,
    SectionReader,
)
from twinlog.config.strimzi.secrets import (
    OF_PODS,
    PROVIDER,
    PROVIDER_CLASS,
    Secrets,
    SecurityReader,
    missing_error,
    pod_of,
    with_secrets,
)
from twinlog.config.strimzi.yaml_nodes import Node
from twinlog.config.values.origin import Setting, Settings
from twinlog.config.values.warnings import ConfigWarning, WarningCode
from twinlog.errors import ConfigError
from twinlog.model import Flow

_SOURCE, _CHECKPOINT, _HEARTBEAT = "sourceConnector", "checkpointConnector", "heartbeatConnector"
_CONNECTORS: Final = (_SOURCE, _CHECKPOINT, _HEARTBEAT)
PATTERNS: Final = {
    "topicsPattern": "topics",
    "topicsExcludePattern": "topics.exclude",
    "topicsBlacklistPattern": "topics.blacklist",
    "groupsPattern": "groups",
    "groupsExcludePattern": "groups.exclude",
    "groupsBlacklistPattern": "groups.blacklist",
}
_OF_FIELDS: Final = frozenset((*PATTERNS.values(), "tasks.max"))
"""Keys that are set by fields of a mirror or of a connector."""
_CONSUMER: Final = "consumer."
VERSIONS: Final = ("v1alpha1", "v1beta2", "v1")
_GROUP: Final = "kafka.strimzi.io/"
_ALIAS: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}")
_CONNECT_TOPICS: Final = {
    "group.id": "mirrormaker2-cluster",
    "offset.storage.topic": "mirrormaker2-cluster-offsets",
    "config.storage.topic": "mirrormaker2-cluster-configs",
    "status.storage.topic": "mirrormaker2-cluster-status",
}
"""Group and topics of Kafka Connect that the operator sets if the resource does not set them."""
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
    def __init__(self, resource: Mapping[str, Node], secrets: Path | None) -> None:
        self._resource = resource
        self._file = resource["kind"].file
        self._reader = SectionReader()
        self._secrets = Secrets(secrets)
        self._security = SecurityReader(self._reader, self._secrets)
        self._settings: dict[str, Setting] = {}
        self._sections: dict[str, str] = {}
        """Path of the section of each flow and cluster, by key prefix."""
        self._warnings: list[ConfigWarning] = []
        self._clusters: dict[str, Node] = {}

    @property
    def _errors(self) -> tuple[ConfigError, ...]:
        """Return the errors that did not stop the rest of the resource from being read."""
        missing_folder = self._secrets.error
        return (*self._reader.errors, *([missing_folder] if missing_folder else []))

    def raise_all(self, error: ConfigError) -> NoReturn:
        """Raise `error` together with the errors found before it. `error` is left out if it is only
        a consequence of an unknown field.
        """
        follows = error.missing_key in self._reader.misspelt_fields
        errors = [*self._errors, *([] if follows else [error])]
        first, *more = sorted(errors, key=lambda error: error.line or 0)
        first.more = tuple(more)
        raise first

    def read(self) -> RawConfig:
        kind = self._resource["kind"]
        self._check_version(kind)
        known = {field.name for field in RESOURCE}
        for name, node in self._resource.items():
            if name not in known:
                raise node.refuse(f"{KIND} has no such field", "did you mean to put it into spec?")
        if "spec" not in self._resource:
            raise missing_error(kind, "spec")
        spec_node = self._resource["spec"]
        spec = self._reader.section(spec_node, SPEC)
        mirrors = spec.get("mirrors")
        if mirrors is None or not mirrors.items():
            raise (mirrors or spec_node).refuse("has no mirror", "add an entry to spec.mirrors")
        target = self._target(spec)
        flows = [self._ends(mirror, target) for mirror in mirrors.items()]
        first = next(iter(self._clusters.values()))
        self._add("clusters", ", ".join(self._clusters), spec.get("clusters", first))
        self._add("emit.heartbeats.enabled", "false", mirrors)
        runs = [self._mirror(flow, node, fields) for flow, node, fields in flows]
        if not any(runs):
            raise mirrors.refuse(
                "no mirror has a connector section, so nothing runs",
                "add `sourceConnector: {}` to a mirror",
            )
        pod = pod_of(spec_node.fields())
        self._settings = with_secrets(self._settings, self._secrets, pod)
        self._use_secrets(kind)
        self._warn_of_idle_fields(OF_PODS if pod else ())
        return RawConfig(
            file=self._file,
            settings=Settings(self._settings),
            warnings=tuple(self._warnings),
            errors=self._errors,
            names=names_of_fields(
                {key: setting.field for key, setting in self._settings.items()},
                self._sections,
            ),
        )

    def _check_version(self, kind: Node) -> None:
        version = self._resource.get("apiVersion")
        if version is None:
            raise missing_error(kind, "apiVersion")
        known = [_GROUP + name for name in VERSIONS]
        group, _, name = version.text().rpartition("/")
        if group and name in VERSIONS:
            if version.text() not in known:
                # the API group of another vendor, such as IBM
                what = f"read as {_GROUP}{name}, the same resource"
                self._warn(version, what, WarningCode.READ_AS)
        else:
            raise version.refuse(
                f'"{version.text()}" is not a version of {KIND}', f"write {' or '.join(known)}"
            )

    # -- clusters

    def _target(self, spec: Mapping[str, Node]) -> str | None:
        """Read all clusters. Return the alias of the default target of mirrors, or None."""
        for node in spec["clusters"].items() if "clusters" in spec else ():
            self._cluster(node, self._reader.section(node, CLUSTER))
        if "target" in spec:
            node = spec["target"]
            fields = self._reader.section(node, CLUSTER + TARGET_ONLY)
            alias = self._cluster(node, fields)
            for name, key in _TARGET_KEYS.items():
                if name in fields:
                    self._add(f"{alias}.{key}", fields[name].text(), fields[name])
            return alias
        connect = spec.get("connectCluster")
        if connect is None:
            return None
        alias = self._known_alias(connect)
        for key, value in _CONNECT_TOPICS.items():
            if f"{alias}.{key}" not in self._settings:
                self._add(f"{alias}.{key}", value, connect)
        return alias

    def _cluster(self, node: Node, fields: Mapping[str, Node]) -> str:
        for name in ("alias", "bootstrapServers"):
            if name not in fields:
                raise missing_error(node, name)
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
        self._sections[f"{alias}."] = node.path
        servers = fields["bootstrapServers"]
        self._add(f"{alias}.bootstrap.servers", servers.text(), servers)
        for key, text, at in self._security.read(fields):
            self._add(f"{alias}.{key}", text, at)
        for key, value in (fields["config"].fields() if "config" in fields else {}).items():
            shared = f"{key}.".startswith(f"{PROVIDERS}.")
            self._add(key if shared else f"{alias}.{key}", value.text(), value)
        return alias

    def _known_alias(self, node: Node) -> str:
        alias = node.text()
        if alias not in self._clusters:
            listed = ", ".join(self._clusters) or "nothing"
            raise node.refuse(f"{alias} is not a cluster", f"spec.clusters has {listed}")
        return alias

    # -- mirrors
    #
    # In Strimzi each connector has its own settings; a flow of MirrorMaker 2 has one set. A key is
    # read from the connector to which it belongs, a shared key from the source connector.
    #
    # `consumer.x` of a source connector applies to this connector's consumer. `A->B.consumer.x`
    # would apply to it only without `A.consumer.x`, so the key becomes `A->B.source.consumer.x`.

    def _ends(self, mirror: Node, target: str | None) -> tuple[Flow, Node, dict[str, Node]]:
        fields = self._reader.section(mirror, MIRROR)
        if "source" in fields:
            source = self._cluster(
                fields["source"], self._reader.section(fields["source"], CLUSTER)
            )
        elif "sourceCluster" in fields:
            source = self._known_alias(fields["sourceCluster"])
        else:
            raise missing_error(mirror, "source")
        if "targetCluster" in fields:
            target = self._known_alias(fields["targetCluster"])
        if target is None:
            raise missing_error(mirror, "targetCluster")
        if source == target:
            raise mirror.refuse("source and target are the same cluster", "name two clusters")
        return Flow(source, target), mirror, fields

    def _mirror(self, flow: Flow, mirror: Node, fields: Mapping[str, Node]) -> bool:
        """Read a mirror. Return True if any of its connectors runs."""
        self._sections[f"{flow}."] = mirror.path
        sections = {
            name: self._reader.section(fields[name], CONNECTOR)
            for name in _CONNECTORS
            if name in fields
        }
        running = {
            name: section for name, section in sections.items() if not self._is_paused(section)
        }
        self._add(f"{flow}.enabled", "true" if running else "false", mirror)
        if not running:
            return False
        for name, key in PATTERNS.items():
            if name in fields and not (key == "topics" and _SOURCE not in running):
                self._add(f"{flow}.{key}", fields[name].text(), fields[name])
        if "tasksMax" in running.get(_SOURCE, {}):
            tasks = running[_SOURCE]["tasksMax"]
            self._add(f"{flow}.tasks.max", tasks.text(), tasks)
        for name, section in running.items():
            if name != _SOURCE and "tasksMax" in section and section["tasksMax"].text() != "1":
                only = (
                    f"has no effect, because one process does the work of a {name}; set tasksMax "
                    f"of {_SOURCE} for more lanes"
                )
                self._warn(section["tasksMax"], only)
        if _SOURCE not in running:
            self._add(f"{flow}.topics", "", mirror)
            self._add(f"{flow}.heartbeats.replication.enabled", "false", mirror)
        self._connectors(flow, running)
        self._switches(flow, mirror, running)
        return True

    @staticmethod
    def _is_paused(section: Mapping[str, Node]) -> bool:
        state = section.get("state")
        if state is not None:
            if state.text() not in ("running", "paused", "stopped"):
                raise state.refuse(
                    f'"{state.text()}" is not a valid state', "write running, paused or stopped"
                )
            return state.text() != "running"
        return "pause" in section and section["pause"].text() == "true"

    def _connectors(self, flow: Flow, running: Mapping[str, Mapping[str, Node]]) -> None:
        leading = next(name for name in _CONNECTORS if name in running)
        for name, section in running.items():
            config = section["config"].fields() if "config" in section else {}
            for key, value in config.items():
                owner = section_of(key)
                is_of_source = key.startswith(_CONSUMER) and ".override." not in key
                full = f"{flow}.source.{key}" if is_of_source else f"{flow}.{key}"
                if name == (owner or leading) or (provider_key(key) and full not in self._settings):
                    self._set(full, key, value)
                elif owner is not None:
                    self._warn(value, f"has no effect in a {name}; write it in {owner}")
                elif (before := self._settings.get(full)) is None or (before.value != value.text()):
                    only = f"all connectors share this key, and the value in {leading} is used"
                    self._warn(value, only)

    def _set(self, full_key: str, key: str, value: Node) -> None:
        """Set a key of a connector's config. If a field of the resource sets the same key, the
        field takes precedence, as with the operator.
        """
        before = self._settings.get(full_key) if key in _OF_FIELDS else None
        if before is None:
            self._add(full_key, value.text(), value)
        elif before.value != value.text():
            over = f"has no effect, because {before.field} on line {before.line} takes precedence"
            self._warn(value, over)

    def _switches(
        self, flow: Flow, mirror: Node, running: Mapping[str, Mapping[str, Node]]
    ) -> None:
        if f"{flow}.emit.heartbeats.enabled" not in self._settings:
            on = "true" if _HEARTBEAT in running else "false"
            self._add(f"{flow}.emit.heartbeats.enabled", on, mirror)
        if _CHECKPOINT not in running:
            for key in ("emit.checkpoints.enabled", "sync.group.offsets.enabled"):
                self._add(f"{flow}.{key}", "false", mirror)

    # -- the rest of the resource

    def _add(self, key: str, value: str, node: Node) -> None:
        """Store a value with its line. Raises ConfigError if the key is already set."""
        before = self._settings.get(key)
        if before is not None:
            raise node.refuse(
                f"already set by {before.field} on line {before.line}", "remove one of them"
            )
        self._settings[key] = Setting(
            key=key, value=value, file=node.file, line=node.line, field=node.path
        )

    def _warn(self, node: Node, message: str, code: WarningCode = WarningCode.DEAD_KEY) -> None:
        """Warn of a field: by default, that its key has no effect in its section."""
        self._warnings.append(
            ConfigWarning(code=code, file=node.file, line=node.line, key=node.path, message=message)
        )

    def _use_secrets(self, kind: Node) -> None:
        """Add the config provider that reads secrets, if a value refers to a secret."""
        if not self._secrets.is_used:
            return
        if f"{PROVIDERS}.{PROVIDER}.class" in self._settings:
            raise kind.refuse(
                f"the config provider name `{PROVIDER}` is needed for secrets",
                "rename your provider",
            )
        named = self._settings.pop(PROVIDERS, None)
        names = f"{named.value}, {PROVIDER}" if named and named.value.strip() else PROVIDER
        self._add(PROVIDERS, names, kind)
        self._add(f"{PROVIDERS}.{PROVIDER}.class", PROVIDER_CLASS, kind)

    def _warn_of_idle_fields(self, used: tuple[str, ...]) -> None:
        idle = [node for node, field in self._reader.idle if field.name not in used]
        if not idle:
            return
        listed = ", ".join(f"{node.path} (line {node.line})" for node in idle)
        message = f"without effect: {listed}; see docs/strimzi.md"
        code = WarningCode.NO_MEANING
        self._warnings.append(
            ConfigWarning(code=code, file=self._file, line=None, key="", message=message)
        )


# Messages name the field of a resource that sets a key, because users edit fields. For a key that
# the resource does not set, messages name the field that the operator would read.

_PATTERN_OF: Final = {key: name for name, key in PATTERNS.items()}


def names_of_fields(fields: Mapping[str, str], sections: Mapping[str, str]) -> Names:
    """Return Names that replace keys by the fields of a resource. `fields`: the field that sets a
    key. `sections`: the path of the section of each flow and cluster, by key prefix.
    """

    def name_of(key: str) -> str:
        if key in fields:
            return fields[key]
        section = next((section for section in sections if key.startswith(section)), None)
        if section is None:
            return key
        path, rest = sections[section], key[len(section) :]
        if ARROW not in section:
            name = "bootstrapServers" if rest == BOOTSTRAP_SERVERS else f"config.{rest}"
            return f"{path}.{name}"
        if rest in _PATTERN_OF:
            return f"{path}.{_PATTERN_OF[rest]}"
        rest = rest.removeprefix("source.") if rest.startswith("source.consumer.") else rest
        return f"{path}.{section_of(rest) or _SOURCE}.config.{rest}"

    flows = [re.escape(section) for section in sections if ARROW in section]
    # a word that begins with an alias may be a topic, so only known keys are replaced
    of_clusters = tuple(section for section in sections if ARROW not in section)
    keys = {section + BOOTSTRAP_SERVERS for section in of_clusters}
    keys |= {key for key in fields if key.startswith(of_clusters)}
    known = sorted(map(re.escape, keys), key=len, reverse=True)
    flow_keys = [f"(?:{'|'.join(flows)}){REST}"] if flows else []
    return Names("|".join([*flow_keys, *known]), name_of)


KIND: Final = "KafkaMirrorMaker2"
_OF_CONNECTORS: Final = {"name": "name", "class": CLASS, "tasksMax": "tasks.max"}
"""Fields of a KafkaConnector, and the keys that they set."""
_JSON: Final = re.compile(r"(?:\xef\xbb\xbf)?\s*\{")
"""Matches JSON. The text was decoded as ISO-8859-1, so a byte order mark is three characters."""


def is_resource(path: Path, text: str) -> bool:
    """Return True if a file is YAML or JSON, not a properties file."""
    if path.suffix.lower() in (".yaml", ".yml", ".json") or _JSON.match(text):
        return True
    return all(re.search(rf"^{name}:", text, re.MULTILINE) for name in ("apiVersion", "kind"))


def find_connector(documents: list[Node]) -> Settings | None:
    """Return the configuration of a connector on Kafka Connect, or None if the file has none.

    The configuration is the whole document, its `config` (as in Kafka Connect's REST API), or part
    of a KafkaConnector.
    """
    fields = documents[0].fields() if len(documents) == 1 and documents[0].is_mapping else {}
    named = {"name": fields["name"]} if "name" in fields else {}
    if "kind" in fields:
        if fields["kind"].text() != "KafkaConnector":
            return None
        metadata, spec = (
            fields[name].fields() if name in fields else {} for name in ("metadata", "spec")
        )
        about = metadata | spec
        named = {key: about[name] for name, key in _OF_CONNECTORS.items() if name in about}
        fields = spec
    config = {**named, **(fields["config"].fields() if "config" in fields else fields)}
    if not is_connector(config):
        return None
    return Settings(
        {
            key: Setting(key=key, value=node.text(), file=node.file, line=node.line)
            for key, node in config.items()
        }
    )


def find_resource(documents: list[Node], *, file: str) -> dict[str, Node]:
    """Return the fields of the only resource. Raises ConfigError unless there is exactly one."""
    resources: list[tuple[Node, dict[str, Node]]] = []
    others: list[Node] = []
    for node in documents:
        fields = node.fields()
        kind = fields.get("kind")
        if kind is not None and kind.text().endswith("List") and "items" in fields:
            entries = fields["items"].items()
        else:
            entries = [node]
        for entry in entries:
            fields = entry.fields()
            kind = fields.get("kind")
            if kind is not None and kind.text() == KIND:
                resources.append((entry, fields))
            else:
                others.append(kind or entry)
    if len(resources) > 1:
        kinds = [fields["kind"] for _, fields in resources]
        raise kinds[1].refuse(
            f"a second {KIND}, after the one on line {kinds[0].line}",
            "put each into a file of its own",
        )
    if resources:
        return resources[0][1]
    if others:
        what = f'"{others[0].text()}" instead of' if others[0].path.endswith("kind") else "is not"
        raise others[0].refuse(
            f"{what} a {KIND}", "name a file with one, or an mm2.properties file"
        )
    raise ConfigError(
        f"the file is empty; write a {KIND}, or name an mm2.properties file", file=file
    )
