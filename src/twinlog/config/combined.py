"""Several configuration files in one process.

Each file is read separately: `topics` of the first file does not affect flows of the second. So
each file runs as it would in its own process. Only the connectors of one flow on Kafka Connect,
which have a file each, are read together. A flow that is enabled in two files, and an alias of two
different clusters, are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from twinlog.config.config_file import read_files
from twinlog.config.files.overrides import Override
from twinlog.config.flow.schema import ClusterConfig, MirrorConfig
from twinlog.config.load import load_raw
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
    """Return one configuration of all files. The other arguments apply to each file."""
    raws = read_files(paths, secrets)
    return combined([load_raw(raw, clusters, environment, overrides) for raw in raws])


def combined(configs: Sequence[MirrorConfig]) -> MirrorConfig:
    """Combine flows, clusters and warnings. Raises ConfigError if two configurations conflict."""
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
        more_files=tuple(f for config in configs for f in (config.file, *config.more_files))[1:],
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
    """Return a value that all files with that setting share, because a process has one listener."""
    said = [config for config in configs if value_of(config) != default]
    for config in said[1:]:
        if value_of(config) != value_of(said[0]):
            raise ConfigError(
                f"differs from {said[0].file}, but a process has one listener; write the "
                "same in both files, or in only one",
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
                    f"the flow is also enabled in {seen[name]}; disable it in one of the "
                    "files, or use other cluster aliases",
                    file=config.file,
                    key=f"{name}.enabled",
                )
            seen[name] = config.file
