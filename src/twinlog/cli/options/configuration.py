"""Loads the configuration files that are passed to a command."""

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
    """Load one file with all of its flows."""
    return load(path, secrets=secrets_folder())


def load_flows(path: Path, flow: str | None) -> MirrorConfig:
    """Load one file, with only the flow `flow` if it is given."""
    config = load_file(path)
    return config if flow is None else replace(config, flows=(one_flow(config.flows, flow),))


def load_files(
    paths: Sequence[Path],
    *,
    clusters: str | None = None,
    overrides: Sequence[Override] = (),
    secrets: Path | None = None,
) -> MirrorConfig:
    """Load all files as one configuration, with only the flows into `clusters` if given."""
    return load_all(
        paths, [] if clusters is None else [clusters], overrides=overrides, secrets=secrets
    )
