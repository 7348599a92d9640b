"""Finds a KafkaMirrorMaker2 resource or a connector among the documents of a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from twinlog.config.files.connector import CLASS, is_connector
from twinlog.config.strimzi.yaml_nodes import Node
from twinlog.config.values.origin import Setting, Settings
from twinlog.errors import ConfigError

KIND: Final = "KafkaMirrorMaker2"
_OF_CONNECTORS: Final = {"name": "name", "class": CLASS, "tasksMax": "tasks.max"}
"""Fields of a KafkaConnector, and the keys that they set."""
_JSON: Final = re.compile(r"(?:\xef\xbb\xbf)?\s*\{")
"""Matches text that was decoded as ISO-8859-1, so a byte order mark is three characters."""


def is_resource(path: Path, text: str) -> bool:
    """Return True if a file is YAML or JSON, not a properties file."""
    if path.suffix.lower() in (".yaml", ".yml", ".json") or _JSON.match(text):
        return True
    return all(re.search(rf"^{name}:", text, re.MULTILINE) for name in ("apiVersion", "kind"))


def find_connector(documents: list[Node]) -> Settings | None:
    """Return the configuration of a connector on Kafka Connect, or None if the file has none.

    It is the whole document, its `config` (as in Kafka Connect's REST API), or a KafkaConnector.
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
    """Return the fields of the only resource. Raises ConfigError if there is none, or several."""
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
            ("put each into a file of its own"),
        )
    if resources:
        return resources[0][1]
    if others:
        what = f'"{others[0].text()}"' if others[0].path.endswith("kind") else "no kind"
        raise others[0].refuse(
            f"{what} instead of a {KIND}", "name a file with one, or an mm2.properties file"
        )
    raise ConfigError(
        (f"the file is empty; write a {KIND}, or name an mm2.properties file"), file=file
    )
