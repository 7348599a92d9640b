"""Finds the KafkaMirrorMaker2 resource in a file, which may hold other documents as well."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from twinlog.config.strimzi.yaml_nodes import Node, parse_yaml
from twinlog.errors import ConfigError

KIND: Final = "KafkaMirrorMaker2"


def is_resource(path: Path, text: str) -> bool:
    """Whether a file is YAML, or JSON, and no properties file."""
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        return True
    return all(re.search(rf"^{name}:", text, re.MULTILINE) for name in ("apiVersion", "kind"))


def find_resource(text: str, *, file: str) -> dict[str, Node]:
    """The fields of the one resource; refuses files with none or with several."""
    return _find(list(parse_yaml(text, file=file)), file)


def _find(documents: list[Node], file: str) -> dict[str, Node]:
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
            f"a second {KIND}, after that of line {kinds[0].line}", "give each a file of its own"
        )
    if resources:
        return resources[0][1]
    if others:
        what = f'"{others[0].text()}"' if others[0].path.endswith("kind") else "no kind"
        raise others[0].refuse(
            f"{what} where a {KIND} is wanted", "name a file with one, or an mm2.properties file"
        )
    raise ConfigError(f"an empty file; write a {KIND}, or name an mm2.properties file", file=file)
