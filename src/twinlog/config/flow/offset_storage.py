"""Finds the topic in which a MirrorMaker 2 with the same configuration stores its positions.

In dedicated mode, it is `mm2-offsets.A.internal` on the target, unless `offset.storage.topic` or
`B.offset.storage.topic` is set. As in MirrorMaker 2, the key without alias takes precedence.
With Strimzi, the resource names the topic, and connectors are named `A->B.MirrorSourceConnector`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from twinlog.config.flow.schema import FlowConfig, MirrorConfig
from twinlog.config.values.origin import Setting

TOPIC: Final = "offset.storage.topic"
GROUP: Final = "group.id"
CONNECTOR: Final = "MirrorSourceConnector"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetStorage:
    """The location of one flow's positions in Connect's offset storage on the target."""

    topic: str
    connector: str
    cluster: str
    """The source's alias, which is part of the key of each stored position."""
    group: str
    """The group ID of the Connect workers. The group is on the target, too."""


def offset_storage(
    config: MirrorConfig, flow: FlowConfig, connector: str | None = None
) -> OffsetStorage:
    """Return where MirrorMaker 2 would store this flow's positions. `connector` overrides the
    connector's name.
    """
    files = {config.file, *config.more_files}
    file = next((each.file for each in flow.settings.values() if each.file in files), config.file)
    # lines of the command line belong to no file, and apply to every flow
    lines = {line.key: line for line in config.lines if line.file == file or line.file not in files}
    source, target = flow.flow.source, flow.flow.target
    named = connector or _value(flow.settings, "name")
    if not named:
        is_resource = any(".spec." in f".{each.field}" for each in flow.settings.values())
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
    setting = settings.get(key)
    return "" if setting is None else setting.value.strip()
