"""Loads the configuration file that a command was given."""

from __future__ import annotations

from pathlib import Path

from twinlog.config.load import load
from twinlog.config.schema import MirrorConfig


def load_file(path: Path, *, clusters: str | None = None) -> MirrorConfig:
    """The configuration, with only the flows into `clusters` where those are named."""
    return load(path, clusters=[] if clusters is None else [clusters])
