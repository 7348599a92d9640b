"""Builds a MirrorConfig from a file and the environment.

Checks run in this order: the file, its variables, `clusters`, keys of flows and own keys, enabled
flows, and then the values of these flows. A pass stops at the first error, and the file is read
again without the invalid setting. Suspicious settings become warnings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from twinlog.config.advice.audit import (
    audit_keys,
    audit_names,
    audit_patterns,
    audit_secrets,
    audit_security,
    audit_switches,
    audit_values,
    check_flow_keys,
    check_own_keys,
)
from twinlog.config.advice.transforms import audit_transforms
from twinlog.config.config_file import read_files, read_raw
from twinlog.config.files.overrides import Override, with_overrides
from twinlog.config.files.providers import provider_key, resolve_providers
from twinlog.config.files.raw import RawConfig
from twinlog.config.flow.flows import read_flow, with_lone_heartbeats
from twinlog.config.flow.precedence import (
    candidate_flows,
    cluster_settings,
    enabled_or_why_not,
    prefixes,
)
from twinlog.config.flow.schema import ClusterConfig, FlowConfig, MirrorConfig
from twinlog.config.flow.tuning import request_timeout_ms
from twinlog.config.keys.client_keys import BOOTSTRAP_SERVERS, SECURITY_PROTOCOL, SECURITY_PROTOCOLS
from twinlog.config.rest import OPEN, audit_listeners, http_listener, rest_config
from twinlog.config.series import ALL_SERIES, series_config
from twinlog.config.values.nearest import nearest, suggestion
from twinlog.config.values.origin import ClientProperties, Setting, Settings, refuse, shown_key
from twinlog.config.values.types import parse_boolean, to_choice, to_list, to_servers, trimmed
from twinlog.config.values.warnings import ConfigWarning, WarningCode, warning
from twinlog.errors import ConfigError
from twinlog.model import Flow

_CLUSTERS = "clusters"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf".decode("iso-8859-1")


def load(
    path: Path | str,
    clusters: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    overrides: Sequence[Override] = (),
    secrets: Path | None = None,
) -> MirrorConfig:
    """Read a configuration file. `overrides` are settings of the command line.

    `clusters` limits the process to flows into these clusters (MirrorMaker 2's --clusters); each
    entry may have several aliases separated by commas. `secrets` is the folder of a Strimzi
    resource's secrets.
    """
    return load_raw(read_raw(Path(path), secrets), clusters, environment, overrides)


def load_raw(
    text: RawConfig,
    clusters: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    overrides: Sequence[Override] = (),
) -> MirrorConfig:
    """Build a configuration from settings of any format. Raises a ConfigError with all errors."""
    known = os.environ if environment is None else environment
    merged = with_overrides(text.settings, overrides)
    try:
        names: tuple[str, ...] | None = _aliases(merged, text.file)
    except ConfigError:
        names = None
    try:
        config = with_all_errors(
            merged, lambda settings: _load(settings, text, clusters, known), names, text.errors
        )
    except ConfigError as error:
        if text.names is None:
            raise
        raise text.names.error(error) from None
    if text.names is None:
        return config
    return replace(config, warnings=tuple(map(text.names.warning, config.warnings)))


def _load(
    settings: Settings, text: RawConfig, clusters: Sequence[str], environment: Mapping[str, str]
) -> MirrorConfig:
    raw = resolve_providers(settings, environment)
    aliases = _aliases(raw, text.file)
    check_flow_keys(raw)
    check_own_keys(raw, aliases)
    nearby = _nearby(clusters, aliases)
    switched_on = [
        flow
        for flow in candidate_flows(aliases)
        if (not nearby or flow.target in nearby) and enabled_or_why_not(raw, flow)[0]
    ]
    off = list(audit_switches(raw, candidate_flows(aliases)))
    lines_off = {one.line for one in off}
    if not switched_on:
        raise _no_flow_error(text.file, aliases, nearby, [*off, *_unnamed_warnings(raw, aliases)])
    own = tuple(_flow(raw, flow, text.file) for flow in switched_on)
    flows = with_lone_heartbeats(raw, own, aliases, nearby)
    others = [flow for flow in candidate_flows(aliases) if nearby and flow.target not in nearby]
    elsewhere, unread = _flows_of_other_processes(raw, others, text.file)
    used = {alias for flow in switched_on for alias in (flow.source, flow.target)}
    return MirrorConfig(
        file=text.file,
        more_files=text.more_files,
        clusters=tuple(_cluster(raw, alias) for alias in aliases),
        flows=flows,
        elsewhere=elsewhere,
        http_listener=http_listener(raw),
        rest=rest_config(raw),
        series=series_config(raw),
        lines=tuple(raw.values()),
        warnings=(
            *text.warnings,
            *off,
            *(one for one in audit_values(raw) if one.line not in lines_off),
            *audit_keys(raw, aliases),
            *unread,
            *audit_patterns(flows),
            *audit_names(flows),
            *audit_transforms(flows),
            *audit_security(flows),
            *audit_secrets(raw),
            *audit_listeners(raw),
            *_unreachable(raw, [alias for alias in aliases if alias not in used], text.file),
        ),
    )


def _unnamed_warnings(raw: Settings, aliases: Collection[str]) -> Iterator[ConfigWarning]:
    """Yield warnings about lines that misspell `enabled`, or that enable a flow of a cluster which
    is missing in `clusters`.
    """
    misspelt = tuple(f" {flow}.enabled?" for flow in candidate_flows(aliases))
    for unnamed in audit_keys(raw, aliases):
        if unnamed.message.endswith(misspelt):
            yield unnamed
        setting = raw.get(unnamed.key)
        is_of_flow = "->" in unnamed.key and unnamed.key.endswith(".enabled")
        if (
            unnamed.code is WarningCode.DEAD_KEY
            and is_of_flow
            and setting
            and parse_boolean(trimmed(setting.value))
        ):
            yield unnamed


def _aliases(raw: Settings, file: str) -> tuple[str, ...]:
    setting = raw.get(_CLUSTERS)
    if setting is None:
        raise _no_clusters_error(raw, file)
    aliases = tuple(dict.fromkeys(alias for alias in to_list(setting) if alias))
    if not aliases:
        raise refuse(setting, "has no cluster", f"write {_CLUSTERS} = A, B")
    for alias in aliases:
        if ";" in alias or len(alias.split()) > 1:
            raise refuse(setting, f'"{alias}" is not an alias', "separate aliases by commas")
    return aliases


def _no_clusters_error(raw: Settings, file: str) -> ConfigError:
    near = nearest(_CLUSTERS, [key for key in raw if "." not in key])
    if near is not None and near.startswith(_BYTE_ORDER_MARK):
        return refuse(raw[near], "a byte order mark is before the key", "save the file without it")
    if near is not None:
        return refuse(raw[near], "no such key", f"did you mean {_CLUSTERS}?")
    return ConfigError(f"missing; set the clusters: {_CLUSTERS} = A, B", file=file, key=_CLUSTERS)


def _nearby(clusters: Sequence[str], aliases: Collection[str]) -> frozenset[str]:
    asked = [alias.strip() for wanted in clusters for alias in wanted.split(",") if alias.strip()]
    for alias in asked:
        if alias not in aliases:
            hint = f"{suggestion(alias, aliases)} it has {', '.join(aliases)}".lstrip()
            raise ConfigError(f"{alias} is not a cluster of the file; {hint}", key="--clusters")
    return frozenset(asked)


def _no_flow_error(
    file: str, aliases: Sequence[str], nearby: Collection[str], off: Sequence[ConfigWarning]
) -> ConfigError:
    if off:
        # a line that was meant to enable a flow explains more than the absence of flows
        first = off[0]
        return ConfigError(
            f"{first.message} (No source->target replication flows)",
            file=file,
            line=first.line,
            key=first.key,
        )
    where = f" into {', '.join(sorted(nearby))}" if nearby else ""
    pairs = [flow for flow in candidate_flows(aliases) if not nearby or flow.target in nearby]
    todo = f"add: {pairs[0]}.enabled = true" if pairs else "set two clusters in `clusters`"
    return ConfigError(f"No source->target replication flows{where}; {todo}", file=file)


def _flows_of_other_processes(
    raw: Settings, flows: Sequence[Flow], file: str
) -> tuple[tuple[FlowConfig, ...], list[ConfigWarning]]:
    """Return the enabled flows that other processes run, and warnings. Errors in these flows become
    warnings.
    """
    kept, unread = [], []
    for flow in flows:
        try:
            if enabled_or_why_not(raw, flow)[0]:
                kept.append(_flow(raw, flow, file))
        except ConfigError as error:
            message = f"{flow} runs in other processes, and is not shown by this one: {error}"
            line = Setting(key=error.key or "", value="", file=file, line=error.line)
            unread.append(warning(WarningCode.NOT_SHOWN, line, message))
    return tuple(kept), unread


def _flow(raw: Settings, flow: Flow, file: str) -> FlowConfig:
    config = read_flow(raw, flow)
    for client in config.clients.of_source():
        _check_connection(client, flow.source, flow, file)
    for client in config.clients.of_target():
        _check_connection(client, flow.target, flow, file)
    return config


def _check_connection(client: ClientProperties, alias: str, flow: Flow, file: str) -> None:
    if BOOTSTRAP_SERVERS not in client:
        raise ConfigError(
            f"missing, and {flow} needs it; add: {alias}.{BOOTSTRAP_SERVERS} = host:9092",
            file=file,
            key=f"{alias}.{BOOTSTRAP_SERVERS}",
        )
    to_servers(client.origin(BOOTSTRAP_SERVERS))
    request_timeout_ms(client, 0)
    if SECURITY_PROTOCOL in client:
        to_choice(client.origin(SECURITY_PROTOCOL), SECURITY_PROTOCOLS, any_case=True)


def _cluster(raw: Settings, alias: str) -> ClusterConfig:
    settings = cluster_settings(raw, alias)
    bootstrap = settings.get(BOOTSTRAP_SERVERS)
    return ClusterConfig(
        alias=alias,
        servers=to_servers(bootstrap) if bootstrap else (),
        settings=settings,
    )


def _unreachable(raw: Settings, aliases: Collection[str], file: str) -> Iterator[ConfigWarning]:
    for alias in aliases:
        if BOOTSTRAP_SERVERS not in cluster_settings(raw, alias):
            missing = Setting(key=f"{alias}.{BOOTSTRAP_SERVERS}", value="", file=file)
            yield warning(WarningCode.NO_BOOTSTRAP, missing, "missing; no enabled flow needs it")


# Finds all errors of a file by reading it again without the invalid settings.
# An invalid setting is removed or replaced by a valid placeholder, and the settings are read again.
# So a check can stop at the first error, and the user still gets all errors together. Errors that
# may be consequences of a removed setting, or of a missing one, are not reported.

MOST_ERRORS: Final = 100
"""Maximum number of errors that are reported for one file. Each error needs another pass."""

_STANDS_IN: Final = {BOOTSTRAP_SERVERS: "stands-in:9092", "enabled": "true"}
"""Valid values that replace invalid settings which the rest of the file needs."""


def with_all_errors(
    settings: Settings,
    read: Callable[[Settings], MirrorConfig],
    aliases: tuple[str, ...] | None,
    errors: Sequence[ConfigError] = (),
) -> MirrorConfig:
    """Return the result of `read` for the settings.

    Raises a ConfigError with all errors, including `errors`, sorted by line. Reading stops at the
    first error if `aliases` is None, which means that `clusters` is invalid. Reading also stops at
    an error in a config provider, because the provider's values are then unknown.
    """
    every_error: list[ConfigError] = [*errors]
    left_out: set[str] = set()
    warnings: tuple[ConfigWarning, ...] = ()
    while len(every_error) < MOST_ERRORS:
        try:
            config = read(settings)
        except ConfigError as error:
            if not every_error or not _may_follow(error, left_out, aliases or ()):
                every_error.append(error)
            is_the_last = aliases is None or provider_key(error.key or "")
            without = None if is_the_last else _without_invalid(settings, error)
            if without is None:
                break
            left_out.add(error.key or "")
            settings = without
        else:
            if not every_error:
                return config
            warnings = config.warnings
            break
    first, *more = sorted(every_error, key=_location)
    first.more = tuple(more)
    first.warnings = warnings
    raise first


def _without_invalid(settings: Settings, error: ConfigError) -> Settings | None:
    """Return the settings without the invalid one, or None if no setting caused the error."""
    key = error.key or ""
    stand_in = next((v for end, v in _STANDS_IN.items() if f".{key}".endswith(f".{end}")), None)
    changed = dict(settings)
    names = [
        name
        for name, setting in settings.items()
        if (shown_key(setting.key), setting.file, setting.line) == (key, error.file, error.line)
    ]
    for name in names:
        if stand_in is None or changed[name].value == stand_in:
            del changed[name]
        else:
            changed[name] = replace(changed[name], value=stand_in)
    if not names:
        if stand_in is None or error.file is None or key in changed:
            return None
        changed[key] = Setting(key=key, value=stand_in, file=error.file)
    return Settings(changed)


def _may_follow(error: ConfigError, left_out: set[str], aliases: tuple[str, ...]) -> bool:
    """Return True if the error may be a consequence of a removed setting. An error without a key
    may be a consequence of any removed setting.
    """
    if error.key is None or error.key in left_out:
        return True
    bare = {key.removeprefix(prefixes(key, aliases)[0]) for key in left_out}
    if error.missing_key.endswith("."):  # the error is about missing keys with this prefix
        return any(key.startswith(error.missing_key) for key in bare)
    return bool(error.missing_key) and error.missing_key in bare


def _location(error: ConfigError) -> tuple[str, float]:
    """Return a sort key: the file, then the line. Errors without a line come last."""
    return (error.file or "", float("inf") if error.line is None else error.line)


# Several configuration files in one process. Each file is read separately: `topics` of the first
# file does not affect flows of the second. So each file runs as it would in its own process. Only
# the connectors of one flow on Kafka Connect, which have a file each, are read together. A flow
# that is enabled in two files, and an alias of two different clusters, are rejected.

T = TypeVar("T")


def load_all(
    paths: Sequence[Path],
    clusters: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    overrides: Sequence[Override] = (),
    secrets: Path | None = None,
) -> MirrorConfig:
    """Return one configuration of all files. All other arguments apply to each file."""
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
        rest=_shared_value(configs, "twinlog.rest.*", lambda config: config.rest, OPEN),
        series=_shared_value(
            configs, "twinlog.metrics.*", lambda config: config.series, ALL_SERIES
        ),
        lines=tuple(line for config in configs for line in config.lines),
        warnings=tuple(warning for config in configs for warning in config.warnings),
    )


def _shared_value(
    configs: Sequence[MirrorConfig], keys: str, value_of: Callable[[MirrorConfig], T], default: T
) -> T:
    """Return the value of a setting, or `default` if no file sets it. Raises ConfigError if files
    set different values.
    """
    setters = [config for config in configs if value_of(config) != default]
    for config in setters[1:]:
        if value_of(config) != value_of(setters[0]):
            raise ConfigError(
                f"differs from {setters[0].file}, but a process has one listener; write the "
                "same in both files, or in only one",
                file=config.file,
                key=keys,
            )
    return value_of(setters[0]) if setters else default


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
