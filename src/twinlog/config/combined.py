"""Several configuration files in one process: each is read alone, and their flows run side by side.

Nothing of one file reaches another: `topics` of the first says nothing about the flows of the
second. So each file runs as it would in a process of its own. What could not run so is refused: a
flow that stands in two of them, and one alias for two clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from twinlog.config.files.overrides import Override
from twinlog.config.flow.schema import ClusterConfig, MirrorConfig
from twinlog.config.load import load
from twinlog.config.rest import OPEN
from twinlog.config.series import ALL_SERIES
from twinlog.errors import ConfigError

T = TypeVar("T")


def load_all(
    paths: Sequence[Path],
    clusters: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    overrides: Sequence[Override] = (),
    secrets: Path | None = None,
) -> MirrorConfig:
    """One configuration of all files; everything else holds for each of them."""
    return combined([load(path, clusters, environment, overrides, secrets) for path in paths])


def combined(configs: Sequence[MirrorConfig]) -> MirrorConfig:
    """The flows, clusters and warnings of all; raises ConfigError where two cannot go together."""
    first = configs[0]
    if len(configs) == 1:
        return first
    _refuse_twice(configs)
    clusters: dict[str, tuple[ClusterConfig, str]] = {}
    for config in configs:
        for cluster in config.clusters:
            known, file = clusters.setdefault(cluster.alias, (cluster, config.file))
            if known.servers and cluster.servers and not {*known.servers} & {*cluster.servers}:
                raise ConfigError(
                    f"shares no server with {cluster.alias} of {file}; give one of the two "
                    "clusters another alias",
                    file=config.file,
                    key=f"{cluster.alias}.bootstrap.servers",
                )
    return MirrorConfig(
        file=first.file,
        more_files=tuple(config.file for config in configs[1:]),
        clusters=tuple(cluster for cluster, _ in clusters.values()),
        flows=tuple(flow for config in configs for flow in config.flows),
        elsewhere=tuple(flow for config in configs for flow in config.elsewhere),
        http_listener=next((c.http_listener for c in configs if c.http_listener), None),
        rest=_one(configs, "twinlog.rest.*", lambda config: config.rest, OPEN),
        series=_one(configs, "twinlog.metrics.*", lambda config: config.series, ALL_SERIES),
        lines=tuple(line for config in configs for line in config.lines),
        warnings=tuple(warning for config in configs for warning in config.warnings),
    )


def _one(
    configs: Sequence[MirrorConfig], keys: str, value_of: Callable[[MirrorConfig], T], default: T
) -> T:
    """A process has one listener: files that say something of it must say the same."""
    said = [config for config in configs if value_of(config) != default]
    for config in said[1:]:
        if value_of(config) != value_of(said[0]):
            raise ConfigError(
                f"differs from {said[0].file}; one process has one "
                "listener: write the same in both, or in one of them alone",
                file=config.file,
                key=keys,
            )
    return value_of(said[0]) if said else default


def _refuse_twice(configs: Sequence[MirrorConfig]) -> None:
    seen: dict[str, str] = {}
    for config in configs:
        for flow in config.flows:
            name = str(flow.flow)
            if name in seen:
                raise ConfigError(
                    f"the flow is on in {seen[name]} too; turn it "
                    "off in one of them, or give their clusters other aliases",
                    file=config.file,
                    key=f"{name}.enabled",
                )
            seen[name] = config.file
