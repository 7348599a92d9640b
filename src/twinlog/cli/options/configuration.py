"""Loads the configuration files that a command was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from twinlog.cli.options.flow_option import one_flow
from twinlog.cli.options.run_options import secrets_folder
from twinlog.config.combined import load_all
from twinlog.config.files.overrides import Override
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.load import load


def load_file(path: Path) -> MirrorConfig:
    """The configuration of one file, all of its flows."""
    return load(path, secrets=secrets_folder())


def load_flows(path: Path, flow: str | None) -> MirrorConfig:
    """The same, with that flow alone where one is named."""
    config = load_file(path)
    return config if flow is None else replace(config, flows=(one_flow(config.flows, flow),))


def load_files(
    paths: Sequence[Path],
    *,
    clusters: str | None = None,
    overrides: Sequence[Override] = (),
    secrets: Path | None = None,
) -> MirrorConfig:
    """All files as one configuration, with only the flows into `clusters` where those are named."""
    return load_all(
        paths, [] if clusters is None else [clusters], overrides=overrides, secrets=secrets
    )
