"""Creates set-ups from the configuration of flows: clients, neighbours, number of lanes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from twinlog.cluster.net.settings import (
    DEFAULT_REQUEST_TIMEOUT_MS,
    ClusterSettings,
    parse_bootstrap,
)
from twinlog.cluster.security.security_keys import is_of_security, load_security
from twinlog.config.flow.offset_storage import OffsetStorage
from twinlog.config.flow.schema import FlowConfig
from twinlog.config.flow.tuning import request_timeout_ms
from twinlog.config.values.origin import ClientProperties, Setting, shown_key
from twinlog.control.flow.flow_setup import FlowSetup
from twinlog.control.loops.neighbours import SiblingFlows
from twinlog.errors import ConfigError
from twinlog.mirror.names.filters import policy_of

PROCESS_BYTES: Final = 450 << 20
"""Memory of driver and JVM in bytes, as measured (docs/capacity.md)."""
LANE_BYTES: Final = 80 << 20
"""Memory of a lane without fetched records, and of the next lease's idle lane, in bytes."""
BUFFERS: Final = 1.25
"""Memory for fetched batches and next responses, as a multiple of twinlog.lane.memory.bytes."""
MANY: Final = 1 << 30

_NAMED: Final = ("bootstrap.servers", "request.timeout.ms")
"""Keys that messages about connections name, in addition to the security keys."""


def cluster_settings(alias: str, properties: ClientProperties, flow: str) -> ClusterSettings:
    """Return the settings of one cluster's connections. Secrets and key files are read here, on the
    driver, and watched from then on.
    """

    def again() -> dict[str, str]:
        return properties.resolve_again(is_of_security)

    try:
        files = properties.files_of(is_of_security)
        security = load_security(properties, where=alias, files=files, again=again)
    except ConfigError as error:
        if error.key is None or error.file != alias:  # the error already names its file
            raise
        raise _located(error, error.key, alias, properties) from error
    servers = properties.origin("bootstrap.servers")
    return ClusterSettings(
        alias=alias,
        bootstrap=parse_bootstrap(servers.value, f"{alias}.bootstrap.servers"),
        file=servers.file if servers.field == "bootstrap.servers" else "",
        security=security,
        client_id=f"twinlog-{flow}",
        request_timeout_ms=request_timeout_ms(properties, DEFAULT_REQUEST_TIMEOUT_MS),
        origins=tuple(
            (key, _name(line := properties.origin(key)), line.location)
            for key in properties
            if key in _NAMED or is_of_security(key)
        ),
    )


def _name(line: Setting) -> str:
    """Return the name of a setting's key in the configuration file."""
    return line.field or shown_key(line.key)


def _located(error: ConfigError, key: str, alias: str, properties: ClientProperties) -> ConfigError:
    """Return the error with the file and line of its key. Readers of key files and login modules
    know only the client's keys; `properties` has the file and the line.
    """
    if key in properties:
        line = properties.origin(key)
        file, number, name = line.file, line.line, _name(line)
    else:  # the key is missing, so the file of the other keys is named
        file, number = properties.origin(next(iter(properties))).file, None
        name = f"{alias}.{key}"
    return ConfigError(
        error.what, file=file, line=number, key=name, code=error.code, fate=error.fate
    )


def flow_setup(
    config: FlowConfig,
    adopts: OffsetStorage | None = None,
    neighbours: SiblingFlows | None = None,
) -> FlowSetup:
    """Return the set-up of one flow. Each client's settings are resolved as in MirrorMaker 2."""
    name, flow = str(config.flow), config.flow
    return FlowSetup(
        neighbours=neighbours or SiblingFlows(),
        config=config,
        policy=policy_of(config),
        source=cluster_settings(flow.source, config.clients.source_admin, name),
        target=cluster_settings(flow.target, config.clients.target_admin, name),
        lane_source=cluster_settings(flow.source, config.clients.source_consumer, name),
        lane_target=cluster_settings(flow.target, config.clients.target_producer, name),
        adopts=adopts,
    )


def admins_of(flows: Iterable[FlowConfig]) -> dict[str, ClusterSettings]:
    """Return the admin client's settings for each cluster of these flows."""
    admins: dict[str, ClusterSettings] = {}
    for config in flows:
        name, flow = str(config.flow), config.flow
        for alias, admin in (
            (flow.source, config.clients.source_admin),
            (flow.target, config.clients.target_admin),
        ):
            if alias not in admins:
                admins[alias] = cluster_settings(alias, admin, name)
    return admins


def neighbours_of(flows: Sequence[FlowConfig]) -> SiblingFlows:
    """Return all flows of a process, so that each flow can be compared with the others."""
    return SiblingFlows(flows, admins_of(flows))


def lanes_of(flow: FlowConfig, cores: int, override: int | None, partitions: int) -> int:
    """Return the flow's number of lanes: min(tasks.max if set, partitions, cores), at least 1. The
    option `--lanes` (`override`) replaces this, up to the number of partitions.
    """
    if override is not None:
        return max(1, min(override, partitions))
    return max(1, min(partitions, cores, flow.lanes.tasks_max or cores))


def lane_bytes(flow: FlowConfig) -> int:
    """Return the memory in bytes of one lane and of its idle successor."""
    return LANE_BYTES + int(BUFFERS * flow.lanes.memory_bytes)


def transforms_bytes(flow: FlowConfig) -> int:
    """Return the bytes of memory of the application of a flow's transforms, or 0 without any."""
    return flow.transforms.memory_bytes if flow.transforms.entries else 0


def lanes_in_memory(flows: Sequence[FlowConfig], limit: int | None) -> int:
    """Return how many lanes each flow can have within a cgroup's memory limit, at least 1."""
    if limit is None or not flows:
        return MANY
    free = limit - PROCESS_BYTES - sum(map(transforms_bytes, flows))
    return max(1, free // sum(map(lane_bytes, flows)))
