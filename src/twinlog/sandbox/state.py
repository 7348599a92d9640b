"""The state of a running cluster for other processes, as `cluster.json` in its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twinlog.sandbox.layout import Listeners

STATE_FILE = "cluster.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxState:
    """The settings a cluster was started with; process IDs are in the nodes' folders."""

    name: str
    brokers: int
    config: Mapping[str, str]
    node_config: Mapping[int, Mapping[str, str]]
    heap_mb: int | None
    jvm_flags: tuple[str, ...]
    version: str
    listeners: Listeners
    ports: dict[int, dict[str, int]]
    cluster_id: str
    temporary: bool


def write_state(folder: Path, state: SandboxState) -> None:
    file = folder / STATE_FILE
    scratch = file.with_suffix(".new")
    scratch.write_text(json.dumps(asdict(state), indent=1), encoding="utf-8")
    scratch.chmod(0o600)
    scratch.replace(file)  # readers see the old state or the new one


def read_state(folder: Path) -> SandboxState:
    state: dict[str, Any] = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    for key in ("node_config", "ports"):  # JSON keys are always strings
        state[key] = {int(node): value for node, value in state[key].items()}
    state["jvm_flags"] = tuple(state["jvm_flags"])
    listeners = state["listeners"]
    listeners["names"] = tuple(listeners["names"])
    listeners["credentials"] = tuple(listeners["credentials"] or ()) or None
    state["listeners"] = Listeners(**listeners)
    return SandboxState(**state)
