"""Where a MirrorMaker 2 of the same configuration keeps its positions, by its own rules.

Dedicated mode: `mm2-offsets.A.internal` on the target, unless `B.offset.storage.topic` or
`offset.storage.topic` says otherwise (the one without an alias wins, as in MirrorMaker 2). Strimzi:
what the resource says, with connectors named `A->B.MirrorSourceConnector`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.config.values.origin import Setting

TOPIC: Final = "offset.storage.topic"
GROUP: Final = "group.id"
CONNECTOR: Final = "MirrorSourceConnector"
_RESOURCES: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetStorage:
    """One flow's place in Connect's offset storage on the target."""

    topic: str
    connector: str
    cluster: str
    """The source's alias in the keys."""
    group: str
    """The Connect group of the workers, on the target as well."""


def offset_storage(
    config: MirrorConfig, flow: FlowConfig, connector: str | None = None
) -> OffsetStorage:
    """Where MirrorMaker 2 would look for this flow's positions; `connector` is its name, given."""
    file = flow.clients.source_admin.origin("bootstrap.servers").file
    lines = {line.key: line for line in config.lines if line.file == file}
    source, target = flow.flow.source, flow.flow.target
    named = connector or _value(flow.settings, "name")
    if not named:
        is_resource = Path(file).suffix.lower() in _RESOURCES
        named = f"{source}->{target}.{CONNECTOR}" if is_resource else CONNECTOR
    return OffsetStorage(
        topic=_value(lines, TOPIC)
        or _value(lines, f"{target}.{TOPIC}")
        or f"mm2-offsets.{source}.internal",
        connector=named,
        cluster=flow.source_alias,
        group=_value(lines, f"{target}.{GROUP}") or f"{source}-mm2",
    )


def _value(settings: Mapping[str, Setting], key: str) -> str:
    found = settings.get(key)
    return "" if found is None else found.value.strip()
