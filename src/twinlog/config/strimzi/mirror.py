"""Reads one mirror of a resource: which connectors of its flow run, and their settings.

- In Strimzi each connector has its own settings; a flow of MirrorMaker 2 has one set. A key is read
  from the connector that it belongs to, a shared key from the source connector.
- `consumer.x` of a source connector applies to its consumer. `A->B.consumer.x` would do so only if
  `A.consumer.x` is absent, so the key becomes `A->B.source.consumer.x`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twinlog.config.files.providers import provider_key
from twinlog.config.keys.flow_keys import CONNECTOR_ONLY
from twinlog.config.strimzi.fields import CONNECTOR, SectionReader
from twinlog.config.strimzi.settings import Collected
from twinlog.config.strimzi.yaml_nodes import Node
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
"""Keys that fields of a mirror or a connector set."""
_CONSUMER: Final = "consumer."


class MirrorReader:
    """Reads mirrors into the collected settings."""

    def __init__(self, reader: SectionReader, found: Collected) -> None:
        self._reader = reader
        self._found = found

    def read(self, flow: Flow, mirror: Node, fields: Mapping[str, Node]) -> bool:
        """Read a mirror. Return True if any of its connectors runs."""
        self._found.sections[f"{flow}."] = mirror.path
        sections = {
            name: self._reader.section(fields[name], CONNECTOR)
            for name in _CONNECTORS
            if name in fields
        }
        running = {name: one for name, one in sections.items() if not self._is_paused(one)}
        self._found.set(f"{flow}.enabled", "true" if running else "false", mirror)
        if not running:
            return False
        for name, key in PATTERNS.items():
            if name in fields and not (key == "topics" and _SOURCE not in running):
                self._found.set(f"{flow}.{key}", fields[name].text(), fields[name])
        if "tasksMax" in running.get(_SOURCE, {}):
            tasks = running[_SOURCE]["tasksMax"]
            self._found.set(f"{flow}.tasks.max", tasks.text(), tasks)
        for name, section in running.items():
            if name != _SOURCE and "tasksMax" in section and section["tasksMax"].text() != "1":
                only = (
                    f"has no effect, because one process does the work of a {name}; set tasksMax "
                    f"of {_SOURCE} for more lanes"
                )
                self._found.warn(section["tasksMax"], only)
        if _SOURCE not in running:
            self._found.set(f"{flow}.topics", "", mirror)
            self._found.set(f"{flow}.heartbeats.replication.enabled", "false", mirror)
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
                owner = next((one for one, keys in CONNECTOR_ONLY.items() if key in keys), None)
                full = f"{flow}.{self._connector_key(key)}"
                if name == (owner or leading) or (
                    provider_key(key) and full not in self._found.settings
                ):
                    self._set(full, key, value)
                elif owner is not None:
                    self._found.warn(value, f"is not a key of a {name}; write it in {owner}")
                elif not self._is_the_same(full, value):
                    self._found.warn(
                        value,
                        (f"all connectors share this key, and the value in {leading} is used"),
                    )

    def _set(self, full: str, key: str, value: Node) -> None:
        """Set a key of a connector's config. A field for it takes precedence, as with the
        operator.
        """
        there = self._found.settings.get(full) if key in _OF_FIELDS else None
        if there is None:
            self._found.set(full, value.text(), value)
        elif there.value != value.text():
            over = f"has no effect, because {there.field} on line {there.line} takes precedence"
            self._found.warn(value, over)

    @staticmethod
    def _connector_key(key: str) -> str:
        if key.startswith(_CONSUMER) and ".override." not in key:
            return f"source.{key}"
        return key

    def _is_the_same(self, full: str, value: Node) -> bool:
        there = self._found.settings.get(full)
        return there is not None and there.value == value.text()

    def _switches(
        self, flow: Flow, mirror: Node, running: Mapping[str, Mapping[str, Node]]
    ) -> None:
        if f"{flow}.emit.heartbeats.enabled" not in self._found.settings:
            on = "true" if _HEARTBEAT in running else "false"
            self._found.set(f"{flow}.emit.heartbeats.enabled", on, mirror)
        if _CHECKPOINT not in running:
            for key in ("emit.checkpoints.enabled", "sync.group.offsets.enabled"):
                self._found.set(f"{flow}.{key}", "false", mirror)
